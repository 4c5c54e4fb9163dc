"""Sampling in proportion to weights: a binary tree of partial sums over arrays.

Letters: `C` leaves in use, `P` the power of two that holds them, `B` samples.
Node 1 is the root, node `j` has the children `2j` and `2j + 1`, leaf `i` is node `P + i`. A node is always recomputed
as the sum of its children, never changed by a difference: the tree is a function of its leaves and cannot drift.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

IndexArray = npt.NDArray[np.int64]
WeightArray = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def _assign(tree, index, weight):  # type: ignore[no-untyped-def]
    """Set leaves `index[n]` to `weight[n]` and repair the sums above them; of equal indices the last one counts.

    Neighbours in a row, as in a new segment, share the sums above them: a run of `m` takes about `m` sums, not `m` paths.
    """
    num_leaves, count = tree.shape[0] // 2, index.shape[0]
    for i in range(count):
        tree[num_leaves + index[i]] = weight[i]
    begin = 0
    while begin < count:
        end = begin + 1
        while end < count and index[end] == index[end - 1] + 1:
            end += 1
        low = (num_leaves + index[begin]) // 2
        high = (num_leaves + index[end - 1]) // 2
        while low > 0:
            for node in range(low, high + 1):
                tree[node] = tree[2 * node] + tree[2 * node + 1]
            low //= 2
            high //= 2
        begin = end


@njit(cache=True, nogil=True)
def _build(tree):  # type: ignore[no-untyped-def]
    """Compute all sums from the leaves."""
    for node in range(tree.shape[0] // 2 - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@njit(cache=True, nogil=True)
def _find(tree, mass):  # type: ignore[no-untyped-def]
    """Leaves `[B]` at which the running sum of the weights first exceeds `mass[B]`."""
    num_leaves = tree.shape[0] // 2
    found = np.empty(mass.shape[0], np.int64)
    for i in range(mass.shape[0]):
        left_over, node = mass[i], 1
        while node < num_leaves:
            node *= 2
            # Rounding may carry the mass past the last weight: a subtree without weight is never entered.
            if left_over >= tree[node] and tree[node + 1] > 0.0:
                left_over -= tree[node]
                node += 1
        found[i] = node - num_leaves
    return found


def bytes_for(capacity: int) -> int:
    """Memory of a tree of `capacity` items."""
    return 16 * _num_leaves(capacity)


def _num_leaves(capacity: int) -> int:
    return 1 << max(1, (capacity - 1).bit_length())


class SumTree:
    """Weights of `C` items, at least 0 each; sampled in O(log C) per draw."""

    def __init__(self, capacity: int) -> None:
        """Hold `capacity` items of weight 0."""
        self.capacity = capacity
        self._num_leaves = _num_leaves(capacity)
        self._tree: WeightArray = np.zeros(2 * self._num_leaves)
        self._tree.fill(0.0)  # touches the pages now rather than while the run is busy

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._tree[1])

    @property
    def weights(self) -> WeightArray:
        """`[C]` weights, a view that is not to be written to."""
        return self._tree[self._num_leaves : self._num_leaves + self.capacity]

    @property
    def bytes(self) -> int:
        """Memory held."""
        return self._tree.nbytes

    def set(self, index: IndexArray, weight: WeightArray) -> None:
        """Set the weights of items `index[n]` to `weight[n]`; of equal indices the last one counts."""
        _assign(self._tree, index, weight)

    def load(self, weights: WeightArray) -> None:
        """Set the first `len(weights)` items to `weights` and all others to 0."""
        self._tree.fill(0.0)
        self._tree[self._num_leaves : self._num_leaves + len(weights)] = weights
        _build(self._tree)

    def sample(self, batch_size: int, rng: np.random.Generator) -> IndexArray:
        """Draw `[B]` items with replacement, each with probability `weight / total`, one from each of `B` equal shares of the total.

        Such stratified draws (PER, appendix B.2.1) have the same probabilities as independent ones and less variance.
        Items of weight 0 are never drawn. Raises ValueError if all weights are 0.
        """
        if self.total <= 0.0:
            raise ValueError("there is nothing to sample: all weights are 0")
        share = (np.arange(batch_size) + rng.random(batch_size)) / batch_size
        found: IndexArray = _find(self._tree, share * self.total)
        return found
