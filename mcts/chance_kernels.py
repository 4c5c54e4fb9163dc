"""Compiled work of models with chance nodes: even depths are decision nodes, odd depths chance nodes."""

from mcts.base import IntArray
from mcts.jit import kernel
from mcts.layout import DEPTH, FIRST_INT


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
            if links[row[place], parent[place], DEPTH - FIRST_INT] % 2 == kind:
                order[count] = place
                split[0, count] = row[place]
                split[1, count] = parent[place]
                split[2, count] = action[place]
                split[3, count] = node[place]
                count += 1
        if kind == 0:
            num_decisions = count
    return num_decisions
