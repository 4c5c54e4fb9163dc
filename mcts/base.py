"""Records that cross the seam between the search, its driver and the model.

Letters used in this package: `B` rows (one root each), `N` nodes of a tree, `A` actions.
Every value is seen by the player to move at its position. An edge carries a signed discount: `+gamma` if
the same player moves next, `-gamma` if the other does, `0` into a terminal state.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

ROOT_INDEX = 0
UNVISITED = -1


@dataclass(frozen=True, slots=True)
class RootOutput:
    """What the model says of the root positions."""

    prior_logits: FloatArray
    """`[B, A]` policy logits, illegal actions not yet masked."""
    value: FloatArray
    """`[B]` value, seen by the player to move."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What the model says of one step from a node of each row."""

    reward: FloatArray
    """`[B]` reward of the edge, seen by the player who moved."""
    discount: FloatArray
    """`[B]` signed discount of the edge."""
    prior_logits: FloatArray
    """`[B, A]` policy logits of the new node."""
    value: FloatArray
    """`[B]` value of the new node, seen by its own player to move."""


class Selection(NamedTuple):
    """The edges that one simulation asks the model for, one per row."""

    parent: IntArray
    """`[B]` node whose hidden state the step starts from."""
    action: IntArray
    """`[B]` action taken at that node."""
    node: IntArray
    """`[B]` node under which the model keeps the hidden state it returns."""


class Model(Protocol):
    """A model as the search sees it: hidden states stay with the model, addressed by (row, node).

    The driver has prepared the roots (node 0 of each row) before it calls the model.
    """

    def recurrent(self, selection: Selection) -> ModelOutput:
        """One step of the dynamics and a prediction for `B` rows; may reuse its output arrays between calls."""
        ...


@dataclass(frozen=True, slots=True)
class SearchOutput:
    """What a finished search says of its roots."""

    visits: IntArray
    """`[B, A]` visits of the root's actions; they sum to the simulations of the row."""
    policy: FloatArray
    """`[B, A]` policy target: visit fractions (PUCT) or the improved policy (Gumbel); 0 at illegal actions."""
    value: FloatArray
    """`[B]` search value of the root, seen by the player to move: the mean over the network value and all backups."""
    qvalues: FloatArray
    """`[B, A]` `reward + discount * value` of the root's actions; the root value where an action is unvisited."""
    best_action: IntArray
    """`[B]` the search's own choice: most visits (PUCT) or the winner of sequential halving (Gumbel)."""
    best_value: FloatArray
    """`[B]` q of `best_action`."""
    depth: FloatArray
    """`[B]` mean depth in edges of the simulations."""
