"""Where the numbers of a tree stand in memory, for the kernels; `mcts.tree` shows them as arrays.

All that belongs to a row stands together, in floats, and for whole numbers in integers of the same width that share the memory:

    header | records, one per node | free priors, one row per node | blocks of children, some per node | the root's own rows

A record has 16 numbers: one cache line in float32, which is exact for counts up to 2**24. What a choice at a node needs
of its visited children stands in blocks of the parent, eight children each in the order of their first visits: so that
eight are compared at once, and a visit costs memory and time by the visited children, whatever `A` is. Of the unvisited
only the best is ever of interest, since they differ in nothing but the prior.
"""

import math

import numpy as np

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined
from mcts.vectors import LANES, bits_per_number, read, write

# Fields of a record. Reward and discount are those of the edge that leads to the node; the free prior is that of the best
# unvisited action (Gumbel: its logit), the free weight that of all unvisited ones relative to it (Gumbel alone).
VISITS, VALUE, RAW_VALUE, REWARD, DISCOUNT, FREE_PRIOR, FREE_WEIGHT = range(7)
# Its integers. Stamp: that of the row when the choice was made. Edge: where the q of the edge that leads to the node stands in
# the blocks of its parent; at a slot that was given back the next such slot (0: none). Choice: a key, see below.
FIRST_INT = 7
(
    STAMP, PARENT, ACTION, EDGE, NUM_CHILDREN, CHOICE, NUM_ABSENT, BEST_UNVISITED, DEPTH,
) = range(FIRST_INT, 16)  # fmt: skip
RECORD = 16

# Value of BEST_UNVISITED that is no action; value of STAMP that no row has.
NOTHING_LEFT = -1
STALE = -1

# Fields of a row's header: lowest and highest `reward + discount * value` seen, depths added up, factor of the root's forced
# playouts (0: off).
LOW, HIGH, DEPTH_SUM, FORCED_PLAYOUTS = range(4)
# Its integers: actions that halving starts with, node slots given out so far, first of the slots that were given back (0:
# none), visits that the root has kept from an earlier search, edges of the path to the node that is being asked for, how often
# the bounds have changed where choices depend on them.
NUM_CONSIDERED, NUM_SLOTS, FREE_SLOT, NUM_KEPT, PATH_LENGTH, ROW_STAMP = range(4, 10)
HEADER = 16

# A block: q of the edges (a node's EDGE leads here), and so many numbers behind it their priors (Gumbel: logits), visits and keys.
PRIOR_BEHIND, VISITS_BEHIND, KEY_BEHIND = LANES, 2 * LANES, 3 * LANES
BLOCK = 4 * LANES

# Entries of the layout array that every kernel takes: numbers per row, the tree's `A`, padded `A`, numbers in the blocks of a
# node, and where in a row the parts begin.
(
    STRIDE, NUM_ACTIONS, WIDTH, BLOCKS_SIZE, PRIORS_AT, BLOCKS_AT, GUMBEL_AT, ROOT_GUMBEL_AT, KEPT_AT, SCRATCH_AT, PATH_AT,
) = range(11)  # fmt: skip

# Stands for the prior of an action that is illegal, absent, or visited (its prior has moved to its parent's block), and for
# those that fill up a row. A prior is never negative, a logit is kept above -1e9.
TAKEN_PRIOR = -1.0
TAKEN_LOGIT = -1e30
FREE_LOGITS_ABOVE = -1e20
LOWEST_LOGIT = -1e9


def padded(count: int) -> int:
    """The next multiple of `LANES`."""
    return -(-count // LANES) * LANES


def make_layout(num_nodes: int, num_actions: int) -> tuple[np.ndarray, int]:
    """The layout array of trees with so many node slots, and the numbers per row."""
    width = padded(num_actions)
    capacity = padded(max(1, min(num_actions, num_nodes - 1)))
    layout = np.zeros(11, np.int64)
    layout[[NUM_ACTIONS, WIDTH, BLOCKS_SIZE]] = num_actions, width, 4 * capacity
    end = HEADER + num_nodes * RECORD
    for part, size in (
        (PRIORS_AT, num_nodes * width),
        (BLOCKS_AT, num_nodes * 4 * capacity),
        (GUMBEL_AT, width),
        (ROOT_GUMBEL_AT, capacity),
        (KEPT_AT, capacity),
        (SCRATCH_AT, capacity),
        (PATH_AT, num_nodes + 1),
    ):
        # Every part starts a cache line in float32.
        layout[part] = end
        end += math.ceil(size / RECORD) * RECORD
    layout[STRIDE] = end
    return layout, end


@inlined
def record_of(base: int, node: int) -> int:
    """Where the record of a node starts, `base` being where its row does."""
    return base + HEADER + node * RECORD


@inlined
def priors_of(base: int, node: int, layout: IntArray) -> int:
    """Where the free priors of a node start."""
    return base + read(layout, PRIORS_AT) + node * read(layout, WIDTH)


@inlined
def blocks_of(base: int, node: int, layout: IntArray) -> int:
    """Where the blocks of a node's children start."""
    return base + read(layout, BLOCKS_AT) + node * read(layout, BLOCKS_SIZE)


@inlined
def edge_of(slot: int) -> int:
    """Where in the blocks of a node the q of its child number `slot` stands."""
    return (slot // LANES) * BLOCK + slot % LANES


# A key is an action, and behind it the node that it leads to: 0 if it is unvisited, for node 0 is no child of any node. Of two
# keys that with the lower action is lower.
@inlined
def key_shift(ints: IntArray) -> int:
    """Bits of a key that are the node: half of them."""
    return bits_per_number(ints) >> 1


@inlined
def node_of(key: int, ints: IntArray) -> int:
    """The node of a key; 0 if its action is unvisited."""
    return key & ((1 << key_shift(ints)) - 1)


@inlined
def action_of(key: int, ints: IntArray) -> int:
    """The action of a key."""
    return key >> key_shift(ints)


@inlined
def make_key(action: int, node: int, ints: IntArray) -> int:
    """The key of an action and the node that it leads to, 0 if it is unvisited."""
    return (action << key_shift(ints)) | node


@inlined
def next_slot(base: int, ints: IntArray) -> int:
    """The index of the node that the next simulation of a row may add."""
    free = read(ints, base + FREE_SLOT)
    return free if free > 0 else read(ints, base + NUM_SLOTS)


@inlined
def clear_record(base: int, node: int, floats: FloatArray, ints: IntArray) -> None:
    """Leave the slot of a node unused."""
    record = record_of(base, node)
    for field in range(FIRST_INT):
        write(floats, record + field, 0.0)
    for field in range(FIRST_INT, RECORD):
        write(ints, record + field, 0)
    write(ints, record + PARENT, -1)
    write(ints, record + ACTION, -1)
