"""OpenSpiel states as arrays: what the network sees, what is legal, who moves.

Letters: `B` states, `A` actions, `*F` shape of one frame.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyspiel
from open_spiel.python.observation import make_observation

from muzero.config.environments import OpenSpielConfig
from muzero.envs.base import BoolArray, EnvSpec, IntArray
from muzero.envs.open_spiel_features import features_of
from muzero.envs.open_spiel_game import probe
from muzero.envs.open_spiel_symmetries import board_shape, symmetries
from muzero.envs.rules import resolve_turn_order

ACTION_FACTORS = {
    "backgammon": (2, 26, 26)
}  # whether the lower die moves first; two points, bar and pass among them
"""Games whose action numbers are tuples of choices; see `EnvSpec.action_factors`."""


class OpenSpielFrames:
    """Turns states of `game` into arrays; a state must have a player to move (no chance, no final states).

    A frame is the observation tensor of the player to move, or our own features (`env.encoding`). In two-player games one more channel (boards) or
    feature (flat tensors) is appended, constantly the player to move, because many tensors do not tell.
    """

    def __init__(self, game: pyspiel.Game, config: OpenSpielConfig):
        """Raises ValueError if `config` does not fit the game."""
        self._observer = make_observation(game)
        self._num_actions = game.num_distinct_actions()
        self._features = features = features_of(game, config)
        found = probe(game)
        if features is None:
            self._tensor_shape = _tensor_shape(game, config)
            self._is_binary = found.is_binary
        else:
            self._tensor_shape, self._is_binary = features.shape, features.is_binary
        length = game.max_game_length()
        limit = config.max_episode_steps
        lowest, highest = game.min_utility(), game.max_utility()
        channels, *board = self._tensor_shape
        self.spec = EnvSpec(
            name=config.name,
            frame_shape=(channels + (game.num_players() == 2), *board),
            frame_dtype=np.dtype(np.bool_ if self._is_binary else np.float32),
            num_stacked_frames=config.num_stacked_frames,
            num_actions=self._num_actions,
            action_factors=ACTION_FACTORS.get(game.get_type().short_name, ()),
            chance_channels=() if features is None else features.chance_channels,
            num_players=game.num_players(),
            turn_order=resolve_turn_order(
                config.turn_order, game.num_players(), lambda: found.repeats_turns
            ),
            return_bounds=(lowest, highest),
            max_episode_steps=length if limit is None else min(limit, length),
            symmetries=(
                symmetries(game, self._tensor_shape) if features is None else features.symmetries
            ),
        )

    def frame(self, state: pyspiel.State) -> npt.NDArray[Any]:
        """`[*F]` frame of one state."""
        return self.frames([state])[0]

    def frames(self, states: Sequence[pyspiel.State]) -> npt.NDArray[Any]:
        """`[B, *F]` frames of the states."""
        frames = np.empty((len(states), *self.spec.frame_shape), np.float32)
        if self._features is None:
            movers = self._fill(frames.reshape(len(states), -1), states)
        else:
            movers = self.to_play(states)
            frames[:, : self._tensor_shape[0]] = self._features.encode(states)
        if self.spec.num_players == 2:
            frames[:, -1] = movers.reshape(-1, *[1] * (frames.ndim - 2))
        if not self._is_binary:
            return frames
        binary = frames.astype(np.bool_)
        if not np.array_equal(binary, frames):
            raise AssertionError(
                f"{self.spec.name}: a tensor that was taken for binary holds another value"
            )
        return binary

    def _fill(self, flat: npt.NDArray[np.float32], states: Sequence[pyspiel.State]) -> IntArray:
        """Write OpenSpiel's tensors to the head of `flat` `[B, size]`; returns the players to move, `[B]`."""
        tensor = self._observer.tensor
        movers = np.empty(len(states), np.int32)
        for row, state in enumerate(states):
            movers[row] = mover = state.current_player()
            self._observer.set_from(state, mover)
            flat[row, : tensor.size] = tensor
        return movers

    def legal(self, states: Sequence[pyspiel.State]) -> BoolArray:
        """`[B, A]` legal actions of the states."""
        # One assignment for all rows: legal_actions_mask() is slow where there are many actions, and indexing
        # a row with a list costs 3 us.
        actions: list[int] = []
        counts = []
        for state in states:
            row = state.legal_actions()
            actions += row
            counts.append(len(row))
        legal = np.zeros((len(states), self._num_actions), np.bool_)
        legal[np.repeat(np.arange(len(states)), counts), actions] = True
        return legal

    def to_play(self, states: Sequence[pyspiel.State]) -> IntArray:
        """`[B]` player to move."""
        return np.array([state.current_player() for state in states], np.int32)


def _tensor_shape(game: pyspiel.Game, config: OpenSpielConfig) -> tuple[int, ...]:
    """Shape of the tensor as the network gets it: `[channels, height, width]` or `[features]`."""
    shape = board_shape(game)
    size = int(np.prod(shape))
    if config.frame_shape is None:
        return shape if len(shape) == 3 else (size,)
    wanted = tuple(config.frame_shape)
    if len(wanted) not in (1, 3) or min(wanted) < 1 or int(np.prod(wanted)) != size:
        raise ValueError(
            f"env.frame_shape={list(wanted)} does not fit {config.game}, whose tensor has the shape {list(shape)}: "
            f"give [channels, height, width] or [features] with {size} entries (the plane of the player to move "
            "is appended later)"
        )
    return wanted
