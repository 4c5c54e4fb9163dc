"""Forced playouts at PUCT's root, and a policy target that is pruned of them.

Wu, "Accelerating Self-Play Learning in Go" (arXiv 1902.10565), section 3.2.
"""

import math

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined, kernel
from mcts.layout import (
    FORCED_PLAYOUTS,
    KEY_BEHIND,
    NUM_CHILDREN,
    PRIOR_BEHIND,
    VISITS,
    VISITS_BEHIND,
    action_of,
    blocks_of,
    edge_of,
    record_of,
)
from mcts.puct_choice import no_recent_edge, scale_q
from mcts.reductions import first_lane
from mcts.vectors import load, read


@inlined
def forced_key(base: int, floats: FloatArray, ints: IntArray, layout: IntArray) -> int:
    """The key of the lowest visited action of the root that has fewer visits than are forced on it; 0 if none.

    Forced are `sqrt(k * P(c) * sum_b N(b))` visits.
    """
    best = 0
    factor = read(floats, base + FORCED_PLAYOUTS)
    if factor > 0:
        root = record_of(base, 0)
        blocks = blocks_of(base, 0, layout)
        factor *= read(floats, root + VISITS) - floats.dtype.type(1)
        for slot in range(read(ints, root + NUM_CHILDREN)):
            edge = blocks + edge_of(slot)
            visits = read(floats, edge + VISITS_BEHIND)
            key = read(ints, edge + KEY_BEHIND)
            is_forced = visits * visits < factor * read(floats, edge + PRIOR_BEHIND)
            if is_forced and (best == 0 or key < best):
                best = key
    return best


@kernel
def prune_target(
    base: int,
    best_action: int,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    policy: FloatArray,
) -> None:
    """Write the visit fractions `[A]` of a visited root without the playouts that PUCT would not have made of itself.

    `best_action` is the most visited one, c*. From every other child c up to as many visits are taken as are forced on it, as
    long as PUCT(c) stays below PUCT(c*), q held fixed; a child that is left with a single visit so loses that too.
    """
    one = floats.dtype.type(1)
    root = record_of(base, 0)
    blocks = blocks_of(base, 0, layout)
    offsets, inverses, _ = scale_q(
        base,
        0,
        blocks,
        no_recent_edge(blocks, floats),
        load(floats, blocks),
        normalization,
        urgency,
        scale,
        floats,
        ints,
    )
    offset, inverse = first_lane(offsets), first_lane(inverses)
    num_visits = floats[root + VISITS] - one
    bonus = exploration[int(floats[root + VISITS])]
    highest = floats.dtype.type(math.inf)
    for slot in range(ints[root + NUM_CHILDREN]):
        edge = blocks + edge_of(slot)
        if action_of(ints[edge + KEY_BEHIND], ints) == best_action:
            highest = (floats[edge] - offset) * inverse
            highest += bonus * floats[edge + PRIOR_BEHIND] / (floats[edge + VISITS_BEHIND] + one)
    total = floats.dtype.type(0)
    for slot in range(ints[root + NUM_CHILDREN]):
        edge = blocks + edge_of(slot)
        action = action_of(ints[edge + KEY_BEHIND], ints)
        count = floats[edge + VISITS_BEHIND]
        if action != best_action:
            prior = floats[edge + PRIOR_BEHIND]
            scaled_q = (floats[edge] - offset) * inverse
            forced = math.floor(math.sqrt(floats[base + FORCED_PLAYOUTS] * prior * num_visits))
            least = max(count - forced, 0)
            is_pruned = False
            # With one visit fewer a child's bonus is divided by its visits as they are.
            while count > least and scaled_q + bonus * prior / count < highest:
                count -= one
                is_pruned = True
            if is_pruned and count == one:
                count -= one
        policy[action] = count
        total += count
    for action in range(policy.shape[0]):
        policy[action] /= total
