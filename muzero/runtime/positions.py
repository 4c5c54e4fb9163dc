"""A run's agent at connect four positions with exact scores, on all cores."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from muzero.config.environments import OpenSpielConfig
from muzero.config.schema import Config
from muzero.envs.open_spiel import load_game
from muzero.evaluation.connect_four import ConnectFourSolver, is_connect_four
from muzero.evaluation.positions import (
    FULL,
    Answers,
    Position,
    ScoreArray,
    label,
    read_positions,
    report,
)
from muzero.runtime.build import Builder, choose_device, configure_torch
from muzero.runtime.players import agent_player

_CHUNK = 100  # of fixed size, so that the answers do not hang on the number of processes

Weights = dict[str, npt.NDArray[Any]]
Judged = tuple[ScoreArray, Answers, Answers | None]


def evaluate_positions(
    config: Config,
    weights: Weights,
    version: int,
    files: Sequence[Path],
    *,
    num_simulations: int,
    processes: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Grades of the network alone and of the search at every file's positions: `{name: report}`, as JSON types.

    A file goes by its name without folders, unless two are called alike. All files are read before anything is searched.

    Args:
        num_simulations: Per position; 0 asks the network alone.
        processes: That label and search side by side; None takes one per usable core, or one in all on a GPU. They import the
            main module anew, which must stand that.
        on_progress: Called with positions done and positions in all.

    Raises:
        ValueError: The run does not play connect four, the extra `solver` is missing, or a file is not as `read_positions`
            and `label` want it.
    """
    if not isinstance(config.env, OpenSpielConfig) or not is_connect_four(load_game(config.env)):
        raise ValueError(
            f"positions: the files hold positions of connect four on 6 rows and 7 columns, and the run plays "
            f"{config.env.name}"
        )
    ConnectFourSolver("positions")  # tells at once if it is missing
    names = [path.name for path in files]
    if len(set(names)) < len(names):
        names = [str(path) for path in files]
    if len(set(names)) < len(names):
        raise ValueError(f"positions={names} names a file twice")
    by_file = [read_positions(path) for path in files]
    chunks = [
        positions[start : start + _CHUNK]
        for positions in by_file
        for start in range(0, len(positions), _CHUNK)
    ]
    if processes is None:
        processes = usable_cores() if choose_device(config.runtime.device).type == "cpu" else 1
    total, done = sum(map(len, by_file)), 0
    judged: list[Judged] = []
    with _judging(config, weights, version, num_simulations, min(processes, len(chunks))) as judge:
        for answers in judge(chunks):
            judged.append(answers)
            done += len(answers[0])
            if on_progress is not None:
                on_progress(done, total)
    reports, parts = {}, iter(judged)
    for name, positions in zip(names, by_file, strict=True):
        of_file = [next(parts) for _ in range(0, len(positions), _CHUNK)]
        scores = np.concatenate([scores for scores, _, _ in of_file])
        searched = [search for _, _, search in of_file if search is not None]
        network = _joined([network for _, network, _ in of_file])
        reports[name] = report(scores, network, _joined(searched) if searched else None)
    return reports


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _joined(parts: Sequence[Answers]) -> Answers:
    return Answers(
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


class _Judge:
    """Labels positions and asks an agent with and without its search; one for each process."""

    def __init__(
        self, config: Config, weights: Weights, version: int, num_simulations: int
    ) -> None:
        builder = Builder.of(config)
        state = {name: torch.from_numpy(array.copy()) for name, array in weights.items()}
        self._players = []
        for simulations in (0, num_simulations)[: 1 + (num_simulations > 0)]:
            agent = builder.agent(_CHUNK, simulations)
            agent.model.load(state, version)
            self._players.append((agent, agent_player(builder, agent)))
        assert isinstance(config.env, OpenSpielConfig)
        self._game, self._solver = load_game(config.env), ConnectFourSolver("positions")

    def __call__(self, positions: Sequence[Position]) -> Judged:
        scores = label(positions, self._solver)
        states = []
        for position in positions:
            state = self._game.new_initial_state()
            for column in position.columns:
                state.apply_action(column)
            states.append(state)
        answers = []
        for agent, player in self._players:
            judged = agent.judge(player.observations(states), scores > FULL, states)
            answers.append(Answers(*judged))
        return scores, answers[0], answers[1] if len(answers) > 1 else None


_judge: _Judge | None = None  # of a process of the pool


def _start(config: Config, weights: Weights, version: int, num_simulations: int) -> None:
    global _judge
    configure_torch(1)
    _judge = _Judge(config, weights, version, num_simulations)


def _run(positions: Sequence[Position]) -> Judged:
    assert _judge is not None
    return _judge(positions)


@contextmanager
def _judging(
    config: Config, weights: Weights, version: int, num_simulations: int, processes: int
) -> Iterator[Callable[[Iterable[Sequence[Position]]], Iterator[Judged]]]:
    """A function from chunks of positions to what is said of them, in order."""
    if processes <= 1:
        judge = _Judge(config, weights, version, num_simulations)
        yield lambda chunks: map(judge, chunks)
        return
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context(
            "spawn"
        ),  # torch has threads, which a fork would lose
        initializer=_start,
        initargs=(config, weights, version, num_simulations),
    )
    try:
        yield lambda chunks: pool.map(_run, chunks)
    finally:
        pool.shutdown(cancel_futures=True)
