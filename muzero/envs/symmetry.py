"""Symmetries of boards: turning a board and its actions together leaves the game as it was.

Letters: `G` symmetries, `C` cells of the board, `D` channels of a frame, `A` actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Symmetries:
    """Permutations that belong together; number 0 is the identity."""

    cells: IndexArray
    """`[G, C]` cell `i` of the turned board shows cell `cells[g, i]` of the board, cells counted row by row."""
    actions: IndexArray
    """`[G, A]` action `a` becomes `actions[g, a]` on the turned board."""
    channels: IndexArray | None = None
    """`[G, D]` channel `d` of the turned frame is channel `channels[g, d]` of the frame; None if all channels stay."""

    def __len__(self) -> int:
        return len(self.cells)

    def subset(self, numbers: Sequence[int]) -> "Symmetries":
        """Only the symmetries of these `numbers`, of which the first must be 0."""
        which = list(numbers)
        channels = None if self.channels is None else self.channels[which]
        return Symmetries(self.cells[which], self.actions[which], channels)

    def turn(self, frames: npt.NDArray[np.generic], number: int) -> npt.NDArray[np.generic]:
        """`[..., D, H, W]` frames turned by symmetry `number`."""
        board = frames if self.channels is None else frames[..., self.channels[number], :, :]
        return board.reshape(*board.shape[:-2], -1)[..., self.cells[number]].reshape(board.shape)


def dihedral(height: int, width: int, num_actions: int) -> Symmetries:
    """Rotations and reflections of a board whose first actions are its cells, row by row; further ones (pass) stay.

    Eight for a square, four for a rectangle.
    Raises ValueError if there are fewer actions than cells.
    """
    cells = _turned_rectangle(height, width)
    return Symmetries(cells, _actions_of_cells(cells, num_actions))


def half_turn(height: int, width: int, num_actions: int) -> Symmetries:
    """Identity and rotation by 180 degrees, otherwise as `dihedral`."""
    board = np.arange(height * width)
    cells = np.stack([board, board[::-1]])
    return Symmetries(cells, _actions_of_cells(cells, num_actions))


def mirror_columns(height: int, width: int) -> Symmetries:
    """Identity and left-right reflection of a board whose actions are its columns."""
    board = np.arange(height * width).reshape(height, width)
    columns = np.arange(width)
    return Symmetries(
        np.stack([board.reshape(-1), board[:, ::-1].reshape(-1)]),
        np.stack([columns, columns[::-1]]),
    )


def triangle(side: int, num_actions: int) -> Symmetries:
    """The six symmetries of a triangle of hexagons, the half `row + column < side` of a `side` x `side` square.

    Actions are cells, as in `dihedral`; cells outside of the triangle stay.
    """
    row, column = np.divmod(np.arange(side * side), side)
    axes = np.stack([row, column, side - 1 - row - column])
    cells = _turned_axes(axes, axes.min(axis=0) >= 0, signs=(1,))
    return Symmetries(cells, _actions_of_cells(cells, num_actions))


def hexagon(radius: int, num_actions: int) -> Symmetries:
    """The twelve symmetries of a hexagon of hexagons with `radius` cells along each edge.

    It is the band `|row - column| < radius` of a square with `2 radius - 1` rows. Actions are cells, as in `dihedral`;
    cells outside of the hexagon stay.
    """
    side = 2 * radius - 1
    row, column = np.divmod(np.arange(side * side), side)
    row, column = row - (radius - 1), column - (radius - 1)
    axes = np.stack([row, -column, column - row])
    cells = _turned_axes(axes, np.abs(axes).max(axis=0) < radius, signs=(1, -1))
    return Symmetries(cells, _actions_of_cells(cells, num_actions))


def edges_of_boxes(rows: int, columns: int) -> Symmetries:
    """Rotations and reflections of `rows` x `columns` boxes whose actions are their edges.

    Actions: the horizontal edges row by row, then the vertical ones. Cells: for every dot, row by row, the edge to its right, the
    edge below and the box between the two; cells of which there is no edge or box (at the last dots) stay.
    """
    height, width = 2 * rows + 1, 2 * columns + 1  # dots, edges and boxes between each other
    lattice = np.arange(height * width).reshape(height, width)
    # Dot, edge to the right, edge below, box: the four places of each dot, beyond the last ones nothing (-1).
    padded = np.pad(lattice, ((0, 1), (0, 1)), constant_values=-1)
    right, below, box = padded[0::2, 1::2], padded[1::2, 0::2], padded[1::2, 1::2]
    place_of_cell = np.stack([right, below, box], axis=-1).reshape(-1)
    place_of_action = np.concatenate([right[:, :columns].reshape(-1), below[:rows].reshape(-1)])
    turned = _turned_rectangle(height, width)
    cell_at = np.zeros(lattice.size, np.int64)
    exists = place_of_cell >= 0
    cell_at[place_of_cell[exists]] = np.flatnonzero(exists)
    cells = np.tile(np.arange(place_of_cell.size), (len(turned), 1))
    cells[:, exists] = cell_at[turned[:, place_of_cell[exists]]]
    action_at = np.zeros(lattice.size, np.int64)
    action_at[place_of_action] = np.arange(place_of_action.size)
    # Actions go where the board's places go, which is the inverse of where the turned board takes them from.
    return Symmetries(cells, action_at[np.argsort(turned, axis=1)[:, place_of_action]])


def mirrored_steps(height: int, width: int, directions: Sequence[int], kinds: int) -> Symmetries:
    """Identity and left-right reflection of a board whose actions are (row, column, direction, kind), the last fastest.

    `directions[d]` is the mirror image of direction `d`; `kinds` stay as they are.
    """
    board = np.arange(height * width).reshape(height, width)
    actions = np.arange(board.size * len(directions) * kinds)
    by_part = actions.reshape(height, width, len(directions), kinds)
    # The reflection is its own inverse, so it does not matter which way it is read.
    mirrored = by_part[:, ::-1][:, :, list(directions)]
    return Symmetries(
        np.stack([board.reshape(-1), board[:, ::-1].reshape(-1)]),
        np.stack([actions, mirrored.reshape(-1)]),
    )


def slides(height: int, width: int, steps: Sequence[tuple[int, int]]) -> Symmetries:
    """Rotations and reflections of a board whose actions are directions; action `a` goes by `steps[a]`, rows then columns.

    Eight for a square, four for a rectangle. Raises ValueError if a turned direction is none of them.
    """
    cells = _turned_rectangle(height, width)
    actions = np.zeros((len(cells), len(steps)), np.int64)
    for number, place in enumerate(np.argsort(cells, axis=1)):
        for action, (down, right) in enumerate(steps):
            # Any two cells that lie so to each other; they cannot be in the first row or column of a step back.
            start = (max(-down, 0), max(-right, 0))
            ends = (start, (start[0] + down, start[1] + right))
            (top, left), (bottom, end) = (divmod(int(place[r * width + c]), width) for r, c in ends)
            turned = (bottom - top, end - left)
            if turned not in steps:
                raise ValueError(f"the turned direction {turned} is not among {list(steps)}")
            actions[number, action] = list(steps).index(turned)
    return Symmetries(cells, actions)


def _turned_rectangle(height: int, width: int) -> IndexArray:
    """`[8 or 4, height * width]` rotations and reflections, as `Symmetries.cells`."""
    board = np.arange(height * width).reshape(height, width)
    turns = range(4) if height == width else (0, 2)
    turned = [np.rot90(side, turn) for side in (board, board[:, ::-1]) for turn in turns]
    return np.stack([each.reshape(-1) for each in turned])


def _turned_axes(
    axes: IndexArray, inside: npt.NDArray[np.bool_], signs: tuple[int, ...]
) -> IndexArray:
    """`[G, C]` the cells under every order of the three `axes[3, C]` and every sign; cells that are not `inside` stay."""
    number = {tuple(axes[:, cell]): cell for cell in np.flatnonzero(inside).tolist()}
    turned = []
    for sign in signs:
        for order in permutations(range(3)):
            cells = np.arange(axes.shape[1])
            cells[inside] = [number[tuple(place)] for place in (sign * axes[list(order)]).T[inside]]
            turned.append(cells)
    return np.stack(turned)


def _actions_of_cells(cells: IndexArray, num_actions: int) -> IndexArray:
    """`[G, num_actions]` where the first actions are the cells; further ones stay."""
    num_cells = cells.shape[1]
    if num_actions < num_cells:
        raise ValueError(f"{num_actions} actions cannot name the {num_cells} cells of a board")
    actions = np.tile(np.arange(num_actions), (len(cells), 1))
    actions[:, :num_cells] = np.argsort(cells, axis=1)
    return actions
