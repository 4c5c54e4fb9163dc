"""What the supervisor asks of its evaluator, and of whom it asks for a sign of life; the roles are fakes."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from muzero.checkpoint import CheckpointManager
from muzero.config.schema import LoggerConfig
from muzero.metrics import MetricsLogger
from muzero.runtime.evaluation import PICTURE
from muzero.runtime.examining import Evaluated
from muzero.runtime.fleet.crew import Member
from muzero.runtime.fleet.failures import Failures
from muzero.runtime.fleet.hiring import EVALUATOR, GATEKEEPER, STORE, WORKER
from muzero.runtime.fleet.inquiries import Inquiries
from muzero.runtime.fleet.report import FleetReporter
from muzero.runtime.fleet.saving import Saver
from muzero.runtime.fleet.training import Snapshot
from tests.runtime.fleet.roles import small

REPORT = {"opponent": "random", "games": 4, "wins": 3, "draws": 1, "losses": 0, "games_played": 4}
IMAGE = np.zeros((4, 6, 3), np.uint8)


class Method:
    """Stands for an actor's method: keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def remote(self, *arguments):
        self.calls.append(arguments)
        return self


class Crew:
    """Members that work; answers are given by hand."""

    def __init__(self, *members: Member) -> None:
        self.members, self.waiting = list(members), []

    def get(self, role, index=0):
        return next((member for member in self.members if member.role == role), None)

    def all(self, role=None):
        return [member for member in self.members if role in (None, member.role)]

    def serving(self, role):
        return self.all(role)

    def call(self, member, what, reference, then, *, failed=None, seconds=None):
        member.num_calls += 1
        self.waiting.append((member, what, then))

    def answer(self, value):
        member, _, then = self.waiting.pop(0)
        member.num_calls -= 1
        then(value)


def member(role: str) -> Member:
    actor = SimpleNamespace(evaluate=Method(), memory_bytes=Method())
    return Member(role, 0, Failures(role, 3), incarnation=0, actor=actor, serves=True)


def make_saver(folder: Path, crew: Crew, reporter: object, checkpoints: object) -> Saver:
    return Saver(
        small(),
        folder,
        SimpleNamespace(crew=crew),
        checkpoints,
        reporter,
        state=dict,
        gating=dict,
        tell=lambda _: None,
    )


@pytest.mark.parametrize("is_on", [True, False])
def test_the_evaluator_draws_if_there_is_a_tensorboard(tmp_path, is_on):
    if is_on:
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    evaluator = member(EVALUATOR)
    metrics = MetricsLogger(tmp_path, LoggerConfig(tensorboard=is_on, progress="none"))
    reporter = FleetReporter(small(), metrics, leasing=None)
    crew = Crew(evaluator)
    saver = make_saver(tmp_path, crew, reporter, SimpleNamespace(awaited=None))
    saver._evaluate(Snapshot(40, {}, {}, {"w": IMAGE}, 0))
    (asked,) = evaluator.actor.evaluate.calls
    assert asked == ({"w": IMAGE}, 40, tmp_path / "evaluation" / "step_00000040", is_on)
    crew.answer(Evaluated([REPORT], IMAGE if is_on else None))
    assert saver.outcomes.newest_step == 40
    assert saver.take_evaluation()["evaluation/random/win_rate"] == 0.75
    reporter.close()
    assert (tmp_path / "tensorboard").exists() == is_on
    if is_on:
        reader = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
        reader.Reload()
        assert [event.step for event in reader.Images(PICTURE)] == [40]


def test_what_is_evaluated_is_kept_until_its_outcome_is_there_and_the_best_for_good(tmp_path):
    """Only the newest checkpoint is kept for itself, and outcomes come when later ones have been saved."""
    reporter = SimpleNamespace(shows_images=False, note_picture=None)
    crew = Crew(member(EVALUATOR))
    with CheckpointManager(tmp_path / "checkpoints", kept=1) as checkpoints:
        saver = make_saver(tmp_path, crew, reporter, checkpoints)

        def go_on(*steps: int) -> list[int]:
            for step in steps:
                checkpoints.save(step, {"weights": {"w": IMAGE}})
            saver.poll()
            return checkpoints.steps()

        def evaluate(step: int) -> None:
            go_on(step)
            saver._evaluate(Snapshot(step, {}, {}, {"w": IMAGE}, 0))

        evaluate(10)
        assert go_on(11, 12) == [10, 12]
        crew.answer(Evaluated([REPORT], None))
        assert go_on(13, 14) == [10, 14] and checkpoints.best_step == 10
        evaluate(20)
        crew.answer(Evaluated([REPORT | {"wins": 2, "losses": 1}], None))
        assert go_on(21) == [10, 21] and checkpoints.best_step == 10
        evaluate(30)
        saver._give_up_evaluation()
        assert go_on(31) == [10, 31]
        resumed = make_saver(tmp_path, crew, reporter, checkpoints)
        resumed.restore(saver.outcomes.state())
        resumed._note_evaluation(31, Evaluated([REPORT], None))
        resumed.poll()
        assert checkpoints.best_step == 10  # as good is not better
        resumed._note_evaluation(31, Evaluated([REPORT | {"wins": 4, "draws": 0}], None))
        resumed.poll()
        assert checkpoints.best_step == 31 and go_on(32) == [31, 32]


def test_who_is_at_work_is_not_asked_for_a_sign_of_life():
    """The answer would come behind the work: an evaluation that outlasts the deadline is no death."""
    members = [member(role) for role in (WORKER, EVALUATOR, GATEKEEPER, STORE)]
    crew = Crew(*members)
    inquiries = Inquiries(
        small().runtime,
        SimpleNamespace(crew=crew, newest_version=0),
        None,
        None,
        on_status=lambda _: None,
        on_freshness=lambda _: None,
    )

    def asked(now: float) -> list[str]:
        before = [len(m.actor.memory_bytes.calls) for m in members]
        inquiries.ask(now, 0)
        while crew.waiting:
            crew.answer(1000)
        return [
            m.role
            for m, count in zip(members, before, strict=True)
            if len(m.actor.memory_bytes.calls) > count
        ]

    assert asked(0.0) == [WORKER, EVALUATOR, GATEKEEPER, STORE]
    for busy in members:
        busy.num_calls = 1
    assert asked(100.0) == [STORE]
    for idle in members:
        idle.num_calls = 0
    assert asked(200.0) == [WORKER, EVALUATOR, GATEKEEPER, STORE]
