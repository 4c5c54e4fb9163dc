"""A position of any OpenSpiel board game as a drawing: cells with pieces, and the cells that a move touches.

Nothing here knows rules. Cells are read from OpenSpiel's own text of a position, or from its observation where that says for
every cell which one thing stands there; a game that shows neither is drawn as text, and its moves are chosen from a list.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from muzero.envs.states import State

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_SQUARE = re.compile(r"([a-z])(\d+)")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Pieces of player 0, of player 1, and what is no piece; other games are read by the last line.
_PIECES = {
    "breakthrough": ("b", "w", "."),
    "checkers": ("o8", "+*", "."),
    "clobber": ("o", "x", "."),
    "go": ("X", "O", "+"),
    "gomoku": ("b", "w", "."),
    "hex": ("xyzX", "opqO", "."),
    "amazons": ("X", "O", "."),
}
_USUAL_PIECES = ("xX@", "oO", ".-_")
_STYLES = {
    "connect_four": "drop",
    "hex": "hex",
    "go": "stones",
    "gomoku": "stones",
    "othello": "discs",
    "chess": "chess",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands on a cell."""

    token: str
    """As OpenSpiel writes it."""
    player: int | None
    """Whose it is; None if nobody's, or not known."""


@dataclass(frozen=True, slots=True)
class Board:
    """A drawing of one position."""

    style: str
    """`square`, `drop` (pieces fall down columns), `hex`, `stones`, `discs`, `chess`, or `text` (no cells)."""
    text: str
    """OpenSpiel's own text."""
    rows: int = 0
    columns: int = 0
    cells: list[Cell | None] = field(default_factory=list)
    """`[rows * columns]`, row by row from the top; None where nothing stands."""
    row_labels: list[str] = field(default_factory=list)
    column_labels: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: a cell is `[token, player]` or null."""
        return {
            "style": self.style,
            "text": self.text,
            "rows": self.rows,
            "columns": self.columns,
            "cells": [cell and [cell.token, cell.player] for cell in self.cells],
            "row_labels": self.row_labels,
            "column_labels": self.column_labels,
        }

    def as_text(self) -> str:
        """The cells with their labels, for a terminal; OpenSpiel's text where there are none."""
        if not self.cells:
            return self.text
        width = max(len(cell.token) if cell else 1 for cell in self.cells)
        width = max(width, *map(len, self.column_labels))
        margin = max(map(len, self.row_labels))
        lines = [
            " " * margin + "".join(f" {label:>{width}}" for label in self.column_labels),
        ]
        for row, label in enumerate(self.row_labels):
            cells = self.cells[row * self.columns : (row + 1) * self.columns]
            drawn = "".join(f" {cell.token if cell else '.':>{width}}" for cell in cells)
            shift = " " * row if self.style == "hex" else ""
            lines.append(f"{shift}{label:>{margin}}{drawn}")
        return "\n".join(lines)


class BoardReader:
    """Draws positions of one game."""

    def __init__(self, game: Any) -> None:
        """`game` is a `pyspiel.Game`."""
        self.name: str = game.get_type().short_name
        self._num_actions: int = game.num_distinct_actions()
        shape = game.observation_tensor_shape()
        parameters = game.get_parameters()
        if self.name == "gomoku" and parameters.get("dims") == 2:
            shape = [parameters["size"]] * 2
        elif self.name == "chess":
            shape = [8, 8]
        self._size = (shape[-2], shape[-1]) if len(shape) in (2, 3) else None
        self._num_planes = shape[0] if len(shape) == 3 else 0
        self._has_planes = self._num_planes > 1 and self._fits_planes(game.new_initial_state())

    def read(self, state: State) -> Board:
        """The drawing of `state`."""
        text = _ANSI.sub("", str(state)).rstrip("\n")
        if self._size is None:
            return Board("text", text)
        rows, columns = self._size
        found = self._grid_of_fen(text) if self.name == "chess" else self._grid_of_text(text)
        if found is None and self._has_planes:
            found = (self._grid_of_planes(state), [], [])
        if found is None:
            return Board("text", text)
        tokens, row_labels, column_labels = found
        mine, theirs, empty = _PIECES.get(self.name, _USUAL_PIECES)
        if self.name == "chess":  # white is OpenSpiel's player 1
            mine, theirs = "pnbrqk", "PNBRQK"

        def cell(token: str) -> Cell | None:
            if token in empty or (self.name == "2048" and token == "0"):
                return None
            return Cell(token, 0 if token in mine else 1 if token in theirs else None)

        style = _STYLES.get(self.name, "square")
        if style == "drop":
            row_labels, column_labels = [""] * rows, [str(column) for column in range(columns)]
        return Board(
            style,
            text,
            rows,
            columns,
            [cell(token) for token in tokens],
            row_labels or [str(row + 1) for row in range(rows)],
            column_labels or [_letter(column) for column in range(columns)],
        )

    def cells_of(self, board: Board, action: int, name: str) -> list[int]:
        """The cells that a move touches, in order (from, to); empty if the drawing cannot tell.

        Args:
            board: The position before the move.
            name: What OpenSpiel calls the move there.
        """
        if not board.cells:
            return []
        rows, columns = board.rows, board.columns
        if board.style == "drop":
            free = [row for row in range(rows) if board.cells[row * columns + action] is None]
            return [(free[-1] if free else 0) * columns + action]
        if self._num_actions in (rows * columns, rows * columns + 1):
            if action >= rows * columns:
                return []  # a pass
            row, column = divmod(action, columns)
            if board.row_labels[0].isdigit() and int(board.row_labels[0]) > 1:
                row = rows - 1 - row  # the text has the highest row on top
            return [row * columns + column]
        found = []
        for letter, number in _SQUARE.findall(name):
            if letter in board.column_labels and number in board.row_labels:
                row = board.row_labels.index(number)
                found.append(row * columns + board.column_labels.index(letter))
        return found

    def _grid_of_text(self, text: str) -> tuple[list[str], list[str], list[str]] | None:
        assert self._size is not None
        rows, columns = self._size
        tokens: list[str] = []
        row_labels: list[str] = []
        column_labels: list[str] = []
        for line in text.replace("[", " ").replace("]", " ").splitlines():
            parts = line.split()
            if _is_header(parts, columns):
                column_labels = list("".join(parts).lower())
                continue
            found = _row_of(parts, columns)
            if found is not None:
                label, row = found
                tokens += row
                row_labels += [label] if label else []
        if len(tokens) != rows * columns:
            return None
        return tokens, row_labels if len(row_labels) == rows else [], column_labels

    @staticmethod
    def _grid_of_fen(text: str) -> tuple[list[str], list[str], list[str]] | None:
        ranks = text.split(" ")[0].split("/")
        tokens = list("".join("." * int(x) if x.isdigit() else x for x in "".join(ranks)))
        return (tokens, list("87654321"), list("abcdefgh")) if len(tokens) == 64 else None

    def _planes(self, state: State) -> Any:
        """`[planes, rows * columns]` of the observation, as player 0 has it."""
        return np.asarray(state.observation_tensor(0), np.float32).reshape(self._num_planes, -1)

    def _fits_planes(self, state: State) -> bool:
        """Whether exactly one plane has a one at every cell, and moves name cells."""
        if state.is_chance_node() or self._size is None:
            return False
        planes = self._planes(state)
        names = [state.action_to_string(action) for action in state.legal_actions()]
        return bool(
            ((planes == 0) | (planes == 1)).all()
            and (planes.sum(axis=0) == 1).all()
            and all(_SQUARE.search(name) for name in names)
        )

    def _grid_of_planes(self, state: State) -> list[str]:
        """One token a cell; the plane that is the fullest in the initial position is that of empty cells."""
        empty = int(self._planes(state.get_game().new_initial_state()).sum(axis=1).argmax())
        names = iter("xo" + _LETTERS[:14].replace("o", ""))
        tokens = ["." if plane == empty else next(names, "?") for plane in range(self._num_planes)]
        return [tokens[plane] for plane in self._planes(state).argmax(axis=0).tolist()]


def _letter(column: int) -> str:
    return _LETTERS[column] if column < 26 else str(column + 1)


def _is_header(parts: list[str], columns: int) -> bool:
    """Whether a line of text is the alphabet (perhaps without i) that names the columns."""
    letters = "".join(parts)
    return (
        len(letters) == columns >= 2
        and letters.isalpha()
        and list(letters.lower()) == sorted(set(letters.lower()))
        and letters[0] in "aA"
    )


def _row_of(parts: list[str], columns: int) -> tuple[str, list[str]] | None:
    """Label and cells of a line of text; None if it is no row of the board."""
    if len(parts) == columns > 1 and all(len(part) == 1 or part.isdigit() for part in parts):
        return "", parts
    if len(parts) >= columns + 1 and parts[0].isdigit() and parts[1 + columns :] in ([], parts[:1]):
        return parts[0], parts[1 : 1 + columns]
    if len(parts) == 1:
        cells = parts[0].lstrip("0123456789")
        label = parts[0][: len(parts[0]) - len(cells)]
        if len(cells) != columns and len(parts[0]) >= columns:  # a piece may be a digit
            label, cells = parts[0][:-columns], parts[0][-columns:]
            if label and not label.isdigit():
                return None
        return (label, list(cells)) if len(cells) == columns else None
    if len(parts) == 2 and parts[0].isdigit() and len(parts[1]) == columns:
        return parts[0], list(parts[1])
    return None
