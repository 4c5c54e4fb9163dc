"""Who evaluates a local run's weights: this process, in turn with training, or one of its own beside it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from muzero.config.schema import Config
from muzero.evaluation.drawing import Image
from muzero.evaluation.pictures import PolicyPictures
from muzero.runtime.build import Builder
from muzero.runtime.child import Answers, Child, ChildDied
from muzero.runtime.evaluation import RunEvaluator, make_pictures
from muzero.weights import Arrays, to_tensors

NICENESS = 10
"""By which whoever evaluates beside training gives way to it for the processor."""

_ADVICE = "what it evaluated stays without a result, and the next evaluation gets another process"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What was found out about weights."""

    reports: list[dict[str, Any]]
    """See `RunEvaluator.evaluate`."""
    picture: Image | None
    """`[H, W, 3]` their policies; None if they were not to be drawn, or the game cannot be."""


class Task(NamedTuple):
    """Weights to evaluate."""

    step: int
    """Learner step that made them."""
    weights: Arrays
    folder: Path
    """Where the games are written."""
    draws: bool
    """Whether a picture is wanted."""


class Examiner:
    """Evaluates weights and draws their policies.

    Raises:
        ValueError: If an opponent cannot be had for this game.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._evaluator = RunEvaluator(builder)

    def evaluate(self, task: Task) -> Evaluated:
        """See `RunEvaluator`."""
        weights = to_tensors(task.weights)
        reports = self._evaluator.evaluate(weights, task.step, task.folder)
        pictures = self._pictures if task.draws else None
        return Evaluated(reports, None if pictures is None else pictures.draw(weights, task.step))

    @cached_property
    def _pictures(self) -> PolicyPictures | None:
        return make_pictures(self._builder)


class Evaluation(Protocol):
    """Evaluates one task at a time: `begin`, then `take` until it gives the outcome."""

    @property
    def due(self) -> list[int]:
        """Learner steps whose outcome has not been taken: the one that is worked at, and one that waits for it."""

    def prepare(self) -> None:
        """Wait until it is able to begin.

        Raises:
            ValueError: An opponent cannot be had for this game.
        """

    def begin(self, task: Task) -> int | None:
        """Begin, or wait until the one before is done.

        Returns the learner step of a task that waited already and is given up for this one.

        Raises:
            ChildDied: The process is gone; the next task gets another.
        """

    def take(self, *, waits: bool = False) -> tuple[int, Evaluated] | None:
        """An outcome and its learner step; None if there is none yet, or with `waits`, none is due.

        Raises:
            ChildDied: The process is gone, and with it the task that it worked at; the next one gets another.
        """

    def close(self) -> None:
        """Free what it holds; what is due is given up."""


class EvaluationInTurn:
    """Evaluates when it is asked to begin, while all else stands still."""

    def __init__(self, builder: Builder) -> None:
        self._examiner = Examiner(builder)
        self._done: list[tuple[int, Evaluated]] = []

    @property
    def due(self) -> list[int]:
        """See `Evaluation`."""
        return [step for step, _ in self._done]

    def prepare(self) -> None:
        """See `Evaluation`."""

    def begin(self, task: Task) -> int | None:
        """See `Evaluation`."""
        self._done.append((task.step, self._examiner.evaluate(task)))
        return None

    def take(self, *, waits: bool = False) -> tuple[int, Evaluated] | None:
        """See `Evaluation`."""
        return self._done.pop(0) if self._done else None

    def close(self) -> None:
        """See `Evaluation`."""


class EvaluationBeside:
    """Evaluates in a process of its own, which gives way to training for the processor."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._working: int | None = None
        self._waiting: Task | None = None
        self._is_ready = False
        self._child: Child | None = self._make()

    @property
    def due(self) -> list[int]:
        """See `Evaluation`."""
        working = [] if self._working is None else [self._working]
        return working if self._waiting is None else [*working, self._waiting.step]

    def prepare(self) -> None:
        """See `Evaluation`."""
        if self._child is None:
            self._child, self._is_ready = self._make(), False
        if not self._is_ready:
            self._child.receive()
            self._is_ready = True

    def begin(self, task: Task) -> int | None:
        """See `Evaluation`."""
        lost = None if self._waiting is None else self._waiting.step
        self._waiting = task
        self._go_on()
        return lost

    def take(self, *, waits: bool = False) -> tuple[int, Evaluated] | None:
        """See `Evaluation`."""
        self._go_on()
        if self._working is None or self._child is None:
            return None
        if not (waits or self._child.has_answered()):
            return None
        step, self._working = self._working, None
        try:
            evaluated: Evaluated = self._child.receive()
        except ChildDied:
            self._child = None
            raise
        return step, evaluated

    def close(self) -> None:
        """See `Evaluation`."""
        if self._child is not None:
            self._child.close(at_once=True)

    def _go_on(self) -> None:
        """Hand the task that waits to the process, if it has nothing to do."""
        if self._working is not None or self._waiting is None:
            return
        task, self._waiting = self._waiting, None
        try:
            self.prepare()
            assert self._child is not None
            self._child.send("evaluate", task)
        except ChildDied:
            self._child = None
            raise
        self._working = task.step

    def _make(self) -> Child:
        return Child(
            __name__, self._config, who="the evaluation", advice=_ADVICE, niceness=NICENESS
        )


def answers(config: Config) -> Answers:
    """What the process beside training does; see `Child`."""
    return Answers({"evaluate": Examiner(Builder.of(config)).evaluate}, lambda: None)
