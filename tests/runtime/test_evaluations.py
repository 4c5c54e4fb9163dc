"""A local run's evaluations: beside training they do not stop it, and none of what they find is lost."""

import os
import signal
from pathlib import Path

import pytest

from muzero.checkpoint import CheckpointManager
from muzero.config.compose import compose
from muzero.metrics import read_rows
from muzero.runtime import evaluations
from muzero.runtime.build import Builder
from muzero.runtime.child import ChildDied
from muzero.runtime.evaluation import RunEvaluator, as_metrics
from muzero.runtime.examining import Evaluated, EvaluationBeside, EvaluationInTurn, Task
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint
from muzero.weights import to_arrays

SMALL = (
    "experiment=tictactoe",
    "debug=smoke",
    "logger.progress=none",
    "logger.tensorboard=false",
    "evaluation.opponents=[random]",
    "evaluation.exhaustive=false",
    "evaluation.games=10",
    "runtime.log_interval=5",
    "runtime.checkpoints_kept=1",
)


def report(wins: int) -> dict:
    return {
        "opponent": "random",
        "games": 10,
        "games_played": 10,
        "wins": wins,
        "draws": 0,
        "losses": 10 - wins,
        "simulations_per_move": 2.0,
    }


class LateEvaluation:
    """Stands for a process beside training: an outcome comes at every twelfth look; the first task wins most."""

    def __init__(self, builder: Builder) -> None:
        self.tasks: list[Task] = []
        self.looks = 0
        self.begun: list[int] = []

    @property
    def due(self) -> list[int]:
        return [task.step for task in self.tasks]

    def prepare(self) -> None:
        pass

    def begin(self, task: Task) -> int | None:
        lost = self.tasks.pop(1).step if len(self.tasks) > 1 else None
        self.tasks.append(task)
        self.begun.append(task.step)
        return lost

    def take(self, *, waits: bool = False):
        self.looks += bool(self.tasks)
        if not self.tasks or not (waits or self.looks % 12 == 0):
            return None
        step = self.tasks.pop(0).step
        return step, Evaluated([report(9 if step <= 10 else 5)], None)

    def close(self) -> None:
        pass


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setattr(evaluations, "EvaluationInTurn", LateEvaluation)


def make(run_dir: Path, *overrides: str, resumes: bool = False) -> LocalRuntime:
    config = compose([*SMALL, *overrides], run_dir=str(run_dir))
    run_dir.mkdir(parents=True, exist_ok=True)
    return LocalRuntime(config, run_dir, open_checkpoint(run_dir) if resumes else None)


def outcomes(run_dir: Path) -> list[tuple[int, float]]:
    """Learner step and win rate of every row that has an evaluation."""
    return [
        (int(row["evaluation/learner_step"]), row["evaluation/random/win_rate"])
        for row in read_rows(run_dir / "metrics.jsonl")
        if "evaluation/learner_step" in row
    ]


def test_what_comes_late_is_told_with_its_own_step_and_can_still_be_the_best(tmp_path, late):
    """One checkpoint is kept, and newer ones come while the oldest is evaluated."""
    settings = ("runtime.overlap=false", "learner.num_steps=40", "evaluation.interval=10")
    runtime = make(tmp_path, *settings, "runtime.checkpoint_interval=2")
    runtime.train()
    assert outcomes(tmp_path) == [(10, 0.9), (20, 0.5), (30, 0.5), (40, 0.5)]
    row = next(
        row for row in read_rows(tmp_path / "metrics.jsonl") if "evaluation/learner_step" in row
    )
    assert row["learner_step"] == 21  # the twelfth look
    manager = CheckpointManager(tmp_path / "checkpoints", owner=False)
    assert manager.best_step == 10
    assert manager.steps() == [10, 40]


def test_while_one_goes_on_only_the_newest_waits(tmp_path, late, caplog):
    caplog.set_level("INFO")
    runtime = make(
        tmp_path, "runtime.overlap=false", "learner.num_steps=14", "evaluation.interval=2"
    )
    runtime.train()
    assert outcomes(tmp_path) == [(2, 0.9), (12, 0.5), (14, 0.5)]
    lost = [r.message for r in caplog.records if "evaluations take longer" in r.message]
    assert [int(text.split()[2]) for text in lost] == [4, 6, 8, 10]


def test_what_was_due_when_a_run_was_stopped_is_evaluated_by_the_resumed_one(tmp_path, late):
    settings = ("runtime.overlap=false", "learner.num_steps=30", "evaluation.interval=10")
    runtime = make(tmp_path, *settings)
    runtime.stop_after(14)
    runtime.train()
    assert outcomes(tmp_path) == []
    assert open_checkpoint(tmp_path).json("state")["evaluations_due"] == [10]
    resumed = make(tmp_path, *settings, resumes=True)
    assert resumed.evaluations._evaluation.begun == [10]
    (task,) = resumed.evaluations._evaluation.tasks
    saved = CheckpointManager(tmp_path / "checkpoints", owner=False).load(10).tensors("acting")
    assert all((task.weights[name] == value.numpy()).all() for name, value in saved.items())
    resumed.train()
    assert [step for step, _ in outcomes(tmp_path)] == [10, 20, 30]
    assert CheckpointManager(tmp_path / "checkpoints", owner=False).best_step == 10


def test_a_process_beside_training_finds_what_this_one_would(tmp_path):
    settings = ("runtime.overlap=true", "learner.num_steps=40", "evaluation.interval=20")
    runtime = make(tmp_path, *settings, "runtime.checkpoint_keep_interval=10")
    last = runtime.train()
    builder = Builder.of(runtime.config)
    found = outcomes(tmp_path)
    assert len(found) == 2 and found[1][0] == 40
    for step, win_rate in found:
        weights = (
            CheckpointManager(tmp_path / "checkpoints", owner=False).load(step).tensors("acting")
        )
        expected = as_metrics(RunEvaluator(builder).evaluate(weights, step))
        assert expected["evaluation/random/win_rate"] == win_rate
    assert last["evaluation/learner_step"] == 40
    assert (tmp_path / "evaluation" / "step_00000040").is_dir()
    assert runtime.evaluations._evaluation._child._process.poll() is not None  # it has ended


def test_a_killed_process_costs_one_evaluation(tmp_path):
    config = compose([*SMALL, "evaluation.games=500"])
    builder = Builder.of(config)
    weights = to_arrays(builder.network().state_dict())

    def task(step: int) -> Task:
        return Task(step, weights, tmp_path / str(step), False)

    beside, here = EvaluationBeside(config), EvaluationInTurn(builder)
    try:
        beside.prepare()
        assert beside.begin(task(1)) is None
        os.kill(beside._child.pid, signal.SIGSTOP)  # so that it cannot be done before it is killed
        assert beside.take() is None and beside.due == [1]
        assert beside.begin(task(2)) is None and beside.begin(task(3)) == 2
        assert beside.due == [1, 3]
        os.kill(beside._child.pid, signal.SIGKILL)
        with pytest.raises(ChildDied, match=r"evaluation's process died \(exit code -9\)"):
            beside.take(waits=True)
        assert beside.due == [3]
        step, evaluated = beside.take(waits=True)
        here.begin(task(3))
        assert (step, evaluated) == here.take()
        assert beside.due == [] and beside.take(waits=True) is None
    finally:
        beside.close()


def test_an_outcome_that_has_come_in_is_not_lost_with_the_process(tmp_path):
    """It dies between its answer and the task that waits."""
    config = compose(list(SMALL))
    weights = to_arrays(Builder.of(config).network().state_dict())
    beside = EvaluationBeside(config)
    try:
        beside.prepare()
        for step in (1, 2):
            beside.begin(Task(step, weights, tmp_path / str(step), False))
        assert beside._child._pipe.poll(60)  # the first answer is there
        os.kill(beside._child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, beside._child.pid, os.WEXITED | os.WNOWAIT)
        step, _ = beside.take(waits=True)
        assert step == 1 and beside.due == [2]
        with pytest.raises(ChildDied):
            beside.take(waits=True)
        assert beside.due == []
    finally:
        beside.close()


def test_an_opponent_that_cannot_be_had_is_refused_before_training_begins(tmp_path):
    settings = (
        "env=othello",
        "evaluation.opponents=[perfect]",
        "network.num_blocks=1",
        "network=resnet_small",
    )
    with pytest.raises(ValueError, match="perfect"):
        make(tmp_path, "runtime.overlap=true", *settings)
    assert not (tmp_path / "metrics.jsonl").exists() or not read_rows(tmp_path / "metrics.jsonl")
