"""Boards and policies as pixels, with numpy alone.

A panel shows one board: pieces as discs, the second player's lighter, kinds of pieces not told apart. A policy's panel shades the
cells that its moves lead to. Letters: `H`, `W` pixels, `A` actions, `N` cells.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from muzero.envs.board import Board

Image = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.floating]

CELL = 24
"""Pixels of a cell's side."""
STRIP = CELL // 4
"""Height of the strip below a panel: how much of a policy goes to moves without a cell, such as a pass."""
MARGIN = CELL // 2
"""Pixels around and between panels."""

_PAPER, _LINE = (255, 255, 255), (150, 150, 150)
_PIECES = {
    0: (40, 40, 40),
    1: (235, 150, 60),
    None: (150, 150, 150),
}  # of player 0, of player 1, of nobody
_SHADE = (20, 90, 200)  # of probability 1
_BEST = (200, 30, 30)  # frame of the likeliest cell


def shares(
    policy: FloatArray, targets: Sequence[int | None], num_cells: int
) -> tuple[npt.NDArray[np.float64], float]:
    """`[N]` probability that leads to each cell, and that of the moves without one.

    Args:
        policy: `[A]` probabilities.
        targets: `[A]` cell that each action leads to; None where the drawing has none.
    """
    cells, rest = np.zeros(num_cells), 0.0
    for probability, cell in zip(policy.tolist(), targets, strict=True):
        if cell is None:
            rest += probability
        else:
            cells[cell] += probability
    return cells, rest


def draw_board(board: Board) -> Image:
    """`[H, W, 3]` the position. The board must have cells."""
    image = _canvas(board)
    for number in range(board.rows * board.columns):
        square = _square(image, board, number)
        _outline(square, _LINE, 1)
        _draw_piece(square, board, number, radius=0.4)
    return image


def draw_policy(board: Board, cells: FloatArray, rest: float) -> Image:
    """`[H, W, 3]` a policy: cells are shaded by the square root of their probability `[N]`, the likeliest one has a frame.

    Pieces stand small on top. `rest`, the probability of moves without a cell, is the filled part of the strip below.
    """
    image = _canvas(board)
    for number, probability in enumerate(cells.tolist()):
        square = _square(image, board, number)
        square[:] = _shade(probability)
        _outline(square, _LINE, 1)
        _draw_piece(square, board, number, radius=0.2)
    if cells.max() > rest:
        _outline(_square(image, board, int(cells.argmax())), _BEST, 3)
    filled = round(min(max(rest, 0.0), 1.0) * image.shape[1])
    image[-STRIP:, :filled] = _SHADE
    return image


def arrange(rows: Sequence[Sequence[Image]]) -> Image:
    """`[H, W, 3]` panels of one size as a table with margins."""
    height, width, _ = rows[0][0].shape
    table = np.full(
        (
            MARGIN + len(rows) * (height + MARGIN),
            MARGIN + len(rows[0]) * (width + MARGIN),
            3,
        ),
        _PAPER,
        np.uint8,
    )
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            top, left = MARGIN + i * (height + MARGIN), MARGIN + j * (width + MARGIN)
            table[top : top + height, left : left + width] = panel
    return table


def _canvas(board: Board) -> Image:
    if not board.cells:
        raise ValueError("a board that is only text cannot be drawn as cells")
    slant = (board.rows - 1) * CELL // 2 if board.style == "hex" else 0
    shape = (board.rows * CELL + STRIP, board.columns * CELL + slant, 3)
    return np.full(shape, _PAPER, np.uint8)


def _square(image: Image, board: Board, number: int) -> Image:
    """View of the pixels of a cell; the rows of a board of hexagons lean to the right."""
    row, column = divmod(number, board.columns)
    left = column * CELL + (row * CELL // 2 if board.style == "hex" else 0)
    return image[row * CELL : (row + 1) * CELL, left : left + CELL]


def _outline(square: Image, colour: tuple[int, int, int], width: int) -> None:
    square[:width] = square[-width:] = colour
    square[:, :width] = square[:, -width:] = colour


def _draw_piece(square: Image, board: Board, number: int, radius: float) -> None:
    cell = board.cells[number]
    if cell is None:
        return
    y, x = np.mgrid[:CELL, :CELL] - (CELL - 1) / 2
    distance = np.hypot(y, x)
    square[distance <= radius * CELL] = _PIECES[None]  # its rim
    square[distance <= radius * CELL - 1] = _PIECES[cell.player]


def _shade(probability: float) -> npt.NDArray[np.uint8]:
    weight = np.sqrt(min(max(probability, 0.0), 1.0))  # so that small ones can be seen
    paper, shade = np.asarray(_PAPER, np.float64), np.asarray(_SHADE, np.float64)
    return np.rint(paper + weight * (shade - paper)).astype(np.uint8)
