"""Kept trees as arrays to be saved, between `Search.keep_subtrees` and the `begin` that searches on in them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mcts.base import IntArray
from mcts.layout import (
    ACTION,
    BEST_UNVISITED,
    BLOCK,
    CHOICE,
    DEPTH,
    EDGE,
    FIRST_INT,
    KEY_BEHIND,
    NUM_CHILDREN,
    NUM_SLOTS,
    PARENT,
    PRIOR_BEHIND,
    TAKEN_LOGIT,
    TAKEN_PRIOR,
    VISITS,
    VISITS_BEHIND,
)
from mcts.tree import Tree
from mcts.vectors import LANES

Arrays = dict[str, npt.NDArray[Any]]
_BY_NODE = ("free_priors", "nodes", "links")


def kept_arrays(tree: Tree) -> Arrays:
    """Copies of what the kept trees hold.

    `num_nodes` `[B]`, and node by node, row after row: the records, and in `edges` `[S, 2]` q and prior of the edge that leads
    to the node.
    """
    rows, nodes = _used(tree.num_slots)
    arrays: Arrays = {name: getattr(tree, name)[rows, nodes] for name in _BY_NODE}
    parent, edge = arrays["links"][:, PARENT - FIRST_INT], arrays["links"][:, EDGE - FIRST_INT]
    is_child = parent >= 0
    edges = np.zeros((len(rows), 2), tree.nodes.dtype)
    for column, behind in enumerate((0, PRIOR_BEHIND)):
        place = (rows[is_child], parent[is_child], edge[is_child] + behind)
        edges[is_child, column] = tree.blocks[place]
    return arrays | {"edges": edges, "num_nodes": tree.num_slots}


def restore_kept(tree: Tree, arrays: Arrays) -> None:
    """Make the trees what they were.

    Raises:
        ValueError: If the arrays are not those of trees that fit this one.
    """
    num_nodes = arrays["num_nodes"]
    most_rows, most_nodes, _ = tree.nodes.shape
    total = int(num_nodes.sum())
    fits = (
        1 <= len(num_nodes) <= most_rows
        and (num_nodes >= 1).all()
        and (num_nodes <= most_nodes).all()
        and arrays["edges"].shape == (total, 2)
        and arrays["edges"].dtype == tree.nodes.dtype
        and all(
            arrays[name].shape == (total, getattr(tree, name).shape[2])
            and arrays[name].dtype == getattr(tree, name).dtype
            for name in _BY_NODE
        )
    )
    if not fits:
        raise ValueError("the saved trees do not fit this search: they are of other settings")
    rows, nodes = _used(num_nodes)
    key_shift = 4 * tree.links.dtype.itemsize
    # The kernels trust these numbers, so a damaged file must not get past here.
    _check_links(arrays["links"], nodes, num_nodes[rows], tree.num_actions, key_shift)
    for name in _BY_NODE:
        getattr(tree, name)[rows, nodes] = arrays[name]
    tree.fillers[rows, nodes] = TAKEN_LOGIT if tree.holds_logits else TAKEN_PRIOR
    parent, action, edge = (
        arrays["links"][:, field - FIRST_INT] for field in (PARENT, ACTION, EDGE)
    )
    is_child = parent >= 0
    at = rows[is_child], parent[is_child]
    edge = edge[is_child]
    tree.blocks[(*at, edge)] = arrays["edges"][is_child, 0]
    tree.blocks[(*at, edge + PRIOR_BEHIND)] = arrays["edges"][is_child, 1]
    tree.blocks[(*at, edge + VISITS_BEHIND)] = arrays["nodes"][is_child, VISITS]
    keys = (action[is_child] << key_shift) | nodes[is_child].astype(action.dtype)
    tree.blocks.view(action.dtype)[(*at, edge + KEY_BEHIND)] = keys
    tree.num_rows = len(num_nodes)
    tree.row_ints[: len(num_nodes), NUM_SLOTS] = num_nodes


def _check_links(
    links: IntArray,
    nodes: npt.NDArray[np.intp],
    num_nodes: IntArray,
    num_actions: int,
    key_shift: int,
) -> None:
    """Every node but the root has one of its parent's edges for itself, and the choices are theirs.

    Args:
        links: `[S, 9]` integers of the nodes of all trees.
        nodes: `[S]` index of each node in its tree.
        num_nodes: `[S]` nodes of its tree.
        num_actions: `A`.
        key_shift: Bits of a choice that are a node.
    """
    parent, action, edge, num_children, choice, best, depth = (
        links[:, field - FIRST_INT].astype(np.int64)
        for field in (PARENT, ACTION, EDGE, NUM_CHILDREN, CHOICE, BEST_UNVISITED, DEPTH)
    )
    is_root = nodes == 0
    chosen, child = choice >> key_shift, choice & ((1 << key_shift) - 1)
    slot = edge // BLOCK * LANES + edge % BLOCK
    is_sound = (
        np.where(is_root, parent == -1, (parent >= 0) & (parent < num_nodes)).all()
        and np.where(is_root, action == -1, (action >= 0) & (action < num_actions)).all()
        and ((best >= -1) & (best < num_actions) & (chosen >= -1) & (chosen < num_actions)).all()
        and (child < num_nodes).all()
        and (is_root | ((edge >= 0) & (edge % BLOCK < LANES))).all()
    )
    if is_sound:
        # From here on all indices are good. A parent is one edge nearer to the root: so there is no circle.
        first = np.arange(len(links)) - nodes
        above, below = first + np.maximum(parent, 0), first + child
        is_sound = (
            (depth[is_root] == 0).all()
            and (is_root | ((depth == depth[above] + 1) & (slot < num_children[above]))).all()
            and (num_children == np.bincount(above[~is_root], minlength=len(links))).all()
            and len(np.unique(np.stack([above, slot])[:, ~is_root], axis=1).T) == (~is_root).sum()
            and ((child == 0) | ((parent[below] == nodes) & (action[below] == chosen))).all()
        )
    if not is_sound:
        raise ValueError("the saved trees are damaged: their nodes do not form trees")


def _used(num_nodes: IntArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row and node of every node in use, row by row."""
    rows, nodes = np.nonzero(np.arange(num_nodes.max(initial=0)) < num_nodes[:, None])
    return rows, nodes
