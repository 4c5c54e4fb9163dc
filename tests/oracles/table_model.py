"""Random table models: finite state machines behind the search's model protocol."""

from dataclasses import dataclass

import numpy as np

from mcts import ModelOutput, RootOutput, Selection


@dataclass
class TableModel:
    """States with random outputs; `state[row, node]` is where each node of a row stands."""

    logits: np.ndarray
    value: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    successor: np.ndarray
    dtype: type = np.float64
    num_calls: int = 0

    @staticmethod
    def draw(
        rng,
        *,
        num_states=64,
        num_actions=4,
        discount=0.997,
        players=1,
        zero_reward=False,
        terminal_fraction=0.05,
        value_scale=1.0,
        absent_fraction=0.0,
        dtype=np.float64,
    ):
        """Draw in float32, so that every precision sees the same numbers.

        `absent_fraction` of the logits are minus infinity; every state has an action that exists.
        """
        shape = (num_states, num_actions)
        sign = np.ones(shape) if players == 1 else -np.ones(shape)
        if players == "mixed":
            sign = np.where(rng.random(shape) < 0.5, 1.0, -1.0)
        edge = sign * discount * (rng.random(shape) >= terminal_fraction)
        reward = np.zeros(shape) if zero_reward else rng.uniform(-1, 1, shape) * value_scale
        logits = rng.normal(size=shape)
        model = TableModel(
            logits=logits.astype(np.float32).astype(dtype),
            value=(rng.uniform(-1, 1, num_states) * value_scale).astype(np.float32).astype(dtype),
            reward=reward.astype(np.float32).astype(dtype),
            discount=edge.astype(np.float32).astype(dtype),
            successor=rng.integers(num_states, size=shape),
            dtype=dtype,
        )
        if absent_fraction > 0:
            absent = rng.random(shape) < absent_fraction
            absent[np.arange(num_states), rng.integers(num_actions, size=num_states)] = False
            model.logits[absent] = -np.inf
        return model

    @property
    def num_actions(self):
        return self.logits.shape[1]

    def root(self, states, num_nodes):
        """Stand at `states` `[B]`, with room for `num_nodes` nodes."""
        states = np.asarray(states)
        self.nodes = np.full((len(states), num_nodes), -1)
        return self.replant(states)

    def replant(self, states):
        """Stand at `states` `[B]`; all other nodes stay."""
        self.nodes[:, 0] = states
        return RootOutput(prior_logits=self.logits[states], value=self.value[states])

    def move_nodes(self, source, num_nodes):
        """Follow `Search.keep_subtrees`."""
        before = self.nodes.copy()
        self.nodes[:] = -1
        for row, count in enumerate(num_nodes):
            self.nodes[row, :count] = before[row, source[row, :count]]

    def recurrent(self, selection: Selection) -> ModelOutput:
        self.num_calls += 1
        state = self.nodes[selection.row, selection.parent]
        assert (state >= 0).all(), "the search asked for a node that it never expanded"
        following = self.successor[state, selection.action]
        self.nodes[selection.row, selection.node] = following
        return ModelOutput(
            reward=self.reward[state, selection.action],
            discount=self.discount[state, selection.action],
            prior_logits=self.logits[following],
            value=self.value[following],
        )
