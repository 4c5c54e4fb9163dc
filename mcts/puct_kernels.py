"""Compiled selection by PUCT: at every node, at chance nodes by the probability of the outcomes."""

from mcts.answers import REFUSED, take_in
from mcts.base import FloatArray, IntArray
from mcts.chance_choice import choose_outcome
from mcts.forced import forced_key
from mcts.jit import inlined, kernel
from mcts.kernels import NO_FAULT
from mcts.layout import (
    BEST_UNVISITED,
    CHOICE,
    DEPTH,
    NUM_CHILDREN,
    PATH_AT,
    ROW_STAMP,
    STAMP,
    STRIDE,
    blocks_of,
    make_key,
    node_of,
    record_of,
)
from mcts.puct_choice import TREE, Recent, choose_puct, no_recent_edge, recent_edge, write_edge
from mcts.ranking import rank
from mcts.vectors import read, write
from mcts.walk import finish_walk


@inlined
def _decide(
    base: int,
    node: int,
    recent: Recent,
    has_chance: bool,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> int:
    """Choose at a node with children, and note the choice; its key."""
    record = record_of(base, node)
    blocks = blocks_of(base, node, layout)
    if has_chance and read(ints, record + DEPTH) % 2 == 1:
        key = choose_outcome(record, blocks, recent, floats, ints)
    else:
        key = choose_puct(
            base,
            node,
            blocks,
            recent,
            normalization,
            urgency,
            scale,
            exploration,
            floats,
            ints,
        )
    write_edge(blocks, recent, floats)
    write(ints, record + CHOICE, key)
    write(ints, record + STAMP, read(ints, base + ROW_STAMP))
    return key


@kernel
def _decide_again(
    base: int,
    node: int,
    has_chance: bool,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> int:
    """`_decide` where the bounds of the tree have changed since: rare, so apart from the walk."""
    return _decide(
        base,
        node,
        no_recent_edge(blocks_of(base, node, layout), floats),
        has_chance,
        normalization,
        urgency,
        scale,
        exploration,
        floats,
        ints,
        layout,
    )


@inlined
def _walk(
    base: int,
    place: int,
    max_depth: int,
    has_chance: bool,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    selection: IntArray,
) -> None:
    """Walk from the root along the choices to the edge to ask the model for."""
    path = base + read(layout, PATH_AT)
    stamp = read(ints, base + ROW_STAMP)
    node = 0
    depth = 0
    forced = forced_key(base, floats, ints, layout)
    while True:
        record = record_of(base, node)
        write(ints, path + depth, node)
        key = read(ints, record + CHOICE)
        if read(ints, record + STAMP) != stamp and read(ints, record + NUM_CHILDREN) > 0:
            key = _decide_again(
                base,
                node,
                has_chance,
                normalization,
                urgency,
                scale,
                exploration,
                floats,
                ints,
                layout,
            )
        if depth == 0 and forced != 0:
            key = forced
        child = node_of(key, ints)
        depth += 1
        if child == 0 or depth >= max_depth:
            break
        node = child
    finish_walk(base, place, depth, node, key, ints, selection)


@kernel
def start_puct(
    low: int,
    high: int,
    max_depth: int,
    has_chance: bool,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    selection: IntArray,
) -> None:
    """Choose at roots that have just been planted, and walk from them: rows `[low, high)` of `selection` `[4, B]`."""
    for row in range(low, high):
        base = row * read(layout, STRIDE)
        record = record_of(base, 0)
        rank(base, 0, -1, False, has_chance, floats, ints, layout)
        write(ints, record + STAMP, read(ints, base + ROW_STAMP))
        if read(ints, record + NUM_CHILDREN) > 0:
            _decide(
                base,
                0,
                no_recent_edge(blocks_of(base, 0, layout), floats),
                has_chance,
                normalization,
                urgency,
                scale,
                exploration,
                floats,
                ints,
                layout,
            )
        else:
            write(ints, record + CHOICE, make_key(read(ints, record + BEST_UNVISITED), 0, ints))
        _walk(
            base,
            row,
            max_depth,
            has_chance,
            normalization,
            urgency,
            scale,
            exploration,
            floats,
            ints,
            layout,
            selection,
        )


@kernel
def step_puct(
    low: int,
    high: int,
    max_depth: int,
    has_chance: bool,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    reward: FloatArray,
    discount: FloatArray,
    logits: FloatArray,
    value: FloatArray,
    selection: IntArray,
    following: IntArray,
) -> int:
    """Take in the model's answers at the selected edges, and select the next ones.

    `selection` and `following` are `[4, B]` (row, parent, action, node), the answers are in their order. A choice depends on
    what has changed in its node alone (and on the bounds of the tree, which seldom change), so it is made here, where the node is in the
    first-level cache and the choices of a path do not wait for one another; the walk only reads them. Returns the first place whose
    answer is not finite, and leaves that row's tree as it was, or NO_FAULT.
    """
    fault = NO_FAULT
    num_places = selection.shape[1]
    stride = read(layout, STRIDE)
    for place in range(low, high):
        base = read(selection, place) * stride
        length = take_in(
            base,
            place,
            False,
            normalization == TREE,
            has_chance,
            reward,
            discount,
            logits,
            value,
            selection,
            floats,
            ints,
            layout,
        )
        if length == REFUSED:
            fault = place if fault == NO_FAULT else fault
            continue
        node = read(selection, 3 * num_places + place)
        path = base + read(layout, PATH_AT)
        for back in range(length):
            above = read(ints, path + length - 1 - back)
            _decide(
                base,
                above,
                recent_edge(record_of(base, node), floats, ints),
                has_chance,
                normalization,
                urgency,
                scale,
                exploration,
                floats,
                ints,
                layout,
            )
            node = above
        _walk(
            base,
            place,
            max_depth,
            has_chance,
            normalization,
            urgency,
            scale,
            exploration,
            floats,
            ints,
            layout,
            following,
        )
    return fault
