"""Random table models with chance: states lead to afterstates by an action, afterstates to states by an outcome."""

from dataclasses import dataclass

import numpy as np

from mcts import ModelOutput, RootOutput, Selection
from mcts.chance import AfterstateOutput

STATE, AFTERSTATE = 0, 1


def as_drawn(array, dtype):
    """Through float32, so that every precision sees the same numbers."""
    return np.asarray(array).astype(np.float32).astype(dtype)


@dataclass
class ChanceTable:
    """`nodes[row, node]` is where a node stands, `kinds[row, node]` whether that is a state or an afterstate."""

    logits: np.ndarray
    value: np.ndarray
    afterstate: np.ndarray
    chance_logits: np.ndarray
    afterstate_value: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    successor: np.ndarray
    num_asked: int = 0

    @staticmethod
    def draw(
        rng,
        *,
        num_states=64,
        num_actions=4,
        num_outcomes=3,
        discount=0.997,
        players=1,
        zero_reward=False,
        terminal_fraction=0.05,
        value_scale=1.0,
        absent_actions=0.0,
        absent_outcomes=0.0,
        dtype=np.float64,
    ):
        """A share `absent_actions` of the actions and `absent_outcomes` of the outcomes do not exist."""
        shape, chance_shape = (num_states, num_actions), (num_states, num_outcomes)
        sign = np.ones(chance_shape) if players == 1 else -np.ones(chance_shape)
        if players == "mixed":
            sign = np.where(rng.random(chance_shape) < 0.5, 1.0, -1.0)
        edge = sign * discount * (rng.random(chance_shape) >= terminal_fraction)
        reward = rng.uniform(-1, 1, chance_shape) * value_scale * (not zero_reward)
        logits = as_drawn(rng.normal(size=shape), dtype)
        chance_logits = as_drawn(rng.normal(size=chance_shape), dtype)
        for table, share in ((logits, absent_actions), (chance_logits, absent_outcomes)):
            is_absent = rng.random(table.shape) < share
            is_absent[np.arange(num_states), rng.integers(table.shape[1], size=num_states)] = False
            table[is_absent] = -np.inf
        return ChanceTable(
            logits=logits,
            value=as_drawn(rng.uniform(-1, 1, num_states) * value_scale, dtype),
            afterstate=rng.integers(num_states, size=shape),
            chance_logits=chance_logits,
            afterstate_value=as_drawn(rng.uniform(-1, 1, num_states) * value_scale, dtype),
            reward=as_drawn(reward, dtype),
            discount=as_drawn(edge, dtype),
            successor=rng.integers(num_states, size=chance_shape),
        )

    @property
    def num_actions(self):
        return self.logits.shape[1]

    @property
    def num_outcomes(self):
        return self.chance_logits.shape[1]

    def root(self, states, num_nodes):
        """Stand at `states` `[B]`, with room for `num_nodes` nodes."""
        self.nodes = np.full((len(states), num_nodes), -1)
        self.kinds = np.full((len(states), num_nodes), -1)
        return self.replant(states)

    def replant(self, states):
        """Stand at `states` `[B]`; all other nodes stay."""
        self.nodes[:, 0] = states
        self.kinds[:, 0] = STATE
        return RootOutput(prior_logits=self.logits[states], value=self.value[states])

    def move_nodes(self, source, num_nodes):
        """Follow `Search.keep_subtrees`."""
        for name in ("nodes", "kinds"):
            before = getattr(self, name).copy()
            getattr(self, name)[:] = -1
            for row, count in enumerate(num_nodes):
                getattr(self, name)[row, :count] = before[row, source[row, :count]]

    def afterstates(self, selection: Selection) -> AfterstateOutput:
        state = self._stand(selection, STATE)
        following = self.afterstate[state, selection.action]
        self._move(selection, following, AFTERSTATE)
        return AfterstateOutput(
            chance_logits=self.chance_logits[following], value=self.afterstate_value[following]
        )

    def states(self, selection: Selection) -> ModelOutput:
        afterstate = self._stand(selection, AFTERSTATE)
        following = self.successor[afterstate, selection.action]
        self._move(selection, following, STATE)
        return ModelOutput(
            reward=self.reward[afterstate, selection.action],
            discount=self.discount[afterstate, selection.action],
            prior_logits=self.logits[following],
            value=self.value[following],
        )

    # One step for the naive search.

    def plain_afterstate(self, state, action):
        following = self.afterstate[state, action]
        logits = self.chance_logits[following].tolist()
        return logits, float(self.afterstate_value[following]), following

    def plain_outcome(self, afterstate, outcome):
        following = self.successor[afterstate, outcome]
        return (
            float(self.reward[afterstate, outcome]),
            float(self.discount[afterstate, outcome]),
            self.logits[following].tolist(),
            float(self.value[following]),
            following,
        )

    def _stand(self, selection, kind):
        assert len(selection.parent) > 0, "a network was asked for no row"
        self.num_asked += len(selection.parent)
        kinds = self.kinds[selection.row, selection.parent]
        assert (kinds == kind).all(), "the driver asked the wrong network"
        return self.nodes[selection.row, selection.parent]

    def _move(self, selection, following, kind):
        self.nodes[selection.row, selection.node] = following
        self.kinds[selection.row, selection.node] = kind
