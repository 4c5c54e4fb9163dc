"""Compiled selection of Gumbel MuZero: sequential halving at the root, the improved policy below it."""

import math

import numpy as np

from mcts.base import FloatArray, IntArray
from mcts.completed_q import complete, rank_unvisited
from mcts.jit import kernel
from mcts.kernels import next_slot
from mcts.tree import (
    ACTION,
    BEST_UNVISITED,
    DEPTH_SUM,
    FIRST_CHILD,
    FREE_LOGITS_ABOVE,
    KEPT_VISITS,
    NEXT_SIBLING,
    NOTHING_LEFT,
    NUM_KEPT,
    PRIOR,
    STALE,
    UNVISITED_WEIGHT,
    VALUE,
    VISITS,
    Q,
)


@kernel
def _best_of_root(
    row: int,
    considered: int,
    offset: float,
    factor: float,
    gumbel: FloatArray,
    nodes: FloatArray,
    links: IntArray,
) -> tuple[int, np.floating]:
    """The child with `considered` visits from this search whose `gumbel + logit + sigma(q)` is largest, and that sum.

    0 and minus infinity if there is none.
    """
    best = 0
    best_score = nodes.dtype.type(-math.inf)
    child = links[row, 0, FIRST_CHILD]
    while child != 0:
        if int(nodes[row, child, VISITS]) - links[row, child, KEPT_VISITS] == considered:
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
    return best, best_score


@kernel
def choose_at_root(
    row: int,
    considered: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    gumbel: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> tuple[int, int]:
    """The best action with `considered` visits from this search, and the child that it leads to: 0 if unvisited."""
    best = NOTHING_LEFT
    if considered == 0:
        best = links[row, 0, BEST_UNVISITED]
        if best == STALE:
            best = rank_unvisited(row, 0, gumbel[row], free_priors, nodes, links)
        if rows[row, NUM_KEPT] == 0:
            return best, 0
    first = links[row, 0, FIRST_CHILD]
    offset, factor, unvisited = complete(
        row, 0, normalization, use_mixed_value, scale, free_priors, nodes, links, rows
    )
    child, score = _best_of_root(row, considered, offset, factor, gumbel, nodes, links)
    if best != NOTHING_LEFT:
        best_score = gumbel[row, best] + free_priors[row, 0, best] + unvisited
        if child == 0 or not (
            score > best_score or (score == best_score and links[row, child, ACTION] < best)
        ):
            return best, 0
    if child == 0:  # scores beyond the float range; `result` refuses them
        child = first
    return links[row, child, ACTION], child


@kernel
def choose_below(
    row: int,
    node: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    scores: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> tuple[int, int]:
    """The `argmax_a pi'(a) - N(a) / (1 + sum N)` of a node below the root (equation 14), and the child: 0 if unvisited."""
    best = links[row, node, BEST_UNVISITED]
    if best == STALE:
        best = rank_unvisited(row, node, scores, free_priors, nodes, links)
    first = links[row, node, FIRST_CHILD]
    if first == 0:
        return best, 0
    offset, factor, unvisited = complete(
        row, node, normalization, use_mixed_value, scale, free_priors, nodes, links, rows
    )
    visits = nodes[row, node, VISITS]
    highest = nodes.dtype.type(-math.inf)
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
    total = nodes.dtype.type(0)
    for index in range(count):
        scores[index] = math.exp(scores[index] - highest)
        total += scores[index]
    best_score = nodes.dtype.type(-math.inf)
    if best != NOTHING_LEFT:
        share = math.exp(free_priors[row, node, best] + unvisited - highest)
        total += share * nodes[row, node, UNVISITED_WEIGHT]
        best_score = share / total
    best_child = 0
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
    if best_child == 0 and best < 0:  # scores beyond the float range; `result` refuses them
        return links[row, first, ACTION], first
    return best, best_child


@kernel
def select_gumbel(
    low: int,
    high: int,
    max_depth: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    schedule: IntArray,
    gumbel: FloatArray,
    scratch: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    selection: IntArray,
) -> None:
    """Walk from the roots to the edges to ask the model for.

    `selection` is `[4, B]`: its rows are given, parent, action and node are filled in. `schedule` `[B, N]` holds the
    considered visits of every row, `scratch` `[B, A]` is room for scores. Ties go to the lowest action.
    """
    for place in range(low, high):
        row = selection[0, place]
        node = 0
        depth = 0
        scores = scratch[row]
        while True:
            if node == 0:
                num_made = int(nodes[row, 0, VISITS] - rows[row, NUM_KEPT]) - 1
                considered = schedule[row, num_made]
                best, best_child = choose_at_root(
                    row,
                    considered,
                    normalization,
                    use_mixed_value,
                    scale,
                    gumbel,
                    free_priors,
                    nodes,
                    links,
                    rows,
                )
            else:
                best, best_child = choose_below(
                    row,
                    node,
                    normalization,
                    use_mixed_value,
                    scale,
                    scores,
                    free_priors,
                    nodes,
                    links,
                    rows,
                )
            depth += 1
            if best_child == 0 or depth >= max_depth:
                break
            node = best_child
        selection[1, place] = node
        selection[2, place] = best
        selection[3, place] = best_child if best_child != 0 else next_slot(row, rows)


@kernel
def summarise_gumbel(
    low_row: int,
    high_row: int,
    num_made: IntArray,
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
        offset, factor, unvisited = complete(
            row, 0, normalization, use_mixed_value, scale, free_priors, nodes, links, rows
        )
        visits[row] = 0
        qvalues[row] = root_value
        for action in range(num_actions):
            logit = free_priors[row, 0, action]
            policy[row, action] = logit + unvisited if logit > FREE_LOGITS_ABOVE else -math.inf
        most = 0  # of this search alone
        child = links[row, 0, FIRST_CHILD]
        while child != 0:
            action = links[row, child, ACTION]
            count = int(nodes[row, child, VISITS])
            visits[row, action] = count
            most = max(most, count - links[row, child, KEPT_VISITS])
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
            policy[row, action] = math.exp(policy[row, action] - highest)
            total += policy[row, action]
        for action in range(num_actions):
            policy[row, action] /= total
        best, _ = choose_at_root(
            row,
            most,
            normalization,
            use_mixed_value,
            scale,
            gumbel,
            free_priors,
            nodes,
            links,
            rows,
        )
        value[row] = root_value
        best_action[row] = best
        best_value[row] = qvalues[row, best]
        depth[row] = rows[row, DEPTH_SUM] / max(num_made[row], 1)
