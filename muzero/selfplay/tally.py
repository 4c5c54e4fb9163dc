"""What self-play counts: totals of the run, and means since the last report."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muzero.selfplay.searching import Decision


@dataclass(slots=True)
class Totals:
    """What self-play has done since the start of the run."""

    games: int = 0
    env_steps: int = 0
    opening_steps: int = 0
    simulations: int = 0


class Tally:
    """Sums between two reports."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)

    def note_searches(self, decision: Decision) -> None:
        """Count the searches of one move."""
        sums, policy = self._sums, decision.policy
        sums["searches"] += len(policy)
        sums["full_searches"] += int(decision.has_policy.sum())
        sums["simulations"] += int(decision.num_simulations.sum())
        sums["policy_entropy"] -= float((policy * np.log(np.maximum(policy, 1e-30))).sum())
        sums["root_value"] += float(decision.root_value.sum())
        sums["search_depth"] += float(decision.depth.sum())

    def note_calls(self, calls: int, rows: int) -> None:
        """Count calls of the network, and the positions evaluated by them."""
        self._sums["calls"] += calls
        self._sums["rows"] += rows

    def note_games(self, lengths: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> None:
        """Count games that ended, by their lengths in moves and the scores of player 0."""
        sums = self._sums
        sums["games"] += len(lengths)
        sums["length"] += int(lengths.sum())
        sums["score"] += float(scores.sum())
        sums["wins"] += int((scores > 0).sum())
        sums["draws"] += int((scores == 0).sum())

    def report(self, num_players: int) -> dict[str, float]:
        """Means since the last report, under the names of the metrics reference."""
        sums, self._sums = self._sums, defaultdict(float)
        report: dict[str, float] = {}
        if searches := sums["searches"]:
            report["selfplay/root_value"] = sums["root_value"] / searches
            report["selfplay/search_depth"] = sums["search_depth"] / searches
            report["selfplay/simulations_per_move"] = sums["simulations"] / searches
            report["selfplay/full_search_fraction"] = sums["full_searches"] / searches
        if calls := sums["calls"]:
            report["selfplay/rows_per_network_call"] = sums["rows"] / calls
        if sums["full_searches"]:
            report["selfplay/policy_entropy"] = sums["policy_entropy"] / sums["full_searches"]
        if games := sums["games"]:
            report["selfplay/game_length"] = sums["length"] / games
            if num_players == 1:
                report["selfplay/score"] = sums["score"] / games
            else:
                report["selfplay/first_player_win_rate"] = sums["wins"] / games
                report["selfplay/draw_rate"] = sums["draws"] / games
        return report

    def state(self) -> dict[str, float]:
        """JSON that `restore` continues from."""
        return dict(self._sums)

    def restore(self, state: dict[str, float]) -> None:
        """Continue from `state`."""
        self._sums = defaultdict(float, state)
        if "full_searches" not in state:  # saved when every search was a full one
            self._sums["full_searches"] = self._sums["searches"]
