"""The trees of a batch of searches, as arrays allocated once and reset in place.

`B` rows, `N` simulations (so `N + 1` node slots), `A` actions. The node expanded in simulation `i` has index `i + 1`.

What a search knows of a visited edge stands in the record of the node that it leads to: a node has one parent, so that
the visits of an edge are those of its node. Visited children form a list; of the unvisited ones only the best is ever
of interest, since they differ in nothing but the prior. A visit of a node thus costs as many steps as it has visited
children, whatever `A` is, and the records of a whole tree stay in the first-level cache.
"""

import numpy as np
import numpy.typing as npt

from mcts.base import UNVISITED, BoolArray, FloatArray, IntArray

# Fields of a node record, 32 bytes in float32, which is exact for counts up to 2**24. Reward, discount, prior (under
# Gumbel: logit) and q are those of the edge that leads to the node.
VISITS, VALUE, RAW_VALUE, REWARD, DISCOUNT, PRIOR, Q, UNVISITED_WEIGHT = range(8)
NUM_NODE_FIELDS = 8

# Fields of a link record. Node 0 is no child of any node, so 0 ends a list of children.
PARENT, ACTION, FIRST_CHILD, NEXT_SIBLING, NUM_CHILDREN, BEST_UNVISITED, DEPTH = range(7)
NUM_LINK_FIELDS = 8

# Values of BEST_UNVISITED that are no action.
NOTHING_LEFT = -1
STALE = -2

# Fields of a row: lowest and highest `reward + discount * value` seen, depths added up, actions that halving starts with.
LOW, HIGH, DEPTH_SUM, NUM_CONSIDERED = range(4)
NUM_ROW_FIELDS = 4

# Stands for the prior of an action that is illegal, or visited (its prior has moved to the child's record).
# A prior is never negative, a logit is kept above -1e9.
TAKEN_PRIOR = -1.0
TAKEN_LOGIT = -1e30
FREE_LOGITS_ABOVE = -1e20


class Tree:
    """`B` trees of at most `N + 1` nodes over `A` actions.

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
    ) -> None:
        self.num_rows = batch_size
        self.num_nodes = 1
        self.holds_logits = holds_logits
        slots = (batch_size, num_simulations + 1)
        self.free_priors: FloatArray = np.zeros((*slots, num_actions), dtype)
        """`[B, N + 1, A]` prior (or logit) of the actions that are legal and unvisited, a mark at the others."""
        self.nodes: FloatArray = np.zeros((*slots, NUM_NODE_FIELDS), dtype)
        """`[B, N + 1, 8]` node records."""
        self.links: IntArray = np.zeros((*slots, NUM_LINK_FIELDS), np.int32)
        """`[B, N + 1, 8]` link records."""
        self.rows: FloatArray = np.zeros((batch_size, NUM_ROW_FIELDS), dtype)
        """`[B, 4]` row records."""
        self.gumbel: FloatArray = np.zeros((batch_size, num_actions), dtype)
        """`[B, A]` scaled Gumbel noise of the roots; zero under PUCT."""
        self.legal: BoolArray = np.zeros((batch_size, num_actions), np.bool_)
        """`[B, A]` legal actions of the roots."""

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """What every kernel takes, in this order: free priors, nodes, links, rows."""
        return self.free_priors, self.nodes, self.links, self.rows

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
        rows, nodes = np.nonzero(self.parents >= 0)
        children[rows, self.parents[rows, nodes], self.actions[rows, nodes]] = nodes
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
            field = weights / weights.sum(axis=-1, keepdims=True)
        return np.where(self._node(VISITS)[..., None] > 0, np.maximum(field, 0), 0)

    @property
    def _free(self) -> FloatArray:
        return self.free_priors[: self.num_rows, : self.num_nodes]

    def _node(self, field: int) -> FloatArray:
        return self.nodes[: self.num_rows, : self.num_nodes, field]

    def _link(self, field: int) -> IntArray:
        return self.links[: self.num_rows, : self.num_nodes, field]

    def _from_children(self, field: int, into: FloatArray) -> FloatArray:
        rows, nodes = np.nonzero(self.parents >= 0)
        parents, actions = self.parents[rows, nodes], self.actions[rows, nodes]
        into[rows, parents, actions] = self._node(field)[rows, nodes]
        return into
