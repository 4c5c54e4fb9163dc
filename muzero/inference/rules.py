"""The rules of a game as the search's model: moves inside the tree are played, not imagined (AlphaZero's way).

Letters: `B` rows, `b` of them in a call, `N` nodes of a tree, `A` actions, `*O` observation shape.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from mcts.base import ROOT_INDEX, FloatArray, IntArray, ModelOutput, RootOutput, Selection
from muzero.envs.states import GameRules, State
from muzero.inference.local import LocalModel
from muzero.inference.pair import ModelPair
from muzero.inference.remote import RemoteModel
from muzero.inference.valuation import NetworkValuation, Valuation


class RulesModel:
    """Steps real states by the rules and asks `valuation` for their logits and values.

    An edge carries the move's real reward and the discount `+gamma` (the mover is to move again), `-gamma` or 0 (the game is
    over). Illegal actions have the logit minus infinity at every node. A finished game is absorbing: whatever follows has
    reward 0, discount 0 and value 0. The arrays of a `ModelOutput` are valid until the next call.

    Example:
        >>> valuation = RolloutValuation(rules, num_rollouts=4, seed=0)
        >>> model = RulesModel(rules, valuation, batch_size=1, num_nodes=101, discount=1.0)
        >>> root = model.roots([state])                # a pyspiel.State
        >>> output = run(search, model, root, rules.legal([state]))

    Args:
        discount: Discount per step, gamma, above 0 and at most 1.
    """

    def __init__(
        self,
        rules: GameRules,
        valuation: Valuation,
        *,
        batch_size: int,
        num_nodes: int,
        discount: float,
    ) -> None:
        if not 0.0 < discount <= 1.0:
            raise ValueError(f"targets.discount is {discount}; it has to be above 0 and at most 1")
        for name, count in (("batch_size", batch_size), ("num_nodes", num_nodes)):
            if count < 1:
                raise ValueError(f"{name} is {count}; it has to be at least 1")
        self.rules, self.valuation = rules, valuation
        self.batch_size, self.num_nodes, self.discount = batch_size, num_nodes, discount
        self._states: list[list[State | None]] = [[None] * num_nodes for _ in range(batch_size)]
        spec = rules.spec
        self._reward, self._discount, self._value = np.zeros((3, batch_size), np.float32)
        self._logits = np.zeros((batch_size, spec.num_actions), np.float32)
        self._stacks: npt.NDArray[Any] | None = None
        if valuation.needs_observations:
            shape = (batch_size, *spec.observation_shape)
            self._observation = np.zeros(shape, spec.frame_dtype)
            if spec.num_stacked_frames > 1:
                # Nodes keep their observations: that of a child is its parent's, moved on by a frame.
                shape = (batch_size, num_nodes, *spec.observation_shape)
                self._stacks = np.zeros(shape, spec.frame_dtype)

    def roots(
        self, states: Sequence[State], observation: npt.NDArray[Any] | None = None
    ) -> RootOutput:
        """Set node 0 of rows 0 to `B - 1` to copies of `states[B]`; `B` at most `batch_size`.

        Args:
            states: As the rules hold them.
            observation: `[B, *O]` of the states, earlier frames included; None if the valuation needs none.
        """
        num_rows = len(states)
        if not 1 <= num_rows <= self.batch_size:
            raise ValueError(
                f"{num_rows} states; this model has room for batch_size {self.batch_size}"
            )
        over = [row for row, state in enumerate(states) if self.rules.is_over(state)]
        if over:
            raise ValueError(f"row {over[0]}: the game is over there, nothing can be searched")
        if self.valuation.needs_observations:
            shape = (num_rows, *self.rules.spec.observation_shape)
            if observation is None or observation.shape != shape:
                found = "missing" if observation is None else f"of shape {list(observation.shape)}"
                raise ValueError(f"the observations are {found}; {list(shape)} is expected")
            if self._stacks is not None:
                self._stacks[:num_rows, ROOT_INDEX] = observation
        for row, state in enumerate(states):
            self._states[row][ROOT_INDEX] = self.rules.copy(state)
        answer = self.valuation.evaluate(states, observation)
        legal = self.rules.legal(states)
        logits = np.where(legal, answer.prior_logits, np.float32(-np.inf))
        return RootOutput(logits, answer.value.astype(np.float32))

    def recurrent(self, selection: Selection) -> ModelOutput:
        """Play the selected moves and value what they lead to; see `mcts.Model`."""
        rows, parents, actions, nodes = (part.tolist() for part in selection)
        num_rows = len(rows)
        reward, discount = self._reward[:num_rows], self._discount[:num_rows]
        value, logits = self._value[:num_rows], self._logits[:num_rows]
        for array in (reward, discount, value, logits):
            array[:] = 0.0
        parent_states = [
            self._states[row][parent] for row, parent in zip(rows, parents, strict=True)
        ]
        going = [place for place, state in enumerate(parent_states) if state is not None]
        moves = self.rules.play(
            [parent_states[place] for place in going], [actions[place] for place in going]
        )
        reward[going] = moves.reward
        discount[going] = moves.turn * np.float32(self.discount)
        children: list[State | None] = [None] * num_rows
        for place, state in zip(going, moves.states, strict=True):
            children[place] = state
        for row, node, state in zip(rows, nodes, children, strict=True):
            self._states[row][node] = state
        open_places = [place for place, state in enumerate(children) if state is not None]
        if open_places:
            open_states = [children[place] for place in open_places]
            observation = None
            if self.valuation.needs_observations:
                observation = self._observe(selection, open_places, open_states)
            answer = self.valuation.evaluate(children, observation)
            value[open_places] = answer.value[open_places]
            legal = self.rules.legal(open_states)
            logits[open_places] = np.where(
                legal, answer.prior_logits[open_places], np.float32(-np.inf)
            )
        return ModelOutput(reward, discount, logits, value)

    def move_nodes(self, source: IntArray, num_nodes: IntArray) -> None:
        """Follow `Search.keep_subtrees`: node `n` of row `r` becomes what node `source[r, n]` was, for `n` below `num_nodes[r]`."""
        for row, count in enumerate(num_nodes.tolist()):
            states = self._states[row]
            kept = source[row, :count]
            states[:count] = [states[node] for node in kept.tolist()]
            states[count:] = [None] * (self.num_nodes - count)
            if self._stacks is not None:
                self._stacks[row, :count] = self._stacks[row, kept]

    def replay_nodes(
        self,
        states: Sequence[State],
        observation: npt.NDArray[Any] | None,
        num_nodes: IntArray,
        parents: IntArray,
        actions: IntArray,
    ) -> None:
        """Hold trees whose shape is known: node 0 of row `r` is `states[r]`, the others are what their actions lead to.

        Args:
            states: `[B]`.
            observation: `[B, *O]` of the states; None if the valuation needs none.
            num_nodes: `[B]` nodes of each row.
            parents: `[sum of num_nodes]` parent of each node, row by row; -1 at the roots.
            actions: Like `parents`.
        """
        first = 0
        for row, (root, count) in enumerate(zip(states, num_nodes.tolist(), strict=True)):
            known: list[State | None] = [self.rules.copy(root)] + [None] * (count - 1)
            pending: dict[int, list[int]] = {}
            for node in range(1, count):
                pending.setdefault(int(parents[first + node]), []).append(node)
            if self._stacks is not None and observation is not None:
                self._stacks[row, ROOT_INDEX] = observation[row]
            ready = [ROOT_INDEX]
            while ready:
                parent = ready.pop()
                children = pending.get(parent, [])
                ready.extend(children)
                if known[parent] is None or not children:
                    continue  # behind the end of the game there is nothing
                moves = self.rules.play(
                    [known[parent]] * len(children),
                    [int(actions[first + child]) for child in children],
                )
                for child, state in zip(children, moves.states, strict=True):
                    known[child] = state
                    if self._stacks is not None and state is not None:
                        frame = self.rules.frames([state])[0]
                        before = self._stacks[row, parent]
                        self._stacks[row, child] = np.concatenate([before[len(frame) :], frame])
            self._states[row][:count] = known
            first += count

    def _observe(
        self, selection: Selection, places: list[int], states: list[State]
    ) -> npt.NDArray[Any]:
        """`[b, *O]` observations: at `places` those of `states`, zeros elsewhere."""
        observation = self._observation[: len(selection.row)]
        observation[:] = 0
        frames = self.rules.frames(states)
        if self._stacks is None:
            observation[places] = frames
        else:
            rows = selection.row[places]
            before = self._stacks[rows, selection.parent[places]]
            stacked = np.concatenate([before[:, frames.shape[1] :], frames], axis=1)
            self._stacks[rows, selection.node[places]] = observation[places] = stacked
        return observation


class NetworkRulesModel(RulesModel):
    """A `RulesModel` valued by a network: stands where a `LocalModel` stands in self-play and agents.

    Args:
        network: Has room for as many rows; `num_nodes` 1 is enough.
        num_nodes: Nodes of a tree.
    """

    def __init__(self, rules: GameRules, network: LocalModel, *, num_nodes: int) -> None:
        super().__init__(
            rules,
            NetworkValuation(network),
            batch_size=network.batch_size,
            num_nodes=num_nodes,
            discount=network.discount,
        )
        self.network = network

    @property
    def version(self) -> int:
        """Version of the network's weights."""
        return self.network.version

    def load(self, state: Mapping[str, Tensor], version: int) -> None:
        """See `LocalModel.load`."""
        self.network.load(state, version)

    def values(self, observation: npt.NDArray[Any]) -> FloatArray:
        """See `LocalModel.values`."""
        return self.network.values(observation)


SearchModel = LocalModel | RemoteModel | NetworkRulesModel
"""A network as self-play and agents search with it: with its own dynamics, here or at a server, or with the rules."""


def plant_roots(
    model: LocalModel | RemoteModel | ModelPair | RulesModel,
    observation: npt.NDArray[Any],
    states: Sequence[State] | None,
) -> RootOutput:
    """Set the roots of either kind of model; only one that plays the rules needs `states`.

    Raises ValueError if it has none.
    """
    if not isinstance(model, RulesModel):
        return model.roots(observation)
    if states is None:
        raise ValueError(
            "search.dynamics=rules plays on from the states of the positions, and there are none here: pass `states`, or "
            "set search.dynamics=learned"
        )
    return model.roots(states, observation)
