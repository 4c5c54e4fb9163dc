"""The best of what is unvisited at a node, which is all that a choice needs to know of it."""

import math

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined
from mcts.layout import (
    BEST_UNVISITED,
    DEPTH,
    FREE_LOGITS_ABOVE,
    FREE_PRIOR,
    FREE_WEIGHT,
    GUMBEL_AT,
    NOTHING_LEFT,
    TAKEN_LOGIT,
    TAKEN_PRIOR,
    WIDTH,
    priors_of,
    record_of,
)
from mcts.reductions import (
    exponential,
    first_lane,
    larger,
    lowest,
    smaller,
    spread_highest,
    total,
)
from mcts.vectors import (
    LANES,
    Lanes,
    add,
    choose,
    count_from,
    equal,
    greater,
    load,
    next_lanes,
    read,
    spread,
    spread_place,
    subtract,
    write,
)

NOWHERE = 2**31 - 1


@inlined
def find_highest(
    priors: int, width: int, taken: int, mark: float, floats: FloatArray
) -> tuple[Lanes, int]:
    """The highest free prior of a node in every lane, and the first action that has it, with a mark at the action `taken`.

    The mark is not written first: a load of lanes waits for a number that is on its way to memory.
    """
    marks = spread(floats.dtype.type(mark))
    taken_lane = spread_place(taken)
    nowhere = count_from(NOWHERE - LANES)
    most = marks
    best = nowhere
    at = 0
    while at < width:
        places = count_from(at)
        lanes = choose(equal(places, taken_lane), marks, load(floats, priors + at))
        is_higher = greater(lanes, most)
        most = choose(is_higher, lanes, most)
        best = choose(is_higher, places, best)
        at = next_lanes(at)
    highest = spread_highest(most)
    return highest, lowest(choose(equal(most, highest), best, nowhere))


@inlined
def rank_free_priors(
    record: int, priors: int, width: int, taken: int, floats: FloatArray, ints: IntArray
) -> None:
    """Take the action `taken` (-1: none) from a node's free priors, and note the best of those that are left."""
    highest, action = find_highest(priors, width, taken, TAKEN_PRIOR, floats)
    prior = first_lane(highest)
    write(ints, record + BEST_UNVISITED, action if prior >= 0 else NOTHING_LEFT)
    write(floats, record + FREE_PRIOR, prior)
    if taken >= 0:
        write(floats, priors + taken, floats.dtype.type(TAKEN_PRIOR))


@inlined
def rank_free_logits(
    record: int, priors: int, width: int, taken: int, floats: FloatArray, ints: IntArray
) -> None:
    """`rank_free_priors` for logits; also notes the free weight `sum exp(logit - logit of the best)`.

    With it the improved policy needs no exp per unvisited action.
    """
    highest, action = find_highest(priors, width, taken, TAKEN_LOGIT, floats)
    marks = spread(floats.dtype.type(TAKEN_LOGIT))
    taken_lane = spread_place(taken)
    weight = spread(floats.dtype.type(0))
    at = 0
    while at < width:
        lanes = choose(equal(count_from(at), taken_lane), marks, load(floats, priors + at))
        weight = add(weight, exponential(subtract(lanes, highest)))
        at = next_lanes(at)
    logit = first_lane(highest)
    write(ints, record + BEST_UNVISITED, action if logit > FREE_LOGITS_ABOVE else NOTHING_LEFT)
    write(floats, record + FREE_PRIOR, logit)
    write(floats, record + FREE_WEIGHT, total(weight))
    if taken >= 0:
        write(floats, priors + taken, floats.dtype.type(TAKEN_LOGIT))


@inlined
def rank_gumbels(
    record: int,
    priors: int,
    gumbels: int,
    width: int,
    taken: int,
    floats: FloatArray,
    ints: IntArray,
) -> None:
    """`rank_free_logits` at Gumbel's root, where the best has the highest `gumbel + logit`; the weight is of no use there."""
    if taken >= 0:
        write(floats, priors + taken, floats.dtype.type(TAKEN_LOGIT))
    # A child of the root is rare: few actions are considered, and this can wait for the number just written.
    highest = spread(floats.dtype.type(-math.inf))
    at = 0
    while at < width:
        highest = larger(add(load(floats, gumbels + at), load(floats, priors + at)), highest)
        at = next_lanes(at)
    highest = spread_highest(highest)
    nowhere = count_from(NOWHERE - LANES)
    best = nowhere
    at = 0
    while at < width:
        lanes = add(load(floats, gumbels + at), load(floats, priors + at))
        best = smaller(choose(equal(lanes, highest), count_from(at), nowhere), best)
        at = next_lanes(at)
    action = lowest(best)
    logit = read(floats, priors + action)
    write(ints, record + BEST_UNVISITED, action if logit > FREE_LOGITS_ABOVE else NOTHING_LEFT)
    write(floats, record + FREE_PRIOR, logit)


@inlined
def rank(
    base: int,
    node: int,
    taken: int,
    is_gumbel: bool,
    has_chance: bool,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> None:
    """Take an action from what is unvisited at a node (-1: none), and note the best of what is left."""
    record = record_of(base, node)
    priors = priors_of(base, node, layout)
    width = read(layout, WIDTH)
    if is_gumbel and not (has_chance and read(ints, record + DEPTH) % 2 == 1):
        if node == 0:
            gumbels = base + read(layout, GUMBEL_AT)
            rank_gumbels(record, priors, gumbels, width, taken, floats, ints)
        else:
            rank_free_logits(record, priors, width, taken, floats, ints)
    else:
        rank_free_priors(record, priors, width, taken, floats, ints)
