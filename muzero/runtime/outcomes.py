"""What a run's evaluations found: the newest outcome, and the best one, whose checkpoint is marked."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from muzero.checkpoint import CheckpointError, CheckpointManager
from muzero.config.schema import EvaluationConfig
from muzero.evaluation.drawing import Image
from muzero.runtime.evaluation import as_metrics, objective, too_few_distinct
from muzero.runtime.examining import Evaluated


class Outcomes:
    """Newest and best outcome of the evaluations of a run, local or a fleet's.

    Args:
        show: Shows a picture of the policies, `[H, W, 3]`, with the learner step whose weights it shows.
        tell: Says something to the user, at a level of the log.
    """

    def __init__(
        self,
        config: EvaluationConfig,
        checkpoints: CheckpointManager,
        *,
        show: Callable[[Image, int], None],
        tell: Callable[[str, int], None],
    ) -> None:
        self._config, self._checkpoints = config, checkpoints
        self._show, self._tell = show, tell
        self.newest_step = -1
        """Learner step of the newest outcome."""
        self.newest: dict[str, float] = {}
        """Metrics of the newest outcome."""
        self._best: float | None = None  # objective

    def note(self, step: int, evaluated: Evaluated) -> bool:
        """Take the outcome of a learner step's weights; returns whether they are the best so far."""
        self.newest_step = step
        self.newest = as_metrics(evaluated.reports) | {"evaluation/learner_step": float(step)}
        if evaluated.picture is not None:
            self._show(evaluated.picture, step)
        if problem := too_few_distinct(evaluated.reports, self._config):
            self._tell(problem, logging.WARNING)
        reached = objective(self.newest)
        if reached is None or (self._best is not None and reached <= self._best):
            return False
        self._best = reached
        return True

    def mark_best(self, step: int) -> None:
        """Mark the checkpoint of a learner step as the best, if there is one; that it cannot be written is told."""
        try:
            if step in self._checkpoints.steps():
                self._checkpoints.mark_best(step)
        except CheckpointError as error:  # of a save that was going on
            self._tell(str(error), logging.WARNING)

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        return {
            "evaluated_step": self.newest_step,
            "evaluation": self.newest,
            "best_objective": self._best,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.newest_step, self.newest = state["evaluated_step"], state["evaluation"]
        # Older checkpoints of a fleet call it `best`, and still older ones have none.
        self._best = state.get("best_objective", state.get("best"))
