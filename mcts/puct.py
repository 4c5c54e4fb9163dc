"""Selection by PUCT (MuZero, equation 2) and what a finished PUCT search says of its roots."""

import math

import numpy as np
import numpy.typing as npt
from numba import njit

from mcts.base import FloatArray, IntArray, SearchOutput
from mcts.policies import NORMALIZATIONS, URGENCIES, SearchSettings
from mcts.threads import RowThreads
from mcts.tree import (
    ACTION,
    BEST_UNVISITED,
    DEPTH_SUM,
    FIRST_CHILD,
    HIGH,
    LOW,
    NEXT_SIBLING,
    NOTHING_LEFT,
    PRIOR,
    STALE,
    VALUE,
    VISITS,
    Q,
    Tree,
)

# What the kernels are given for the names in `NORMALIZATIONS` and `URGENCIES`.
TREE, SIBLINGS, BOUNDS, NONE = range(4)
MINIMUM, PARENT_VALUE, MEAN = range(3)

# Entries of the scaling array.
OFFSET, INVERSE_RANGE, MIN_RANGE = range(3)
SMALLEST_RANGE = 1e-8


class PuctRule:
    """The upper confidence bound at every node, visit counts as the result."""

    # PUCT considers every legal action.
    max_considered = 0

    def __init__(self, settings: SearchSettings, tree: Tree, threads: RowThreads) -> None:
        dtype = tree.nodes.dtype
        self.noise_weight = float(settings.root_exploration_fraction)
        self._threads = threads
        self._tree = tree
        self._constants = (
            settings.max_depth or settings.num_simulations,
            NORMALIZATIONS.index(settings.normalization),
            URGENCIES.index(settings.first_play_urgency),
            scaling(settings, dtype),
            exploration_table(
                settings.num_simulations, settings.pb_c_init, settings.pb_c_base, dtype
            ),
        )

    def select(self, num_rows: int, slot: int, selection: IntArray) -> None:
        """Fill `selection` `[3, B]` with the edges that may become node `slot`."""
        self._threads.call(
            select_puct, num_rows, slot, *self._constants, *self._tree.arrays, selection
        )

    def summarise(self, num_rows: int, num_simulations: int, output: SearchOutput) -> None:
        """Fill `output` from the roots."""
        self._threads.call(
            summarise_puct,
            num_rows,
            num_simulations,
            *self._tree.arrays,
            output.visits,
            output.policy,
            output.value,
            output.qvalues,
            output.best_action,
            output.best_value,
            output.depth,
        )


def scaling(settings: SearchSettings, dtype: npt.DTypeLike) -> FloatArray:
    """The constants of the normalisation: fixed offset, fixed inverse range, smallest range of a moving one."""
    smallest = max(settings.min_value_range, SMALLEST_RANGE)
    if settings.normalization != "bounds":
        return np.array([0.0, 1.0, smallest], dtype)
    span = settings.value_max - settings.value_min
    return np.array([settings.value_min, 1.0 / span, smallest], dtype)


def exploration_table(
    num_simulations: int, pb_c_init: float, pb_c_base: float, dtype: npt.DTypeLike
) -> FloatArray:
    """`[N + 2]` the factor `sqrt(n) * (c1 + ln((n + c2 + 1) / c2))` of the prior by the visits `n` of a node."""
    visits = np.arange(num_simulations + 2, dtype=np.float64)
    bonus = pb_c_init + np.log((visits + pb_c_base + 1.0) / pb_c_base)
    return (np.sqrt(visits) * bonus).astype(dtype)


@njit(cache=True, nogil=True, error_model="numpy")
def _likeliest(
    priors: FloatArray,
) -> int:
    """The first of the largest priors that are not marked as taken; NOTHING_LEFT if all are."""
    best = 0
    for action in range(1, priors.shape[0]):
        if priors[action] > priors[best]:
            best = action
    return best if priors[best] >= 0 else NOTHING_LEFT


@njit(cache=True, nogil=True, error_model="numpy")
def select_puct(
    low_row: int,
    high_row: int,
    slot: int,
    max_depth: int,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    selection: IntArray,
) -> None:
    """Walk from each root to the edge to ask the model for; fill `selection` `[3, B]` (parent, action, node).

    `slot` is the index of the node that this simulation may add. Ties go to the lowest action.
    """
    zero = nodes.dtype.type(0)
    one = nodes.dtype.type(1)
    worst = nodes.dtype.type(-math.inf)
    needs_scan = (
        normalization == SIBLINGS
        or urgency == MEAN
        or (normalization == NONE and urgency == MINIMUM)
    )
    for row in range(low_row, high_row):
        node = 0
        depth = 0
        while True:
            best = links[row, node, BEST_UNVISITED]
            if best == STALE:
                best = _likeliest(free_priors[row, node])
                links[row, node, BEST_UNVISITED] = best
            best_child = 0
            first = links[row, node, FIRST_CHILD]
            if first != 0:
                value = nodes[row, node, VALUE]
                low = value
                high = value
                mean = value
                if needs_scan:
                    total = zero
                    count = zero
                    child = first
                    while child != 0:
                        q = nodes[row, child, Q]
                        low = q if q < low else low
                        high = q if q > high else high
                        total += q
                        count += one
                        child = links[row, child, NEXT_SIBLING]
                    mean = total / count
                lowest = low
                if normalization == TREE:
                    low = rows[row, LOW]
                    high = rows[row, HIGH]
                offset = scale[OFFSET]
                inverse = scale[INVERSE_RANGE]
                if normalization in (TREE, SIBLINGS):
                    offset = low
                    inverse = one / max(high - low, scale[MIN_RANGE]) if high > low else zero
                if urgency == MINIMUM:
                    # The lowest value known is 0 after normalisation.
                    unvisited = lowest if normalization == NONE else zero
                else:
                    unvisited = ((value if urgency == PARENT_VALUE else mean) - offset) * inverse
                    if normalization == TREE:
                        unvisited = min(max(unvisited, zero), one)

                bonus = exploration[int(nodes[row, node, VISITS])]
                best_score = worst
                if best != NOTHING_LEFT:
                    best_score = unvisited + bonus * free_priors[row, node, best]
                child = first
                while child != 0:
                    score = (nodes[row, child, Q] - offset) * inverse
                    score += bonus * nodes[row, child, PRIOR] / (nodes[row, child, VISITS] + one)
                    if score > best_score or (
                        score == best_score and links[row, child, ACTION] < best
                    ):
                        best_score = score
                        best_child = child
                        best = links[row, child, ACTION]
                    child = links[row, child, NEXT_SIBLING]
                if best == NOTHING_LEFT:  # scores beyond the float range; `result` refuses them
                    best_child = first
                    best = links[row, first, ACTION]
            depth += 1
            if best_child == 0 or depth >= max_depth:
                break
            node = best_child
        selection[0, row] = node
        selection[1, row] = best
        selection[2, row] = best_child if best_child != 0 else slot


@njit(cache=True, nogil=True, error_model="numpy")
def summarise_puct(
    low_row: int,
    high_row: int,
    num_simulations: int,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    visits: IntArray,
    policy: FloatArray,
    value: FloatArray,
    qvalues: FloatArray,
    best_action: IntArray,
    best_value: FloatArray,
    depth: FloatArray,
) -> None:
    """Read the roots out: visit fractions, the most visited action (of equals the higher q, then the lower index)."""
    for row in range(low_row, high_row):
        root_value = nodes[row, 0, VALUE]
        visits[row] = 0
        qvalues[row] = root_value
        best = 0
        if num_simulations == 0:  # the prior is all that is known
            for action in range(policy.shape[1]):
                policy[row, action] = max(free_priors[row, 0, action], 0)
            best = _likeliest(free_priors[row, 0])
        else:
            policy[row] = 0
            most = 0.0
            child = links[row, 0, FIRST_CHILD]
            while child != 0:
                action = links[row, child, ACTION]
                count = nodes[row, child, VISITS]
                q = nodes[row, child, Q]
                visits[row, action] = int(count)
                qvalues[row, action] = q
                policy[row, action] = count / num_simulations
                is_equal = count == most
                if (
                    count > most
                    or (is_equal and q > qvalues[row, best])
                    or (is_equal and q == qvalues[row, best] and action < best)
                ):
                    most = count
                    best = action
                child = links[row, child, NEXT_SIBLING]
        value[row] = root_value
        best_action[row] = best
        best_value[row] = qvalues[row, best]
        depth[row] = rows[row, DEPTH_SUM] / max(num_simulations, 1)
