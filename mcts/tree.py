"""The trees of a batch of searches, as arrays allocated once and reset in place.

`B` rows, `N` simulations (so `N + 1` node slots), `A` actions. In a tree that began afresh, the node expanded in
simulation `i` has index `i + 1`.

What a search knows of a visited edge stands in the record of the node that it leads to: a node has one parent, so that
the visits of an edge are those of its node. Visited children form a list; of the unvisited ones only the best is ever
of interest, since they differ in nothing but the prior. A visit of a node thus costs as many steps as it has visited
children, whatever `A` is, and the records of a whole tree stay in the first-level cache.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from mcts.base import UNVISITED, BoolArray, FloatArray, IntArray

# Fields of a node record, 32 bytes in float32, which is exact for counts up to 2**24. Reward, discount, prior (under
# Gumbel: logit) and q are those of the edge that leads to the node.
VISITS, VALUE, RAW_VALUE, REWARD, DISCOUNT, PRIOR, Q, UNVISITED_WEIGHT = range(8)
NUM_NODE_FIELDS = 8

# Fields of a link record. Node 0 is no child of any node, so 0 ends a list of children. Taken actions are those that are
# visited or absent. Kept visits are those that a child of the root has from an earlier search.
PARENT, ACTION, FIRST_CHILD, NEXT_SIBLING, NUM_TAKEN, BEST_UNVISITED, DEPTH, KEPT_VISITS = range(8)
NUM_LINK_FIELDS = 8

# Values of BEST_UNVISITED that are no action.
NOTHING_LEFT = -1
STALE = -2

# Fields of a row: lowest and highest `reward + discount * value` seen, depths added up, actions that halving starts with,
# node slots given out so far, first of the slots that were given back (0: none), visits that the root has kept from an
# earlier search, factor of its forced playouts (0: off).
LOW, HIGH, DEPTH_SUM, NUM_CONSIDERED, NUM_SLOTS, FREE_SLOT, NUM_KEPT, FORCED_PLAYOUTS = range(8)
NUM_ROW_FIELDS = 8

# Stands for the prior of an action that is illegal, absent, or visited (its prior has moved to the child's record).
# A prior is never negative, a logit is kept above -1e9.
TAKEN_PRIOR = -1.0
TAKEN_LOGIT = -1e30
FREE_LOGITS_ABOVE = -1e20


class Tree:
    """`B` trees of at most `N + 1` nodes over `A` actions.

    With chance nodes at the odd depths, `A` is the larger of the numbers of actions and of outcomes, an outcome stands
    where an action would, and what a node has fewer of is absent. Chance nodes hold probabilities, never logits.

    The properties are views or copies meant for export and tests; the kernels use the arrays themselves.
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
        self.num_rows = batch_size
        self.holds_logits = holds_logits
        self.has_chance = has_chance
        slots = (batch_size, num_simulations + 1)
        self.free_priors: FloatArray = np.zeros((*slots, num_actions), dtype)
        """`[B, N + 1, A]` prior (or logit) of the actions that can be taken and are unvisited, a mark at the others."""
        self.nodes: FloatArray = np.zeros((*slots, NUM_NODE_FIELDS), dtype)
        """`[B, N + 1, 8]` node records."""
        self.links: IntArray = np.zeros((*slots, NUM_LINK_FIELDS), np.int32)
        """`[B, N + 1, 8]` link records."""
        self.rows: FloatArray = np.zeros((batch_size, NUM_ROW_FIELDS), dtype)
        """`[B, 8]` row records."""
        self.rows[:, NUM_SLOTS] = 1
        self.gumbel: FloatArray = np.zeros((batch_size, num_actions), dtype)
        """`[B, A]` scaled Gumbel noise of the roots; zero under PUCT."""
        self.legal: BoolArray = np.zeros((batch_size, num_actions), np.bool_)
        """`[B, A]` legal actions of the roots."""

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """What every kernel takes, in this order: free priors, nodes, links, rows."""
        return self.free_priors, self.nodes, self.links, self.rows

    @property
    def num_slots(self) -> IntArray:
        """`[rows]` node slots in use, the root included; some may have stayed unused."""
        return self.rows[: self.num_rows, NUM_SLOTS].astype(np.int32)

    @property
    def num_kept(self) -> IntArray:
        """`[rows]` visits of the root's actions that come from an earlier search."""
        return self.rows[: self.num_rows, NUM_KEPT].astype(np.int32)

    @property
    def num_nodes(self) -> int:
        """Node slots in use in the largest tree."""
        return int(self.num_slots.max())

    @property
    def num_actions(self) -> int:
        """`A`."""
        return self.free_priors.shape[2]

    @property
    def num_bytes(self) -> int:
        """Bytes held by all arrays."""
        arrays = (self.free_priors, self.nodes, self.links, self.rows, self.gumbel, self.legal)
        return sum(array.nbytes for array in arrays)

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
        return self._from_children(VISITS, np.zeros_like(self._free)).astype(np.int32)

    @property
    def child_q(self) -> FloatArray:
        """`[rows, nodes, A]` `reward + discount * value` of each action; 0 where unvisited."""
        return self._from_children(Q, np.zeros_like(self._free))

    @property
    def priors(self) -> FloatArray:
        """`[rows, nodes, A]` prior probabilities, root noise included; 0 at illegal actions and unused slots."""
        field = self._from_children(PRIOR, self._free.copy())
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
        return self._masked(self.links, field, UNVISITED if field in (PARENT, ACTION) else 0)

    def _masked(self, records: npt.NDArray[Any], field: int, otherwise: int) -> npt.NDArray[Any]:
        """One field of all nodes; slots behind a row's own hold what an earlier search has left there."""
        num_slots, num_nodes = self.num_slots, self.num_nodes
        array = records[: self.num_rows, :num_nodes, field]
        if (num_slots == num_nodes).all():
            return array
        return np.where(
            np.arange(num_nodes) < num_slots[:, None], array, array.dtype.type(otherwise)
        )

    def _from_children(self, field: int, into: FloatArray) -> FloatArray:
        parents, actions, values = self.parents, self.actions, self._node(field)
        rows, nodes = np.nonzero(parents >= 0)
        into[rows, parents[rows, nodes], actions[rows, nodes]] = values[rows, nodes]
        return into
