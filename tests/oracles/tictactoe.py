"""Tic-tac-toe in plain Python, without a memory and without OpenSpiel. A game is the tuple of its moves, cells 0 to 8."""

from collections.abc import Callable
from functools import cache

Moves = tuple[int, ...]
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def winner(moves: Moves) -> int | None:
    for player in (0, 1):
        cells = set(moves[player::2])
        if any(cells.issuperset(line) for line in LINES):
            return player
    return None


def legal(moves: Moves) -> list[int]:
    return [] if winner(moves) is not None else [cell for cell in range(9) if cell not in moves]


def value(moves: Moves) -> int:
    """Outcome under best play, seen by the player to move; of a finished game, by the one who would move."""
    return _value(frozenset(moves[0::2]), frozenset(moves[1::2]))


@cache
def _value(first: frozenset[int], second: frozenset[int]) -> int:
    mine, theirs = (first, second) if len(first) == len(second) else (second, first)
    if any(theirs.issuperset(line) for line in LINES):
        return -1
    free = set(range(9)) - first - second
    if not free:
        return 0
    if mine is first:
        return max(-_value(first | {cell}, second) for cell in free)
    return max(-_value(first, second | {cell}) for cell in free)


def lines(choose: Callable[[Moves], int], seat: int, moves: Moves = ()) -> tuple[int, int]:
    """Lines that `choose` loses in `seat`, and all lines, one by one."""
    actions = legal(moves)
    if not actions:
        return int(winner(moves) == 1 - seat), 1
    if len(moves) % 2 == seat:
        actions = [choose(moves)]
    below = [lines(choose, seat, (*moves, action)) for action in actions]
    return sum(lost for lost, _ in below), sum(count for _, count in below)
