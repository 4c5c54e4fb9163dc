"""Compiled work of subtree reuse: the tree below the action that was played becomes the tree of the next search."""

from mcts.base import FloatArray, IntArray
from mcts.jit import kernel
from mcts.layout import (
    ACTION,
    BLOCK,
    CHOICE,
    DEPTH,
    EDGE,
    FIRST_INT,
    FREE_LOGITS_ABOVE,
    FREE_SLOT,
    GUMBEL_AT,
    HIGH,
    KEPT_AT,
    KEY_BEHIND,
    LOW,
    NUM_CHILDREN,
    NUM_KEPT,
    NUM_SLOTS,
    PARENT,
    PRIOR_BEHIND,
    RECORD,
    ROOT_GUMBEL_AT,
    STALE,
    STAMP,
    STRIDE,
    TAKEN_LOGIT,
    TAKEN_PRIOR,
    VALUE,
    VISITS,
    VISITS_BEHIND,
    WIDTH,
    action_of,
    blocks_of,
    clear_record,
    edge_of,
    make_key,
    node_of,
    priors_of,
    record_of,
)


@kernel
def _child_of(base: int, node: int, action: int, ints: IntArray, layout: IntArray) -> int:
    """The child that an action leads to; 0 if none."""
    blocks = blocks_of(base, node, layout)
    for slot in range(ints[record_of(base, node) + NUM_CHILDREN]):
        key = ints[blocks + edge_of(slot) + KEY_BEHIND]
        if action_of(key, ints) == action:
            return node_of(key, ints)
    return 0


@kernel
def _number_subtree(
    base: int, top: int, ints: IntArray, layout: IntArray, new_index: IntArray, source: IntArray
) -> int:
    """Number the nodes below `top`: 1, 2, ... in the order of their indices; `top` becomes 0. Returns how many there are.

    So a new index is never above the old one, and the records can be moved in place, first to last.
    """
    num_slots = ints[base + NUM_SLOTS]
    for node in range(num_slots):
        new_index[node] = 0
    # As a queue of nodes whose children are still to be marked.
    source[0] = top
    count = 1
    done = 0
    while done < count:
        node = source[done]
        done += 1
        blocks = blocks_of(base, node, layout)
        for slot in range(ints[record_of(base, node) + NUM_CHILDREN]):
            child = node_of(ints[blocks + edge_of(slot) + KEY_BEHIND], ints)
            new_index[child] = 1
            source[count] = child
            count += 1
    count = 1
    for node in range(1, num_slots):
        if new_index[node] != 0:
            new_index[node] = count
            source[count] = node
            count += 1
    return count


@kernel
def _move(
    base: int,
    old: int,
    new: int,
    new_index: IntArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> None:
    """Move a node, and rename the nodes that it names."""
    source, target = record_of(base, old), record_of(base, new)
    for field in range(FIRST_INT):
        floats[target + field] = floats[source + field]
    for field in range(FIRST_INT, RECORD):
        ints[target + field] = ints[source + field]
    ints[target + PARENT] = new_index[ints[target + PARENT]]
    choice = ints[target + CHOICE]
    ints[target + CHOICE] = make_key(
        action_of(choice, ints), new_index[node_of(choice, ints)], ints
    )
    source, target = priors_of(base, old, layout), priors_of(base, new, layout)
    for action in range(layout[WIDTH]):
        floats[target + action] = floats[source + action]
    num_children = ints[record_of(base, new) + NUM_CHILDREN]
    source, target = blocks_of(base, old, layout), blocks_of(base, new, layout)
    for block in range(0, num_children * 4, BLOCK):
        for number in range(block, block + KEY_BEHIND):
            floats[target + number] = floats[source + number]
        for number in range(block + KEY_BEHIND, block + BLOCK):
            ints[target + number] = ints[source + number]
    for slot in range(num_children):
        place = target + edge_of(slot) + KEY_BEHIND
        key = ints[place]
        ints[place] = make_key(action_of(key, ints), new_index[node_of(key, ints)], ints)


@kernel
def keep_subtrees(
    low_row: int,
    high_row: int,
    has_chance: bool,
    actions: IntArray,
    outcomes: IntArray,
    new_index: IntArray,
    source: IntArray,
    num_nodes: IntArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> None:
    """Move the subtree under each row's action `[B]` to the root, in place; a row without one keeps an empty root.

    With `has_chance` it is the subtree under the action and the outcome `[B]` that came of it.
    Fills `source` `[B, N + 1]` and `num_nodes` `[B]`, see `KeptSubtrees`; `new_index` `[B, N + 1]` is scratch.
    """
    for row in range(low_row, high_row):
        base = row * layout[STRIDE]
        root = record_of(base, 0)
        source[row] = -1
        num_nodes[row] = 0
        ints[base + FREE_SLOT] = 0
        top = _child_of(base, 0, actions[row], ints, layout)
        if has_chance and top != 0:
            top = _child_of(base, top, outcomes[row], ints, layout)
        if top == 0:
            clear_record(base, 0, floats, ints)
            ints[base + NUM_SLOTS] = 1
            continue
        top_depth = ints[record_of(base, top) + DEPTH]
        count = _number_subtree(base, top, ints, layout, new_index[row], source[row])
        for node in range(count):
            _move(base, source[row, node], node, new_index[row], floats, ints, layout)
            ints[record_of(base, node) + DEPTH] -= top_depth
        for number in range(count, source.shape[1]):
            source[row, number] = -1
        ints[root + PARENT] = -1
        ints[root + ACTION] = -1
        ints[base + NUM_SLOTS] = count
        num_nodes[row] = count


@kernel
def _cut(base: int, top: int, floats: FloatArray, ints: IntArray, layout: IntArray) -> None:
    """Give back the slots of `top`, which its parent does not hold any more, and of all nodes below it."""
    node = top
    while True:
        record = record_of(base, node)
        while ints[record + NUM_CHILDREN] > 0:
            ints[record + NUM_CHILDREN] -= 1
            edge = blocks_of(base, node, layout) + edge_of(ints[record + NUM_CHILDREN])
            node = node_of(ints[edge + KEY_BEHIND], ints)
            record = record_of(base, node)
        parent = ints[record + PARENT]
        clear_record(base, node, floats, ints)
        ints[record + EDGE] = ints[base + FREE_SLOT]
        ints[base + FREE_SLOT] = node
        if node == top:
            break
        node = parent


@kernel
def regraft(
    low_row: int,
    high_row: int,
    is_gumbel: bool,
    has_chance: bool,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> None:
    """After `plant`: hang the kept children under the new roots, and cut off those that the root does not allow.

    A root's value becomes the mean over its own network value and the q of its kept visits; the bounds of the tree are
    those of its root's value and the q in it, with `has_chance` those of actions.
    """
    one = floats.dtype.type(1)
    lowest_free = floats.dtype.type(FREE_LOGITS_ABOVE if is_gumbel else 0)
    taken = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
    for row in range(low_row, high_row):
        base = row * layout[STRIDE]
        root = record_of(base, 0)
        priors = priors_of(base, 0, layout)
        blocks = blocks_of(base, 0, layout)
        num_kept = floats.dtype.type(0)
        total = floats[root + VALUE]
        num_children = 0
        for slot in range(ints[root + NUM_CHILDREN]):
            edge = blocks + edge_of(slot)
            key = ints[edge + KEY_BEHIND]
            child, action = node_of(key, ints), action_of(key, ints)
            prior = floats[priors + action]
            if prior < lowest_free:
                _cut(base, child, floats, ints, layout)
                continue
            # To the place of the next child that stays: this one's or one before it.
            visits, q = floats[edge + VISITS_BEHIND], floats[edge]
            edge = blocks + edge_of(num_children)
            floats[edge] = q
            floats[edge + PRIOR_BEHIND] = prior
            floats[edge + VISITS_BEHIND] = visits
            ints[edge + KEY_BEHIND] = key
            ints[record_of(base, child) + EDGE] = edge_of(num_children)
            floats[base + layout[KEPT_AT] + num_children] = visits
            gumbel = floats[base + layout[GUMBEL_AT] + action]
            floats[base + layout[ROOT_GUMBEL_AT] + num_children] = gumbel
            floats[priors + action] = taken
            num_children += 1
            num_kept += visits
            total += visits * q
        ints[root + NUM_CHILDREN] = num_children
        floats[root + VISITS] = num_kept + one
        floats[root + VALUE] = total / (num_kept + one)
        ints[base + NUM_KEPT] = int(num_kept)
        for node in range(1, ints[base + NUM_SLOTS]):
            record = record_of(base, node)
            ints[record + STAMP] = STALE  # the bounds of the tree are new
            if ints[record + PARENT] >= 0 and not (has_chance and ints[record + DEPTH] % 2 == 0):
                q = floats[blocks_of(base, ints[record + PARENT], layout) + ints[record + EDGE]]
                floats[base + LOW] = min(floats[base + LOW], q)
                floats[base + HIGH] = max(floats[base + HIGH], q)
