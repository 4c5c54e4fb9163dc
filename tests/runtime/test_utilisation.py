"""How busy the roles and the network are is counted and logged (peers, rows 80 and 84)."""

from pathlib import Path

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.inference.evaluators import Evaluator
from muzero.metrics import read_rows
from muzero.runtime.build import Builder
from muzero.runtime.gathering import LocalGatherer, ProcessGatherer, Work
from muzero.runtime.local import LocalRuntime
from muzero.selfplay import SelfPlay

NUM_GAMES, NUM_SIMULATIONS = 12, 8
BOARD = (
    "experiment=tictactoe",
    "debug=smoke",
    f"selfplay.num_games={NUM_GAMES}",
    f"search.num_simulations={NUM_SIMULATIONS}",
    "selfplay.opening_fraction=0",
)


class CountedEvaluator:
    """Notes the rows of every call of the network itself."""

    def __init__(self, evaluator: Evaluator, rows: list[int]) -> None:
        self._evaluator, self._calls = evaluator, rows

    def initial(self, observation, memory, rows):
        self._calls.append(len(observation))
        return self._evaluator.initial(observation, memory, rows)

    def recurrent(self, memory, rows):
        self._calls.append(len(rows.target))
        return self._evaluator.recurrent(memory, rows)

    def __getattr__(self, name):
        return getattr(self._evaluator, name)


def watched(*overrides: str) -> tuple[SelfPlay, list[int]]:
    selfplay = Builder.of(compose([*BOARD, *overrides])).selfplay()
    rows: list[int] = []
    models = getattr(selfplay.model, "halves", (selfplay.model,))
    for model in models:
        network = getattr(model, "network", model)
        network._evaluator = CountedEvaluator(network._evaluator, rows)
    return selfplay, rows


def test_leaves_of_all_roots_are_evaluated_in_one_call():
    selfplay, rows = watched("search=puct")
    selfplay.play(0)
    assert rows == [NUM_GAMES] * (1 + NUM_SIMULATIONS)
    assert selfplay.report()["selfplay/rows_per_network_call"] == NUM_GAMES


@pytest.mark.parametrize(
    "overrides",
    [
        ("search=gumbel",),
        ("search=puct", "selfplay.full_search_fraction=0.5", "selfplay.fast_simulations=2"),
        ("search=puct", "selfplay.reuse_subtree=true"),
        ("search=puct", "selfplay.opening_fraction=1", "selfplay.max_opening_moves=3"),
        ("search=gumbel", "search.pipelined=true"),
        ("search=gumbel", "search.pipelined=true", "selfplay.num_games=2"),
        ("search=puct", "search.dynamics=rules", "selfplay.num_games=3"),
    ],
    ids=str,
)
def test_the_mean_batch_is_that_of_the_networks_own_calls(overrides):
    selfplay, rows = watched(*overrides)
    for move in range(6):
        selfplay.play(move)
    reported = selfplay.report()["selfplay/rows_per_network_call"]
    assert reported == pytest.approx(np.mean(rows))
    assert 1 <= reported <= NUM_GAMES
    rows.clear()
    selfplay.play(6)
    assert selfplay.report()["selfplay/rows_per_network_call"] == pytest.approx(np.mean(rows))


def test_games_in_lock_step_make_as_many_calls_as_one_game():
    calls = []
    for num_games in (1, 64):
        selfplay, rows = watched("search=puct", f"selfplay.num_games={num_games}")
        for move in range(3):
            selfplay.play(move)
        calls.append(len(rows))
    assert calls[0] == calls[1] == 3 * (1 + NUM_SIMULATIONS)


def train(run_dir: Path, *overrides: str) -> list[dict]:
    config = compose(
        [
            "experiment=tictactoe",
            "debug=smoke",
            "logger.progress=none",
            "logger.tensorboard=false",
            "learner.num_steps=60",
            "runtime.log_interval=10",
            "evaluation.interval=30",
            "evaluation.games=4",
            *overrides,
        ],
        run_dir=str(run_dir),
    )
    LocalRuntime(config, run_dir).train()
    return read_rows(run_dir / "metrics.jsonl")


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "in turn"])
def test_every_row_says_how_busy_self_play_learner_and_evaluation_were(tmp_path, overlap):
    """Row 84."""
    rows = train(tmp_path, f"runtime.overlap={overlap}")
    assert len(rows) >= 5
    shares = ("time/learner_fraction", "selfplay/busy_time_fraction", "time/selfplay_fraction")
    for row in rows:
        if overlap and "evaluation/learner_step" in row:  # it may come a moment after another
            continue
        for share in shares:
            assert 0.0 < row[share] <= 1.0, share
        assert row["selfplay/rows_per_network_call"] > 1
        parts = [
            value for name, value in row.items() if name.startswith("time/") and "fraction" in name
        ]
        assert sum(parts) <= 1.0 + 1e-9
    evaluated = [
        row
        for row in rows
        if any(name.endswith("/win_rate") for name in row if name.startswith("evaluation/"))
    ]
    assert len(evaluated) == 2
    assert 0.0 < evaluated[-1]["time/evaluation_fraction"] < 1.0  # the last one is waited for
    if overlap:
        return
    assert 0.0 < evaluated[0]["time/evaluation_fraction"] < 1.0
    # A share once measured is reported from then on: beside training next to nothing, and in turn none where there was none.
    after = rows[rows.index(evaluated[0]) + 1]
    assert after["time/evaluation_fraction"] < 0.01


def test_the_busy_share_is_of_work_alone_wherever_it_is_done():
    config = compose([*BOARD])
    for make in (lambda: LocalGatherer(Builder.of(config)), lambda: ProcessGatherer(config)):
        gatherer = make()
        try:
            gatherer.report()
            assert gatherer.report()["selfplay/busy_time_fraction"] == 0.0
            gatherer.begin(Work(0, 0, None, None))
            gatherer.finish()
            assert 0.0 < gatherer.report()["selfplay/busy_time_fraction"] <= 1.0
        finally:
            gatherer.close()
