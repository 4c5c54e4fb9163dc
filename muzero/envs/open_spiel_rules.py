"""OpenSpiel's rules for states that the caller holds: a search then plays its moves instead of imagining them.

Letters: `n` states, `A` actions, `*F` shape of one frame.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyspiel

from muzero.config.environments import OpenSpielConfig
from muzero.envs.base import BoolArray, EnvSpec
from muzero.envs.open_spiel_frames import OpenSpielFrames
from muzero.envs.open_spiel_game import load_game
from muzero.envs.states import Moves


class OpenSpielRules:
    """See `GameRules`; the states are `pyspiel.State`."""

    def __init__(self, config: OpenSpielConfig):
        """Raises ValueError for a game that cannot be learned, or one with chance events."""
        game = load_game(config)
        kind = game.get_type()
        if kind.chance_mode != pyspiel.GameType.ChanceMode.DETERMINISTIC:
            raise ValueError(
                f"search.dynamics=rules cannot search {config.game}: it has chance events, and a search that plays the "
                "rules takes every move to have one outcome; set search.dynamics=learned"
            )
        self._frames = OpenSpielFrames(game, config)
        self._rewards_at_end = kind.reward_model == pyspiel.GameType.RewardModel.TERMINAL
        self.spec: EnvSpec = self._frames.spec

    def copy(self, state: pyspiel.State) -> pyspiel.State:
        """See `GameRules`."""
        return state.clone()

    def is_over(self, state: pyspiel.State) -> bool:
        """See `GameRules`."""
        return bool(state.is_terminal())

    def play(self, states: Sequence[pyspiel.State], actions: Sequence[int]) -> Moves:
        """See `GameRules`."""
        reward = np.zeros(len(states), np.float32)
        turn = np.zeros(len(states), np.int8)
        children: list[pyspiel.State | None] = []
        for row, (state, action) in enumerate(zip(states, actions, strict=True)):
            mover = state.current_player()
            child = state.child(action)
            following = child.current_player()  # negative behind the end
            if following < 0 or not self._rewards_at_end:
                reward[row] = child.returns()[mover] - state.returns()[mover]
            if following < 0:
                children.append(None)
            else:
                children.append(child)
                turn[row] = 1 if following == mover else -1
        return Moves(children, reward, turn)

    def legal(self, states: Sequence[pyspiel.State]) -> BoolArray:
        """See `GameRules`."""
        return self._frames.legal(states)

    def frames(self, states: Sequence[pyspiel.State]) -> npt.NDArray[Any]:
        """See `GameRules`."""
        return self._frames.frames(states)

    def history(self, state: pyspiel.State) -> list[int]:
        """See `GameRules`."""
        actions: list[int] = state.history()
        return actions

    def playout(
        self, state: pyspiel.State, rng: np.random.Generator, discount: float = 1.0
    ) -> float:
        """See `GameRules`."""
        state, player = state.clone(), state.current_player()
        before, factor, total = state.player_return(player), 1.0, 0.0
        while not state.is_terminal():
            legal = state.legal_actions()
            state.apply_action(legal[int(rng.random() * len(legal))])
            if state.is_terminal() or not self._rewards_at_end:
                after = state.player_return(player)
                total += factor * (after - before)
                before = after
            factor *= discount
        return total
