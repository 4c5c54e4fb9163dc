"""The completed q of a node in logits, sigma(q): visited actions have their own q, all others the mixed value.

Absent actions have no share in it. Danihelka et al., "Policy improvement by planning with Gumbel" (ICLR 2022), section 4
and appendix D.
"""

import math

from mcts.base import FloatArray, IntArray
from mcts.jit import kernel
from mcts.puct_choice import INVERSE_RANGE, MIN_RANGE, OFFSET, SIBLINGS, TREE
from mcts.tree import (
    BEST_UNVISITED,
    FIRST_CHILD,
    FREE_LOGITS_ABOVE,
    HIGH,
    LOW,
    NEXT_SIBLING,
    NOTHING_LEFT,
    NUM_TAKEN,
    PRIOR,
    RAW_VALUE,
    UNVISITED_WEIGHT,
    VISITS,
    Q,
)

# Entries of the scaling array, behind those of `puct.scaling`.
VALUE_SCALE, MAXVISIT_INIT = 3, 4

# Keeps visited actions whose prior underflows in the mixed value, far from the numbers that lose precision.
PRIOR_FLOOR = 1e-30


@kernel
def rank_unvisited(
    row: int,
    node: int,
    gumbel: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
) -> int:
    """Find the best unvisited action, and the weight of all unvisited ones relative to it.

    The weight is `sum exp(logit - logit of the best)`: with it the improved policy needs no exp per unvisited action.
    A node without children has no use for it, nor has the root.
    """
    logits = free_priors[row, node]
    best = NOTHING_LEFT
    if node == 0:
        for action in range(logits.shape[0]):
            if logits[action] > FREE_LOGITS_ABOVE and (
                best < 0 or gumbel[action] + logits[action] > gumbel[best] + logits[best]
            ):
                best = action
    else:
        best = 0
        for action in range(1, logits.shape[0]):
            if logits[action] > logits[best]:
                best = action
        if logits[best] > FREE_LOGITS_ABOVE:
            weight = nodes.dtype.type(0)
            for action in range(logits.shape[0]):
                weight += math.exp(logits[action] - logits[best])
            nodes[row, node, UNVISITED_WEIGHT] = weight
        else:
            best = NOTHING_LEFT
    links[row, node, BEST_UNVISITED] = best
    return best


@kernel
def complete(
    row: int,
    node: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> tuple[float, float, float]:
    """What turns the q of one node into sigma(q): (offset, factor, sigma of an unvisited action).

    sigma of a visited action is `(q - offset) * factor`.
    """
    zero = nodes.dtype.type(0)
    one = nodes.dtype.type(1)
    floor = nodes.dtype.type(PRIOR_FLOOR)
    low = nodes.dtype.type(math.inf)
    high = nodes.dtype.type(-math.inf)
    weight_sum = zero
    weighted_q = zero
    most_visits = zero
    child = links[row, node, FIRST_CHILD]
    while child != 0:
        q = nodes[row, child, Q]
        low = q if q < low else low
        high = q if q > high else high
        count = nodes[row, child, VISITS]
        most_visits = count if count > most_visits else most_visits
        if use_mixed_value:
            prior = math.exp(nodes[row, child, PRIOR])
            weight = prior if prior > floor else floor
            weight_sum += weight
            weighted_q += weight * q
        child = links[row, child, NEXT_SIBLING]
    value = nodes[row, node, RAW_VALUE]
    if weight_sum > zero:
        visits = nodes[row, node, VISITS]
        value = (value + (visits - one) * (weighted_q / weight_sum)) / visits
    offset = scale[OFFSET]
    inverse = scale[INVERSE_RANGE]
    if normalization == SIBLINGS:
        if links[row, node, NUM_TAKEN] < free_priors.shape[2]:
            low = min(low, value)
            high = max(high, value)
        offset = low
        inverse = one / max(high - low, scale[MIN_RANGE])
    elif normalization == TREE:
        low = rows[row, LOW]
        high = rows[row, HIGH]
        offset = low
        inverse = one / max(high - low, scale[MIN_RANGE]) if high > low else zero
    completed = (value - offset) * inverse
    if normalization == TREE:
        completed = min(max(completed, zero), one)
    sigma = (scale[MAXVISIT_INIT] + most_visits) * scale[VALUE_SCALE]
    return offset, sigma * inverse, sigma * completed
