"""Dots and boxes in plain Python, without OpenSpiel. A game is the tuple of its moves: horizontal edges row by row, then vertical ones."""

from collections.abc import Callable
from functools import cache

Moves = tuple[int, ...]


class DotsAndBoxes:
    """`rows` x `columns` boxes; who has more at the end has won."""

    def __init__(self, rows: int, columns: int) -> None:
        self.num_edges = (rows + 1) * columns + rows * (columns + 1)
        first_vertical = (rows + 1) * columns
        self.boxes = [
            frozenset(
                (
                    row * columns + column,
                    (row + 1) * columns + column,
                    first_vertical + row * (columns + 1) + column,
                    first_vertical + row * (columns + 1) + column + 1,
                )
            )
            for row in range(rows)
            for column in range(columns)
        ]
        self.best = cache(self._best)

    def closed(self, drawn: frozenset[int], edge: int) -> int:
        """Boxes that `edge` closes."""
        return sum(edge in box and box <= drawn | {edge} for box in self.boxes)

    def standing(self, moves: Moves) -> tuple[int, int]:
        """Player to move, and the boxes of player 0 less those of player 1."""
        drawn: frozenset[int] = frozenset()
        player, lead = 0, 0
        for edge in moves:
            number = self.closed(drawn, edge)
            lead += number if player == 0 else -number
            player = player if number else 1 - player
            drawn |= {edge}
        return player, lead

    def legal(self, moves: Moves) -> list[int]:
        return [edge for edge in range(self.num_edges) if edge not in moves]

    def _best(self, drawn: frozenset[int], lead: int) -> int:
        """Result under best play (1, 0, -1) for the player to move, who leads by `lead` boxes."""
        if len(drawn) == self.num_edges:
            return (lead > 0) - (lead < 0)
        return max(
            self.after(drawn, lead, edge) for edge in range(self.num_edges) if edge not in drawn
        )

    def after(self, drawn: frozenset[int], lead: int, edge: int) -> int:
        """The same once `edge` has been drawn, still seen by who draws it."""
        number = self.closed(drawn, edge)
        below = drawn | {edge}
        return self.best(below, lead + number) if number else -self.best(below, -lead)

    def result(self, moves: Moves, seat: int) -> int:
        """Result under best play from here on, seen by `seat`."""
        player, lead = self.standing(moves)
        value = self.best(frozenset(moves), lead if player == 0 else -lead)
        return value if seat == player else -value

    def optimal(self, moves: Moves) -> list[int]:
        player, lead = self.standing(moves)
        mine = lead if player == 0 else -lead
        drawn = frozenset(moves)
        best = self.best(drawn, mine)
        return [edge for edge in self.legal(moves) if self.after(drawn, mine, edge) == best]

    def lines(
        self, choose: Callable[[Moves], int], seat: int, moves: Moves = (), saved: bool = False
    ) -> tuple[int, int]:
        """Lines that `choose` loses in `seat` after a position that was not lost for it, and all lines, one by one."""
        saved |= self.result(moves, seat) >= 0
        actions = self.legal(moves)
        if not actions:
            return int(saved and self.result(moves, seat) < 0), 1
        if self.standing(moves)[0] == seat:
            actions = [choose(moves)]
        below = [self.lines(choose, seat, (*moves, action), saved) for action in actions]
        return sum(lost for lost, _ in below), sum(count for _, count in below)
