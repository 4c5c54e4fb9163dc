"""The symmetries that OpenSpiel's games are known to have; a test plays turned games of each.

A game is listed with what turns its rules. Of that only those symmetries are declared that leave the first position as it is:
othello's first four discs allow half of a square's eight, amazons' pieces two.
"""

from collections.abc import Callable

import numpy as np
import pyspiel

from muzero.envs.symmetry import (
    Symmetries,
    dihedral,
    edges_of_boxes,
    half_turn,
    hexagon,
    mirror_columns,
    mirrored_steps,
    triangle,
)

Shape = tuple[int, ...]


def board_shape(game: pyspiel.Game) -> Shape:
    """Shape of the game's observation tensor as its entries lie in memory.

    OpenSpiel's hex lays out rows of columns but calls the tensor `[channels, columns, rows]`.
    """
    shape = tuple(game.observation_tensor_shape())
    if game.get_type().short_name == "hex":
        parameters = game.get_parameters()
        return (shape[0], parameters["num_rows"], parameters["num_cols"])
    return shape


def symmetries(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    """The known symmetries of `game`, if its tensor is given the `shape` of its board `[channels, height, width]`.

    None for other shapes and for games of which none is known. They are of frames: the tensor and, behind it, the plane of the
    player to move, which stays.
    """
    rules = _RULES.get(game.get_type().short_name)
    found = rules(game, shape) if rules and len(shape) == 3 else None
    if found is None:
        return None
    state = game.new_initial_state()
    tensor = np.array(state.observation_tensor(state.current_player())).reshape(shape)
    frame = np.concatenate([tensor, np.zeros((1, *shape[1:]))])  # with the plane of the player
    legal = state.legal_actions()
    kept = [
        number
        for number in range(len(found))
        if np.array_equal(found.turn(frame, number), frame)
        and sorted(found.actions[number, legal].tolist()) == legal
    ]
    return found.subset(kept) if len(kept) > 1 else None


def _square_cells(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    """Actions are the cells, row by row, and perhaps a pass; rules and tensor do not tell the sides of the board apart."""
    if shape != board_shape(game):
        return None
    return dihedral(shape[1], shape[2], game.num_distinct_actions())


def _gomoku(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    parameters = game.get_parameters()
    size = parameters["size"]
    if parameters["dims"] != 2 or shape[1:] != (size, size):
        return None
    return dihedral(size, size, game.num_distinct_actions())


def _connect_four(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    return mirror_columns(shape[1], shape[2]) if shape == board_shape(game) else None


def _hex(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    """Half a turn. The reflections swap the players' goals, and in other than these no cell keeps its six neighbours."""
    if shape != board_shape(game) or min(shape[1:]) < 2:
        return None
    turned = half_turn(shape[1], shape[2], game.num_distinct_actions())
    if game.get_parameters()["plain_obs_tensor"]:
        return turned
    # Planes tell which edge a stone is connected to: white to the west (1) or east (2), black to the south (6) or north (7).
    # Behind them is the plane of the player to move.
    channels = [list(range(10)), [0, 2, 1, 3, 4, 5, 7, 6, 8, 9]]
    return Symmetries(turned.cells, turned.actions, np.array(channels))


def _breakthrough(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    # Directions: down to the left, down, down to the right, and the same up; each moves or captures.
    if shape != board_shape(game):
        return None
    return mirrored_steps(shape[1], shape[2], directions=(2, 1, 0, 5, 4, 3), kinds=2)


def _dots_and_boxes(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    parameters = game.get_parameters()
    rows, columns = parameters["num_rows"], parameters["num_cols"]
    # Three states of three things at each dot; how the last two axes are split does not matter.
    if shape[0] != 3 or shape[1] * shape[2] != 3 * (rows + 1) * (columns + 1):
        return None
    return edges_of_boxes(rows, columns)


def _y(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    return triangle(shape[1], game.num_distinct_actions()) if shape == board_shape(game) else None


def _havannah(game: pyspiel.Game, shape: Shape) -> Symmetries | None:
    if shape != board_shape(game):
        return None
    return hexagon(game.get_parameters()["board_size"], game.num_distinct_actions())


_RULES: dict[str, Callable[[pyspiel.Game, Shape], Symmetries | None]] = {
    "amazons": _square_cells,
    "breakthrough": _breakthrough,
    "connect_four": _connect_four,
    "dots_and_boxes": _dots_and_boxes,
    "go": _square_cells,
    "gomoku": _gomoku,
    "havannah": _havannah,
    "hex": _hex,
    "mnk": _square_cells,
    "othello": _square_cells,
    "tic_tac_toe": _square_cells,
    "y": _y,
}
