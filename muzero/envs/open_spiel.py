"""Batches of OpenSpiel games: perfect information, one or two players, chance or none.

Letters: `B` rows (games), `A` actions, `*F` shape of one frame.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyspiel

from muzero.config.environments import OpenSpielConfig
from muzero.envs.base import EnvSpec, TimeStep
from muzero.envs.open_spiel_frames import OpenSpielFrames
from muzero.envs.open_spiel_game import load_game, sample_chance
from muzero.envs.rules import check_actions, check_batch_size, check_turns

__all__ = ["OpenSpielEnv", "OpenSpielFrames", "load_game", "make_spec"]


def make_spec(config: OpenSpielConfig) -> EnvSpec:
    """The spec of `config`'s game; raises ValueError for a game that cannot be learned."""
    return OpenSpielFrames(load_game(config), config).spec


class OpenSpielEnv:
    """`B` games of one kind. Chance moves are drawn inside `step`, from a generator of each row's own."""

    def __init__(self, config: OpenSpielConfig, batch_size: int):
        """Raises ValueError for a game that cannot be learned, or settings that do not fit it."""
        self._game = load_game(config)
        self._frames = OpenSpielFrames(self._game, config)
        self.spec = self._frames.spec
        self.batch_size = batch_size
        self._max_steps = config.max_episode_steps
        self._rewards_at_end = (
            self._game.get_type().reward_model == pyspiel.GameType.RewardModel.TERMINAL
        )
        self._states: list[pyspiel.State] = [None] * batch_size
        self._rngs: list[np.random.Generator] = []
        self._num_steps = np.zeros(batch_size, np.int64)
        # Each row's sum of rewards so far, by player. Rewards are its differences: `State.rewards` repeats
        # itself at some games' chance nodes and may not be called at others'.
        self._returns: list[list[float]] = [[]] * batch_size

    def reset(self, seed: int) -> TimeStep:
        """Starts a new game in every row; row `i`'s chance moves derive from `seed` and `i`."""
        self._rngs = [
            np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(row,)))
            for row in range(self.batch_size)
        ]
        for row in range(self.batch_size):
            self._start(row)
        self._num_steps[:] = 0
        return self._standing()

    def step(self, actions: npt.NDArray[np.integer]) -> TimeStep:
        """Plays `actions[B]` and starts new games in the rows whose game is over.

        Raises ValueError for an illegal action, and where a player is to move again though
        `env.turn_order` says that turns alternate.
        """
        actions = np.asarray(actions)
        check_actions(self.spec, self._legal, actions)
        reward = np.zeros(self.batch_size, np.float32)
        terminated = np.zeros(self.batch_size, np.bool_)
        states = self._states
        for row, (state, action, mover) in enumerate(
            zip(states, actions.tolist(), self._to_play.tolist(), strict=True)
        ):
            state.apply_action(action)
            if state.is_chance_node():
                sample_chance(state, self._rngs[row])
            ended = state.is_terminal()
            if ended or not self._rewards_at_end:
                returns = state.returns()
                reward[row] = returns[mover] - self._returns[row][mover]
                self._returns[row] = returns
            if ended:
                terminated[row] = True
                self._start(row)
        self._num_steps += 1
        truncated = np.zeros(self.batch_size, np.bool_)
        if self._max_steps is not None:
            truncated = (self._num_steps >= self._max_steps) & ~terminated
        to_play = self._frames.to_play(states)
        check_turns(self.spec, self._to_play, to_play, terminated)
        final_frame = None
        if truncated.any():
            cut = np.flatnonzero(truncated)
            final_frame = np.zeros((self.batch_size, *self.spec.frame_shape), self.spec.frame_dtype)
            final_frame[cut] = self._frames.frames([states[row] for row in cut])
            for row in cut.tolist():
                self._start(row)
        self._num_steps[terminated | truncated] = 0
        return self._time_step(
            reward=reward,
            score=reward.copy(),
            terminated=terminated,
            truncated=truncated,
            final_frame=final_frame,
            final_to_play=None if final_frame is None else to_play,
        )

    def states(self, rows: Sequence[int]) -> list[pyspiel.State]:
        """See `StatesEnv`."""
        return [self._states[row] for row in rows]

    def state(self) -> dict[str, Any]:
        """Each row's actions since its episode began, chance's included, and its generator."""
        return {
            "actions": [state.history() for state in self._states],
            "generators": [rng.bit_generator.state for rng in self._rngs],
            "num_steps": self._num_steps.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> TimeStep:
        """Goes back to `state` by playing its actions; raises ValueError if it is of another batch size."""
        check_batch_size(self.spec, len(state["actions"]), self.batch_size)
        self._states = [self._game.new_initial_state() for _ in range(self.batch_size)]
        for game_state, actions in zip(self._states, state["actions"], strict=True):
            for action in actions:
                game_state.apply_action(action)
        self._returns = [game_state.returns() for game_state in self._states]
        self._rngs = [np.random.default_rng() for _ in range(self.batch_size)]
        for rng, saved in zip(self._rngs, state["generators"], strict=True):
            rng.bit_generator.state = saved
        self._num_steps[:] = state["num_steps"]
        return self._standing()

    def close(self) -> None:
        """Nothing to free."""

    def _start(self, row: int) -> None:
        """Puts a new game into `row`."""
        state = self._game.new_initial_state()
        sample_chance(state, self._rngs[row])
        self._states[row] = state
        self._returns[row] = state.returns()

    def _standing(self) -> TimeStep:
        """The positions to be played now, after no move."""
        zeros = np.zeros(self.batch_size, np.float32)
        no = np.zeros(self.batch_size, np.bool_)
        return self._time_step(reward=zeros, score=zeros.copy(), terminated=no, truncated=no.copy())

    def _time_step(self, **move: Any) -> TimeStep:
        self._legal = self._frames.legal(self._states)
        self._to_play = self._frames.to_play(self._states)
        return TimeStep(
            frame=self._frames.frames(self._states),
            legal=self._legal.copy(),
            to_play=self._to_play.copy(),
            **move,
        )
