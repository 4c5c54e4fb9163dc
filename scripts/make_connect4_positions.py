"""Writes the connect four positions that muzero-evaluate positions=builtin takes: 100 of each of three stages, with exact scores.

Random moves are played from the empty board up to a number of stones drawn for the stage. 70 of 100 positions can be got
wrong: some moves throw the result away and others do not. The other 30 are lost, with moves that lose later than others. None
equals or mirrors an earlier one.

Run: python scripts/make_connect4_positions.py [--check]   (needs the extra `solver`; some seconds)

With --to it writes another set instead, by Pons' measure: positions of so many stones from which best play lasts so many moves
more. His begin-hard has at most 14 stones and more than 28 moves left:

    python scripts/make_connect4_positions.py --to begin-hard.txt --stones 1 14 --remaining 29 41 --number 600
"""

import argparse
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyspiel

from muzero.evaluation.connect_four import COLUMNS, ROWS, ConnectFourSolver
from muzero.evaluation.positions import BUILTIN, STAGES

SEED = 2024
OPEN, LOST = 70, 30
MOST_TRIES = 1_000_000
"""Random positions of a set that are looked at; where it is not full by then, there are hardly more."""


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


def make_set(
    solver: ConnectFourSolver,
    stones: tuple[int, int],
    remaining: tuple[int, int],
    number: int,
    seed: int,
) -> str:
    """The lines of `number` positions of `stones` (fewest, most) from which best play lasts `remaining` moves (fewest, most).

    Raises:
        SystemExit: There are not so many, or they are too rare.
    """
    rng = np.random.default_rng(seed)
    game = pyspiel.load_game("connect_four")
    taken: set[str] = set()
    lines: list[str] = []
    for _ in range(MOST_TRIES):
        if len(lines) == number:
            return "".join(lines)
        state = _play(game, int(rng.integers(stones[0], stones[1] + 1)), rng)
        if state is None or str(state) in taken:
            continue
        score = max(solver.action_scores(state).values())
        if not remaining[0] <= moves_left(score, state.move_number()) <= remaining[1]:
            continue
        taken |= {str(state), _mirrored(str(state))}
        moves = "".join(str(column + 1) for column in state.history())
        lines.append(f"{moves} {score}\n")
    raise SystemExit(
        f"--number {number}: only {len(lines)} were found among {MOST_TRIES:,} random positions; ask for fewer, or widen --stones and --remaining"
    )


def moves_left(score: int, num_stones: int) -> int:
    """Moves until the game is over, of both players together, if both play best from a position of that score."""
    if score == 0:
        return COLUMNS * ROWS - num_stones
    # The winner will have 22 minus |score| stones; the opponent as many, or one fewer where the first player wins.
    winner = num_stones % 2 if score > 0 else 1 - num_stones % 2
    return 2 * (22 - abs(score)) - (1 if winner == 0 else 0) - num_stones


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare the package's files")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write another set there")
    for name, default in (("--stones", (1, 14)), ("--remaining", (1, COLUMNS * ROWS))):
        parser.add_argument(name, nargs=2, type=int, default=default, metavar=("FEWEST", "MOST"))
    parser.add_argument("--number", type=int, default=1_000, help="positions of the set")
    parser.add_argument("--seed", type=int, default=SEED)
    return parser.parse_args()


def main() -> None:
    """Write the package's files, compare them with --check, or write another set with --to."""
    arguments = _arguments()
    solver = ConnectFourSolver("scripts/make_connect4_positions.py")
    if arguments.to is not None:
        text = make_set(
            solver, arguments.stones, arguments.remaining, arguments.number, arguments.seed
        )
        arguments.to.write_text(text, encoding="utf-8")
        return
    for name in STAGES:
        path, text = BUILTIN / f"{name}.txt", make_stage(name, solver)
        if not arguments.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is not what this script writes")


if __name__ == "__main__":
    main()
