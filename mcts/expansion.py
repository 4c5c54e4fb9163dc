"""What one simulation adds to a tree, for the kernels of every rule: the model's answer at a node, then the path to the root."""

import math

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined
from mcts.layout import (
    ACTION,
    BEST_UNVISITED,
    CHOICE,
    DEPTH,
    DEPTH_SUM,
    DISCOUNT,
    EDGE,
    FREE_PRIOR,
    FREE_SLOT,
    GUMBEL_AT,
    HIGH,
    KEPT_AT,
    KEY_BEHIND,
    LOW,
    LOWEST_LOGIT,
    NUM_ABSENT,
    NUM_CHILDREN,
    NUM_SLOTS,
    PARENT,
    PATH_AT,
    PATH_LENGTH,
    PRIOR_BEHIND,
    RAW_VALUE,
    REWARD,
    ROOT_GUMBEL_AT,
    ROW_STAMP,
    STAMP,
    TAKEN_LOGIT,
    TAKEN_PRIOR,
    VALUE,
    VISITS,
    WIDTH,
    blocks_of,
    clear_record,
    edge_of,
    make_key,
    next_slot,
    priors_of,
    record_of,
)
from mcts.ranking import rank
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
    add,
    below,
    bits_of,
    both,
    choose,
    count_bits,
    count_from,
    divide,
    equal,
    less,
    load,
    load_first,
    next_lanes,
    read,
    spread,
    store,
    subtract,
    write,
)

NOWHERE = 2**31 - 1
ALL_LANES = (1 << LANES) - 1


@inlined
def survey(logits: FloatArray, start: int, num_actions: int) -> tuple[float, bool]:
    """The highest of a node's logits, which begin at `start`, and whether all are below infinity and one is finite."""
    absent = logits.dtype.type(-math.inf)
    end = spread(logits.dtype.type(math.inf))
    highest = spread(absent)
    is_usable = below(LANES)
    at = 0
    while at < num_actions:
        lanes = load_first(logits, start + at, num_actions - at, absent)
        highest = larger(lanes, highest)
        is_usable = both(is_usable, less(lanes, end))  # False for NaN as well
        at = next_lanes(at)
    most = first_lane(spread_highest(highest))
    return most, bits_of(is_usable) == ALL_LANES and most > absent


@inlined
def write_priors(
    logits: FloatArray,
    start: int,
    num_actions: int,
    width: int,
    highest: float,
    holds_logits: bool,
    priors: int,
    floats: FloatArray,
) -> tuple[int, float, int]:
    """Write a new node's free priors, or logits below the highest; returns the best action, its prior, and how many are absent.

    The best is that of the logits: rounding may make priors equal.
    """
    zero = floats.dtype.type(0)
    absent = spread(floats.dtype.type(-math.inf))
    taken = spread(floats.dtype.type(TAKEN_LOGIT if holds_logits else TAKEN_PRIOR))
    floor = spread(floats.dtype.type(LOWEST_LOGIT))
    top = spread(highest)
    zeros = spread(zero)
    amount = zeros
    nowhere = count_from(NOWHERE - LANES)
    best = nowhere
    num_absent = num_actions - width
    at = 0
    while at < width:
        lanes = load_first(logits, start + at, num_actions - at, -math.inf)
        is_absent = equal(lanes, absent)
        num_absent += count_bits(bits_of(is_absent))
        best = smaller(choose(equal(lanes, top), count_from(at), nowhere), best)
        lanes = subtract(lanes, top)
        if holds_logits:
            lanes = larger(lanes, floor)
        else:
            lanes = exponential(lanes)
            amount = add(amount, choose(is_absent, zeros, lanes))
        store(floats, priors + at, choose(is_absent, taken, lanes))
        at = next_lanes(at)
    if not holds_logits:
        amount = spread(total(amount))
        at = 0
        while at < width:
            lanes = load(floats, priors + at)
            store(floats, priors + at, choose(less(lanes, zeros), lanes, divide(lanes, amount)))
            at = next_lanes(at)
    action = lowest(best)
    return action, read(floats, priors + action), num_absent


@inlined
def add_child(
    base: int,
    parent: int,
    action: int,
    node: int,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> None:
    """Put a new node into the blocks of its parent, with the prior of its action; its slot is no longer free."""
    record = record_of(base, node)
    above = record_of(base, parent)
    if read(ints, base + FREE_SLOT) > 0:
        write(ints, base + FREE_SLOT, read(ints, record + EDGE))
    else:
        write(ints, base + NUM_SLOTS, read(ints, base + NUM_SLOTS) + 1)
    slot = read(ints, above + NUM_CHILDREN)
    edge = edge_of(slot)
    place = blocks_of(base, parent, layout) + edge
    write(ints, above + NUM_CHILDREN, slot + 1)
    write(floats, place + PRIOR_BEHIND, read(floats, priors_of(base, parent, layout) + action))
    write(ints, place + KEY_BEHIND, make_key(action, node, ints))
    write(floats, record + VISITS, 0.0)
    write(ints, record + PARENT, parent)
    write(ints, record + ACTION, action)
    write(ints, record + EDGE, edge)
    write(ints, record + NUM_CHILDREN, 0)
    write(ints, record + DEPTH, read(ints, above + DEPTH) + 1)
    if parent == 0:
        write(floats, base + read(layout, KEPT_AT) + slot, 0.0)
        gumbel = read(floats, base + read(layout, GUMBEL_AT) + action)
        write(floats, base + read(layout, ROOT_GUMBEL_AT) + slot, gumbel)


@inlined
def expand(
    base: int,
    parent: int,
    action: int,
    node: int,
    is_gumbel: bool,
    has_chance: bool,
    logits: FloatArray,
    start: int,
    highest: float,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> None:
    """Write the node that an edge leads to: its links and its free priors, of logits that begin at `start`.

    A leaf at the depth limit is evaluated again: it keeps its place and its visits. With chance nodes, those at odd depths hold
    probabilities under Gumbel as well.
    """
    record = record_of(base, node)
    priors = priors_of(base, node, layout)
    is_new = node == next_slot(base, ints)
    if is_new:
        # Before the priors are written, so that what this writes is in memory when lanes of it are loaded.
        add_child(base, parent, action, node, floats, ints, layout)
    elif read(ints, base + FREE_SLOT) == 0:
        # The slot of this simulation stays unused, as in mctx.
        slot = read(ints, base + NUM_SLOTS)
        clear_record(base, slot, floats, ints)
        write(ints, base + NUM_SLOTS, slot + 1)
    num_actions, width = logits.shape[1], read(layout, WIDTH)
    if is_gumbel and not (has_chance and read(ints, record + DEPTH) % 2 == 1):
        best, prior, num_absent = write_priors(
            logits, start, num_actions, width, highest, True, priors, floats
        )
    else:
        best, prior, num_absent = write_priors(
            logits, start, num_actions, width, highest, False, priors, floats
        )
    write(ints, record + NUM_ABSENT, num_absent)
    write(ints, record + BEST_UNVISITED, best)
    write(floats, record + FREE_PRIOR, prior)
    write(ints, record + CHOICE, make_key(best, 0, ints))
    if is_new:
        rank(base, parent, action, is_gumbel, has_chance, floats, ints, layout)


@inlined
def carry_up(
    base: int,
    node: int,
    reward: float,
    discount: float,
    value: float,
    choices_need_bounds: bool,
    has_chance: bool,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> int:
    """Write the answer at a node and its outcome along the path to the root; returns the length of the path.

    The edges in the blocks are left to be written with the choices, see `puct_choice.Recent`.
    With chance nodes only the q of actions, edges from even depths, count for the bounds of the tree: only those are compared.
    """
    one = floats.dtype.type(1)
    record = record_of(base, node)
    path = base + read(layout, PATH_AT)
    length = read(ints, base + PATH_LENGTH)
    visits = read(floats, record + VISITS) + one
    write(floats, record + VISITS, visits)
    write(floats, record + VALUE, value)
    write(floats, record + RAW_VALUE, value)
    write(floats, record + REWARD, reward)
    write(floats, record + DISCOUNT, discount)
    write(floats, base + DEPTH_SUM, read(floats, base + DEPTH_SUM) + length)
    low = read(floats, base + LOW)
    high = read(floats, base + HIGH)
    old_low, old_high = low, high
    outcome = value
    mean = value
    for back in range(length):
        level = length - 1 - back
        parent = read(ints, path + level)
        reward = read(floats, record + REWARD)
        discount = read(floats, record + DISCOUNT)
        outcome = reward + discount * outcome
        q = reward + discount * mean
        if not has_chance or level % 2 == 0:
            low = q if q < low else low
            high = q if q > high else high
        record = record_of(base, parent)
        visits = read(floats, record + VISITS)
        mean = (read(floats, record + VALUE) * visits + outcome) / (visits + one)
        visits += one
        write(floats, record + VALUE, mean)
        write(floats, record + VISITS, visits)
    write(floats, base + LOW, low)
    write(floats, base + HIGH, high)
    stamp = read(ints, base + ROW_STAMP)
    if choices_need_bounds and (low < old_low or high > old_high):
        stamp += 1
        write(ints, base + ROW_STAMP, stamp)
    write(ints, record_of(base, node) + STAMP, stamp)
    return length
