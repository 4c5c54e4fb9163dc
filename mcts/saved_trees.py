"""Kept trees as arrays to be saved, between `Search.keep_subtrees` and the `begin` that searches on in them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mcts.base import IntArray
from mcts.tree import ACTION, FIRST_CHILD, NEXT_SIBLING, NUM_SLOTS, PARENT, Tree

Arrays = dict[str, npt.NDArray[Any]]
_BY_NODE = ("free_priors", "nodes", "links")


def kept_arrays(tree: Tree) -> Arrays:
    """Copies of what the kept trees hold: `num_nodes` `[B]`, `rows` `[B, 8]`, and node by node, row after row, the records."""
    rows, nodes = _used(tree.num_slots)
    arrays: Arrays = {name: getattr(tree, name)[rows, nodes] for name in _BY_NODE}
    return arrays | {"num_nodes": tree.num_slots, "rows": tree.rows[: tree.num_rows].copy()}


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
        and arrays["rows"].shape == (len(num_nodes), tree.rows.shape[1])
        and all(
            arrays[name].shape == (total, getattr(tree, name).shape[2])
            and arrays[name].dtype == getattr(tree, name).dtype
            for name in _BY_NODE
        )
    )
    if not fits:
        raise ValueError("the saved trees do not fit this search: they are of other settings")
    rows, nodes = _used(num_nodes)
    # The kernels trust these numbers, so a damaged file must not get past here.
    _check_links(arrays["links"], nodes, num_nodes[rows], tree.num_actions)
    for name in _BY_NODE:
        getattr(tree, name)[rows, nodes] = arrays[name]
    tree.num_rows = len(num_nodes)
    tree.rows[: len(num_nodes)] = arrays["rows"]
    tree.rows[: len(num_nodes), NUM_SLOTS] = num_nodes


def _check_links(
    links: IntArray, nodes: npt.NDArray[np.intp], num_nodes: IntArray, num_actions: int
) -> None:
    """Every node but the root stands in one list of children, that of its parent.

    Args:
        links: `[S, 8]` link records of all trees.
        nodes: `[S]` index of each node in its tree.
        num_nodes: `[S]` nodes of its tree.
    """
    parent, action = links[:, PARENT], links[:, ACTION]
    is_root = nodes == 0
    is_sound = np.where(is_root, parent == -1, (parent >= 0) & (parent < num_nodes)).all()
    is_sound &= np.where(is_root, action == -1, (action >= 0) & (action < num_actions)).all()
    num_lists = np.zeros(len(links), np.intp)
    for field, parents in ((FIRST_CHILD, nodes), (NEXT_SIBLING, parent)):
        following = links[:, field]
        is_sound &= ((following >= 0) & (following < num_nodes)).all()
        if not is_sound:
            break
        (listed,) = np.nonzero(following)
        place = listed - nodes[listed] + following[listed]
        is_sound &= (parent[place] == parents[listed]).all()
        num_lists += np.bincount(place, minlength=len(links))
    if not is_sound or (num_lists != ~is_root).any():
        raise ValueError("the saved trees are damaged: their nodes do not form trees")


def _used(num_nodes: IntArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row and node of every node in use, row by row."""
    rows, nodes = np.nonzero(np.arange(num_nodes.max(initial=0)) < num_nodes[:, None])
    return rows, nodes
