"""Compiled work that both selection families share: planting the roots, expansion with backup.

A kernel works on places `[low, high)` of arrays that hold the whole batch, takes no lock and allocates nothing, so that
threads may share a batch. A place is a row where all rows are worked on, or the place of a row that still searches in
the selection.
"""

import math

from mcts.base import BoolArray, FloatArray, IntArray
from mcts.jit import inlined, kernel
from mcts.tree import (
    ACTION,
    BEST_UNVISITED,
    DEPTH,
    DEPTH_SUM,
    DISCOUNT,
    FIRST_CHILD,
    FORCED_PLAYOUTS,
    FREE_SLOT,
    HIGH,
    KEPT_VISITS,
    LOW,
    NEXT_SIBLING,
    NUM_CONSIDERED,
    NUM_KEPT,
    NUM_SLOTS,
    NUM_TAKEN,
    PARENT,
    PRIOR,
    RAW_VALUE,
    REWARD,
    STALE,
    TAKEN_LOGIT,
    TAKEN_PRIOR,
    VALUE,
    VISITS,
    Q,
)

# What `plant` found wrong with a row; its result is `row * NUM_FAULTS + fault`, or NO_FAULT.
NO_FAULT = -1
NO_LEGAL_ACTION, NOT_FINITE, BAD_NOISE, ALL_ABSENT = range(4)
NUM_FAULTS = 4

LOWEST_LOGIT = -1e9


@kernel
def plant(
    low_row: int,
    high_row: int,
    is_gumbel: bool,
    noise_weight: float,
    max_considered: int,
    forced_playouts: float,
    keeps_children: bool,
    logits: FloatArray,
    value: FloatArray,
    noise: FloatArray,
    explored: BoolArray,
    legal: BoolArray,
    gumbel: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> int:
    """Write the roots: masked priors with Dirichlet noise, or masked logits with Gumbel noise beside them.

    `logits` and `noise` are `[B, A]`, `value` `[B]`; `noise_weight` is the share of Dirichlet noise or the scale of
    Gumbel noise. Rows that are not `explored` `[B]` have neither noise nor forced playouts. With `keeps_children` the list of children and the node slots stay, for `regraft`. Returns the first
    fault found.
    """
    num_actions = logits.shape[1]
    for row in range(low_row, high_row):
        num_legal = 0
        num_present = 0
        num_absent = 0
        highest = -math.inf
        noise_sum = 0.0
        for action in range(num_actions):
            logit = logits[row, action]
            if logit == -math.inf:
                num_absent += 1
            if legal[row, action]:
                num_legal += 1
                if not logit < math.inf:
                    return row * NUM_FAULTS + NOT_FINITE
                if not math.isfinite(noise[row, action]):
                    return row * NUM_FAULTS + BAD_NOISE
                if logit > -math.inf:
                    num_present += 1
                    noise_sum += noise[row, action]
                if logit > highest:
                    highest = logit
        if num_legal == 0:
            return row * NUM_FAULTS + NO_LEGAL_ACTION
        if num_present == 0:
            return row * NUM_FAULTS + ALL_ABSENT
        if not math.isfinite(value[row]):
            return row * NUM_FAULTS + NOT_FINITE
        noise_share = noise_weight if explored[row] else 0.0
        priors = free_priors[row, 0]
        total = 0.0
        for action in range(num_actions):
            gumbel[row, action] = 0
            logit = logits[row, action] - highest
            if not legal[row, action] or logit == -math.inf:
                priors[action] = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
            elif is_gumbel:
                priors[action] = max(logit, LOWEST_LOGIT)
                gumbel[row, action] = noise_share * noise[row, action]
            else:
                priors[action] = math.exp(logit)
                total += priors[action]
        if not is_gumbel:
            # A Dirichlet sample without the part of the absent actions, scaled up, is one over the others.
            noise_scale = 1.0
            if num_present < num_legal and noise_share > 0:
                noise_scale = 1.0 / noise_sum if noise_sum > 0 else 0.0
            for action in range(num_actions):
                if priors[action] >= 0:
                    prior = priors[action] / total
                    if noise_share > 0 and noise_scale > 0:
                        draw = noise_scale * noise[row, action]
                        prior = (1.0 - noise_share) * prior + noise_share * draw
                    priors[action] = prior
        first_child = links[row, 0, FIRST_CHILD] if keeps_children else 0
        nodes[row, 0] = 0
        nodes[row, 0, VISITS] = 1
        nodes[row, 0, VALUE] = value[row]
        nodes[row, 0, RAW_VALUE] = value[row]
        nodes[row, 0, DISCOUNT] = 1
        nodes[row, 0, PRIOR] = 1
        links[row, 0] = 0
        links[row, 0, PARENT] = -1
        links[row, 0, ACTION] = -1
        links[row, 0, FIRST_CHILD] = first_child
        links[row, 0, NUM_TAKEN] = num_absent
        links[row, 0, BEST_UNVISITED] = STALE
        rows[row, LOW] = value[row]
        rows[row, HIGH] = value[row]
        rows[row, DEPTH_SUM] = 0
        rows[row, NUM_CONSIDERED] = min(num_present, max_considered)
        rows[row, FREE_SLOT] = 0
        rows[row, NUM_KEPT] = 0
        rows[row, FORCED_PLAYOUTS] = forced_playouts if explored[row] else 0.0
        if first_child == 0:
            rows[row, NUM_SLOTS] = 1
    return NO_FAULT


@inlined
def next_slot(row: int, rows: FloatArray) -> int:
    """The index of the node that the next simulation of a row may add."""
    free = rows[row, FREE_SLOT]
    return int(free if free > 0 else rows[row, NUM_SLOTS])


@kernel
def expand_and_backup(
    low: int,
    high: int,
    is_gumbel: bool,
    has_chance: bool,
    selection: IntArray,
    reward: FloatArray,
    discount: FloatArray,
    logits: FloatArray,
    value: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> int:
    """Write the model's answer at the selected nodes and carry it up to the roots.

    `selection` is `[4, B]` (row, parent, action, node), the answers are in its order. With `has_chance` the nodes at odd
    depths are chance nodes: they hold probabilities, and the q of their outcomes have no part in the range of the tree.
    Returns the first place whose answer is not finite, and leaves that row's tree as it was, or NO_FAULT.
    """
    num_actions = logits.shape[1]
    one = nodes.dtype.type(1)
    absent = nodes.dtype.type(-math.inf)
    lowest_logit = nodes.dtype.type(LOWEST_LOGIT)
    fault = NO_FAULT
    for place in range(low, high):
        row = selection[0, place]
        parent = selection[1, place]
        action = selection[2, place]
        node = selection[3, place]
        edge_reward = reward[place]
        edge_discount = discount[place]
        node_value = value[place]
        is_finite = math.isfinite(edge_reward + edge_discount) and math.isfinite(node_value)
        likeliest = 0
        num_absent = 0
        for other in range(num_actions):
            logit = logits[place, other]
            is_finite &= logit < math.inf  # False for NaN as well
            num_absent += logit == absent
            if logit > logits[place, likeliest]:
                likeliest = other
        highest = logits[place, likeliest]
        is_finite &= highest > absent
        if not is_finite:
            if fault == NO_FAULT:
                fault = place
            continue

        is_odd = links[row, parent, DEPTH] % 2 == 0
        priors = free_priors[row, node]
        if is_gumbel and not (has_chance and is_odd):
            for other in range(num_actions):
                priors[other] = max(logits[place, other] - highest, lowest_logit)
        else:
            total = one - one
            for other in range(num_actions):
                priors[other] = math.exp(logits[place, other] - highest)
                total += priors[other]
            for other in range(num_actions):
                priors[other] /= total
        if num_absent > 0:
            for other in range(num_actions):
                if logits[place, other] == absent:
                    priors[other] = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR

        here = nodes[row, node]
        link = links[row, node]
        if node == next_slot(row, rows):
            if rows[row, FREE_SLOT] > 0:
                rows[row, FREE_SLOT] = link[NEXT_SIBLING]
            else:
                rows[row, NUM_SLOTS] += one
            above = links[row, parent]
            here[VISITS] = one
            here[PRIOR] = free_priors[row, parent, action]
            link[PARENT] = parent
            link[ACTION] = action
            link[FIRST_CHILD] = 0
            link[NUM_TAKEN] = num_absent
            link[NEXT_SIBLING] = above[FIRST_CHILD]
            link[DEPTH] = above[DEPTH] + 1
            link[KEPT_VISITS] = 0
            above[FIRST_CHILD] = node
            above[NUM_TAKEN] += 1
            above[BEST_UNVISITED] = STALE
            free_priors[row, parent, action] = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
        else:
            # A leaf at the depth limit is evaluated again: its value is overwritten, its visits go on counting.
            here[VISITS] += one
            if rows[row, FREE_SLOT] == 0:
                # The slot of this simulation stays unused, as in mctx.
                slot = int(rows[row, NUM_SLOTS])
                nodes[row, slot] = 0
                links[row, slot] = 0
                links[row, slot, PARENT] = -1
                links[row, slot, ACTION] = -1
                rows[row, NUM_SLOTS] += one
        here[VALUE] = node_value
        here[RAW_VALUE] = node_value
        here[REWARD] = edge_reward
        here[DISCOUNT] = edge_discount
        link[BEST_UNVISITED] = likeliest
        rows[row, DEPTH_SUM] += link[DEPTH]

        lowest_q = rows[row, LOW]
        highest_q = rows[row, HIGH]
        outcome = node_value
        mean = node_value
        while node != 0:
            edge_reward = nodes[row, node, REWARD]
            edge_discount = nodes[row, node, DISCOUNT]
            outcome = edge_reward + edge_discount * outcome
            q = edge_reward + edge_discount * mean
            nodes[row, node, Q] = q
            lowest_q = q if q < lowest_q else lowest_q
            highest_q = q if q > highest_q else highest_q
            node = links[row, node, PARENT]
            visits = nodes[row, node, VISITS]
            mean = (nodes[row, node, VALUE] * visits + outcome) / (visits + one)
            nodes[row, node, VALUE] = mean
            nodes[row, node, VISITS] = visits + one
        if has_chance:
            # Decisions compare the q of actions alone: those of the edges into odd depths.
            lowest_q = rows[row, LOW]
            highest_q = rows[row, HIGH]
            node = selection[3, place] if is_odd else parent
            while node > 0:
                q = nodes[row, node, Q]
                lowest_q = q if q < lowest_q else lowest_q
                highest_q = q if q > highest_q else highest_q
                node = links[row, links[row, node, PARENT], PARENT]
        rows[row, LOW] = lowest_q
        rows[row, HIGH] = highest_q
    return fault
