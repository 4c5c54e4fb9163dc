"""One game between a person and an agent: moves, undo, hints, and who may do what when.

A version number counts what changes the game or its settings; whoever acts names the version that they have seen, so that no
click meets a position that it was not meant for. One lock guards the state; searches run outside of it.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from muzero.config.environments import OpenSpielConfig
from muzero.envs.board import Board, BoardReader
from muzero.envs.open_spiel import load_game
from muzero.envs.open_spiel_game import sample_chance
from muzero.envs.states import State
from muzero.play.analysis import Analysis
from muzero.play.analyst import Analyst
from muzero.play.refusal import Refusal

SIDES = ("first", "second", "both", "watch")


@dataclass(frozen=True, slots=True)
class Move:
    """A move that was made."""

    player: int
    action: int
    name: str
    """As OpenSpiel calls it."""
    cells: tuple[int, ...]
    """Cells of the board that it touched."""
    reward: float
    """Seen by who moved."""
    is_agents: bool


@dataclass(slots=True)
class Position:
    """A position of the game, chance's moves made."""

    state: State
    board: Board
    to_play: int
    """Player to move; negative where the game is over."""
    analysis: Analysis | None = None
    network_value: float | None = None
    """The network's value, seen by the player to move; None where it was not asked, or the game is over."""

    @property
    def is_over(self) -> bool:
        """Whether the game has ended here."""
        return self.to_play < 0


class Session:
    """A game that is being played, and what the agent thinks of its positions.

    Args:
        config: Of the game.
        side: The person plays `first`, `second` (or alone: `first`), `both`, or nobody (`watch`).
        step: Learner step of the checkpoint.
        seed: Of chance's moves.
    """

    def __init__(
        self,
        analyst: Analyst,
        config: OpenSpielConfig,
        *,
        side: str = "first",
        step: int,
        num_simulations: int,
        seed: int = 0,
    ) -> None:
        self.analyst, self.config = analyst, config
        self.game = load_game(config)
        self.reader = BoardReader(self.game)
        self.num_players: int = self.game.num_players()
        self.lock = threading.RLock()
        self.version = 0
        self.positions: list[Position] = []
        self.moves: list[Move] = []
        self._rng = np.random.default_rng(seed)
        self._check_side(side)
        analyst.check_simulations(num_simulations)
        analyst.check_step(step)
        self.side, self.step, self.num_simulations = side, step, num_simulations
        self._begin([])
        self._note_values()

    @property
    def position(self) -> Position:
        """The newest."""
        return self.positions[-1]

    @property
    def is_persons_turn(self) -> bool:
        """Whether the person is to move; False where the game is over."""
        return self._is_persons(self.position.to_play)

    def new_game(self, version: int, moves: Sequence[int] = ()) -> None:
        """Begin anew, after the given moves; raises Refusal if one of them is illegal."""
        with self.lock:
            self.check_version(version)
            self._begin(moves)
            self.version += 1
        self._note_values()

    def change(
        self,
        version: int,
        *,
        side: str | None = None,
        step: int | None = None,
        num_simulations: int | None = None,
    ) -> None:
        """Change who plays, the checkpoint or the simulations; None leaves each as it is.

        Raises Refusal, and then changes nothing. Another checkpoint's thoughts of the game are forgotten.
        """
        if side is not None:
            self._check_side(side)
        if num_simulations is not None:
            self.analyst.check_simulations(num_simulations)
        with self.lock:
            self.check_version(version)
        if step is not None:
            self.analyst.check_step(step)  # may take a while
        with self.lock:
            self.check_version(version)
            if step is not None and step != self.step:
                self.step = step
                for position in self.positions:
                    position.analysis = position.network_value = None
            self.side = self.side if side is None else side
            if num_simulations is not None:
                self.num_simulations = num_simulations
            self.version += 1
        self._note_values()

    def play(self, version: int, action: int) -> None:
        """Make the person's move; raises Refusal if it is not theirs to make."""
        with self.lock:
            self.check_version(version)
            self._check_going()
            if not self.is_persons_turn:
                raise Refusal("wrong_turn", "it is the agent's turn")
            self._apply(action, is_agents=False)
            self.version += 1
        self._note_values()

    def play_agent(self, version: int) -> Analysis:
        """Let the agent search and move; raises Refusal if it is not its turn."""
        with self.lock:
            self.check_version(version)
            self._check_going()
            if self.is_persons_turn:
                raise Refusal("wrong_turn", "it is your turn")
        analysis = self.analyse(version)
        with self.lock:
            self.check_version(version)
            self._apply(analysis.best_action, is_agents=True)
            self.version += 1
        self._note_values()
        return analysis

    def analyse(self, version: int, ply: int | None = None) -> Analysis:
        """Search a position of the game (None: the newest), unless it has been, with the settings as they are.

        Raises Refusal: `stale` if the game goes on meanwhile.
        """
        with self.lock:
            self.check_version(version)
            position = self.position_at(ply)
            if position.is_over:
                raise Refusal("game_over", "the game is over there: nothing can be searched")
            step, num_simulations = self.step, self.num_simulations
            known = position.analysis
            if known and (known.step, known.planned) == (step, num_simulations):
                return known
        analysis = self.analyst.analyse(
            position.state, step, num_simulations, lambda: self.version != version
        )
        with self.lock:
            self.check_version(version)
            position.analysis = analysis
        return analysis

    def undo(self, version: int) -> None:
        """Take back moves to the position where the person moved last; a single move if they play both sides or none."""
        with self.lock:
            self.check_version(version)
            kept = len(self.moves) - 1
            if self.side in ("first", "second"):
                while kept >= 0 and not self._is_persons(self.positions[kept].to_play):
                    kept -= 1
            if kept < 0:
                raise Refusal("nothing_to_undo", "there is no move of yours to take back")
            del self.positions[kept + 1 :], self.moves[kept:]
            self.version += 1

    def end_searches(self) -> None:
        """Let whoever searches find that the game has gone on."""
        with self.lock:
            self.version += 1

    def record(self) -> dict[str, Any]:
        """The game as it stands: OpenSpiel's name and parameters, its actions (chance's included), names, result."""
        with self.lock:
            state = self.position.state
            return {
                "game": self.config.game,
                "parameters": dict(self.config.parameters),
                "learner_step": self.step,
                "simulations": self.num_simulations,
                "person": self.side,
                "actions": [int(action) for action in state.history()],
                "moves": [move.name for move in self.moves],
                "returns": [float(x) for x in state.returns()] if self.position.is_over else None,
            }

    def legal_moves(self, ply: int | None = None) -> list[tuple[int, str]]:
        """Legal actions of a position and what OpenSpiel calls them."""
        with self.lock:
            position = self.position_at(ply)
            if position.is_over:
                return []
            state = position.state
            return [(action, state.action_to_string(action)) for action in state.legal_actions()]

    def check_version(self, version: int) -> None:
        """Raise Refusal unless the game is still as the caller has seen it."""
        if version != self.version:
            raise Refusal("stale", f"version {version} is gone: the game is at {self.version} now")

    def position_at(self, ply: int | None) -> Position:
        """The position after `ply` moves (None: the newest); raises Refusal if there is none."""
        if ply is None:
            return self.position
        if not 0 <= ply < len(self.positions):
            raise Refusal("unknown", f"ply={ply}: the game has 0 to {len(self.moves)}")
        return self.positions[ply]

    def _check_side(self, side: str) -> None:
        if side not in SIDES:
            raise Refusal("bad_value", f"side={side!r}: must be one of {', '.join(SIDES)}")
        if side == "second" and self.num_players == 1:
            raise Refusal("bad_value", "side='second': this game has one player")

    def _check_going(self) -> None:
        if self.position.is_over:
            raise Refusal("game_over", "the game is over")

    def _is_persons(self, player: int) -> bool:
        own = {"first": (0,), "second": (1,), "both": (0, 1), "watch": ()}
        return player in own[self.side]

    def _begin(self, moves: Sequence[int]) -> None:
        """A new game; the old one stays if a move is illegal."""
        before = self.positions, self.moves
        state = self.game.new_initial_state()
        sample_chance(state, self._rng)
        self.positions, self.moves = [self._position(state)], []
        try:
            for action in moves:
                self._check_going()
                self._apply(action, is_agents=not self.is_persons_turn)
        except Refusal:
            self.positions, self.moves = before
            raise

    def _apply(self, action: int, *, is_agents: bool) -> None:
        position = self.position
        state, player = position.state, position.to_play
        legal = state.legal_actions()
        if action not in legal:
            raise Refusal(
                "illegal_move", f"action {action} is not legal here; legal are {_some(legal)}"
            )
        name = state.action_to_string(action)
        cells = self.reader.cells_of(position.board, action, name)
        after = state.clone()
        after.apply_action(action)
        if after.is_chance_node():
            sample_chance(after, self._rng)
        reward = float(after.returns()[player] - state.returns()[player])
        self.moves.append(Move(player, action, name, tuple(cells), reward, is_agents))
        self.positions.append(self._position(after))

    def _position(self, state: State) -> Position:
        to_play = -1 if state.is_terminal() else int(state.current_player())
        return Position(state, self.reader.read(state), to_play)

    def _note_values(self) -> None:
        """Ask the network for the values of positions that have none yet; where others search for long, they stay without."""
        with self.lock:
            step = self.step
            missing = [
                position
                for position in self.positions
                if position.network_value is None and not position.is_over
            ]
        try:
            values = self.analyst.values([position.state for position in missing], step)
        except Refusal:
            return
        with self.lock:
            if step == self.step:
                for position, value in zip(missing, values, strict=True):
                    position.network_value = value


def _some(actions: Sequence[int]) -> str:
    """The first few of a list."""
    more = ", ..." if len(actions) > 12 else ""
    return ", ".join(str(action) for action in actions[:12]) + more
