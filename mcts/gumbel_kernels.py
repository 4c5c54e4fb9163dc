"""Compiled selection of Gumbel MuZero: sequential halving at the root, the improved policy below it.

Both rest on sigma(q), the completed q of a node in logits: visited actions have their own q, all others the mixed value.
"""

import math

from numba import njit

from mcts.base import FloatArray, IntArray
from mcts.puct import INVERSE_RANGE, MIN_RANGE, OFFSET, SIBLINGS, TREE
from mcts.tree import (
    ACTION,
    BEST_UNVISITED,
    DEPTH_SUM,
    FIRST_CHILD,
    FREE_LOGITS_ABOVE,
    HIGH,
    LOW,
    NEXT_SIBLING,
    NOTHING_LEFT,
    NUM_CHILDREN,
    NUM_CONSIDERED,
    PRIOR,
    RAW_VALUE,
    STALE,
    UNVISITED_WEIGHT,
    VALUE,
    VISITS,
    Q,
)

# Entries of the scaling array, behind those of `puct.scaling`.
VALUE_SCALE, MAXVISIT_INIT = 3, 4

# Keeps visited actions whose prior underflows in the mixed value, far from the numbers that lose precision.
PRIOR_FLOOR = 1e-30


@njit(cache=True, nogil=True, error_model="numpy")
def _rank_unvisited(
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


@njit(cache=True, nogil=True, error_model="numpy")
def _complete(
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
        if links[row, node, NUM_CHILDREN] < free_priors.shape[2]:
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


@njit(cache=True, nogil=True, error_model="numpy")
def _best_of_root(
    row: int,
    considered: int,
    offset: float,
    factor: float,
    gumbel: FloatArray,
    nodes: FloatArray,
    links: IntArray,
) -> int:
    """The child with `considered` visits that has the largest `gumbel + logit + sigma(q)`; 0 if none."""
    best = 0
    best_score = nodes.dtype.type(-math.inf)
    child = links[row, 0, FIRST_CHILD]
    while child != 0:
        if nodes[row, child, VISITS] == considered:
            action = links[row, child, ACTION]
            score = gumbel[row, action] + nodes[row, child, PRIOR]
            score += (nodes[row, child, Q] - offset) * factor
            if (
                best == 0
                or score > best_score
                or (score == best_score and action < links[row, best, ACTION])
            ):
                best = child
                best_score = score
        child = links[row, child, NEXT_SIBLING]
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def select_gumbel(
    low_row: int,
    high_row: int,
    slot: int,
    max_depth: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    table: IntArray,
    gumbel: FloatArray,
    scratch: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    selection: IntArray,
) -> None:
    """Walk from each root to the edge to ask the model for; fill `selection` `[3, B]` (parent, action, node).

    `slot` is the index of the node that this simulation may add, `scratch` `[B, A]` room for scores. Ties go to the
    lowest action.
    """
    zero = nodes.dtype.type(0)
    worst = nodes.dtype.type(-math.inf)
    for row in range(low_row, high_row):
        node = 0
        depth = 0
        scores = scratch[row]
        while True:
            first = links[row, node, FIRST_CHILD]
            visits = nodes[row, node, VISITS]
            considered = 0
            if node == 0:
                considered = table[int(rows[row, NUM_CONSIDERED]), int(visits) - 1]
            best = links[row, node, BEST_UNVISITED]
            # Sequential halving looks at the root's unvisited actions in its first round only.
            if best == STALE and considered == 0:
                best = _rank_unvisited(row, node, gumbel[row], free_priors, nodes, links)
            best_child = 0
            if first != 0 and not (node == 0 and considered == 0):
                offset, factor, unvisited = _complete(
                    row,
                    node,
                    normalization,
                    use_mixed_value,
                    scale,
                    free_priors,
                    nodes,
                    links,
                    rows,
                )
                if node == 0:
                    best_child = _best_of_root(
                        row, considered, offset, factor, gumbel, nodes, links
                    )
                else:
                    # argmax of improved policy - N / (1 + sum N), equation 14.
                    highest = worst
                    if best != NOTHING_LEFT:
                        highest = free_priors[row, node, best] + unvisited
                    count = 0
                    child = first
                    while child != 0:
                        score = (nodes[row, child, Q] - offset) * factor + nodes[row, child, PRIOR]
                        scores[count] = score
                        highest = score if score > highest else highest
                        count += 1
                        child = links[row, child, NEXT_SIBLING]
                    total = zero
                    for index in range(count):
                        scores[index] = math.exp(scores[index] - highest)
                        total += scores[index]
                    best_score = worst
                    if best != NOTHING_LEFT:
                        share = math.exp(free_priors[row, node, best] + unvisited - highest)
                        total += share * nodes[row, node, UNVISITED_WEIGHT]
                        best_score = share / total
                    count = 0
                    child = first
                    while child != 0:
                        score = scores[count] / total - nodes[row, child, VISITS] / visits
                        action = links[row, child, ACTION]
                        if score > best_score or (score == best_score and action < best):
                            best_score = score
                            best_child = child
                            best = action
                        count += 1
                        child = links[row, child, NEXT_SIBLING]
                if (
                    best_child == 0 and best < 0
                ):  # scores beyond the float range; `result` refuses them
                    best_child = first
                if best_child != 0:
                    best = links[row, best_child, ACTION]
            depth += 1
            if best_child == 0 or depth >= max_depth:
                break
            node = best_child
        selection[0, row] = node
        selection[1, row] = best
        selection[2, row] = best_child if best_child != 0 else slot


@njit(cache=True, nogil=True, error_model="numpy")
def summarise_gumbel(
    low_row: int,
    high_row: int,
    num_simulations: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    gumbel: FloatArray,
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
    """Read the roots out: the improved policy, and the winner among the most visited actions."""
    num_actions = policy.shape[1]
    for row in range(low_row, high_row):
        root_value = nodes[row, 0, VALUE]
        offset, factor, unvisited = _complete(
            row, 0, normalization, use_mixed_value, scale, free_priors, nodes, links, rows
        )
        visits[row] = 0
        qvalues[row] = root_value
        for action in range(num_actions):
            policy[row, action] = free_priors[row, 0, action] + unvisited
        most = 0
        child = links[row, 0, FIRST_CHILD]
        while child != 0:
            action = links[row, child, ACTION]
            count = int(nodes[row, child, VISITS])
            visits[row, action] = count
            most = max(most, count)
            q = nodes[row, child, Q]
            qvalues[row, action] = q
            policy[row, action] = nodes[row, child, PRIOR] + (q - offset) * factor
            child = links[row, child, NEXT_SIBLING]
        highest = -math.inf
        for action in range(num_actions):
            if policy[row, action] > highest:
                highest = policy[row, action]
        total = 0.0
        for action in range(num_actions):
            # Illegal actions hold -1e30, whose exp is exactly 0.
            policy[row, action] = math.exp(policy[row, action] - highest)
            total += policy[row, action]
        for action in range(num_actions):
            policy[row, action] /= total
        if most == 0:
            best = _rank_unvisited(row, 0, gumbel[row], free_priors, nodes, links)
        else:
            winner = _best_of_root(row, most, offset, factor, gumbel, nodes, links)
            best = links[row, winner, ACTION]
        value[row] = root_value
        best_action[row] = best
        best_value[row] = qvalues[row, best]
        depth[row] = rows[row, DEPTH_SUM] / max(num_simulations, 1)
