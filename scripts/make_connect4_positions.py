"""Writes the connect four positions that muzero-evaluate positions=builtin takes: 100 of each of three stages, with exact scores.

Random moves are played from the empty board up to a number of stones drawn for the stage. 70 of 100 positions can be got
wrong: some moves throw the result away and others do not. The other 30 are lost, with moves that lose later than others. None
equals or mirrors an earlier one.

Run: python scripts/make_connect4_positions.py [--check]   (needs the extra `solver`; some seconds)
"""

import sys
from collections.abc import Collection

import numpy as np
import pyspiel

from muzero.evaluation.connect_four import COLUMNS, ConnectFourSolver
from muzero.evaluation.positions import BUILTIN, STAGES

SEED = 2024
OPEN, LOST = 70, 30


def make_stage(name: str, solver: ConnectFourSolver) -> str:
    """The lines of a stage; the same ones at every call."""
    fewest, most = STAGES[name]
    rng = np.random.default_rng([SEED, list(STAGES).index(name)])
    game = pyspiel.load_game("connect_four")
    taken: set[str] = set()
    lines: list[str] = []
    left = {"open": OPEN, "lost": LOST}
    while any(left.values()):
        state = _play(game, int(rng.integers(fewest, most + 1)), rng)
        if state is None or str(state) in taken:
            continue
        scores = solver.action_scores(state).values()
        kind = "lost" if max(scores) < 0 else "open"
        if left[kind] == 0 or not _differ(scores, kind):
            continue
        left[kind] -= 1
        taken |= {str(state), _mirrored(str(state))}
        moves = "".join(str(column + 1) for column in state.history())
        lines.append(f"{moves} {max(scores)}\n")
    return "".join(lines)


def _differ(scores: Collection[int], kind: str) -> bool:
    """Whether moves differ: in the result, or, where all of them lose, in the score."""
    return len(set(scores) if kind == "lost" else {np.sign(score) for score in scores}) > 1


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
