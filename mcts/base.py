"""Records that cross the seam between the search, its driver and the model.

Letters used in this package: `B` rows (one root each), `b <= B` rows that still search, `N` simulations, `A` actions.
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

Answer = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Reward, discount, prior logits and value of a `ModelOutput`, as the kernels take them."""

ROOT_INDEX = 0
UNVISITED = -1


@dataclass(frozen=True, slots=True)
class RootOutput:
    """What the model says of the root positions."""

    prior_logits: FloatArray
    """`[B, A]` policy logits, illegal actions not yet masked; minus infinity where an action does not exist."""
    value: FloatArray
    """`[B]` value, seen by the player to move."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What the model says of the edges of a selection, in the selection's order."""

    reward: FloatArray
    """`[b]` reward of the edge, seen by the player who moved."""
    discount: FloatArray
    """`[b]` signed discount of the edge."""
    prior_logits: FloatArray
    """`[b, A]` policy logits of the new node; minus infinity where an action does not exist, but not everywhere."""
    value: FloatArray
    """`[b]` value of the new node, seen by its own player to move."""


class Selection(NamedTuple):
    """The edges that one simulation asks the model for, one for each of the `b` rows that still search."""

    row: IntArray
    """`[b]` row of each edge, ascending: `0 .. B - 1` while all rows search."""
    parent: IntArray
    """`[b]` node whose hidden state the step starts from."""
    action: IntArray
    """`[b]` action taken at that node."""
    node: IntArray
    """`[b]` node under which the model keeps the hidden state it returns."""


@dataclass(frozen=True, slots=True)
class KeptSubtrees:
    """Which nodes stay, and where they stand now, after a move has been made in every row."""

    source: IntArray
    """`[B, N + 1]` where each node was before, never below where it is now; -1 at slots that are unused now."""
    num_nodes: IntArray
    """`[B]` nodes kept, the new root included; 0 in rows that start afresh."""


class Model(Protocol):
    """A model as the search sees it: hidden states stay with the model, addressed by (row, node).

    The driver has prepared the roots (node 0 of each row) before it calls the model.
    """

    def recurrent(self, selection: Selection) -> ModelOutput:
        """One step of the dynamics and a prediction for `b` rows; may reuse its output arrays between calls."""
        ...


@dataclass(frozen=True, slots=True)
class SearchOutput:
    """What a finished search says of its roots."""

    visits: IntArray
    """`[B, A]` visits of the root's actions; they sum to the simulations of the row and those in a kept subtree."""
    policy: FloatArray
    """`[B, A]` policy target: visit fractions (PUCT; after target pruning with `forced_playouts`) or the improved policy
    (Gumbel); 0 at illegal and absent actions."""
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
    num_simulations: IntArray
    """`[B]` simulations that were made."""
