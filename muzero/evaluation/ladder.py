"""A ladder: a run's checkpoints and fixed players, rated together from the games of a sparse schedule.

Letters: `N` players.
"""

import csv
import importlib.util
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.evaluation.arena import GameRecord
from muzero.evaluation.elo import Ratings, fit
from muzero.evaluation.statistics import tally

_NEIGHBOURS = 2


@dataclass(frozen=True, slots=True)
class Entrant:
    """A player of a ladder."""

    name: str
    learner_step: int | None = None
    """Of a checkpoint; None for a fixed player."""


def make_schedule(entrants: Sequence[Entrant]) -> list[tuple[int, int]]:
    """Who meets whom, as pairs of indices into `entrants`, checkpoints being in the order of their steps.

    A checkpoint meets the next two; a fixed player meets the first, the middle and the last checkpoint, and all other fixed
    players. So the number of pairs grows with the number of checkpoints, not with its square, and all are linked.
    """
    checkpoints = [i for i, entrant in enumerate(entrants) if entrant.learner_step is not None]
    fixed = [i for i, entrant in enumerate(entrants) if entrant.learner_step is None]
    pairs = [
        (checkpoints[later], checkpoints[earlier])
        for later in range(len(checkpoints))
        for earlier in range(max(0, later - _NEIGHBOURS), later)
    ]
    chosen = sorted({0, (len(checkpoints) - 1) // 2, len(checkpoints) - 1}) if checkpoints else []
    pairs += [(checkpoints[place], player) for player in fixed for place in chosen]
    return pairs + list(itertools.combinations(fixed, 2))


@dataclass(frozen=True, slots=True)
class Standing:
    """How an entrant did."""

    entrant: Entrant
    elo: float
    interval: tuple[float, float]
    """95 % interval of `elo`, as seen from the anchor."""
    scores: tuple[float, ...]
    """Of its distinct games: above 0 won, below 0 lost."""

    def to_json(self) -> dict[str, Any]:
        """As JSON types, with the 95 % Wilson intervals of the shares of games won, drawn and lost."""
        return {
            "player": self.entrant.name,
            "learner_step": self.entrant.learner_step,
            "elo": self.elo,
            "elo_interval": list(self.interval),
            **tally(self.scores),
        }


class Ladder:
    """Collects the games of the scheduled pairs and rates the entrants.

    Args:
        entrants: In the order in which the schedule and the table have them.
        anchor: Name of the entrant whose rating is 0.

    Raises:
        ValueError: Two entrants go by one name, or there is no such anchor.
    """

    def __init__(self, entrants: Sequence[Entrant], anchor: str) -> None:
        self.entrants, self.anchor = list(entrants), anchor
        self.names = [entrant.name for entrant in entrants]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"players {', '.join(self.names)}: one comes twice")
        if anchor not in self.names:
            raise ValueError(f"anchor={anchor!r} is none of the players {', '.join(self.names)}")
        self._points = np.zeros((len(self.names), len(self.names)))
        self._scores: list[list[float]] = [[] for _ in self.names]

    def add(self, first: int, second: int, records: Sequence[GameRecord]) -> None:
        """Count games in which `first` was the match's first player; duplicates are to be left out before."""
        for record in records:
            share = 0.5 + 0.5 * float(np.sign(record.score))
            self._points[first, second] += share
            self._points[second, first] += 1.0 - share
            self._scores[first].append(record.score)
            self._scores[second].append(-record.score)

    def ratings(self) -> Ratings:
        """See `elo.fit`; raises ValueError as long as games do not link all entrants."""
        return fit(self.names, self._points, anchor=self.anchor)

    def standings(self) -> list[Standing]:
        """All entrants with their ratings, in their own order."""
        ratings = self.ratings()
        return [
            Standing(entrant, float(elo), (float(low), float(high)), tuple(scores))
            for entrant, elo, (low, high), scores in zip(
                self.entrants, ratings.elo, ratings.intervals(), self._scores, strict=True
            )
        ]


def as_table(standings: Sequence[Standing]) -> str:
    """Lines of text, the strongest first."""
    width = max(len(standing.entrant.name) for standing in standings)
    lines = [f"{'player':<{width}}   elo  95 % interval  games   won  drawn  lost"]
    for standing in sorted(standings, key=lambda s: -s.elo):
        counts = tally(standing.scores)
        low, high = standing.interval
        lines.append(
            f"{standing.entrant.name:<{width}} {standing.elo:+5.0f}  [{low:+5.0f}, {high:+5.0f}] {counts['games']:6d} "
            f"{counts['wins']:5d} {counts['draws']:6d} {counts['losses']:5d}"
        )
    return "\n".join(lines)


def write_csv(path: Path, standings: Sequence[Standing]) -> None:
    """A row for every entrant; `learner_step` is empty for fixed players."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "player",
                "learner_step",
                "elo",
                "elo_low",
                "elo_high",
                "games",
                "wins",
                "draws",
                "losses",
            ]
        )
        for standing in standings:
            counts, step = tally(standing.scores), standing.entrant.learner_step
            writer.writerow(
                [
                    standing.entrant.name,
                    "" if step is None else step,
                    *(f"{value:.1f}" for value in (standing.elo, *standing.interval)),
                    *(counts[name] for name in ("games", "wins", "draws", "losses")),
                ]
            )


def can_draw() -> bool:
    """Whether matplotlib, of the extra `plots`, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_png(path: Path, standings: Sequence[Standing], title: str) -> None:
    """The checkpoints' ratings over their learner steps, with intervals; fixed players are levels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.subplots()
    trained = [s for s in standings if s.entrant.learner_step is not None]
    steps = [s.entrant.learner_step or 0 for s in trained]
    elo: npt.NDArray[np.float64] = np.array([s.elo for s in trained])
    margins = np.abs(np.array([s.interval for s in trained]).reshape(-1, 2).T - elo)
    axes.errorbar(steps, elo, yerr=margins, marker="o", capsize=3, label="checkpoints")
    for number, standing in enumerate(s for s in standings if s.entrant.learner_step is None):
        colour = f"C{number + 1}"
        axes.axhline(standing.elo, color=colour, linestyle="--", label=standing.entrant.name)
        axes.axhspan(*standing.interval, color=colour, alpha=0.12, linewidth=0)
    axes.set(xlabel="learner step", ylabel="Elo (95 % intervals)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
