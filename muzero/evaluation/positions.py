"""Connect four positions with exact scores: read from files, labelled with the score of every move, and played at.

A line holds the columns played from the empty board (1 to 7, without spaces), a space, and the exact score for the player to
move, such as `44444 -1`. That is the format of Pons' sets; `connect_four.py` says how scores count.
Letters: `P` positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mcts.base import FloatArray, IntArray
from muzero.evaluation.connect_four import COLUMNS, ConnectFourSolver
from muzero.evaluation.statistics import wilson_interval

FULL = -100
"""Stands for the score of a column that is full; real scores lie between -21 and 21."""
BUILTIN = Path(__file__).parent / "connect_four_positions"
"""Folder of the positions that come with the package, a file for each of `STAGES`; scripts/make_connect4_positions.py made them."""
STAGES = {"begin": (4, 12), "middle": (13, 24), "end": (25, 37)}
"""Stage -> fewest and most stones on the board."""
_MAX_SCORE = 21
_DIGITS = "1234567"

ScoreArray = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Position:
    """A line of a file of positions."""

    place: str
    """File and line, for messages."""
    columns: tuple[int, ...]
    """Columns of the stones in the order in which they were played, 0 to 6."""
    score: int
    """The exact score that the line gives, seen by the player to move."""


def read_positions(path: Path) -> list[Position]:
    """The positions of a file, in order; empty lines are passed over.

    Raises:
        ValueError: The file cannot be read, holds no position, or has a line that is none (file and line are named).
            Whether a position can be reached, and its score, is only seen by `label`.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"positions={path} cannot be read: {error}") from error
    positions = [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not positions:
        raise ValueError(f"positions={path} holds no positions")
    return positions


def _parse(line: str, place: str) -> Position:
    moves, _, score = line.strip().partition(" ")
    if not moves or set(moves) - set(_DIGITS):
        raise ValueError(f"{place}: {moves!r} must be columns from 1 to {COLUMNS}, such as 44325")
    try:
        value = int(score)
    except ValueError:
        raise ValueError(
            f"{place}: {score!r} must be the score, a whole number behind the moves and a space, such as 44444 -1"
        ) from None
    if abs(value) > _MAX_SCORE:
        raise ValueError(f"{place}: score {value} must lie between -{_MAX_SCORE} and {_MAX_SCORE}")
    return Position(place, tuple(int(digit) - 1 for digit in moves), value)


def label(positions: Sequence[Position], solver: ConnectFourSolver) -> ScoreArray:
    """Scores `[P, 7]` of all moves; `FULL` at full columns.

    Raises:
        ValueError: A position cannot be reached, is over, or has another score than its line says (file and line are named).
    """
    scores = np.full((len(positions), COLUMNS), FULL, np.int8)
    for row, position in enumerate(positions):
        try:
            found = solver.scores(position.columns)
        except ValueError as error:
            raise ValueError(f"{position.place}: {error} (columns counted from 0)") from error
        scores[row, list(found)] = list(found.values())
        if scores[row].max() != position.score:
            raise ValueError(
                f"{position.place}: the score is {position.score}, but the solver says {scores[row].max()}"
            )
    return scores


@dataclass(frozen=True, slots=True)
class Answers:
    """What an agent says of positions."""

    actions: IntArray
    """`[P]` columns that it plays."""
    values: FloatArray
    """`[P]` its values, seen by the player to move; a win is 1, a loss -1."""


def grade(scores: ScoreArray, answers: Answers) -> dict[str, float]:
    """How an agent did at positions with scores `[P, 7]`.

    - `mistake_rate`: share of the positions at which the move's result (won, drawn, lost) is worse than the best;
    - `perfect_move_rate`: share at which the move has the best score, so that it also wins soonest or loses latest;
    - `value_error`: mean distance of the value from the exact result, which is 1, 0 or -1.
    """
    best = scores.max(axis=1)
    chosen = scores[np.arange(len(scores)), answers.actions]
    return {
        "mistake_rate": float((np.sign(chosen) < np.sign(best)).mean()),
        "perfect_move_rate": float((chosen == best).mean()),
        "value_error": float(np.abs(answers.values - np.sign(best)).mean()),
    }


def describe(who: str, grades: dict[str, float], positions: int) -> str:
    """`grade`'s figures as a line of text, the rates with their 95 % Wilson intervals."""

    def rate(name: str) -> str:
        low, high = wilson_interval(round(grades[name] * positions), positions)
        return f"{grades[name]:.3f} [{low:.3f}, {high:.3f}]"

    return (
        f"{who}: mistakes {rate('mistake_rate')}, perfect moves {rate('perfect_move_rate')}, "
        f"value error {grades['value_error']:.3f}"
    )


def report(scores: ScoreArray, network: Answers, search: Answers | None) -> dict[str, Any]:
    """The grades at a file's positions, as JSON types; without `search` if there was none."""
    grades: dict[str, Any] = {"positions": len(scores)}
    if search is not None:
        grades["search"] = grade(scores, search)
    return grades | {"network": grade(scores, network)}
