"""The choice of an action at one node by Gumbel MuZero: at the root among the considered, below it by the improved policy."""

import math

from mcts.base import FloatArray, IntArray
from mcts.completed_q import complete
from mcts.jit import inlined
from mcts.layout import (
    BEST_UNVISITED,
    BLOCK,
    FREE_PRIOR,
    FREE_WEIGHT,
    GUMBEL_AT,
    KEPT_AT,
    KEY_BEHIND,
    NOTHING_LEFT,
    NUM_CHILDREN,
    NUM_KEPT,
    PRIOR_BEHIND,
    ROOT_GUMBEL_AT,
    SCRATCH_AT,
    VISITS,
    VISITS_BEHIND,
    blocks_of,
    make_key,
    record_of,
)
from mcts.puct_choice import Recent, best_edge, better_of, load_edges, lowest_key, no_recent_edge
from mcts.reductions import exponential, first_lane, larger, spread_highest, total
from mcts.vectors import (
    LANES,
    add,
    below,
    bits_of,
    both,
    choose,
    divide,
    equal,
    load,
    multiply,
    next_lanes,
    read,
    spread,
    store,
    subtract,
)


@inlined
def choose_at_root(
    base: int,
    considered: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> int:
    """The key of the root action with `considered` visits from this search whose `gumbel + logit + sigma(q)` is largest."""
    root = record_of(base, 0)
    free = read(ints, root + BEST_UNVISITED)
    if considered > 0:
        free = NOTHING_LEFT
    elif read(ints, base + NUM_KEPT) == 0:
        return make_key(free, 0, ints)
    blocks = blocks_of(base, 0, layout)
    num_children = read(ints, root + NUM_CHILDREN)
    offset, factor, unvisited = complete(
        base,
        0,
        blocks,
        no_recent_edge(blocks, floats),
        normalization,
        use_mixed_value,
        scale,
        floats,
        ints,
        layout,
    )
    nothing = spread(floats.dtype.type(-math.inf))
    wanted = spread(floats.dtype.type(considered))
    best_score = floats.dtype.type(-math.inf)
    best = int(read(ints, blocks + KEY_BEHIND))
    is_found = False
    first = 0
    while first < num_children:
        block = blocks + (first // LANES) * BLOCK
        kept = load(floats, base + read(layout, KEPT_AT) + first)
        is_considered = equal(subtract(load(floats, block + VISITS_BEHIND), kept), wanted)
        is_considered = both(is_considered, below(num_children - first))
        scores = load(floats, base + read(layout, ROOT_GUMBEL_AT) + first)
        scores = add(scores, load(floats, block + PRIOR_BEHIND))
        sigma = multiply(subtract(load(floats, block), spread(offset)), spread(factor))
        scores = choose(is_considered, add(scores, sigma), nothing)
        highest = spread_highest(scores)
        score = first_lane(highest)
        if bits_of(is_considered) != 0:
            is_best = both(equal(scores, highest), is_considered)
            key = int(lowest_key(is_best, first, blocks, ints))
            if not is_found or score > best_score or (score == best_score and key < best):
                best_score = score
                best = key
                is_found = True
        first = next_lanes(first)
    if free != NOTHING_LEFT:
        gumbel = read(floats, base + read(layout, GUMBEL_AT) + free)
        free_score = gumbel + read(floats, root + FREE_PRIOR) + unvisited
        if not is_found:
            return make_key(free, 0, ints)
        return better_of(best, best_score, free, free_score, ints)
    return best


@inlined
def choose_below(
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
) -> int:
    """The key of `argmax_a pi'(a) - N(a) / (1 + sum N)` at a node below the root with children (equation 14).

    `recent` is what has just changed. Ties go to the lowest action.
    """
    record = record_of(base, node)
    num_children = read(ints, record + NUM_CHILDREN)
    scratch = base + read(layout, SCRATCH_AT)
    zeros = spread(floats.dtype.type(0))
    nothing = spread(floats.dtype.type(-math.inf))
    offset, factor, unvisited = complete(
        base, node, blocks, recent, normalization, use_mixed_value, scale, floats, ints, layout
    )
    free = read(ints, record + BEST_UNVISITED)
    free_score = floats.dtype.type(-math.inf)
    if free != NOTHING_LEFT:
        free_score = read(floats, record + FREE_PRIOR) + unvisited
    highest = spread(free_score)
    first = 0
    while first < num_children:
        q = load_edges(0, first, blocks, recent[0], recent[1], floats)
        logits = load(floats, blocks + (first // LANES) * BLOCK + PRIOR_BEHIND)
        scores = add(multiply(subtract(q, spread(offset)), spread(factor)), logits)
        scores = choose(below(num_children - first), scores, nothing)
        store(floats, scratch + first, scores)
        highest = larger(scores, highest)
        first = next_lanes(first)
    highest = spread_highest(highest)
    amount = zeros
    first = 0
    while first < num_children:
        shares = exponential(subtract(load(floats, scratch + first), highest))
        shares = choose(below(num_children - first), shares, zeros)
        store(floats, scratch + first, shares)
        amount = add(amount, shares)
        first = next_lanes(first)
    share_sum = total(amount)
    free_share = floats.dtype.type(0)
    if free != NOTHING_LEFT:
        free_share = first_lane(exponential(subtract(spread(free_score), highest)))
        share_sum += free_share * read(floats, record + FREE_WEIGHT)
    shares_sum = spread(share_sum)
    visits = spread(read(floats, record + VISITS))
    best_score = floats.dtype.type(-math.inf)
    best = 0
    first = 0
    while first < num_children:
        count = load_edges(VISITS_BEHIND, first, blocks, recent[0], recent[2], floats)
        scores = divide(load(floats, scratch + first), shares_sum)
        scores = subtract(scores, divide(count, visits))
        score, key = best_edge(scores, first, num_children, blocks, ints)
        if first == 0 or score > best_score or (score == best_score and key < best):
            best_score = score
            best = key
        first = next_lanes(first)
    return better_of(best, best_score, free, free_share / share_sum, ints)
