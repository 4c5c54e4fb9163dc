"""Who is sampled how often: uniform, or by value error (prioritised experience replay, proportional variant).

Letters: `n` positions, `B` samples.
"""

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

    @property
    def needs_errors(self) -> bool:
        """Whether new positions are to be inserted with their own error."""
        return self._config.prioritized and self._config.initial_priority == "error"

    def insert(self, rows: IndexArray, error: ErrorArray | None) -> None:
        """Give new positions `rows[n]` the weight of their `error[n]`, or of the highest error so far if None."""
        self.set(rows, np.full(len(rows), self.highest_error) if error is None else error)

    def set(self, rows: IndexArray, error: ErrorArray) -> None:
        """Give `rows[n]` the weight of `error[n]`."""
        if self._config.prioritized:
            self.highest_error = max(self.highest_error, float(error.max(initial=0.0)))
            weight = (error.astype(np.float64) + EPSILON) ** self._config.priority_exponent
        else:
            weight = np.ones(len(rows))
        self.tree.set(rows, weight)

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
