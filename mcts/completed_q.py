"""The completed q of a node in logits, sigma(q): visited actions have their own q, all others the mixed value.

Absent actions have no share in it. Danihelka et al., "Policy improvement by planning with Gumbel" (ICLR 2022), section 4
and appendix D.
"""

import math

import numpy as np

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined
from mcts.layout import (
    BLOCK,
    HIGH,
    LOW,
    NUM_ABSENT,
    NUM_ACTIONS,
    NUM_CHILDREN,
    PRIOR_BEHIND,
    RAW_VALUE,
    VISITS,
    VISITS_BEHIND,
    record_of,
)
from mcts.puct_choice import INVERSE_RANGE, MIN_RANGE, OFFSET, SIBLINGS, TREE, Recent, load_edges
from mcts.reductions import exponential, highest, larger, lowest, smaller, total
from mcts.vectors import LANES, add, below, choose, load, multiply, next_lanes, read, spread

# Entries of the scaling array, behind those of `puct.scaling`.
VALUE_SCALE, MAXVISIT_INIT = 3, 4

# Keeps visited actions whose prior underflows in the mixed value, far from the numbers that lose precision.
PRIOR_FLOOR = 1e-30


@inlined
def complete(
    base: int,
    node: int,
    blocks: int,
    recent: Recent,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> tuple[np.floating, np.floating, np.floating]:
    """What turns the q of one node into sigma(q): (offset, factor, sigma of an unvisited action).

    sigma of a visited action is `(q - offset) * factor`. `recent` is what has just changed.
    """
    zero = floats.dtype.type(0)
    one = floats.dtype.type(1)
    record = record_of(base, node)
    num_children = read(ints, record + NUM_CHILDREN)
    zeros = spread(zero)
    end = spread(floats.dtype.type(math.inf))
    start = spread(floats.dtype.type(-math.inf))
    floor = spread(floats.dtype.type(PRIOR_FLOOR))
    lows, highs = end, start
    weights, weighted_q, counts = zeros, zeros, zeros
    first = 0
    while first < num_children:
        is_child = below(num_children - first)
        q = load_edges(0, first, blocks, recent[0], recent[1], floats)
        count = load_edges(VISITS_BEHIND, first, blocks, recent[0], recent[2], floats)
        lows = smaller(choose(is_child, q, end), lows)
        highs = larger(choose(is_child, q, start), highs)
        counts = larger(choose(is_child, count, zeros), counts)
        if use_mixed_value:
            logits = load(floats, blocks + (first // LANES) * BLOCK + PRIOR_BEHIND)
            weight = larger(exponential(logits), floor)
            weights = add(weights, choose(is_child, weight, zeros))
            weighted_q = add(weighted_q, choose(is_child, multiply(weight, q), zeros))
        first = next_lanes(first)
    low, high = lowest(lows), highest(highs)
    value = read(floats, record + RAW_VALUE)
    if use_mixed_value and num_children > 0:
        visits = read(floats, record + VISITS)
        value = (value + (visits - one) * (total(weighted_q) / total(weights))) / visits
    offset = read(scale, OFFSET)
    inverse = read(scale, INVERSE_RANGE)
    if normalization == SIBLINGS:
        if num_children + read(ints, record + NUM_ABSENT) < read(layout, NUM_ACTIONS):
            low = value if value < low else low
            high = value if value > high else high
        offset = low
        inverse = one / max(high - low, read(scale, MIN_RANGE))
    elif normalization == TREE:
        low = read(floats, base + LOW)
        high = read(floats, base + HIGH)
        offset = low
        inverse = one / max(high - low, read(scale, MIN_RANGE)) if high > low else zero
    completed = (value - offset) * inverse
    if normalization == TREE:
        completed = min(max(completed, zero), one)
    sigma = (read(scale, MAXVISIT_INIT) + highest(counts)) * read(scale, VALUE_SCALE)
    return offset, sigma * inverse, sigma * completed
