"""What one finished search says of one position, copied out of the search's own arrays.

Letters: `N` nodes, `A` actions.
"""

from dataclasses import dataclass

import numpy as np

from mcts.base import ROOT_INDEX, BoolArray, FloatArray, IntArray, SearchOutput
from mcts.tree import Tree


@dataclass(frozen=True, slots=True)
class SavedTree:
    """A searched tree. Edge `n` leads to node `n`; slots that stayed unused have the parent -1, as the root has."""

    parent: IntArray
    """`[N]` node above."""
    action: IntArray
    """`[N]` action of the edge."""
    visits: IntArray
    """`[N]` visits of the node."""
    value: FloatArray
    """`[N]` mean value, seen by the node's player to move."""
    network_value: FloatArray
    """`[N]` the network's value, seen by the node's player to move."""
    reward: FloatArray
    """`[N]` predicted reward of the edge, seen by who moved."""
    discount: FloatArray
    """`[N]` signed discount of the edge."""
    prior: FloatArray
    """`[N]` prior probability of the edge."""
    q: FloatArray
    """`[N]` `reward + discount * value` of the edge."""

    @classmethod
    def of(cls, tree: Tree, row: int = 0) -> "SavedTree":
        """A copy of row `row`."""
        parent, action = tree.parents[row].copy(), tree.actions[row].copy()
        (edges,) = np.nonzero(parent >= 0)
        prior, q = np.zeros((2, len(parent)), tree.values.dtype)
        prior[edges] = tree.priors[row][parent[edges], action[edges]]
        q[edges] = tree.child_q[row][parent[edges], action[edges]]
        return cls(
            parent=parent,
            action=action,
            visits=tree.visits[row].copy(),
            value=tree.values[row].copy(),
            network_value=tree.raw_values[row].copy(),
            reward=tree.rewards[row].copy(),
            discount=tree.discounts[row].copy(),
            prior=prior,
            q=q,
        )

    def children(self, node: int) -> list[int]:
        """Nodes below `node`, the most visited first, of equals the higher q."""
        (nodes,) = np.nonzero(self.parent == node)
        order = np.lexsort((self.action[nodes], -self.q[nodes], -self.visits[nodes]))
        return [int(child) for child in nodes[order]]

    def path(self, node: int) -> list[int]:
        """Nodes from below the root down to `node`; empty for the root."""
        nodes: list[int] = []
        while node != ROOT_INDEX:
            nodes.insert(0, node)
            node = int(self.parent[node])
        return nodes

    def line(self, node: int, most: int) -> list[int]:
        """`node` and what follows it by the most visited children, at most `most` nodes."""
        nodes = [node]
        while len(nodes) < most and (below := self.children(nodes[-1])):
            nodes.append(below[0])
        return nodes


@dataclass(frozen=True, slots=True)
class Analysis:
    """A search of one position by one checkpoint."""

    step: int
    """Learner step of the weights."""
    planned: int
    """Simulations that were asked for."""
    made: int
    """Simulations that were made: fewer if the time ran out."""
    to_play: int
    """Player to move, by whom `value` and q are seen."""
    legal: BoolArray
    """`[A]` legal actions."""
    prior: FloatArray
    """`[A]` prior probability of the root's actions; 0 where illegal."""
    visits: IntArray
    """`[A]` see `mcts.SearchOutput`, as the fields below."""
    qvalues: FloatArray
    policy: FloatArray
    value: float
    network_value: float
    """The network's value of the root."""
    best_action: int
    best_value: float
    depth: float
    tree: SavedTree

    @classmethod
    def of(
        cls,
        tree: Tree,
        output: SearchOutput,
        legal: BoolArray,
        *,
        step: int,
        planned: int,
        to_play: int,
    ) -> "Analysis":
        """Row 0 of a finished search with the legal actions `[A]`."""
        saved = SavedTree.of(tree)
        return cls(
            step=step,
            planned=planned,
            made=int(output.num_simulations[0]),
            to_play=to_play,
            legal=legal.copy(),
            prior=tree.priors[0][ROOT_INDEX].copy(),
            visits=output.visits[0],
            qvalues=output.qvalues[0],
            policy=output.policy[0],
            value=float(output.value[0]),
            network_value=float(saved.network_value[ROOT_INDEX]),
            best_action=int(output.best_action[0]),
            best_value=float(output.best_value[0]),
            depth=float(output.depth[0]),
            tree=saved,
        )
