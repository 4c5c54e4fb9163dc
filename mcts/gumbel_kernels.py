"""Compiled selection of Gumbel MuZero: sequential halving at the root, the improved policy below it."""

from mcts.answers import REFUSED, take_in
from mcts.base import FloatArray, IntArray
from mcts.chance_choice import choose_outcome
from mcts.gumbel_choice import choose_at_root, choose_below
from mcts.jit import inlined, kernel
from mcts.kernels import NO_FAULT
from mcts.layout import (
    CHOICE,
    DEPTH,
    NUM_CHILDREN,
    NUM_KEPT,
    PATH_AT,
    ROW_STAMP,
    STAMP,
    STRIDE,
    VISITS,
    blocks_of,
    node_of,
    record_of,
)
from mcts.puct_choice import TREE, Recent, no_recent_edge, recent_edge, write_edge
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
    use_mixed_value: bool,
    scale: FloatArray,
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
        key = choose_below(
            base,
            node,
            blocks,
            recent,
            normalization,
            use_mixed_value,
            scale,
            floats,
            ints,
            layout,
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
    use_mixed_value: bool,
    scale: FloatArray,
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
        use_mixed_value,
        scale,
        floats,
        ints,
        layout,
    )


@inlined
def _walk(
    base: int,
    row: int,
    place: int,
    max_depth: int,
    has_chance: bool,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    schedule: IntArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    selection: IntArray,
) -> None:
    """Walk from the root along the choices to the edge to ask the model for; the root chooses by its `schedule` `[B, N + 1]`."""
    path = base + read(layout, PATH_AT)
    stamp = read(ints, base + ROW_STAMP)
    num_made = int(read(floats, record_of(base, 0) + VISITS)) - read(ints, base + NUM_KEPT) - 1
    key = int(
        choose_at_root(
            base,
            read(schedule, row * schedule.shape[1] + num_made),
            normalization,
            use_mixed_value,
            scale,
            floats,
            ints,
            layout,
        )
    )
    node = 0
    depth = 0
    while True:
        write(ints, path + depth, node)
        child = node_of(key, ints)
        depth += 1
        if child == 0 or depth >= max_depth:
            break
        node = child
        record = record_of(base, node)
        key = int(read(ints, record + CHOICE))
        if read(ints, record + STAMP) != stamp and read(ints, record + NUM_CHILDREN) > 0:
            key = _decide_again(
                base,
                node,
                has_chance,
                normalization,
                use_mixed_value,
                scale,
                floats,
                ints,
                layout,
            )
    finish_walk(base, place, depth, node, key, ints, selection)


@kernel
def start_gumbel(
    low: int,
    high: int,
    max_depth: int,
    has_chance: bool,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    schedule: IntArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    selection: IntArray,
) -> None:
    """Rank the actions of roots that have just been planted, and walk from them: rows `[low, high)` of `selection` `[4, B]`."""
    for row in range(low, high):
        base = row * read(layout, STRIDE)
        rank(base, 0, -1, True, has_chance, floats, ints, layout)
        _walk(
            base,
            row,
            row,
            max_depth,
            has_chance,
            normalization,
            use_mixed_value,
            scale,
            schedule,
            floats,
            ints,
            layout,
            selection,
        )


@kernel
def step_gumbel(
    low: int,
    high: int,
    max_depth: int,
    has_chance: bool,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    schedule: IntArray,
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
    """Take in the model's answers at the selected edges, and select the next ones; see `puct_kernels.step_puct`."""
    fault = NO_FAULT
    num_places = selection.shape[1]
    stride = read(layout, STRIDE)
    for place in range(low, high):
        row = read(selection, place)
        base = row * stride
        length = take_in(
            base,
            place,
            True,
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
        for back in range(length - 1):  # the root chooses by its schedule
            above = read(ints, path + length - 1 - back)
            _decide(
                base,
                above,
                recent_edge(record_of(base, node), floats, ints),
                has_chance,
                normalization,
                use_mixed_value,
                scale,
                floats,
                ints,
                layout,
            )
            node = above
        root_edge = recent_edge(record_of(base, node), floats, ints)
        write_edge(blocks_of(base, 0, layout), root_edge, floats)
        _walk(
            base,
            row,
            place,
            max_depth,
            has_chance,
            normalization,
            use_mixed_value,
            scale,
            schedule,
            floats,
            ints,
            layout,
            following,
        )
    return fault
