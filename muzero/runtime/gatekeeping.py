"""Gatekeeping: newer weights become those of self-play only if they win a match against those in use.

AlphaGo Zero (Silver et al., Nature 550, 2017, Methods, "Evaluator"): 400 games, and the candidate has to win more than 55 %.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from muzero.config.environments import OpenSpielConfig
from muzero.evaluation.arena import GameRecord, MatchResult, draw_setups, play_games
from muzero.runtime.build import Builder, Role, role_seed
from muzero.runtime.players import agent_player

_MAX_ROWS = 256


class Versioned(NamedTuple):
    """Weights and the learner step that made them."""

    version: int
    weights: dict[str, Tensor]


class Verdict(NamedTuple):
    """What a match came to."""

    score: float
    """Of the candidate: games won, and half of those drawn, as a share in [0, 1] of the games that differ."""
    is_accepted: bool
    """Whether the score reached `gatekeeping.threshold`."""
    num_games: int
    """Games that differ, at least one."""


class Gatekeeper:
    """Plays candidates against the weights that self-play uses, and counts how often they pass.

    A match depends on the run's seed and the candidate's version alone: openings are other ones each time, each played once in
    each seat, and both sides play without noise.

    Example:
        >>> verdict = gatekeeper.judge(Versioned(2000, newest), Versioned(1000, in_use))
        >>> verdict.is_accepted, verdict.score

    Raises:
        ValueError: If the game is none of OpenSpiel's for two players.
    """

    def __init__(self, builder: Builder) -> None:
        config = builder.config
        self._config, self._run = config.gatekeeping, config
        if not isinstance(config.env, OpenSpielConfig) or builder.spec.num_players != 2:
            raise ValueError(
                f"gatekeeping.interval={self._config.interval} needs a game of OpenSpiel for two players, and the run plays "
                f"{builder.spec.name}; set it to 0"
            )
        from muzero.envs.open_spiel import load_game  # other games need no OpenSpiel

        self._game = load_game(config.env)
        simulations = self._config.num_simulations
        if simulations is None:
            simulations = config.search.num_simulations
        rows = min(self._config.games, _MAX_ROWS)
        self._agents = [builder.agent(rows, simulations) for _ in range(2)]
        self._players = [agent_player(builder, agent) for agent in self._agents]
        self.accepted = self.rejected = 0
        """Candidates so far."""

    def judge(self, candidate: Versioned, in_use: Versioned) -> Verdict:
        """Play a match and count its outcome."""
        for agent, side in zip(self._agents, (candidate, in_use), strict=True):
            agent.model.load(side.weights, side.version)
        result = MatchResult(self._play(candidate.version))
        games = result.distinct()
        points = sum(1.0 if game.score > 0 else 0.5 if game.score == 0 else 0.0 for game in games)
        score = points / len(games)
        is_accepted = score >= self._config.threshold
        self.accepted += is_accepted
        self.rejected += not is_accepted
        return Verdict(score, is_accepted, len(games))

    def report(self, version_in_use: int) -> dict[str, float]:
        """Counters, under the names of the metrics reference."""
        return {
            "gatekeeping/accepted": self.accepted,
            "gatekeeping/rejected": self.rejected,
            "gatekeeping/version": version_in_use,
        }

    def state(self) -> dict[str, int]:
        """JSON that `restore` continues from; the accepted weights are those in use, which the run saves itself."""
        return {"accepted": self.accepted, "rejected": self.rejected}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.accepted, self.rejected = state["accepted"], state["rejected"]

    def _play(self, branch: int) -> list[GameRecord]:
        seed = role_seed(self._run, Role.GATEKEEPING, branch).generate_state(1)[0]
        setups = draw_setups(
            self._game,
            games=self._config.games,
            max_opening_moves=self._config.max_opening_moves,
            seed=int(seed),
        )
        challenger, holder = self._players
        limit = self._run.evaluation.max_episode_steps
        return play_games(challenger, holder, self._game, setups, max_moves=limit)
