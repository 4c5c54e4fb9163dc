"""Chance nodes: what Stochastic MuZero adds to the search (Antonoglou et al., ICLR 2022).

An action leads from a state to an afterstate, and one of `C` outcomes leads from there to the next state. States are
decision nodes, at even depths of the tree; afterstates are chance nodes, at odd ones. Two edges make one step of the
environment: the first has reward 0 and discount 1, the second the step's reward and signed discount. So the value of an
afterstate is seen by the player who acted, and it is the q of the action.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mcts.base import FloatArray, ModelOutput, Selection
from mcts.chance_kernels import split_by_kind

if TYPE_CHECKING:
    from mcts.search import Search


@dataclass(frozen=True, slots=True)
class AfterstateOutput:
    """What the model says of afterstates."""

    chance_logits: FloatArray
    """`[b, C]` logits of the outcomes; minus infinity where an outcome does not exist."""
    value: FloatArray
    """`[b]` value of the afterstate, seen by the player who acted, the step's reward included: a q of the action."""


class StochasticModel(Protocol):
    """A model with chance as the search sees it; hidden states stay with the model, addressed by (row, node).

    A call has at least one row, and its arrays are valid until the next call.
    """

    def afterstates(self, selection: Selection) -> AfterstateOutput:
        """The afterstates behind actions: `selection.parent` are states, `selection.action` actions."""
        ...

    def states(self, selection: Selection) -> ModelOutput:
        """The states behind outcomes: `selection.parent` are afterstates, `selection.action` outcomes `0 .. C - 1`.

        Reward and discount are those of the whole step, logits `[b, A]` and value those of the new state.
        """
        ...


class AlternatingModel:
    """A `StochasticModel` as the search's `Model`: each row is asked of the one network that it needs."""

    def __init__(self, model: StochasticModel, search: "Search") -> None:
        num_outcomes = search.settings.num_chance_outcomes
        if num_outcomes < 1:
            raise ValueError(
                "num_chance_outcomes=0: a search without chance nodes takes its model as it is; "
                "set num_chance_outcomes to the model's number of outcomes"
            )
        self._model = model
        self._links = search.tree.links
        self._num_actions = search.num_actions
        self._num_outcomes = num_outcomes
        num_rows, _, width = search.tree.free_priors.shape
        dtype = search.tree.nodes.dtype
        self._order = np.zeros(num_rows, np.int32)
        self._split = np.zeros((4, num_rows), np.int32)
        self._reward, self._discount, self._value = np.zeros((3, num_rows), dtype)
        self._logits = np.zeros((num_rows, width), dtype)

    def recurrent(self, selection: Selection) -> ModelOutput:
        """Ask for the afterstates behind decision nodes and for the states behind chance nodes."""
        num_rows = len(selection.row)
        num_decisions = split_by_kind(*selection, self._links, self._order, self._split)
        logits = self._logits[:num_rows]
        logits.fill(-np.inf)
        self._reward.fill(0.0)
        self._discount.fill(1.0)
        if num_decisions > 0:
            output = self._model.afterstates(Selection(*self._split[:, :num_decisions]))
            _check_shape("chance_logits", output.chance_logits, num_decisions, self._num_outcomes)
            _check_shape("afterstate value", output.value, num_decisions)
            places = self._order[:num_decisions]
            logits[places, : self._num_outcomes] = output.chance_logits
            self._value[places] = output.value
        if num_decisions < num_rows:
            num_states = num_rows - num_decisions
            state = self._model.states(Selection(*self._split[:, num_decisions:num_rows]))
            _check_shape("prior_logits", state.prior_logits, num_states, self._num_actions)
            _check_shape("value", state.value, num_states)
            _check_shape("reward", state.reward, num_states)
            _check_shape("discount", state.discount, num_states)
            places = self._order[num_decisions:num_rows]
            logits[places, : self._num_actions] = state.prior_logits
            self._value[places] = state.value
            self._reward[places] = state.reward
            self._discount[places] = state.discount
        return ModelOutput(
            reward=self._reward[:num_rows],
            discount=self._discount[:num_rows],
            prior_logits=logits,
            value=self._value[:num_rows],
        )


def _check_shape(name: str, array: FloatArray, *expected: int) -> None:
    if array.shape != expected:
        raise ValueError(f"the model's {name} has shape {array.shape}, expected {expected}")
