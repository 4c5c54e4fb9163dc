"""Compiled drawing of categories, with equal draws merged.

A kernel works on positions `[low, high)` of the `b` rows; it writes only to the nodes it draws for and to scratch row `low`,
so that threads may share a batch. Letters as in `mcts.sampling`.
"""

import math

import numpy as np
import numpy.typing as npt

from mcts.base import BoolArray, FloatArray, IntArray
from mcts.counter_random import Keys, stream_of, uniform
from mcts.jit import inlined, kernel
from mcts.sampling import log_mixture


@inlined
def _compare(actions: IntArray, first: int, second: int) -> int:
    for factor in range(actions.shape[1]):
        if actions[first, factor] != actions[second, factor]:
            return -1 if actions[first, factor] < actions[second, factor] else 1
    return 0


@inlined
def _file_last(actions: IntArray, counts: FloatArray, num_distinct: int) -> int:
    """Take the action at slot `num_distinct` among the sorted ones before it; return how many are distinct now."""
    low = 0
    high = num_distinct
    while low < high:
        middle = (low + high) // 2
        order = _compare(actions, middle, num_distinct)
        if order == 0:
            counts[middle] += 1
            return num_distinct
        if order < 0:
            low = middle + 1
        else:
            high = middle
    for factor in range(actions.shape[1]):
        drawn = actions[num_distinct, factor]
        for slot in range(num_distinct, low, -1):
            actions[slot, factor] = actions[slot - 1, factor]
        actions[low, factor] = drawn
    for slot in range(num_distinct, low, -1):
        counts[slot] = counts[slot - 1]
    counts[low] = 1
    return num_distinct + 1


@inlined
def _accumulate(
    logits: FloatArray,
    legal: BoolArray,
    highest: float,
    temperature: float,
    cumulative: FloatArray,
) -> float:
    """Running sums of `exp((logit - highest) / temperature)` over legal categories; returns the whole sum."""
    total = 0.0
    for category in range(len(logits)):
        # Minus infinity divided by an infinite temperature is no number.
        if legal[category] and logits[category] > -math.inf:
            total += math.exp((logits[category] - highest) / temperature)
        cumulative[category] = total
    return total


@inlined
def _find(cumulative: FloatArray, threshold: float) -> int:
    """The first category whose running sum is above the threshold; one without weight is never found."""
    low = 0
    high = len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > threshold:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def draw_categories(
    low: int,
    high: int,
    num_flat: int,
    temperature: float,
    offsets: npt.NDArray[np.int64],
    rows: IntArray,
    nodes: IntArray,
    keys: Keys,
    parameters: FloatArray,
    legal: BoolArray,
    scratch: FloatArray,
    actions: IntArray,
    log_weights: FloatArray,
    logits: FloatArray,
) -> int:
    """Draw joint actions of independent categories; distinct ones are kept in ascending order.

    `parameters` are `[b, P]`, `legal` is `[b, P]`, or `[1, P]` for all rows; categories `offsets[d]` to `offsets[d + 1]`
    belong to factor `d`. The last `num_flat` of the `K` draws are from the policy at `temperature`. `scratch` is
    `[B, 2 P + 3 D]`. Fills `actions` `[B, N + 1, K, D]` and `log_weights` `[B, N + 1, K]` at the nodes, and `logits` `[b, K]`:
    NaN where a legal category's parameter is NaN or plus infinity, or a factor has no legal category with a finite one.
    Returns -1.
    """
    num_samples = logits.shape[1]
    num_factors = len(offsets) - 1
    share = num_flat / num_samples
    num_parameters = offsets[-1]
    policy_sums = scratch[low, :num_parameters]
    flat_sums = scratch[low, num_parameters : 2 * num_parameters]
    highest_logit = scratch[low, 2 * num_parameters : 2 * num_parameters + num_factors]
    log_policy_sum = scratch[
        low, 2 * num_parameters + num_factors : 2 * (num_parameters + num_factors)
    ]
    log_flat_sum = scratch[low, 2 * (num_parameters + num_factors) :]
    for position in range(low, high):
        row = rows[position]
        node = nodes[position]
        slots = actions[row, node]
        weights = log_weights[row, node]
        given = parameters[position]
        mask = legal[position if len(legal) > 1 else 0]
        is_sound = True
        for factor in range(num_factors):
            begin, end = offsets[factor], offsets[factor + 1]
            highest = -math.inf
            for category in range(begin, end):
                if mask[category]:
                    is_sound &= given[category] < math.inf
                    if given[category] > highest:
                        highest = given[category]
            is_sound &= highest > -math.inf
            if not is_sound:
                break
            part, allowed = given[begin:end], mask[begin:end]
            highest_logit[factor] = highest
            total = _accumulate(part, allowed, highest, 1.0, policy_sums[begin:end])
            log_policy_sum[factor] = math.log(total)
            log_flat_sum[factor] = log_policy_sum[factor]
            if num_flat > 0:
                sums = flat_sums[begin:end]
                total = _accumulate(part, allowed, highest, temperature, sums)
                log_flat_sum[factor] = math.log(total)
        if not is_sound:
            slots[:] = 0
            weights[:] = math.nan
            logits[position] = math.nan
            continue

        stream = stream_of(keys[row], node)
        num_distinct = 0
        for sample in range(num_samples):
            sums = flat_sums if sample >= num_samples - num_flat else policy_sums
            for factor in range(num_factors):
                ranks = sums[offsets[factor] : offsets[factor + 1]]
                # A product with a number below 1 stays below the sum: the last category is no catch-all.
                threshold = uniform(stream, sample * num_factors + factor) * ranks[-1]
                slots[num_distinct, factor] = _find(ranks, threshold)
            num_distinct = _file_last(slots, weights, num_distinct)

        for slot in range(num_distinct):
            log_policy = 0.0
            log_flat = 0.0
            for factor in range(num_factors):
                below = given[offsets[factor] + slots[slot, factor]] - highest_logit[factor]
                log_policy += below - log_policy_sum[factor]
                log_flat += below / temperature - log_flat_sum[factor]
            log_multiplicity = math.log(weights[slot] / num_samples)
            log_beta = log_mixture(log_policy, log_flat, share)
            weights[slot] = log_multiplicity - log_beta
            # The ratio first: for beta = pi it is exactly 1, and equal multiplicities have equal priors.
            logits[position, slot] = log_multiplicity + (log_policy - log_beta)
        for slot in range(num_distinct, num_samples):
            for factor in range(num_factors):  # by elements: numba would copy what might overlap
                slots[slot, factor] = slots[0, factor]
            weights[slot] = -math.inf
            logits[position, slot] = -math.inf
    return -1
