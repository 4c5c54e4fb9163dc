"""The choice of an action at one node by PUCT (MuZero, equation 2), for the kernels of every search that makes it."""

import math

import numpy as np

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined, kernel
from mcts.tree import (
    ACTION,
    BEST_UNVISITED,
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
)

# What the kernels are given for the names in `NORMALIZATIONS` and `URGENCIES`.
TREE, SIBLINGS, BOUNDS, NONE = range(4)
MINIMUM, PARENT_VALUE, MEAN = range(3)

# Entries of the scaling array.
OFFSET, INVERSE_RANGE, MIN_RANGE = range(3)


@kernel
def likeliest(priors: FloatArray) -> int:
    """The first of the largest priors that are not marked as taken; NOTHING_LEFT if all are."""
    best = 0
    for action in range(1, priors.shape[0]):
        if priors[action] > priors[best]:
            best = action
    return best if priors[best] >= 0 else NOTHING_LEFT


@inlined
def scale_q(
    row: int,
    node: int,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> tuple[np.floating, np.floating, np.floating]:
    """What scales the q of a visited node's actions: offset, factor of `q - offset`, and the scaled q of the unvisited."""
    zero = nodes.dtype.type(0)
    one = nodes.dtype.type(1)
    value = nodes[row, node, VALUE]
    low = value
    high = value
    mean = value
    if (
        normalization == SIBLINGS
        or urgency == MEAN
        or (normalization == NONE and urgency == MINIMUM)
    ):
        total = zero
        count = zero
        child = links[row, node, FIRST_CHILD]
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
    return offset, inverse, unvisited


@inlined
def choose_puct(
    row: int,
    node: int,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> tuple[int, int]:
    """The action that PUCT takes at a node, and the child that it leads to: 0 if it is unvisited.

    `scale` is that of `puct.scaling`, `exploration` that of `puct.exploration_table`. Ties go to the lowest action.
    """
    one = nodes.dtype.type(1)
    best = links[row, node, BEST_UNVISITED]
    if best == STALE:
        best = likeliest(free_priors[row, node])
        links[row, node, BEST_UNVISITED] = best
    best_child = 0
    first = links[row, node, FIRST_CHILD]
    if first != 0:
        offset, inverse, unvisited = scale_q(
            row, node, normalization, urgency, scale, nodes, links, rows
        )
        bonus = exploration[int(nodes[row, node, VISITS])]
        best_score = nodes.dtype.type(-math.inf)
        if best != NOTHING_LEFT:
            best_score = unvisited + bonus * free_priors[row, node, best]
        child = first
        while child != 0:
            score = (nodes[row, child, Q] - offset) * inverse
            score += bonus * nodes[row, child, PRIOR] / (nodes[row, child, VISITS] + one)
            if score > best_score or (score == best_score and links[row, child, ACTION] < best):
                best_score = score
                best_child = child
                best = links[row, child, ACTION]
            child = links[row, child, NEXT_SIBLING]
        if best == NOTHING_LEFT:  # scores beyond the float range; `result` refuses them
            best_child = first
            best = links[row, first, ACTION]
    return best, best_child
