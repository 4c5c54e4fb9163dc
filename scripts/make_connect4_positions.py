"""Writes the connect four positions that muzero-evaluate positions=builtin takes: 100 of each of three stages, with exact scores.

Random moves are played from the empty board up to a number of stones drawn for the stage. Kept are positions at which some
moves throw the result away and others do not, so that every one of them can be got wrong, and none that equals or mirrors
an earlier one.

Run: python scripts/make_connect4_positions.py [--check]   (needs the extra `solver`; some seconds)
"""

import sys

import numpy as np
import pyspiel

from muzero.evaluation.connect_four import COLUMNS, ConnectFourSolver
from muzero.evaluation.positions import BUILTIN, STAGES

SEED = 2024
POSITIONS = 100


def make_stage(name: str, solver: ConnectFourSolver) -> str:
    """The lines of a stage; the same ones at every call."""
    fewest, most = STAGES[name]
    rng = np.random.default_rng([SEED, list(STAGES).index(name)])
    game = pyspiel.load_game("connect_four")
    taken: set[str] = set()
    lines: list[str] = []
    while len(lines) < POSITIONS:
        state = _play(game, int(rng.integers(fewest, most + 1)), rng)
        if state is None or str(state) in taken:
            continue
        scores = solver.action_scores(state).values()
        if len({np.sign(score) for score in scores}) < 2:
            continue
        taken |= {str(state), _mirrored(str(state))}
        moves = "".join(str(column + 1) for column in state.history())
        lines.append(f"{moves} {max(scores)}\n")
    return "".join(lines)


def _play(game: pyspiel.Game, num_stones: int, rng: np.random.Generator) -> pyspiel.State | None:
    """A position of `num_stones` stones, or None if the game ended before."""
    state = game.new_initial_state()
    while state.move_number() < num_stones:
        state.apply_action(int(rng.choice(state.legal_actions())))
        if state.is_terminal():
            return None
    return state


def _mirrored(board: str) -> str:
    return "".join(f"{row[:COLUMNS][::-1]}\n" for row in board.splitlines())


def main() -> None:
    """Write the files, or compare them with --check."""
    solver = ConnectFourSolver("scripts/make_connect4_positions.py")
    for name in STAGES:
        path, text = BUILTIN / f"{name}.txt", make_stage(name, solver)
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is not what this script writes")


if __name__ == "__main__":
    main()
