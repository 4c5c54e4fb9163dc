"""Compiled work of subtree reuse: the tree below the action that was played becomes the tree of the next search."""

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined, kernel
from mcts.tree import (
    ACTION,
    DEPTH,
    FIRST_CHILD,
    FREE_LOGITS_ABOVE,
    FREE_SLOT,
    HIGH,
    KEPT_VISITS,
    LOW,
    NEXT_SIBLING,
    NUM_KEPT,
    NUM_SLOTS,
    NUM_TAKEN,
    PARENT,
    PRIOR,
    TAKEN_LOGIT,
    TAKEN_PRIOR,
    VALUE,
    VISITS,
    Q,
)


@inlined
def _clear(row: int, node: int, nodes: FloatArray, links: IntArray) -> None:
    nodes[row, node] = 0
    links[row, node] = 0
    links[row, node, PARENT] = -1
    links[row, node, ACTION] = -1


@kernel
def _child_of(row: int, node: int, action: int, links: IntArray) -> int:
    """The child that an action leads to; 0 if none."""
    child = links[row, node, FIRST_CHILD]
    while child != 0 and links[row, child, ACTION] != action:
        child = links[row, child, NEXT_SIBLING]
    return int(child)


@kernel
def _number_subtree(
    row: int, top: int, num_slots: int, links: IntArray, new_index: IntArray, source: IntArray
) -> int:
    """Number the nodes below `top`: 1, 2, ... in the order of their indices; `top` becomes 0. Returns how many there are.

    So a new index is never above the old one, and the records can be moved in place, first to last.
    """
    for node in range(num_slots):
        new_index[node] = 0
    node = top
    while True:
        if links[row, node, FIRST_CHILD] != 0:
            node = links[row, node, FIRST_CHILD]
        else:
            while node != top and links[row, node, NEXT_SIBLING] == 0:
                node = links[row, node, PARENT]
            if node == top:
                break
            node = links[row, node, NEXT_SIBLING]
        new_index[node] = 1
    source[0] = top
    count = 1
    for node in range(1, num_slots):
        if new_index[node] != 0:
            new_index[node] = count
            source[count] = node
            count += 1
    return count


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
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> None:
    """Move the subtree under each row's action `[B]` to the root, in place; a row without one keeps an empty root.

    With `has_chance` it is the subtree under the action and the outcome `[B]` that came of it.
    Fills `source` `[B, N + 1]` and `num_nodes` `[B]`, see `KeptSubtrees`; `new_index` `[B, N + 1]` is scratch.
    """
    for row in range(low_row, high_row):
        source[row] = -1
        num_nodes[row] = 0
        rows[row, FREE_SLOT] = 0
        top = _child_of(row, 0, actions[row], links)
        if has_chance and top != 0:
            top = _child_of(row, top, outcomes[row], links)
        if top == 0:
            _clear(row, 0, nodes, links)
            rows[row, NUM_SLOTS] = 1
            continue
        renamed = new_index[row]
        num_slots = int(rows[row, NUM_SLOTS])
        count = _number_subtree(row, top, num_slots, links, renamed, source[row])
        top_depth = links[row, top, DEPTH]
        for node in range(count):
            old = source[row, node]
            # By elements: numba would copy what might overlap.
            for action in range(free_priors.shape[2]):
                free_priors[row, node, action] = free_priors[row, old, action]
            for field in range(nodes.shape[2]):
                nodes[row, node, field] = nodes[row, old, field]
            for field in range(links.shape[2]):
                links[row, node, field] = links[row, old, field]
            link = links[row, node]
            link[PARENT] = renamed[link[PARENT]]
            link[FIRST_CHILD] = renamed[link[FIRST_CHILD]]
            link[NEXT_SIBLING] = renamed[link[NEXT_SIBLING]]
            link[DEPTH] -= top_depth
        links[row, 0, PARENT] = -1
        links[row, 0, ACTION] = -1
        links[row, 0, NEXT_SIBLING] = 0
        links[row, 0, KEPT_VISITS] = 0
        rows[row, NUM_SLOTS] = count
        num_nodes[row] = count


@kernel
def _cut(row: int, top: int, nodes: FloatArray, links: IntArray, rows: FloatArray) -> None:
    """Give back the slots of `top`, which no list of children holds any more, and of all nodes below it."""
    node = top
    while True:
        while links[row, node, FIRST_CHILD] != 0:
            node = links[row, node, FIRST_CHILD]
        parent = links[row, node, PARENT]
        sibling = links[row, node, NEXT_SIBLING]
        _clear(row, node, nodes, links)
        links[row, node, NEXT_SIBLING] = int(rows[row, FREE_SLOT])
        rows[row, FREE_SLOT] = node
        if node == top:
            break
        links[row, parent, FIRST_CHILD] = sibling
        node = parent


@kernel
def regraft(
    low_row: int,
    high_row: int,
    is_gumbel: bool,
    has_chance: bool,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
) -> None:
    """After `plant`: hang the kept children under the new roots, and cut off those that the root does not allow.

    A root's value becomes the mean over its own network value and the q of its kept visits; the bounds of the tree are
    those of its root's value and the q in it, with `has_chance` those of actions.
    """
    one = nodes.dtype.type(1)
    lowest_free = nodes.dtype.type(FREE_LOGITS_ABOVE if is_gumbel else 0)
    taken = TAKEN_LOGIT if is_gumbel else TAKEN_PRIOR
    for row in range(low_row, high_row):
        num_kept = nodes.dtype.type(0)
        total = nodes[row, 0, VALUE]
        last = 0
        child = links[row, 0, FIRST_CHILD]
        links[row, 0, FIRST_CHILD] = 0
        while child != 0:
            following = links[row, child, NEXT_SIBLING]
            action = links[row, child, ACTION]
            prior = free_priors[row, 0, action]
            if prior < lowest_free:
                _cut(row, child, nodes, links, rows)
            else:
                if last == 0:
                    links[row, 0, FIRST_CHILD] = child
                else:
                    links[row, last, NEXT_SIBLING] = child
                links[row, child, NEXT_SIBLING] = 0
                last = child
                visits = nodes[row, child, VISITS]
                links[row, child, KEPT_VISITS] = int(visits)
                nodes[row, child, PRIOR] = prior
                free_priors[row, 0, action] = taken
                links[row, 0, NUM_TAKEN] += 1
                num_kept += visits
                total += visits * nodes[row, child, Q]
            child = following
        nodes[row, 0, VISITS] = num_kept + one
        nodes[row, 0, VALUE] = total / (num_kept + one)
        rows[row, NUM_KEPT] = num_kept
        for node in range(1, int(rows[row, NUM_SLOTS])):
            if links[row, node, PARENT] >= 0 and not (
                has_chance and links[row, node, DEPTH] % 2 == 0
            ):
                q = nodes[row, node, Q]
                rows[row, LOW] = min(rows[row, LOW], q)
                rows[row, HIGH] = max(rows[row, HIGH], q)
