"""Exact values of small two-player games, and an agent's play held against them everywhere.

A position is what `str(state)` prints together with the player to move: two histories that print alike are taken for one
position. That holds for board games whose future hangs on the board alone; a game whose positions print alike but differ
in their legal actions, or come back in the course of play, is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyspiel

if TYPE_CHECKING:
    from muzero.evaluation.players import Player

MAX_POSITIONS = 200_000
TOLERANCE = 1e-9
MAX_LINE = 1_000
_QUERY_SIZE = 4_096


def position_key(state: pyspiel.State) -> str:
    """Names a position, whatever moves led to it."""
    return f"{state.current_player()}|{state}"


class ExactValues(Protocol):
    """Knows the value of every position of a game, and the best moves there."""

    def value(self, state: pyspiel.State) -> float:
        """Rewards still to come under best play, seen by the player to move."""
        ...

    def optimal_actions(self, state: pyspiel.State) -> list[int]:
        """The best legal actions, all of which keep the value of the position."""
        ...


@dataclass(frozen=True)
class Solution:
    """Values of every position that can be reached, under best play of both sides, undiscounted."""

    game: pyspiel.Game
    values: dict[str, float]
    """`position_key` -> rewards still to come, seen by the player to move (0 at the end of the game).

    Ordered so that a position stands behind all that can follow it.
    """
    _origins: dict[str, tuple[str, int]] = field(repr=False)
    _num_terminal: int = field(repr=False)

    @property
    def num_positions(self) -> int:
        """Positions at which somebody has to move."""
        return len(self.values) - self._num_terminal

    @property
    def positions(self) -> Iterator[pyspiel.State]:
        """One state for every position at which somebody has to move, the initial one first."""
        states: dict[str, pyspiel.State] = {}
        for key in reversed(self.values):
            origin = self._origins.get(key)
            state = states[origin[0]].child(origin[1]) if origin else self.game.new_initial_state()
            if not state.is_terminal():
                states[key] = state
                yield state

    def value(self, state: pyspiel.State) -> float:
        """Rewards still to come, seen by the player to move."""
        return self.values[position_key(state)]

    def action_values(self, state: pyspiel.State) -> dict[int, float]:
        """Legal action -> rewards still to come, seen by the player to move at `state`."""
        values = {}
        for action in state.legal_actions():
            child = state.child(action)
            values[action] = _edge_value(state, child, self.value(child))
        return values

    def optimal_actions(self, state: pyspiel.State) -> list[int]:
        """Actions that keep the value of the position."""
        values = self.action_values(state)
        best = max(values.values())
        return [action for action, value in values.items() if value >= best - TOLERANCE]


def solve(game: pyspiel.Game, max_positions: int = MAX_POSITIONS) -> Solution | None:
    """Exact values by depth-first search with a memory; remembered for the process.

    Returns None, after some seconds at most, if the game has more than `max_positions` positions or lines longer than
    `MAX_LINE` moves.

    Raises:
        ValueError: The game is not of two players, sequential, deterministic, zero-sum and of perfect information, or its
            positions repeat or do not tell what is legal.
    """
    check_kind(game, "exact play")
    return _solve(str(game), max_positions)


def check_kind(game: pyspiel.Game, what: str) -> None:
    """Raises ValueError if `game` is of a kind that `what`, a search of its rules, is not for."""
    kind = game.get_type()
    wanted = {
        "two players": game.num_players() == 2,
        "turns": kind.dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL,
        "no chance": kind.chance_mode == pyspiel.GameType.ChanceMode.DETERMINISTIC,
        "perfect information": kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION,
        "zero-sum rewards": kind.utility == pyspiel.GameType.Utility.ZERO_SUM,
    }
    if missing := [name for name, met in wanted.items() if not met]:
        raise ValueError(f"{what} needs {', '.join(missing)}: {game} does not have that")


def require_solution(
    game: pyspiel.Game, setting: str, max_positions: int = MAX_POSITIONS
) -> Solution:
    """`solve`, or a ValueError that names the `setting` that asked for it."""
    solution = solve(game, max_positions)
    if solution is None:
        raise ValueError(
            f"{setting}: exact play needs a game small enough to list all of its positions (at most {max_positions:,}, "
            f"in lines of at most {MAX_LINE:,} moves); {game} has more. "
            "Use the opponent rollout:<simulations> instead, such as rollout:1000."
        )
    return solution


@dataclass(slots=True)
class _Node:
    """A position on the path of the search."""

    key: str
    state: pyspiel.State
    untried: list[int]
    best: float


@lru_cache(maxsize=8)
def _solve(game_string: str, max_positions: int) -> Solution | None:
    game = pyspiel.load_game(game_string)
    values: dict[str, float] = {}
    origins: dict[str, tuple[str, int]] = {}
    legal: dict[str, int] = {}  # hashes suffice to notice that positions that print alike differ
    num_terminal = 0
    root = game.new_initial_state()
    path = [_Node(position_key(root), root, root.legal_actions(), float("-inf"))]
    legal[path[0].key] = hash(tuple(root.legal_actions()))
    while path:
        node = path[-1]
        if not node.untried:
            path.pop()
            values[node.key] = node.best
            if path:
                path[-1].best = max(
                    path[-1].best, _edge_value(path[-1].state, node.state, node.best)
                )
            continue
        action = node.untried.pop()
        child = node.state.child(action)
        key = position_key(child)
        actions = child.legal_actions()
        known = legal.setdefault(key, hash(tuple(actions)))
        if known != hash(tuple(actions)):
            raise ValueError(
                f"{game}: positions that print alike differ in their legal actions, exact play cannot tell them apart"
            )
        if key in values:
            node.best = max(node.best, _edge_value(node.state, child, values[key]))
        elif key in origins or key == path[0].key:
            raise ValueError(
                f"{game}: positions come back in the course of play, exact play cannot value them"
            )
        else:
            origins[key] = (node.key, action)
            num_terminal += child.is_terminal()
            path.append(_Node(key, child, actions, 0.0 if child.is_terminal() else float("-inf")))
            if len(legal) > max_positions or len(path) > MAX_LINE:
                return None
    return Solution(game, values, origins, num_terminal)


def _edge_value(state: pyspiel.State, child: pyspiel.State, child_value: float) -> float:
    mover = state.current_player()
    reward = child.player_reward(mover)
    if child.is_terminal():
        return reward
    return reward + (child_value if child.current_player() == mover else -child_value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustiveReport:
    """An agent against every position and every line of play."""

    optimal_move_rate: float
    """Share of all positions at which the agent's move keeps the value of the game."""
    positions: int
    """Positions at which somebody has to move."""
    losing_lines: int
    """Lines that the agent loses though a position on the way was not lost: sequences of replies of the opponent from the initial
    position, either seat. Where the initial position is lost for a seat, only lines count in which the opponent let go of the win."""
    losing_lines_by_seat: tuple[int, int]
    """The same, with the agent in seat 0 and in seat 1."""
    lines_by_seat: tuple[int, int]
    """All lines."""


def exhaustive(agent: "Player", solution: Solution) -> ExhaustiveReport:
    """Ask the agent for its move everywhere, and play it against every sequence of replies.

    The opponent may move several times in a row, and so may the agent.

    The agent is asked once per position, so its play is a fixed answer to every position even if it draws its moves at
    random. An agent that sees several frames is asked once per sequence of so many positions.
    """
    moves: dict[tuple[str, ...], int] = {}
    optimal = 0
    states = solution.positions
    while block := list(islice(states, _QUERY_SIZE)):
        for state, action in zip(block, agent.select(block, [0] * len(block)), strict=True):
            moves[_window(state, agent.num_frames)] = action
            optimal += action in solution.optimal_actions(state)
    counts = [_count_lines(agent, solution, seat, moves) for seat in range(2)]
    return ExhaustiveReport(
        optimal_move_rate=optimal / solution.num_positions,
        positions=solution.num_positions,
        losing_lines=counts[0][0] + counts[1][0],
        losing_lines_by_seat=(counts[0][0], counts[1][0]),
        lines_by_seat=(counts[0][1], counts[1][1]),
    )


def _window(state: pyspiel.State, num_frames: int) -> tuple[str, ...]:
    """Keys of the newest `num_frames` positions: all that the agent's move can hang on."""
    if num_frames == 1:
        return (position_key(state),)
    past, keys = state.get_game().new_initial_state(), []
    for action in state.history():
        keys.append(position_key(past))
        past.apply_action(action)
    return (*keys, position_key(state))[-num_frames:]


def _count_lines(
    agent: "Player", solution: Solution, seat: int, moves: dict[tuple[str, ...], int]
) -> tuple[int, int]:
    """`ExhaustiveReport.losing_lines` in `seat`, and all lines; transpositions are searched once and counted as often as they occur."""
    Window = tuple[str, ...]
    children: dict[Window, list[Window]] = {}
    counts: dict[Window, _Lines] = {}
    saved: set[Window] = set()  # positions that are not lost for the agent
    root = solution.game.new_initial_state()
    frontier = {_window(root, agent.num_frames): root}
    while frontier:
        asked = [
            w for w, state in frontier.items() if state.current_player() == seat and w not in moves
        ]
        for start in range(0, len(asked), _QUERY_SIZE):
            block = asked[start : start + _QUERY_SIZE]
            moves.update(
                zip(
                    block, agent.select([frontier[w] for w in block], [0] * len(block)), strict=True
                )
            )
        following: dict[Window, pyspiel.State] = {}
        for window, state in frontier.items():
            if state.is_terminal():
                counts[window] = _Lines(0, int(state.player_return(seat) < 0), 1)
                continue
            value = solution.value(state)
            to_come = value if state.current_player() == seat else -value
            if state.player_return(seat) + to_come > -TOLERANCE:
                saved.add(window)
            actions = [moves[window]] if state.current_player() == seat else state.legal_actions()
            children[window] = []
            for action in actions:
                child = state.child(action)
                key = _window(child, agent.num_frames)
                children[window].append(key)
                if key not in children and key not in counts and key not in frontier:
                    following[key] = child
        frontier = following
    rank = {key: number for number, key in enumerate(solution.values)}
    for window in sorted(children, key=lambda w: rank[w[-1]]):
        below = [counts[child] for child in children[window]]
        lost = sum(each.lost for each in below)
        thrown = lost if window in saved else sum(each.thrown for each in below)
        counts[window] = _Lines(thrown, lost, sum(each.all for each in below))
    total = counts[_window(root, agent.num_frames)]
    return total.thrown, total.all


class _Lines(NamedTuple):
    """Numbers of lines from a position on."""

    thrown: int
    """Lost after a position, this one included, that was not."""
    lost: int
    all: int
