"""Players of OpenSpiel games, asked for many games at once.

A player keeps nothing between two moves: what it draws hangs on the game's seed and the number of the move alone. So a game is
the same whether it is played by itself or among others, and whatever was played before.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyspiel
from open_spiel.python.algorithms.minimax import alpha_beta_search

from mcts.base import BoolArray
from muzero.envs.open_spiel_frames import OpenSpielFrames
from muzero.evaluation.agent import BatchedAgent
from muzero.evaluation.exact import TOLERANCE, ExactValues, check_kind

# Streams of one game must differ; 0 is not used, since a seed sequence ignores trailing zeros.
_PLAYER_STREAM, _EVALUATOR_STREAM = 1, 2
_MAX_TREE_MEGABYTES = 1_000


class Player(Protocol):
    """Chooses moves for a batch of games."""

    num_frames: int
    """Newest positions that a move hangs on: 1 if the position alone decides."""

    def select(self, states: Sequence[pyspiel.State], seeds: Sequence[int]) -> list[int]:
        """A legal action for every state; `seeds[i]` is the seed of the game that state `i` belongs to."""
        ...


class RandomPlayer:
    """Any legal move, all alike."""

    num_frames = 1

    def select(self, states: Sequence[pyspiel.State], seeds: Sequence[int]) -> list[int]:
        """See `Player`."""
        return [
            _choose(state.legal_actions(), state, seed)
            for state, seed in zip(states, seeds, strict=True)
        ]


class PerfectPlayer:
    """Any of the best moves, all alike."""

    num_frames = 1

    def __init__(self, solution: ExactValues) -> None:
        self.solution = solution

    def select(self, states: Sequence[pyspiel.State], seeds: Sequence[int]) -> list[int]:
        """See `Player`."""
        return [
            _choose(self.solution.optimal_actions(state), state, seed)
            for state, seed in zip(states, seeds, strict=True)
        ]


class RolloutPlayer:
    """OpenSpiel's UCT with random rollouts and proven wins and losses backed up; a new tree for every move."""

    num_frames = 1

    def __init__(self, num_simulations: int, uct_c: float = 2.0) -> None:
        if num_simulations < 1:
            raise ValueError(f"rollout:{num_simulations} must have at least 1 simulation")
        self.num_simulations = num_simulations
        self.uct_c = uct_c

    def select(self, states: Sequence[pyspiel.State], seeds: Sequence[int]) -> list[int]:
        """See `Player`."""
        return [self._select(state, seed) for state, seed in zip(states, seeds, strict=True)]

    def _select(self, state: pyspiel.State, seed: int) -> int:
        evaluator = pyspiel.RandomRolloutEvaluator(1, _move_seed(seed, state, _EVALUATOR_STREAM))
        bot = pyspiel.MCTSBot(
            state.get_game(),
            evaluator,
            self.uct_c,
            self.num_simulations,
            _MAX_TREE_MEGABYTES,
            True,  # solve
            _move_seed(seed, state, _PLAYER_STREAM),
            False,  # verbose
        )
        return int(bot.step(state))


class AlphaBetaPlayer:
    """OpenSpiel's alpha-beta search, which sees `depth` moves ahead and knows nothing of what lies beyond.

    Of moves that come to the same it takes one that wins sooner or loses later, else any of them, all alike.
    """

    num_frames = 1

    def __init__(self, game: pyspiel.Game, depth: int) -> None:
        """Raises ValueError if the game has chance, hidden information, or not two players with opposite interests."""
        if depth < 1:
            raise ValueError(f"alphabeta:{depth} must see at least 1 move ahead")
        check_kind(game, "alphabeta")
        self.game, self.depth = game, depth

    def select(self, states: Sequence[pyspiel.State], seeds: Sequence[int]) -> list[int]:
        """See `Player`."""
        return [
            _choose(self._best(state), state, seed)
            for state, seed in zip(states, seeds, strict=True)
        ]

    def _best(self, state: pyspiel.State) -> list[int]:
        """Actions of the highest value at full depth, of these the highest one move shallower, and so on."""
        player, actions = state.current_player(), state.legal_actions()
        for ahead in range(self.depth, 0, -1):
            if len(actions) == 1:
                break
            values = [
                alpha_beta_search(
                    self.game,
                    state.child(action),
                    value_function=lambda reached: reached.player_return(player),
                    maximum_depth=ahead - 1,
                    maximizing_player_id=player,
                )[0]
                for action in actions
            ]
            best = max(values) - TOLERANCE
            actions = [action for action, v in zip(actions, values, strict=True) if v >= best]
        return actions


class AgentPlayer:
    """An agent as a player: turns states into stacked observations and asks for all of them at once."""

    def __init__(self, agent: BatchedAgent, frames: OpenSpielFrames) -> None:
        self.agent = agent
        self.num_frames = frames.spec.num_stacked_frames
        self._frames = frames

    def select(self, states: Sequence[pyspiel.State], seeds: Sequence[int]) -> list[int]:
        """See `Player`; the seeds are not used, an agent draws nothing."""
        if not states:
            return []
        return self.agent.act(self.observations(states), self.legal(states), states).tolist()

    def legal(self, states: Sequence[pyspiel.State]) -> BoolArray:
        """`[B, A]` legal actions."""
        return self._frames.legal(states)

    def observations(self, states: Sequence[pyspiel.State]) -> npt.NDArray[Any]:
        """Stacked observations `[B, *O]`, oldest frame first; the first frame of a game stands in for those before it."""
        if self.num_frames == 1:
            return self._frames.frames(states)
        past = [
            position for state in states for position in recent_positions(state, self.num_frames)
        ]
        frames = self._frames.frames(past)
        return frames.reshape(len(states), self.num_frames * frames.shape[1], *frames.shape[2:])


def recent_positions(state: pyspiel.State, count: int) -> list[pyspiel.State]:
    """The newest `count` positions of a game at which somebody had to move, oldest first, by replaying it.

    A game with fewer positions repeats its first.
    """
    past = state.get_game().new_initial_state()
    kept: deque[pyspiel.State] = deque(maxlen=count)
    for action in state.history():
        if not past.is_chance_node():
            kept.append(past.clone())
        past.apply_action(action)
    kept.append(state)
    return [kept[0]] * (count - len(kept)) + list(kept)


def _choose(actions: Sequence[int], state: pyspiel.State, seed: int) -> int:
    rng = np.random.default_rng([seed, state.move_number(), _PLAYER_STREAM])
    return actions[int(rng.integers(len(actions)))]


def _move_seed(seed: int, state: pyspiel.State, stream: int) -> int:
    """A 31-bit seed for OpenSpiel's own generators."""
    return int(
        np.random.SeedSequence([seed, state.move_number(), stream]).generate_state(1)[0] >> 1
    )
