"""Observations of our own for OpenSpiel's games of chance, whose tensors suit a network badly (`env.encoding=features`).

Letters: `B` states, `P` planes.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyspiel

from muzero.config.environments import OpenSpielConfig
from muzero.envs.symmetry import Symmetries, slides


class Features(Protocol):
    """States of one game as arrays, each seen by its player to move."""

    shape: tuple[int, ...]
    """Of one state: `(features,)` or `(channels, height, width)`."""
    is_binary: bool
    """Whether all entries are 0 or 1."""
    symmetries: Symmetries | None
    """Of arrays of this shape."""
    chance_channels: tuple[int, ...]
    """See `EnvSpec.chance_channels`."""

    def encode(self, states: Sequence[pyspiel.State]) -> npt.NDArray[np.float32]:
        """`[B, *shape]`."""
        ...


class Tiles:
    """2048: `[P, 4, 4]`, plane 0 for empty cells, plane `e` for tiles of `2^e` up to the game's `max_tile`, then the newest tile.

    Of the last two planes the first marks the cell where chance set a tile last if it is a 2, the other if it is a 4. Tile
    values themselves grow as fast as the powers they are, so that no weight fits the small and the large ones.
    """

    is_binary = True

    def __init__(self, game: pyspiel.Game) -> None:
        height, width = game.observation_tensor_shape()
        largest = int(game.get_parameters()["max_tile"])
        # A spawned tile may be a 4 whatever max_tile is, and at 2 the game is over when it begins.
        num_values = max(largest.bit_length(), 3)
        self.shape: tuple[int, ...] = (num_values + 2, height, width)
        self.chance_channels: tuple[int, ...] = (num_values, num_values + 1)
        # Up, right, down, left.
        self.symmetries: Symmetries | None = slides(
            height, width, ((-1, 0), (0, 1), (1, 0), (0, -1))
        )

    def encode(self, states: Sequence[pyspiel.State]) -> npt.NDArray[np.float32]:
        """See `Features`."""
        num_planes, height, width = self.shape
        tiles = np.array([state.observation_tensor(0) for state in states], np.float32)
        # A tile 2^e has the binary exponent e + 1, an empty cell 0.
        exponent = np.maximum(np.frexp(tiles)[1] - 1, 0).reshape(-1, 1, height * width)
        planes = np.zeros((len(states), num_planes, height * width), np.float32)
        newest = self.chance_channels[0]
        planes[:, :newest] = exponent == np.arange(newest)[:, None]
        # Chance's action is its cell, row by row, and whether the tile is a 4, the last fastest.
        last = np.array([state.history()[-1] for state in states], np.int64)
        cell, is_four = np.divmod(last, 2)
        planes[np.arange(len(states)), newest + is_four, cell] = 1.0
        return planes.reshape(-1, *self.shape)


class Checkers:
    """Backgammon: `[209]`, the mover's own things first.

    For each player 24 points of four units, as TD-Gammon has them (one, two or three checkers, and half of the number
    beyond three); checkers on the bar, by two, and borne off, by 15, of either; two dice, one-hot; and whether the mover has
    played the first half of a double, which OpenSpiel's tensor does not tell.
    """

    shape: tuple[int, ...] = (209,)
    chance_channels: tuple[int, ...] = tuple(range(196, 208))
    is_binary = False
    symmetries: Symmetries | None = None

    def encode(self, states: Sequence[pyspiel.State]) -> npt.NDArray[np.float32]:
        """See `Features`."""
        tensor = np.array(
            [state.observation_tensor(state.current_player()) for state in states], np.float32
        ).reshape(-1, 200)
        features = np.zeros((len(states), *self.shape), np.float32)
        features[:, :192] = tensor[:, :192]
        features[:, 3:192:4] *= 0.5
        # Behind the points: bar, borne off and turn of either player, then the dice.
        features[:, 192:194] = tensor[:, [192, 195]] / 2
        features[:, 194:196] = tensor[:, [193, 196]] / 15
        dice = tensor[:, 198:200].astype(np.int64)
        rows = np.arange(len(states))
        features[rows, 195 + dice[:, 0]] = 1.0
        features[rows, 201 + dice[:, 1]] = 1.0
        features[:, 208] = [state.full_history()[-1].player >= 0 for state in states]
        return features


def features_of(game: pyspiel.Game, config: OpenSpielConfig) -> Features | None:
    """What `env.encoding` asks for; None is OpenSpiel's tensor.

    Raises ValueError for an unknown encoding, for a game without features, and if they are asked for in another shape.
    """
    if config.encoding == "tensor":
        return None
    if config.encoding != "features":
        raise ValueError(f"env.encoding={config.encoding!r} must be tensor or features")
    if config.frame_shape is not None:
        raise ValueError(
            f"env.frame_shape={list(config.frame_shape)} is of OpenSpiel's tensor; set it to null, or env.encoding=tensor"
        )
    makers: dict[str, Any] = {"2048": Tiles, "backgammon": lambda game: Checkers()}
    name = game.get_type().short_name
    if name not in makers:
        raise ValueError(
            f"env.encoding=features is there for {' and '.join(makers)} only, not for {config.game}; set env.encoding=tensor"
        )
    features: Features = makers[name](game)
    return features
