"""A network with chance codes as the search sees it.

Letters: `B` rows, `N` nodes of a tree, `b` edges of a call, `A` actions, `M` chance codes, `*O` observation shape.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from mcts.base import IntArray, ModelOutput, Selection
from mcts.chance import AfterstateOutput
from muzero.inference.local import LocalModel
from muzero.inference.stochastic_evaluator import ChanceEvaluator
from muzero.network.stochastic import StochasticNetwork


class StochasticLocalModel(LocalModel):
    """A `LocalModel` of a network with chance codes, for searches with `num_chance_outcomes` = `M`.

    It answers what `mcts.chance.AlternatingModel` would: an edge from a state leads to an afterstate (reward 0, discount 1, the
    prior is sigma), one from an afterstate to a state. Which of them a node is, the model remembers by itself, so it stands
    wherever a `LocalModel` stands. On a CPU an MLP runs compiled; other networks run as torch's modules, and there is no captured
    graph.

    Args:
        network: Is copied; its own weights serve until `load`.
        batch_size, num_nodes, options: See `LocalModel`; two edges make one step of the environment.
    """

    _evaluator: ChanceEvaluator

    def __init__(
        self, network: StochasticNetwork, *, batch_size: int, num_nodes: int, **options: Any
    ) -> None:
        super().__init__(network, batch_size=batch_size, num_nodes=num_nodes, **options)
        self.num_chance_codes = network.num_chance_codes
        self._is_afterstate = np.zeros((batch_size, num_nodes), np.bool_)
        width = max(self.spec.num_actions, self.num_chance_codes)
        self._logits = np.zeros((batch_size, width), np.float32)
        self._reward, self._discount, self._value = np.zeros((3, batch_size), np.float32)

    def recurrent(self, selection: Selection) -> ModelOutput:
        """Step every edge by the network that it needs; see `mcts.Model`."""
        row, parent, _, node = selection
        from_afterstate = self._is_afterstate[row, parent]
        self._is_afterstate[row, node] = ~from_afterstate
        num_edges, num_outcomes = len(row), np.count_nonzero(from_afterstate)
        reward, discount = self._reward[:num_edges], self._discount[:num_edges]
        value, logits = self._value[:num_edges], self._logits[:num_edges]
        if num_outcomes < num_edges:
            # Edges of one kind, the common case, are neither gathered nor scattered.
            actions = np.flatnonzero(~from_afterstate) if num_outcomes > 0 else slice(None)
            chance = self.afterstates(_part(selection, actions))
            logits[actions, : self.num_chance_codes] = chance.chance_logits
            logits[actions, self.num_chance_codes :] = -np.inf
            value[actions], reward[actions], discount[actions] = chance.value, 0.0, 1.0
        if num_outcomes > 0:
            outcomes = np.flatnonzero(from_afterstate) if num_outcomes < num_edges else slice(None)
            state = self.states(_part(selection, outcomes))
            logits[outcomes, : self.spec.num_actions] = state.prior_logits
            logits[outcomes, self.spec.num_actions :] = -np.inf
            value[outcomes], reward[outcomes] = state.value, state.reward
            discount[outcomes] = state.discount
        return ModelOutput(reward, discount, logits, value)

    def afterstates(self, selection: Selection) -> AfterstateOutput:
        """See `mcts.chance.StochasticModel`."""
        rows = self._rows_of(len(selection.row))
        rows.fill(selection, self.num_nodes)
        return AfterstateOutput(*self._evaluator.afterstates(self._slab, rows))

    def states(self, selection: Selection) -> ModelOutput:
        """See `mcts.chance.StochasticModel`."""
        num_edges = len(selection.row)
        rows = self._rows_of(num_edges)
        rows.fill(selection, self.num_nodes)
        answer = self._evaluator.states(self._slab, rows)
        assert answer.reward is not None
        discount = self._edge_discount[:num_edges].copy()
        if answer.turn_logit is not None:
            discount = np.where(answer.turn_logit > 0.0, self.discount, -self.discount)
        return ModelOutput(
            answer.reward, discount.astype(np.float32), answer.policy_logits, answer.value
        )

    def move_nodes(self, source: IntArray, num_nodes: IntArray) -> None:
        """See `LocalModel.move_nodes`."""
        super().move_nodes(source, num_nodes)
        before = self._is_afterstate.copy()
        for row, count in enumerate(num_nodes.tolist()):
            self._is_afterstate[row, :count] = before[row, source[row, :count]]


def _part(selection: Selection, places: npt.NDArray[np.intp] | slice) -> Selection:
    """The edges at some places."""
    return Selection(*(array[places] for array in selection))
