"""The evaluations of a local run: begun and taken, their outcomes kept, the best checkpoint marked."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from muzero.checkpoint import CheckpointError, CheckpointManager
from muzero.metrics import MetricsLogger
from muzero.runtime.build import Builder
from muzero.runtime.child import ChildDied
from muzero.runtime.evaluation import PICTURE
from muzero.runtime.examining import Evaluation, EvaluationBeside, EvaluationInTurn, Task
from muzero.runtime.outcomes import Outcomes
from muzero.weights import to_arrays


class Evaluations:
    """What a run has evaluated and is evaluating: beside training with `runtime.overlap`, else in turn with it.

    Args:
        tell: Says something to the user, at a level of the log.

    Raises:
        ValueError: If an opponent cannot be had for this game; of a process beside training `prepare` raises it.
    """

    def __init__(
        self,
        builder: Builder,
        run_dir: Path,
        checkpoints: CheckpointManager,
        metrics: MetricsLogger,
        tell: Callable[[str, int], None],
    ) -> None:
        self._run_dir, self._tell = run_dir, tell
        self._checkpoints, self._metrics = checkpoints, metrics
        self.outcomes = Outcomes(
            builder.config.evaluation, checkpoints, show=partial(metrics.image, PICTURE), tell=tell
        )
        self._evaluation: Evaluation | None = None
        if builder.config.evaluation.games > 0:
            overlaps = builder.config.runtime.overlap
            self._evaluation = (
                EvaluationBeside(builder.config) if overlaps else EvaluationInTurn(builder)
            )
        self.is_best = False
        """Whether the learner's weights of this moment are the best, and yet to be saved."""

    @property
    def due(self) -> list[int]:
        """Learner steps whose outcome is yet to come."""
        return [] if self._evaluation is None else self._evaluation.due

    def prepare(self) -> None:
        """Wait until evaluations can begin."""
        if self._evaluation is not None:
            self._evaluation.prepare()

    def begin(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Have the weights of a learner step evaluated; its checkpoint is kept until the outcome is there."""
        if self._evaluation is None:
            return
        self._tell(f"evaluating learner step {step}", logging.INFO)
        folder = self._run_dir / "evaluation" / f"step_{step:08d}"
        task = Task(step, to_arrays(weights), folder, self._metrics.shows_images)
        try:
            lost = self._evaluation.begin(task)
            if lost is not None:
                self._tell(
                    f"learner step {lost} is not evaluated: evaluations take longer than evaluation.interval",
                    logging.WARNING,
                )
        except ChildDied as error:
            self._tell(str(error), logging.WARNING)
        self._checkpoints.awaited = frozenset(self.due)

    def take(self, learner_step: int, *, waits: bool = False) -> dict[str, float] | None:
        """Metrics of an evaluation that has come to its end; None if none has, or with `waits`, if none is due.

        Args:
            learner_step: The learner's at this moment, whose weights may not have been saved yet.
        """
        if self._evaluation is None:
            return None
        found = None
        try:
            found = self._evaluation.take(waits=waits)
        except ChildDied as error:
            self._tell(str(error), logging.WARNING)
        if found is not None and self.outcomes.note(*found):
            if found[0] == learner_step:
                self.is_best = True
            else:
                self.outcomes.mark_best(found[0])
        self._checkpoints.awaited = frozenset(self.due)
        return None if found is None else self.outcomes.newest

    def close(self) -> None:
        """Give up what is due."""
        if self._evaluation is not None:
            self._evaluation.close()

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        return {**self.outcomes.state(), "evaluations_due": self.due}

    def restore(
        self, state: Mapping[str, Any], weights_of: Callable[[int], Mapping[str, Tensor]]
    ) -> None:
        """Continue from `state`: what was being evaluated begins anew, with the weights that `weights_of` has of a learner step."""
        self.outcomes.restore(state)
        for step in state.get("evaluations_due", ()):  # older checkpoints have none
            try:
                self.begin(step, weights_of(step))
            except CheckpointError as error:
                self._tell(f"learner step {step} is not evaluated: {error}", logging.WARNING)
