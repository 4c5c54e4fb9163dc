"""A run's checkpoints against each other and against fixed players, rated together."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from muzero.checkpoint import CheckpointError, CheckpointManager
from muzero.config.environments import OpenSpielConfig
from muzero.config.schema import Config
from muzero.envs.open_spiel import load_game
from muzero.evaluation.arena import MatchResult, draw_setups, play_games, slug, write_records
from muzero.evaluation.evaluator import make_opponent
from muzero.evaluation.ladder import Entrant, Ladder, make_schedule
from muzero.evaluation.players import AgentPlayer, Player
from muzero.runtime.build import Builder, Role, role_seed
from muzero.runtime.players import acting_weights, agent_player, load_player

logger = logging.getLogger(__name__)

_MAX_ROWS = 256
_LADDER_BRANCH = 2**31  # of the evaluation's seed; training and `seeds=...` take others

Report = Callable[[int, int, str], None]


def play_ladder(
    config: Config,
    run_dir: Path,
    *,
    max_checkpoints: int,
    players: Sequence[str],
    anchor: str,
    games: int,
    folder: Path,
    on_progress: Report | None = None,
) -> Ladder:
    """Play all pairs of `make_schedule` and count the games that differ.

    Each pair of players meets in `games` games: openings as in evaluation (`evaluation.max_opening_moves`), each played
    once in each seat, other openings for every pair.

    Args:
        config: The run's; `evaluation` says how its checkpoints play.
        run_dir: Its folder.
        max_checkpoints: At most so many, spread evenly over the steps, the oldest and the newest among them.
        players: Fixed players, as in `evaluation.opponents`.
        anchor: Who has the rating 0: one of `players`, or a checkpoint by its name, such as `step 2000`.
        games: Per pair.
        folder: Where the games are written, a file for each pair.
        on_progress: Called with pairs done, pairs in all, and the pair that is next.

    Raises:
        ValueError: It is no OpenSpiel game of two players, there is no sound checkpoint or no such player, or fewer than two
            take part.
    """
    builder = Builder.of(config)
    if not isinstance(config.env, OpenSpielConfig) or builder.spec.num_players != 2:
        raise ValueError(
            f"a ladder needs a game of OpenSpiel for two players, and the run plays {builder.spec.name}"
        )
    game = load_game(config.env)
    fixed: dict[str, Player] = {name: make_opponent(name, game, load_player) for name in players}
    checkpoints = _load_checkpoints(run_dir, max_checkpoints)
    entrants = [Entrant(f"step {step}", step) for step in checkpoints]
    entrants += [Entrant(name) for name in players]
    if len(entrants) < 2:
        raise ValueError(f"{run_dir} has one checkpoint, and players=[] is empty: nobody to play")
    ladder = Ladder(entrants, anchor)
    seats = [_Seat(builder, checkpoints) for _ in range(2)]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("games_*.jsonl"):
        old.unlink()  # of an earlier ladder, perhaps of other players
    schedule = make_schedule(entrants)
    for number, (first, second) in enumerate(schedule):
        names = entrants[first].name, entrants[second].name
        if on_progress is not None:
            on_progress(number, len(schedule), " - ".join(names))
        sides = [
            fixed[entrant.name] if entrant.learner_step is None else seat.take(entrant.learner_step)
            for seat, entrant in zip(seats, (entrants[first], entrants[second]), strict=True)
        ]
        setups = draw_setups(
            game,
            games=games,
            max_opening_moves=config.evaluation.max_opening_moves,
            seed=_seed(config, number),
        )
        limit = config.evaluation.max_episode_steps
        result = MatchResult(play_games(sides[0], sides[1], game, setups, max_moves=limit))
        write_records(folder / f"games_{slug(names[0])}_{slug(names[1])}.jsonl", result.records)
        ladder.add(first, second, result.distinct())
    if on_progress is not None:
        on_progress(len(schedule), len(schedule), "")
    return ladder


class _Seat:
    """One side of a match, that plays as any of the checkpoints."""

    def __init__(
        self, builder: Builder, checkpoints: dict[int, tuple[dict[str, Tensor], int]]
    ) -> None:
        self._checkpoints, self._agent = checkpoints, builder.agent(_MAX_ROWS)
        self._player = agent_player(builder, self._agent)
        self._step: int | None = None

    def take(self, step: int) -> AgentPlayer:
        if step != self._step:
            self._agent.model.load(*self._checkpoints[step])
            self._step = step
        return self._player


def spread(steps: Sequence[int], count: int) -> list[int]:
    """At most `count` of the steps, evenly spread by their places, the last one always among them."""
    if count >= len(steps):
        return list(steps)
    if count == 1:
        return [steps[-1]]
    places = np.linspace(0, len(steps) - 1, count).round().astype(int)
    return [steps[place] for place in places.tolist()]


def _load_checkpoints(run_dir: Path, count: int) -> dict[int, tuple[dict[str, Tensor], int]]:
    """Step -> weights and version; damaged ones are named in the log and left out."""
    manager = CheckpointManager(run_dir / "checkpoints", owner=False)
    weights: dict[int, tuple[dict[str, Tensor], int]] = {}
    for step in spread(manager.steps(), count):
        try:
            weights[step] = acting_weights(manager.load(step))
        except CheckpointError as error:
            logger.warning("Left out a damaged checkpoint: %s", error)
    if not weights:
        raise ValueError(f"{run_dir} has no checkpoint that can be used")
    return weights


def _seed(config: Config, pair: int) -> int:
    sequence = role_seed(config, Role.EVALUATION, _LADDER_BRANCH, pair)
    return int(sequence.generate_state(1)[0])
