"""Boards are read from what OpenSpiel shows, so they are checked by random games: where a move points, something appears."""

import pyspiel
import pytest

from muzero.envs.board import BoardReader
from tests.play.games import random_game

PLACED = [
    ("tic_tac_toe", "square"),
    ("mnk(m=5,n=4,k=3)", "square"),
    ("connect_four", "drop"),
    ("hex(board_size=4)", "hex"),
    ("gomoku", "stones"),
    ("go(board_size=5)", "stones"),
    ("go(board_size=9)", "stones"),
    ("othello", "discs"),
]
MOVED = ["breakthrough(rows=5,columns=5)", "checkers", "clobber", "lines_of_action"]


@pytest.mark.parametrize(("name", "style"), PLACED)
def test_a_stone_appears_where_the_move_points_and_belongs_to_its_player(name, style):
    game = pyspiel.load_game(name)
    reader, tried = BoardReader(game), 0
    for state, action in random_game(game, seed=1, most=80):
        board = reader.read(state)
        assert board.style == style
        assert len(board.cells) == board.rows * board.columns
        cells = reader.cells_of(board, action, state.action_to_string(action))
        if not cells:
            assert "pass" in state.action_to_string(action).lower()
            continue
        (cell,) = cells
        assert board.cells[cell] is None
        after = reader.read(state.child(action))
        assert after.cells[cell] is not None, state.action_to_string(action)
        assert after.cells[cell].player == state.current_player()
        tried += 1
    assert tried >= 7


@pytest.mark.parametrize("name", MOVED)
def test_a_piece_goes_from_the_first_cell_to_the_last(name):
    game = pyspiel.load_game(name)
    reader, tried = BoardReader(game), 0
    for state, action in random_game(game, seed=2, most=40):
        board = reader.read(state)
        start, *_, end = reader.cells_of(board, action, state.action_to_string(action))
        after = reader.read(state.child(action))
        mover = state.current_player()
        assert board.cells[start].player == mover
        assert after.cells[start] is None
        assert after.cells[end].player == mover
        tried += 1
    assert tried >= 5


def test_chess_is_read_from_its_position_and_moves_point_at_their_target():
    game = pyspiel.load_game("chess")
    reader = BoardReader(game)
    state = game.new_initial_state()
    board = reader.read(state)
    assert [cell.token for cell in board.cells[:8]] == list("rnbqkbnr")
    assert board.cells[63].token == "R"
    assert board.cells[63].player == state.current_player()
    action = next(a for a in state.legal_actions() if state.action_to_string(a) == "Nf3")
    (cell,) = reader.cells_of(board, action, "Nf3")
    assert reader.read(state.child(action)).cells[cell].token == "N"


@pytest.mark.parametrize(
    "name", ["nine_mens_morris", "dots_and_boxes", "ultimate_tic_tac_toe", "y(board_size=4)"]
)
def test_a_game_that_cannot_be_drawn_is_shown_as_text(name):
    game = pyspiel.load_game(name)
    reader = BoardReader(game)
    board = reader.read(game.new_initial_state())
    assert board.style == "text"
    assert board.as_text() == str(game.new_initial_state()).rstrip("\n")
    assert reader.cells_of(board, 0, "a1") == []


def test_as_text_has_labels_and_pieces():
    game = pyspiel.load_game("go(board_size=3)")
    state = game.new_initial_state()
    state.apply_action(0)  # a1, at the bottom
    assert BoardReader(game).read(state).as_text().splitlines() == [
        "  a b c",
        "3 . . .",
        "2 . . .",
        "1 X . .",
    ]


def test_numbers_are_cells_too():
    game = pyspiel.load_game("2048")
    state = game.new_initial_state()
    while state.is_chance_node():
        state.apply_action(state.legal_actions()[0])
    board = BoardReader(game).read(state)
    assert (board.rows, board.columns) == (4, 4)
    assert sorted(cell.token for cell in board.cells if cell) == ["2", "2"]
