"""Compiled work that all rules share: planting the roots.

A kernel works on places `[low, high)` of arrays that hold the whole batch, takes no lock and allocates nothing, so that
threads may share a batch. A place is a row where all rows are worked on, or the place of a row that still searches in
the selection.
"""

import math

from mcts.base import BoolArray, FloatArray, IntArray
from mcts.jit import kernel
from mcts.layout import (
    DEPTH_SUM,
    DISCOUNT,
    FORCED_PLAYOUTS,
    FREE_SLOT,
    GUMBEL_AT,
    HIGH,
    LOW,
    LOWEST_LOGIT,
    NUM_ABSENT,
    NUM_CHILDREN,
    NUM_CONSIDERED,
    NUM_KEPT,
    NUM_SLOTS,
    RAW_VALUE,
    ROW_STAMP,
    STRIDE,
    TAKEN_LOGIT,
    TAKEN_PRIOR,
    VALUE,
    VISITS,
    WIDTH,
    clear_record,
    priors_of,
    record_of,
)

# What `plant` found wrong with a row; its result is `row * NUM_FAULTS + fault`, or NO_FAULT.
NO_FAULT = -1
NO_LEGAL_ACTION, NOT_FINITE, BAD_NOISE, ALL_ABSENT = range(4)
NUM_FAULTS = 4


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
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> int:
    """Write the roots: masked priors with Dirichlet noise, or masked logits with Gumbel noise beside them.

    `logits` and `noise` are `[B, A]`, `value` `[B]`; `noise_weight` is the share of Dirichlet noise or the scale of
    Gumbel noise. Rows that are not `explored` `[B]` have neither noise nor forced playouts. With `keeps_children` the root's
    children and the node slots stay, for `regraft`. Returns the first fault found.
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
        base = row * layout[STRIDE]
        gumbels = floats[base + layout[GUMBEL_AT] :][:num_actions]
        priors = floats[priors_of(base, 0, layout) :][: layout[WIDTH]]
        total = 0.0
        for action in range(num_actions):
            gumbels[action] = 0
            logit = logits[row, action] - highest
            if not legal[row, action] or logit == -math.inf:
                priors[action] = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
            elif is_gumbel:
                priors[action] = max(logit, LOWEST_LOGIT)
                gumbels[action] = noise_share * noise[row, action]
            else:
                priors[action] = math.exp(logit)
                total += priors[action]
        for filler in range(num_actions, priors.shape[0]):
            priors[filler] = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
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
        record = record_of(base, 0)
        num_children = ints[record + NUM_CHILDREN] if keeps_children else 0
        clear_record(base, 0, floats, ints)
        floats[record + VISITS] = 1
        floats[record + VALUE] = value[row]
        floats[record + RAW_VALUE] = value[row]
        floats[record + DISCOUNT] = 1
        ints[record + NUM_CHILDREN] = num_children
        ints[record + NUM_ABSENT] = num_absent
        floats[base + LOW] = value[row]
        floats[base + HIGH] = value[row]
        floats[base + DEPTH_SUM] = 0
        floats[base + FORCED_PLAYOUTS] = forced_playouts if explored[row] else 0.0
        ints[base + NUM_CONSIDERED] = min(num_present, max_considered)
        ints[base + FREE_SLOT] = 0
        ints[base + NUM_KEPT] = 0
        ints[base + ROW_STAMP] = 0
        if num_children == 0:
            ints[base + NUM_SLOTS] = 1
    return NO_FAULT
