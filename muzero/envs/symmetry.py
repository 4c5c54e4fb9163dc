"""Symmetries of boards: turning a board and its actions together leaves the game as it was.

Letters: `G` symmetries, `C` cells of the board, `A` actions.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Symmetries:
    """Permutations that belong together; number 0 is the identity."""

    cells: npt.NDArray[np.int64]
    """`[G, C]` cell `i` of the turned board shows cell `cells[g, i]` of the board, cells counted row by row."""
    actions: npt.NDArray[np.int64]
    """`[G, A]` action `a` becomes `actions[g, a]` on the turned board."""

    def __len__(self) -> int:
        return len(self.cells)


def dihedral(height: int, width: int, num_actions: int) -> Symmetries:
    """Rotations and reflections of a board whose first actions are its cells, row by row; further ones (pass) stay.

    Eight for a square, four for a rectangle.
    Raises ValueError if there are fewer actions than cells.
    """
    if num_actions < height * width:
        raise ValueError(f"{num_actions} actions cannot name the {height * width} cells of a board")
    board = np.arange(height * width).reshape(height, width)
    turns = range(4) if height == width else (0, 2)
    turned = [np.rot90(side, turn) for side in (board, board[:, ::-1]) for turn in turns]
    cells = np.stack([each.reshape(-1) for each in turned])
    actions = np.tile(np.arange(num_actions), (len(cells), 1))
    rows = np.arange(len(cells))[:, None]
    actions[rows, cells] = np.arange(height * width)
    return Symmetries(cells, actions)


def mirror_columns(height: int, width: int) -> Symmetries:
    """Identity and left-right reflection of a board whose actions are its columns."""
    board = np.arange(height * width).reshape(height, width)
    columns = np.arange(width)
    return Symmetries(
        np.stack([board.reshape(-1), board[:, ::-1].reshape(-1)]),
        np.stack([columns, columns[::-1]]),
    )
