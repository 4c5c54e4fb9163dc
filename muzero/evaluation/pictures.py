"""What the network and its search would play at a few positions, drawn evaluation after evaluation.

Letters: `P` positions, `A` actions, `H`, `W` pixels.
"""

from collections.abc import Mapping

import numpy as np
import pyspiel
from torch import Tensor

from muzero.envs.board import BoardReader
from muzero.envs.open_spiel import OpenSpielFrames
from muzero.envs.open_spiel_game import sample_chance
from muzero.evaluation.agent import Agent
from muzero.evaluation.drawing import Image, arrange, draw_board, draw_policy, shares
from muzero.evaluation.players import AgentPlayer

NUM_POSITIONS = 4


class PolicyPictures:
    """Draws a table: a row for each position, and in it the board, the network's policy and the search's.

    Args:
        agent: Searches the positions; is no other's, and has room for `NUM_POSITIONS`.
        game: One that `can_draw`.
        rng: Draws the positions, which stay the same: see `draw_positions`.
    """

    def __init__(
        self,
        agent: Agent,
        game: pyspiel.Game,
        frames: OpenSpielFrames,
        rng: np.random.Generator,
    ) -> None:
        self._agent, self._reader = agent, BoardReader(game)
        self.states = draw_positions(game, rng)
        player = AgentPlayer(agent, frames)
        self._observation, self._legal = player.observations(self.states), player.legal(self.states)

    def draw(self, weights: Mapping[str, Tensor], version: int) -> Image:
        """`[H, W, 3]` the table, with these weights."""
        self._agent.model.load(weights, version)
        policies = self._agent.policies(self._observation, self._legal, self.states)
        rows = []
        for number, state in enumerate(self.states):
            board, targets = self._reader.read(state), move_targets(self._reader, state)
            panels = [
                draw_policy(board, *shares(policy[number], targets, len(board.cells)))
                for policy in policies
            ]
            rows.append([draw_board(board), *panels])
        return arrange(rows)


def move_targets(reader: BoardReader, state: pyspiel.State) -> list[int | None]:
    """`[A]` the cell that an action leads to; None if it is illegal, or the drawing cannot tell."""
    board = reader.read(state)
    found: list[int | None] = [None] * state.num_distinct_actions()
    for action in state.legal_actions():
        cells = reader.cells_of(board, action, state.action_to_string(action))
        found[action] = cells[-1] if cells else None
    return found


def can_draw(game: pyspiel.Game) -> bool:
    """Whether positions of the game are drawn as cells, and its moves lead to cells (not so in 2048, say)."""
    state = game.new_initial_state()
    sample_chance(state, np.random.default_rng(0))
    return any(cell is not None for cell in move_targets(BoardReader(game), state))


def draw_positions(game: pyspiel.Game, rng: np.random.Generator) -> list[pyspiel.State]:
    """`P` positions with a player to move: the first of each quarter of a random game, each of a game of its own."""
    positions = []
    for quarter in range(NUM_POSITIONS):
        met = []
        state = game.new_initial_state()
        sample_chance(state, rng)
        while not state.is_terminal():
            met.append(state.clone())
            state.apply_action(int(rng.choice(state.legal_actions())))
            sample_chance(state, rng)
        positions.append(met[len(met) * quarter // NUM_POSITIONS])
    return positions
