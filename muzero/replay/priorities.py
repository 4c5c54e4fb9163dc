"""Who is sampled how often: uniform, or by value error (prioritised experience replay, proportional variant).

Letters: `n` positions, `B` samples.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.config.schema import ReplayConfig
from muzero.replay.sum_tree import SumTree

IndexArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
ErrorArray = npt.NDArray[np.floating]

EPSILON = 1e-6
"""Added to every value error, so that no position is ever out of reach."""


class Priorities:
    """Sampling weights of the rows of a ring; 0 where a row is not to be sampled.

    The weight of a position is `(error + epsilon) ** priority_exponent`, or 1 if sampling is uniform.
    """

    def __init__(self, config: ReplayConfig, capacity: int) -> None:
        """Hold `capacity` rows of weight 0. Raises ValueError for an unknown `initial_priority`."""
        if config.initial_priority not in ("error", "max"):
            raise ValueError(
                f"replay.initial_priority is {config.initial_priority!r}; it must be 'error' or 'max'"
            )
        self._config = config
        self.tree = SumTree(capacity)
        self.highest_error = 1.0
        """Highest error so far, at least 1: what new positions get under `initial_priority=max`."""
        self._highest_weight = (math.nan, math.nan)  # an error, and the weight that it gives

    @property
    def needs_errors(self) -> bool:
        """Whether new positions are to be inserted with their own error."""
        return self._config.prioritized and self._config.initial_priority == "error"

    def insert(self, rows: IndexArray, error: ErrorArray | None) -> None:
        """Give new positions `rows[n]` the weight of their `error[n]`, or of the highest error so far if None."""
        if error is None:
            if self._highest_weight[0] != self.highest_error:
                weight = self._weights(np.array([self.highest_error]))
                self._highest_weight = self.highest_error, float(weight[0])
            self.tree.set(rows, np.full(len(rows), self._highest_weight[1]))
        else:
            self.set(rows, error)

    def set(self, rows: IndexArray, error: ErrorArray) -> None:
        """Give `rows[n]` the weight of `error[n]`."""
        if self._config.prioritized:
            self.highest_error = max(self.highest_error, float(error.max(initial=0.0)))
        self.tree.set(rows, self._weights(error))

    def _weights(self, error: ErrorArray) -> npt.NDArray[np.float64]:
        """`[n]` weights of `error[n]`."""
        if not self._config.prioritized:
            return np.ones(len(error))
        weight: npt.NDArray[np.float64] = (
            error.astype(np.float64) + EPSILON
        ) ** self._config.priority_exponent
        return weight

    def clear(self, rows: IndexArray) -> None:
        """Take `rows[n]` out of sampling."""
        self.tree.set(rows, np.zeros(len(rows)))

    def importance_weights(self, slot: IndexArray) -> FloatArray:
        """Compute `(1 / (size * probability)) ** importance_exponent` of `slot[B]`, divided by the largest of the batch."""
        # Size and total cancel against the largest weight, which belongs to the least probable sample.
        weight = self.tree.weights[slot]
        relative = (weight.min() / weight) ** self._config.importance_exponent
        importance: FloatArray = relative.astype(np.float32)
        return importance

    def state(self) -> dict[str, Any]:
        """JSON that belongs to the saved weights."""
        return {"rule": self._rule(), "highest_error": self.highest_error}

    def restore(
        self, rows: IndexArray, weight: npt.NDArray[Any] | None, state: dict[str, Any]
    ) -> bool:
        """Take over the saved `weight` of `rows[n]`, unless weights were made otherwise then; returns whether it did.

        Raises ValueError if the saved weights are impossible.
        """
        if weight is None or len(weight) <= rows.max(initial=-1):
            raise ValueError("the saved replay is damaged: it has no sampling weight per position")
        kept = weight[rows].astype(np.float64)
        if not (np.isfinite(kept).all() and (kept > 0).all()):
            raise ValueError("the saved replay is damaged: its sampling weights are impossible")
        self.highest_error = float(state["highest_error"])
        same_rule: bool = state["rule"] == self._rule()
        if same_rule:
            self.tree.load(np.zeros(self.tree.capacity))
            self.tree.set(rows, kept)
        return same_rule

    def _rule(self) -> list[float]:
        config = self._config
        return [config.priority_exponent] if config.prioritized else []
