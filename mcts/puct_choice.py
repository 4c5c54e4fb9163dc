"""The choice of an action at one node by PUCT (MuZero, equation 2), for the kernels of every search that makes it."""

import numpy as np

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined
from mcts.layout import (
    BEST_UNVISITED,
    BLOCK,
    DISCOUNT,
    EDGE,
    FREE_PRIOR,
    HIGH,
    KEY_BEHIND,
    LOW,
    NUM_CHILDREN,
    PRIOR_BEHIND,
    REWARD,
    VALUE,
    VISITS,
    VISITS_BEHIND,
    action_of,
    make_key,
    record_of,
)
from mcts.reductions import (
    first_lane,
    larger,
    lowest,
    smaller,
    spread_highest,
    spread_lowest,
    total,
)
from mcts.vectors import (
    LANES,
    Lanes,
    add,
    below,
    bits_of,
    bits_per_number,
    both,
    choose,
    count_from,
    divide,
    equal,
    load,
    lowest_bit,
    multiply,
    next_lanes,
    read,
    spread,
    spread_minus_infinity,
    spread_place,
    subtract,
    write,
)

# What the kernels are given for the names in `NORMALIZATIONS` and `URGENCIES`.
TREE, SIBLINGS, BOUNDS, NONE = range(4)
MINIMUM, PARENT_VALUE, MEAN = range(3)

# Entries of the scaling array.
OFFSET, INVERSE_RANGE, MIN_RANGE = range(3)


# What has just changed at a node: the edge that was taken, its new q and its new visits, as (place in the blocks, q, visits). It is
# written to the blocks after the choice only: a load of lanes would have to wait for a number of them that is on its way to
# memory. Where nothing has changed, any edge with its own numbers will do.
Recent = tuple[int, np.floating, np.floating]


@inlined
def load_edges(
    behind: int, first: int, blocks: int, edge: int, number: np.floating, floats: FloatArray
) -> Lanes:
    """One number of eight edges from child `first` on: what stands `behind` their q in the blocks of a node.

    That of the recent `edge` is not yet there: it is `number`.
    """
    start = (first // LANES) * BLOCK
    is_recent = equal(count_from(start), spread_place(edge))
    return choose(is_recent, spread(number), load(floats, blocks + start + behind))


@inlined
def recent_edge(child: int, floats: FloatArray, ints: IntArray) -> Recent:
    """What has changed at the parent of a node, whose record is `child`, after the node's value and visits have."""
    q = read(floats, child + REWARD) + read(floats, child + DISCOUNT) * read(floats, child + VALUE)
    return read(ints, child + EDGE), q, read(floats, child + VISITS)


@inlined
def no_recent_edge(blocks: int, floats: FloatArray) -> Recent:
    """Nothing has changed: the first edge as it is."""
    return 0, read(floats, blocks), read(floats, blocks + VISITS_BEHIND)


@inlined
def write_edge(blocks: int, recent: Recent, floats: FloatArray) -> None:
    """Write what has changed to the blocks."""
    write(floats, blocks + recent[0], recent[1])
    write(floats, blocks + recent[0] + VISITS_BEHIND, recent[2])


@inlined
def lowest_key(mask: Lanes, first: int, blocks: int, ints: IntArray) -> int:
    """The lowest of the keys, of eight edges from child `first` on, where the mask holds; that of `first` if it holds nowhere.

    It holds nowhere for scores beyond the float range, which `result` refuses.
    """
    keys = blocks + (first // LANES) * BLOCK + KEY_BEHIND
    bits = bits_of(mask)
    # Ties are rare; a lowest lane is three exchanges of lanes one after the other.
    if bits & (bits - 1) == 0:
        return read(ints, keys + lowest_bit(bits))
    highest_key = ints.dtype.type((1 << (bits_per_number(ints) - 1)) - 1)
    return lowest(choose(mask, load(ints, keys), spread(highest_key)))


@inlined
def mean_q(num_children: int, blocks: int, recent: Recent, floats: FloatArray) -> np.floating:
    """The mean q of a node's visited actions."""
    zeros = spread(floats.dtype.type(0))
    added = zeros
    first = 0
    while first < num_children:
        q = load_edges(0, first, blocks, recent[0], recent[1], floats)
        added = add(added, choose(below(num_children - first), q, zeros))
        first = next_lanes(first)
    return total(added) / floats.dtype.type(num_children)


@inlined
def scale_q(
    base: int,
    node: int,
    blocks: int,
    recent: Recent,
    first_q: Lanes,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    floats: FloatArray,
    ints: IntArray,
) -> tuple[Lanes, Lanes, np.floating]:
    """What scales the q of a visited node's actions: in lanes offset and factor of `q - offset`; the scaled q of the unvisited.

    `first_q` is q of the first block, which has been loaded already.
    """
    record = record_of(base, node)
    num_children = read(ints, record + NUM_CHILDREN)
    zero = floats.dtype.type(0)
    one = floats.dtype.type(1)
    value = read(floats, record + VALUE)
    low = high = lowest_q = spread(value)
    if normalization == SIBLINGS or (normalization == NONE and urgency == MINIMUM):
        q = choose(below(num_children), first_q, spread(value))
        low = smaller(q, low)
        high = larger(q, high)
        first = LANES
        while first < num_children:
            q = load_edges(0, first, blocks, recent[0], recent[1], floats)
            q = choose(below(num_children - first), q, spread(value))
            low = smaller(q, low)
            high = larger(q, high)
            first = next_lanes(first)
        low = lowest_q = spread_lowest(low)
        high = spread_highest(high)
    elif normalization == TREE:
        low = spread(read(floats, base + LOW))
        high = spread(read(floats, base + HIGH))
    offset = spread(read(scale, OFFSET))
    inverse = spread(read(scale, INVERSE_RANGE))
    if normalization in (TREE, SIBLINGS):
        offset = low
        span = subtract(high, low)
        inverse = divide(spread(one), larger(span, spread(read(scale, MIN_RANGE))))
        inverse = choose(equal(high, low), spread(zero), inverse)
    if urgency == MINIMUM:
        # The lowest value known is 0 after normalisation.
        unvisited = first_lane(lowest_q) if normalization == NONE else zero
    else:
        unvisited = value
        if urgency == MEAN:
            unvisited = mean_q(num_children, blocks, recent, floats)
        unvisited = (unvisited - first_lane(offset)) * first_lane(inverse)
        if normalization == TREE:
            unvisited = min(max(unvisited, zero), one)
    return offset, inverse, unvisited


@inlined
def score_edges(
    first: int,
    blocks: int,
    recent: Recent,
    q: Lanes,
    offset: Lanes,
    inverse: Lanes,
    bonuses: Lanes,
    floats: FloatArray,
) -> Lanes:
    """`(q - offset) * inverse + bonus * prior / (visits + 1)` of eight edges from child `first` on."""
    visits = load_edges(VISITS_BEHIND, first, blocks, recent[0], recent[2], floats)
    prior = load(floats, blocks + (first // LANES) * BLOCK + PRIOR_BEHIND)
    share = divide(multiply(bonuses, prior), add(visits, spread(floats.dtype.type(1))))
    return add(multiply(subtract(q, offset), inverse), share)


@inlined
def best_edge(
    scores: Lanes, first: int, num_children: int, blocks: int, ints: IntArray
) -> tuple[np.floating, int]:
    """The highest score of eight edges from child `first` on, and its key; of equals that of the lowest action."""
    is_child = below(num_children - first)
    scores = choose(is_child, scores, spread_minus_infinity(scores))
    highest = spread_highest(scores)
    key = lowest_key(both(equal(scores, highest), is_child), first, blocks, ints)
    return first_lane(highest), int(key)


@inlined
def better_of(
    key: int,
    score: np.floating,
    unvisited: int,
    unvisited_score: np.floating,
    ints: IntArray,
) -> int:
    """The key of the better of a visited and an unvisited action (-1: none); of equals the lower action."""
    is_better = (score > unvisited_score) | (
        (score == unvisited_score) & (action_of(key, ints) < unvisited)
    )
    return key if is_better | (unvisited < 0) else make_key(unvisited, 0, ints)


@inlined
def choose_puct(
    base: int,
    node: int,
    blocks: int,
    recent: Recent,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
) -> int:
    """The key of the action that PUCT takes at a node with children, whose `blocks` begin there.

    `recent` is what has just changed, `scale` that of `puct.scaling`, `exploration` that of `puct.exploration_table`. Ties go to
    the lowest action.
    """
    record = record_of(base, node)
    num_children = read(ints, record + NUM_CHILDREN)
    first_q = load_edges(0, 0, blocks, recent[0], recent[1], floats)
    offset, inverse, unvisited = scale_q(
        base, node, blocks, recent, first_q, normalization, urgency, scale, floats, ints
    )
    bonus = read(exploration, int(read(floats, record + VISITS)))
    bonuses = spread(bonus)
    # Most nodes have no more children than a block has room for; more turns of the loop are what is seldom taken.
    scores = score_edges(0, blocks, recent, first_q, offset, inverse, bonuses, floats)
    best_score, best = best_edge(scores, 0, num_children, blocks, ints)
    first = LANES
    while first < num_children:
        q = load_edges(0, first, blocks, recent[0], recent[1], floats)
        scores = score_edges(first, blocks, recent, q, offset, inverse, bonuses, floats)
        score, key = best_edge(scores, first, num_children, blocks, ints)
        if score > best_score or (score == best_score and key < best):
            best_score = score
            best = key
        first = next_lanes(first)
    free = read(ints, record + BEST_UNVISITED)
    return better_of(
        best, best_score, free, unvisited + bonus * read(floats, record + FREE_PRIOR), ints
    )
