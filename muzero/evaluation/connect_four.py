"""Exact scores of connect four, by the solver of the extra `solver` (bitbully, AGPL-3.0); the only place that knows it.

A score is seen by the player to move and counts as Pons' positions do: 22 minus the number of stones that the winner will
have played when both sides play best, negative if that is the opponent, 0 for a draw. So a sooner win scores higher.
"""

from collections.abc import Sequence

import pyspiel

COLUMNS, ROWS = 7, 6
_STANDARD = {"rows": ROWS, "columns": COLUMNS, "x_in_row": 4}


def is_connect_four(game: pyspiel.Game) -> bool:
    """Whether `game` is connect four on the board of 6 rows and 7 columns, the one that the solver knows."""
    parameters = game.get_parameters()
    return game.get_type().short_name == "connect_four" and all(
        parameters[name] == value for name, value in _STANDARD.items()
    )


class ConnectFourSolver:
    """Scores every move of a position; an `ExactValues` whose best moves also win soonest and lose latest.

    A position of few stones takes some 20 ms on one core, one past the middle less than 1 ms. Not for several threads.

    Example:
        >>> ConnectFourSolver().scores([])
        {0: -2, 1: -1, 2: 0, 3: 1, 4: 0, 5: -1, 6: -2}
    """

    def __init__(self, setting: str = "evaluation.opponents: perfect") -> None:
        """Loads the solver and its opening book.

        Args:
            setting: What asked for it, for the message.

        Raises:
            ValueError: The extra `solver` is not installed.
        """
        try:
            import bitbully
        except ImportError as error:
            raise ValueError(
                f"{setting}: exact scores of connect four need the package bitbully (licence AGPL-3.0), which is not "
                "installed: pip install 'muzero-trainer[solver]'; the opponent rollout:<simulations>, such as "
                "rollout:1000, does without"
            ) from error
        self._board, self._solver = bitbully.Board, bitbully.BitBully()

    def scores(self, columns: Sequence[int]) -> dict[int, int]:
        """Column -> score of a stone there, for each column that is not full, after stones in `columns` (0 to 6).

        Raises:
            ValueError: The game is over there, or it cannot be played so.
        """
        board = self._board()
        for number, column in enumerate(columns):
            if board.is_game_over():
                raise ValueError(f"the game is over after {number} stones of {len(columns)}")
            if not 0 <= column < COLUMNS or not board.is_legal_move(column):
                raise ValueError(
                    f"stone {number + 1} cannot be put into column {column}; columns are 0 to {COLUMNS - 1} and hold {ROWS}"
                )
            board.play(column)
        if board.is_game_over():
            raise ValueError(
                f"the game is over after {len(columns)} stones, nothing is left to be scored"
            )
        scores: dict[int, int] = self._solver.score_all_moves(board)
        return dict(sorted(scores.items()))

    def action_scores(self, state: pyspiel.State) -> dict[int, int]:
        """Legal action -> score, at a state of connect four where somebody has to move."""
        return self.scores(state.history())

    def value(self, state: pyspiel.State) -> float:
        """1 if the player to move wins, 0 if the game is drawn, -1 if they lose; 0 at the end of the game."""
        if state.is_terminal():
            return 0.0
        best = max(self.action_scores(state).values())
        return float((best > 0) - (best < 0))

    def optimal_actions(self, state: pyspiel.State) -> list[int]:
        """Actions of the highest score."""
        scores = self.action_scores(state)
        best = max(scores.values())
        return [action for action, score in scores.items() if score == best]
