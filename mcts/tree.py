"""The trees of a batch of searches, as arrays allocated once and reset in place.

`B` rows, `N` simulations (so `N + 1` node slots), `A` actions. In a tree that began afresh, the node expanded in
simulation `i` has index `i + 1`. How the numbers stand in memory, and why, is told in `mcts.layout`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from mcts.base import UNVISITED, BoolArray, FloatArray, IntArray
from mcts.layout import (
    ACTION,
    BLOCKS_AT,
    BLOCKS_SIZE,
    DEPTH,
    DISCOUNT,
    EDGE,
    FIRST_INT,
    GUMBEL_AT,
    HEADER,
    NUM_KEPT,
    NUM_SLOTS,
    PARENT,
    PRIOR_BEHIND,
    PRIORS_AT,
    RAW_VALUE,
    RECORD,
    REWARD,
    VALUE,
    VISITS,
    WIDTH,
    make_layout,
)

CACHE_LINE = 64


class Tree:
    """`B` trees of at most `N + 1` nodes over `A` actions.

    With chance nodes at the odd depths, `A` is the larger of the numbers of actions and of outcomes, an outcome stands
    where an action would, and what a node has fewer of is absent. Chance nodes hold probabilities, never logits.

    The properties are views or copies meant for export and tests; the kernels use `arrays`.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        num_simulations: int,
        num_actions: int,
        dtype: npt.DTypeLike = np.float32,
        holds_logits: bool = False,
        has_chance: bool = False,
    ) -> None:
        floats = np.dtype(dtype)
        ints = np.dtype(f"i{floats.itemsize}")
        check_keys(num_actions, num_simulations, floats)
        self.num_rows = batch_size
        self.num_actions = num_actions
        self.holds_logits = holds_logits
        self.has_chance = has_chance
        num_nodes = num_simulations + 1
        layout, stride = make_layout(num_nodes, num_actions)
        memory = _zeros(batch_size * stride, floats)
        self.arrays: tuple[FloatArray, IntArray, npt.NDArray[np.int64]] = (
            memory,
            memory.view(ints),
            layout,
        )
        """What every kernel takes, in this order: all floats, the same memory as integers, the layout."""
        numbers = memory.reshape(batch_size, stride)

        def part(start: int, *shape: int) -> FloatArray:
            size = int(np.prod(shape))
            return numbers[:, start : start + size].reshape(batch_size, *shape)

        records = part(HEADER, num_nodes, RECORD)
        self.nodes: FloatArray = records[..., :FIRST_INT]
        """`[B, N + 1, 7]` numbers of the nodes."""
        self.links: IntArray = records.view(ints)[..., FIRST_INT:]
        """`[B, N + 1, 9]` integers of the nodes: field `f` at `f - FIRST_INT`."""
        padded_priors = part(layout[PRIORS_AT], num_nodes, layout[WIDTH])
        self.free_priors: FloatArray = padded_priors[..., :num_actions]
        """`[B, N + 1, A]` prior (or logit) of the actions that can be taken and are unvisited, a mark at the others."""
        self.fillers: FloatArray = padded_priors[..., num_actions:]
        """`[B, N + 1, W - A]` what fills up the rows of those; marks at nodes in use."""
        self.blocks: FloatArray = part(layout[BLOCKS_AT], num_nodes, layout[BLOCKS_SIZE])
        """`[B, N + 1, ...]` blocks of children."""
        self.rows: FloatArray = part(0, HEADER)
        """`[B, 16]` headers of the rows."""
        self.row_ints: IntArray = self.rows.view(ints)
        """`[B, 16]` the same as integers."""
        self.row_ints[:, NUM_SLOTS] = 1
        self.gumbel: FloatArray = part(layout[GUMBEL_AT], layout[WIDTH])[:, :num_actions]
        """`[B, A]` scaled Gumbel noise of the roots; zero under PUCT."""
        self.legal: BoolArray = np.zeros((batch_size, num_actions), np.bool_)
        """`[B, A]` legal actions of the roots."""

    @property
    def num_slots(self) -> IntArray:
        """`[rows]` node slots in use, the root included; some may have stayed unused."""
        return self.row_ints[: self.num_rows, NUM_SLOTS].astype(np.int32)

    @property
    def num_kept(self) -> IntArray:
        """`[rows]` visits of the root's actions that come from an earlier search."""
        return self.row_ints[: self.num_rows, NUM_KEPT].astype(np.int32)

    @property
    def num_nodes(self) -> int:
        """Node slots in use in the largest tree."""
        return int(self.num_slots.max())

    @property
    def num_bytes(self) -> int:
        """Bytes held by all arrays."""
        return self.arrays[0].nbytes + self.legal.nbytes

    @property
    def parents(self) -> IntArray:
        """`[rows, nodes]` parent of each node; -1 at the root and at slots that stayed unused."""
        return self._link(PARENT)

    @property
    def actions(self) -> IntArray:
        """`[rows, nodes]` action that leads to each node; -1 at the root and at slots that stayed unused."""
        return self._link(ACTION)

    @property
    def depths(self) -> IntArray:
        """`[rows, nodes]` edges between the root and the node."""
        return self._link(DEPTH)

    @property
    def visits(self) -> IntArray:
        """`[rows, nodes]` visits; 0 at slots that stayed unused."""
        return self._node(VISITS).astype(np.int32)

    @property
    def values(self) -> FloatArray:
        """`[rows, nodes]` mean value, seen by the node's player to move."""
        return self._node(VALUE)

    @property
    def raw_values(self) -> FloatArray:
        """`[rows, nodes]` network value, seen by the node's player to move."""
        return self._node(RAW_VALUE)

    @property
    def rewards(self) -> FloatArray:
        """`[rows, nodes]` reward of the edge that leads to the node, seen by who moved."""
        return self._node(REWARD)

    @property
    def discounts(self) -> FloatArray:
        """`[rows, nodes]` signed discount of the edge that leads to the node."""
        return self._node(DISCOUNT)

    @property
    def child_index(self) -> IntArray:
        """`[rows, nodes, A]` node that each action leads to; -1 if none."""
        children = np.full((self.num_rows, self.num_nodes, self.num_actions), UNVISITED, np.int32)
        parents, actions = self.parents, self.actions
        rows, nodes = np.nonzero(parents >= 0)
        children[rows, parents[rows, nodes], actions[rows, nodes]] = nodes
        return children

    @property
    def child_visits(self) -> IntArray:
        """`[rows, nodes, A]` visits of each action."""
        return self._from_children(self._node(VISITS), np.zeros_like(self._free)).astype(np.int32)

    @property
    def child_q(self) -> FloatArray:
        """`[rows, nodes, A]` `reward + discount * value` of each action; 0 where unvisited."""
        return self._from_children(self._edge(0), np.zeros_like(self._free))

    @property
    def priors(self) -> FloatArray:
        """`[rows, nodes, A]` prior probabilities, root noise included; 0 at illegal actions and unused slots."""
        field = self._from_children(self._edge(PRIOR_BEHIND), self._free.copy())
        if self.holds_logits:
            weights = np.exp(field - field.max(axis=-1, keepdims=True))
            softmax = weights / weights.sum(axis=-1, keepdims=True)
            # Chance nodes, at odd depths, hold probabilities always.
            is_chance = self.has_chance & (self.depths % 2 == 1)
            field = np.where(is_chance[..., None], field, softmax)
        return np.where(self._node(VISITS)[..., None] > 0, np.maximum(field, 0), 0)

    @property
    def _free(self) -> FloatArray:
        return self.free_priors[: self.num_rows, : self.num_nodes]

    def _node(self, field: int) -> FloatArray:
        return self._masked(self.nodes, field, 0)

    def _link(self, field: int) -> IntArray:
        links = self._masked(
            self.links, field - FIRST_INT, UNVISITED if field in (PARENT, ACTION) else 0
        )
        return links.astype(np.int32, copy=False)

    def _edge(self, behind: int) -> FloatArray:
        """`[rows, nodes]` q (or what stands so far behind it) of the edge that leads to each node; 0 where none does."""
        parents, edges = self.parents, self._link(EDGE)
        rows, nodes = np.nonzero(parents >= 0)
        numbers = np.zeros(parents.shape, self.blocks.dtype)
        numbers[rows, nodes] = self.blocks[rows, parents[rows, nodes], edges[rows, nodes] + behind]
        return numbers

    def _masked(self, records: npt.NDArray[Any], field: int, otherwise: int) -> npt.NDArray[Any]:
        """One field of all nodes; slots behind a row's own hold what an earlier search has left there."""
        num_slots, num_nodes = self.num_slots, self.num_nodes
        array = records[: self.num_rows, :num_nodes, field]
        if (num_slots == num_nodes).all():
            return array
        return np.where(
            np.arange(num_nodes) < num_slots[:, None], array, array.dtype.type(otherwise)
        )

    def _from_children(self, values: FloatArray, into: FloatArray) -> FloatArray:
        """`into` `[rows, nodes, A]` with the values `[rows, nodes]` of the nodes at the actions that lead to them."""
        parents, actions = self.parents, self.actions
        rows, nodes = np.nonzero(parents >= 0)
        into[rows, parents[rows, nodes], actions[rows, nodes]] = values[rows, nodes]
        return into


def check_keys(num_actions: int, num_simulations: int, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if an action and a node do not fit together into an integer of the float's width."""
    bits = 4 * dtype.itemsize
    if num_actions > 1 << (bits - 1) or num_simulations >= 1 << bits:
        raise ValueError(
            f"num_actions={num_actions}, num_simulations={num_simulations}: a {dtype} search takes up to {1 << (bits - 1)} "
            f"actions and {(1 << bits) - 1} simulations; dtype float64 has room for more"
        )


def _zeros(size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros that start a cache line."""
    buffer = np.zeros(size * dtype.itemsize + CACHE_LINE, np.uint8)
    start = -buffer.ctypes.data % CACHE_LINE
    return buffer[start : start + size * dtype.itemsize].view(dtype)
