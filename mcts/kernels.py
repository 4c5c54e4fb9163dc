"""Compiled work that both selection families share: planting the roots, expansion with backup.

A kernel works on rows `[low_row, high_row)` of arrays that hold the whole batch, takes no lock and allocates nothing, so
that threads may share a batch. Numba's cache watches only the file of a kernel: after a change of the field numbers in
`tree.py`, touch the kernel files.
"""

import math

from numba import njit

from mcts.base import BoolArray, FloatArray, IntArray
from mcts.tree import (
    ACTION,
    BEST_UNVISITED,
    DEPTH,
    DEPTH_SUM,
    DISCOUNT,
    FIRST_CHILD,
    HIGH,
    LOW,
    NEXT_SIBLING,
    NUM_CHILDREN,
    NUM_CONSIDERED,
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
NO_LEGAL_ACTION, NOT_FINITE, BAD_NOISE = range(3)
NUM_FAULTS = 3

LOWEST_LOGIT = -1e9


@njit(cache=True, nogil=True, error_model="numpy")
def plant(
    low_row: int,
    high_row: int,
    is_gumbel: bool,
    noise_weight: float,
    max_considered: int,
    logits: FloatArray,
    value: FloatArray,
    noise: FloatArray,
    legal: BoolArray,
    gumbel: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> int:
    """Write the roots: masked priors with Dirichlet noise, or masked logits with Gumbel noise beside them.

    `logits` and `noise` are `[B, A]`, `value` `[B]`; `noise_weight` is the share of Dirichlet noise or the scale of
    Gumbel noise. Returns the first fault found.
    """
    num_actions = logits.shape[1]
    for row in range(low_row, high_row):
        num_legal = 0
        highest = -math.inf
        for action in range(num_actions):
            if legal[row, action]:
                num_legal += 1
                logit = logits[row, action]
                if not logit < math.inf:
                    return row * NUM_FAULTS + NOT_FINITE
                if not math.isfinite(noise[row, action]):
                    return row * NUM_FAULTS + BAD_NOISE
                if logit > highest:
                    highest = logit
        if num_legal == 0:
            return row * NUM_FAULTS + NO_LEGAL_ACTION
        if not math.isfinite(value[row]):
            return row * NUM_FAULTS + NOT_FINITE
        priors = free_priors[row, 0]
        total = 0.0
        for action in range(num_actions):
            gumbel[row, action] = 0
            if not legal[row, action]:
                priors[action] = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
                continue
            # All the mass on illegal actions leaves the legal ones equal.
            logit = logits[row, action] - highest if highest > -math.inf else 0.0
            if is_gumbel:
                priors[action] = max(logit, LOWEST_LOGIT)
                gumbel[row, action] = noise_weight * noise[row, action]
            else:
                priors[action] = math.exp(logit)
                total += priors[action]
        if not is_gumbel:
            for action in range(num_actions):
                if legal[row, action]:
                    prior = priors[action] / total
                    if noise_weight > 0:
                        prior = (1.0 - noise_weight) * prior + noise_weight * noise[row, action]
                    priors[action] = prior
        nodes[row, 0] = 0
        nodes[row, 0, VISITS] = 1
        nodes[row, 0, VALUE] = value[row]
        nodes[row, 0, RAW_VALUE] = value[row]
        nodes[row, 0, DISCOUNT] = 1
        nodes[row, 0, PRIOR] = 1
        links[row, 0] = 0
        links[row, 0, PARENT] = -1
        links[row, 0, ACTION] = -1
        links[row, 0, BEST_UNVISITED] = STALE
        rows[row, LOW] = value[row]
        rows[row, HIGH] = value[row]
        rows[row, DEPTH_SUM] = 0
        rows[row, NUM_CONSIDERED] = min(num_legal, max_considered)
    return NO_FAULT


@njit(cache=True, nogil=True, error_model="numpy")
def expand_and_backup(
    low_row: int,
    high_row: int,
    slot: int,
    is_gumbel: bool,
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

    `slot` is the node index of this simulation. Returns the first row whose answer is not finite, and leaves that row's
    tree as it was, or NO_FAULT.
    """
    num_actions = logits.shape[1]
    one = nodes.dtype.type(1)
    lowest_logit = nodes.dtype.type(LOWEST_LOGIT)
    fault = NO_FAULT
    for row in range(low_row, high_row):
        parent = selection[0, row]
        action = selection[1, row]
        node = selection[2, row]
        edge_reward = reward[row]
        edge_discount = discount[row]
        node_value = value[row]
        is_finite = math.isfinite(edge_reward + edge_discount) and math.isfinite(node_value)
        likeliest = 0
        for other in range(num_actions):
            logit = logits[row, other]
            is_finite &= logit < math.inf  # False for NaN as well; minus infinity is a prior of 0
            if logit > logits[row, likeliest]:
                likeliest = other
        highest = logits[row, likeliest]
        is_finite &= highest > -math.inf
        if node != slot or not is_finite:
            nodes[row, slot] = 0
            links[row, slot] = 0
            links[row, slot, PARENT] = -1
            links[row, slot, ACTION] = -1
        if not is_finite:
            if fault == NO_FAULT:
                fault = row
            continue

        priors = free_priors[row, node]
        if is_gumbel:
            for other in range(num_actions):
                priors[other] = max(logits[row, other] - highest, lowest_logit)
        else:
            total = one - one
            for other in range(num_actions):
                priors[other] = math.exp(logits[row, other] - highest)
                total += priors[other]
            for other in range(num_actions):
                priors[other] /= total

        here = nodes[row, node]
        link = links[row, node]
        if node == slot:
            above = links[row, parent]
            here[VISITS] = one
            here[PRIOR] = free_priors[row, parent, action]
            link[PARENT] = parent
            link[ACTION] = action
            link[FIRST_CHILD] = 0
            link[NUM_CHILDREN] = 0
            link[NEXT_SIBLING] = above[FIRST_CHILD]
            link[DEPTH] = above[DEPTH] + 1
            above[FIRST_CHILD] = node
            above[NUM_CHILDREN] += 1
            above[BEST_UNVISITED] = STALE
            free_priors[row, parent, action] = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
        else:
            # A leaf at the depth limit is evaluated again: its value is overwritten, its visits go on counting.
            here[VISITS] += one
        here[VALUE] = node_value
        here[RAW_VALUE] = node_value
        here[REWARD] = edge_reward
        here[DISCOUNT] = edge_discount
        link[BEST_UNVISITED] = likeliest
        rows[row, DEPTH_SUM] += link[DEPTH]

        low = rows[row, LOW]
        high = rows[row, HIGH]
        outcome = node_value
        mean = node_value
        while node != 0:
            edge_reward = nodes[row, node, REWARD]
            edge_discount = nodes[row, node, DISCOUNT]
            outcome = edge_reward + edge_discount * outcome
            q = edge_reward + edge_discount * mean
            nodes[row, node, Q] = q
            low = q if q < low else low
            high = q if q > high else high
            node = links[row, node, PARENT]
            visits = nodes[row, node, VISITS]
            mean = (nodes[row, node, VALUE] * visits + outcome) / (visits + one)
            nodes[row, node, VALUE] = mean
            nodes[row, node, VISITS] = visits + one
        rows[row, LOW] = low
        rows[row, HIGH] = high
    return fault
