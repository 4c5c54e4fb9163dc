"""Compiled work of searches with chance nodes: even depths are decision nodes, odd depths chance nodes."""

from mcts.base import FloatArray, IntArray
from mcts.forced import forced_child
from mcts.gumbel_kernels import choose_at_root, choose_below
from mcts.jit import inlined, kernel
from mcts.kernels import next_slot
from mcts.puct_choice import choose_puct, likeliest
from mcts.tree import (
    ACTION,
    BEST_UNVISITED,
    DEPTH,
    FIRST_CHILD,
    NEXT_SIBLING,
    NOTHING_LEFT,
    NUM_KEPT,
    PRIOR,
    STALE,
    VISITS,
)


@inlined
def choose_outcome(
    row: int,
    node: int,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
) -> tuple[int, int]:
    """The `argmax_c sigma_c / (N_c + 1)` of a chance node, and the child that it leads to: 0 if it is unvisited.

    Visits come to be in proportion to sigma, with less variance than drawing. Ties go to the lowest outcome.
    """
    one = nodes.dtype.type(1)
    best = links[row, node, BEST_UNVISITED]
    if best == STALE:
        best = likeliest(free_priors[row, node])
        links[row, node, BEST_UNVISITED] = best
    best_child = 0
    best_score = -one
    if best != NOTHING_LEFT:
        best_score = free_priors[row, node, best]
    child = links[row, node, FIRST_CHILD]
    while child != 0:
        score = nodes[row, child, PRIOR] / (nodes[row, child, VISITS] + one)
        if score > best_score or (score == best_score and links[row, child, ACTION] < best):
            best_score = score
            best_child = child
            best = links[row, child, ACTION]
        child = links[row, child, NEXT_SIBLING]
    return best, best_child


@kernel
def select_puct_and_chance(
    low: int,
    high: int,
    max_depth: int,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    selection: IntArray,
) -> None:
    """`puct.select_puct` with chance nodes at the odd depths."""
    for place in range(low, high):
        row = selection[0, place]
        node = 0
        depth = 0
        child = forced_child(row, nodes, links, rows)
        action = links[row, child, ACTION]
        while True:
            if depth % 2 == 1:
                action, child = choose_outcome(row, node, free_priors, nodes, links)
            elif child == 0:
                action, child = choose_puct(
                    row,
                    node,
                    normalization,
                    urgency,
                    scale,
                    exploration,
                    free_priors,
                    nodes,
                    links,
                    rows,
                )
            depth += 1
            if child == 0 or depth >= max_depth:
                break
            node = child
            child = 0
        selection[1, place] = node
        selection[2, place] = action
        selection[3, place] = child if child != 0 else next_slot(row, rows)


@kernel
def select_gumbel_and_chance(
    low: int,
    high: int,
    max_depth: int,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
    schedule: IntArray,
    gumbel: FloatArray,
    scratch: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    selection: IntArray,
) -> None:
    """`gumbel_kernels.select_gumbel` with chance nodes at the odd depths."""
    for place in range(low, high):
        row = selection[0, place]
        node = 0
        depth = 0
        while True:
            if depth % 2 == 1:
                best, best_child = choose_outcome(row, node, free_priors, nodes, links)
            elif node == 0:
                num_made = int(nodes[row, 0, VISITS] - rows[row, NUM_KEPT]) - 1
                best, best_child = choose_at_root(
                    row,
                    schedule[row, num_made],
                    normalization,
                    use_mixed_value,
                    scale,
                    gumbel,
                    free_priors,
                    nodes,
                    links,
                    rows,
                )
            else:
                best, best_child = choose_below(
                    row,
                    node,
                    normalization,
                    use_mixed_value,
                    scale,
                    scratch[row],
                    free_priors,
                    nodes,
                    links,
                    rows,
                )
            depth += 1
            if best_child == 0 or depth >= max_depth:
                break
            node = best_child
        selection[1, place] = node
        selection[2, place] = best
        selection[3, place] = best_child if best_child != 0 else next_slot(row, rows)


@kernel
def split_by_kind(
    row: IntArray,
    parent: IntArray,
    action: IntArray,
    node: IntArray,
    links: IntArray,
    order: IntArray,
    split: IntArray,
) -> int:
    """Sort a selection's `b` edges: those that start at decision nodes first, each kind in its own order.

    Fills `split` `[4, b]` (row, parent, action, node) and `order` `[b]`, the place of each in the selection. Returns the
    number of edges that start at decision nodes.
    """
    count = 0
    num_decisions = 0
    for kind in range(2):
        for place in range(row.shape[0]):
            if links[row[place], parent[place], DEPTH] % 2 == kind:
                order[count] = place
                split[0, count] = row[place]
                split[1, count] = parent[place]
                split[2, count] = action[place]
                split[3, count] = node[place]
                count += 1
        if kind == 0:
            num_decisions = count
    return num_decisions
