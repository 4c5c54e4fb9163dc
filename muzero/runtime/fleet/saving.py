"""Checkpoints and evaluations of a running fleet: neither stops it."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from muzero.checkpoint import CheckpointError, CheckpointManager, Part
from muzero.config.schema import Config
from muzero.runtime.examining import Evaluated
from muzero.runtime.fleet.crew import Member
from muzero.runtime.fleet.cut import Cut
from muzero.runtime.fleet.hiring import EVALUATOR, LEARNER, SHARD, WORKER
from muzero.runtime.fleet.report import FleetReporter
from muzero.runtime.fleet.staff import Staff
from muzero.runtime.fleet.training import Snapshot
from muzero.runtime.outcomes import Outcomes

_SNAPSHOT_SECONDS = 60.0
_LAST_SECONDS = 600.0  # for the last evaluation and the last checkpoint


class Saver:
    """Cuts, saves and evaluates. What is evaluated is a checkpoint's weights, so the best checkpoint is the best evaluation.

    Args:
        state: Gives the supervisor's own part of a checkpoint.
        gating: Gives the parts of gatekeeping, whose weights must be no newer than the learner's.
        tell: Says something to the user.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        staff: Staff,
        checkpoints: CheckpointManager,
        reporter: FleetReporter,
        *,
        state: Callable[[], dict[str, Any]],
        gating: Callable[[], dict[str, Part]],
        tell: Callable[[str], None],
    ) -> None:
        self._config, self._run_dir, self._staff = config, run_dir.resolve(), staff
        self._checkpoints, self._state, self._tell = checkpoints, state, tell
        self._reporter, self._gating = reporter, gating
        self._cut: Cut | None = None
        self._evaluates = False
        self._logs_to_forget: dict[int, int] | None = None
        self._evaluating: int | None = None
        self._evaluation: dict[str, float] | None = None
        self._best_step: int | None = None  # yet to be marked
        self.saved_step = -1
        self.outcomes = Outcomes(
            config.evaluation,
            checkpoints,
            show=reporter.note_picture,
            tell=lambda text, _: tell(text),
        )

    @property
    def is_collecting(self) -> bool:
        """Whether roles are being asked for their states."""
        return self._cut is not None

    def begin(self, *, evaluates: bool) -> None:
        """Begin a checkpoint, and an evaluation of its weights; one at a time."""
        self._evaluates |= evaluates
        if self._cut is not None or self._staff.crew.get(LEARNER) is None:
            return
        crew = self._staff.crew
        shards, workers = crew.serving(SHARD), crew.serving(WORKER)
        if len(shards) < len(crew.all(SHARD)):
            return  # without all of the replay it would be worse than the one before
        cut = self._cut = Cut(len(shards), len(workers), self._ask_learner)
        for member in shards:
            note = partial(cut.add_shard, member.index)
            crew.call(member, "give its state", member.actor.state.remote(), note, failed=cut.fail)
        for member in workers:
            note = partial(cut.add_worker, member.index)
            crew.call(member, "give its state", member.actor.state.remote(), note, failed=cut.drop)
        cut.begin()

    def poll(self) -> None:
        """Look whether a save has come to its end."""
        if self._cut is not None and self._cut.failed:
            self._tell("a role was lost while a checkpoint was made: the next one will have it")
            self._cut = None
        if self._logs_to_forget is not None and not self._checkpoints.is_writing:
            logs, self._logs_to_forget = self._logs_to_forget, None
            if self._wait():
                for member in self._staff.crew.serving(SHARD):
                    if member.index in logs:
                        member.actor.forget_before.remote(logs[member.index])
        if self._best_step is not None and not self._checkpoints.is_writing:
            self._mark_best()

    def finish(self, turn: Callable[[], None], *, evaluates: bool) -> None:
        """Make the last checkpoint, and evaluate it; `turn` keeps the fleet going meanwhile.

        Raises:
            CheckpointError: It cannot be saved.
        """
        self._turn_until(turn, lambda: self._cut is None and self._evaluating is None)
        self._evaluates = False
        self.begin(evaluates=evaluates and self._config.evaluation.games > 0)
        self._turn_until(turn, lambda: self._cut is None)
        self._checkpoints.wait()
        self._turn_until(turn, lambda: self._evaluating is None)
        self._mark_best()

    def take_evaluation(self) -> dict[str, float] | None:
        """Metrics of an evaluation that has come in since the last call."""
        evaluation, self._evaluation = self._evaluation, None
        return evaluation

    def note_lost(self, member: Member) -> None:
        """A member is lost."""
        if self._cut is not None and member.role in (LEARNER, SHARD):
            self._cut.fail()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state in a checkpoint."""
        self.outcomes.restore(state)

    def _ask_learner(self) -> None:
        cut, learner = self._cut, self._staff.crew.get(LEARNER)
        if cut is None or learner is None:
            if cut is not None:
                cut.fail()
            return
        cut.parts |= self._gating()
        self._staff.crew.call(
            learner,
            "give its state",
            learner.actor.snapshot.remote(_SNAPSHOT_SECONDS),
            partial(self._save, cut),
            failed=cut.fail,
            seconds=2 * _SNAPSHOT_SECONDS,
        )

    def _save(self, cut: Cut, snapshot: Snapshot) -> None:
        if cut.failed or cut is not self._cut:
            return
        self._cut = None
        if snapshot.step != self.saved_step:
            parts = cut.finish(
                snapshot, {**self._state(), "saver": self.outcomes.state()}, self._config
            )
            if self._wait():  # for the one before
                self._checkpoints.save(snapshot.step, parts, background=True)
                self.saved_step, self._logs_to_forget = snapshot.step, cut.log_cuts
        if self._evaluates and snapshot.step != self.outcomes.newest_step:
            self._evaluate(snapshot)

    def _evaluate(self, snapshot: Snapshot) -> None:
        if self._evaluating is not None:
            self._tell(f"the evaluation of learner step {self._evaluating} still goes on")
            return
        self._evaluates = False
        crew = self._staff.crew
        member = crew.get(EVALUATOR)
        if member is None:
            member = next(iter(crew.all(EVALUATOR)), None) or crew.add(EVALUATOR, 0)
            if member.actor is None:  # it is being made anew
                return
        step = self._evaluating = snapshot.step
        self._await_outcomes()
        self._tell(f"evaluating learner step {step}")
        folder = self._run_dir / "evaluation" / f"step_{step:08d}"
        crew.call(
            member,
            "evaluate",
            member.actor.evaluate.remote(
                snapshot.acting, step, folder, self._reporter.shows_images
            ),
            partial(self._note_evaluation, step),
            failed=self._give_up_evaluation,
            seconds=_LAST_SECONDS,
        )

    def _note_evaluation(self, step: int, evaluated: Evaluated) -> None:
        self._evaluating = None
        if self.outcomes.note(step, evaluated):
            self._best_step = step
        self._evaluation = self.outcomes.newest
        self._await_outcomes()

    def _give_up_evaluation(self) -> None:
        self._evaluating = None
        self._await_outcomes()

    def _mark_best(self) -> None:
        step, self._best_step = self._best_step, None
        if step is not None:
            self.outcomes.mark_best(step)
        self._await_outcomes()

    def _await_outcomes(self) -> None:
        """Keep the checkpoints of the weights that may be the best, until that is known and marked."""
        steps = (self._evaluating, self._best_step)
        self._checkpoints.awaited = frozenset(step for step in steps if step is not None)

    def _wait(self) -> bool:
        """Wait for a save; a failure is told, and training goes on with the older checkpoints intact."""
        try:
            self._checkpoints.wait()
        except CheckpointError as error:
            self._tell(str(error))
            return False
        return True

    def _turn_until(self, turn: Callable[[], None], done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LAST_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"the last checkpoint or evaluation is not done after {_LAST_SECONDS:.0f} s; resume from the newest one"
                )
            turn()
