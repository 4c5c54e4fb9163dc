"""Forced playouts at PUCT's root, and a policy target that is pruned of them.

Wu, "Accelerating Self-Play Learning in Go" (arXiv 1902.10565), section 3.2.
"""

import math

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined, kernel
from mcts.puct_choice import scale_q
from mcts.tree import ACTION, FIRST_CHILD, FORCED_PLAYOUTS, NEXT_SIBLING, PRIOR, VISITS, Q


@inlined
def forced_child(row: int, nodes: FloatArray, links: IntArray, rows: FloatArray) -> int:
    """The visited child of the root, of the lowest action, that has fewer visits than are forced on it; 0 if none.

    Forced are `sqrt(k * P(c) * sum_b N(b))` visits.
    """
    best = 0
    factor = rows[row, FORCED_PLAYOUTS]
    if factor > 0:
        factor *= nodes[row, 0, VISITS] - nodes.dtype.type(1)
        child = links[row, 0, FIRST_CHILD]
        while child != 0:
            visits = nodes[row, child, VISITS]
            if visits * visits < factor * nodes[row, child, PRIOR] and (
                best == 0 or links[row, child, ACTION] < links[row, best, ACTION]
            ):
                best = child
            child = links[row, child, NEXT_SIBLING]
    return best


@kernel
def prune_target(
    row: int,
    best_action: int,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    policy: FloatArray,
) -> None:
    """Write the visit fractions `[A]` of a visited root without the playouts that PUCT would not have made of itself.

    `best_action` is the most visited one, c*. From every other child c up to as many visits are taken as are forced on it, as
    long as PUCT(c) stays below PUCT(c*), q held fixed; a child that is left with a single visit so loses that too.
    """
    one = nodes.dtype.type(1)
    offset, inverse, _ = scale_q(row, 0, normalization, urgency, scale, nodes, links, rows)
    num_visits = nodes[row, 0, VISITS] - one
    bonus = exploration[int(nodes[row, 0, VISITS])]
    highest = nodes.dtype.type(math.inf)
    child = links[row, 0, FIRST_CHILD]
    while child != 0:
        if links[row, child, ACTION] == best_action:
            highest = (nodes[row, child, Q] - offset) * inverse
            highest += bonus * nodes[row, child, PRIOR] / (nodes[row, child, VISITS] + one)
        child = links[row, child, NEXT_SIBLING]
    total = nodes.dtype.type(0)
    child = links[row, 0, FIRST_CHILD]
    while child != 0:
        action = links[row, child, ACTION]
        count = nodes[row, child, VISITS]
        if action != best_action:
            prior = nodes[row, child, PRIOR]
            scaled_q = (nodes[row, child, Q] - offset) * inverse
            forced = math.floor(math.sqrt(rows[row, FORCED_PLAYOUTS] * prior * num_visits))
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
        child = links[row, child, NEXT_SIBLING]
    for action in range(policy.shape[0]):
        policy[action] /= total
