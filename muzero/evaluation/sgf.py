"""Games of Go in SGF (version 4), which every Go program reads."""

import re

import pyspiel

from muzero.evaluation.arena import GameRecord

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def to_sgf(record: GameRecord, game: pyspiel.Game, *, names: tuple[str, str]) -> str:
    """A game of Go as one line of SGF, its result included.

    Args:
        record: The game.
        game: What it was played by: `go`, of any size up to 25, with any komi and handicap.
        names: Of the match's first and second player.

    Raises:
        ValueError: `game` is not Go.
    """
    if game.get_type().short_name != "go":
        raise ValueError(f"format=sgf is for games of Go, and this is {game}; use format=text")
    parameters = game.get_parameters()
    size = parameters["board_size"]
    black, white = names if record.setup.first_seat == 0 else names[::-1]
    header = {
        "GM": "1",
        "FF": "4",
        "CA": "UTF-8",
        "AP": "muzero-trainer",
        "SZ": str(size),
        "KM": f"{parameters['komi']:g}",
        "RU": "Chinese",
        "PB": _text(black),
        "PW": _text(white),
        "RE": _result(record),
    }
    state = game.new_initial_state()
    stones = _handicap(state, size)
    if stones:
        header["HA"] = str(len(stones))
    nodes = ["".join(f"{name}[{value}]" for name, value in header.items())]
    if stones:
        nodes[0] += "AB" + "".join(f"[{stone}]" for stone in stones)
    for action in record.actions:
        colour = "BW"[state.current_player()]
        nodes.append(f"{colour}[{'' if action == size * size else _point(action, size)}]")
        state.apply_action(action)
    return f"(;{';'.join(nodes)})"


def _point(action: int, size: int) -> str:
    """Column, then row from the top; an action counts from the bottom left, row by row."""
    row, column = divmod(action, size)
    return _LETTERS[column] + _LETTERS[size - 1 - row]


def _handicap(state: pyspiel.State, size: int) -> list[str]:
    """Points of the black stones on the board at the start."""
    rows = re.findall(r"^ *\d+ ([+XO]+)$", str(state), re.MULTILINE)
    assert len(rows) == size
    return [
        _LETTERS[column] + _LETTERS[row]
        for row, line in enumerate(rows)
        for column, stone in enumerate(line)
        if stone == "X"
    ]


def _result(record: GameRecord) -> str:
    if record.cut:
        return "Void"
    if record.score == 0.0:
        return "0"
    return "B+" if (record.score > 0.0) == (record.setup.first_seat == 0) else "W+"


def _text(text: str) -> str:
    return re.sub(r"([\\\]:])", r"\\\1", text)
