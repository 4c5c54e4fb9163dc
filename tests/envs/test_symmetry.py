"""A declared symmetry commutes with play: the turned game of turned moves is the game, turned."""

from dataclasses import replace

import numpy as np
import pytest

from muzero.config.environments import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielFrames, load_game
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

GAMES = [
    ("tic_tac_toe", {}, None, 8),
    ("mnk", {"m": 5, "n": 5, "k": 4}, None, 8),
    ("mnk", {"m": 6, "n": 4, "k": 4}, None, 4),
    ("gomoku", {"size": 6, "connect": 4}, [3, 6, 6], 8),
    ("gomoku", {"size": 5, "connect": 4, "wrap": True, "anti": True}, [3, 5, 5], 8),
    ("go", {"board_size": 3}, None, 8),
    ("go", {"board_size": 5}, None, 8),
    ("othello", {}, None, 4),
    ("hex", {"board_size": 3}, None, 2),
    ("hex", {"board_size": 5}, None, 2),
    ("hex", {"num_rows": 3, "num_cols": 5}, None, 2),
    ("hex", {"board_size": 4, "plain_obs_tensor": True}, None, 2),
    ("hex", {"board_size": 4, "swap": True}, None, 2),
    ("connect_four", {}, None, 2),
    ("connect_four", {"rows": 5, "columns": 4}, None, 2),
    ("breakthrough", {"rows": 5, "columns": 4}, None, 2),
    ("breakthrough", {}, None, 2),
    ("amazons", {"board_size": 6}, None, 2),
    ("dots_and_boxes", {}, None, 8),
    ("dots_and_boxes", {"num_rows": 2, "num_cols": 3}, None, 4),
    ("dots_and_boxes", {"num_rows": 3, "num_cols": 3, "utility_margin": True}, [3, 4, 12], 8),
    ("y", {"board_size": 5}, None, 6),
    ("havannah", {"board_size": 4}, None, 12),
    ("havannah", {"board_size": 3, "swap": True}, None, 12),
]
NAMES = ["-".join(map(str, (game[0], *game[1].values()))) for game in GAMES]


def make(name, parameters, frame_shape=None):
    config = OpenSpielConfig(
        game=name, name=name, parameters=parameters, frame_shape=frame_shape, turn_order="repeated"
    )
    game = load_game(config)
    return game, OpenSpielFrames(game, config)


def play_turned(game, frames, symmetries: Symmetries, number: int, seed: int) -> None:
    """A random game and the same game turned, side by side; AssertionError where they are not the same."""
    rng = np.random.default_rng(seed)
    cells, actions = symmetries.cells[number], symmetries.actions[number]
    channels = np.arange(frames.spec.frame_shape[0])
    if symmetries.channels is not None:
        channels = symmetries.channels[number]
    state, turned = game.new_initial_state(), game.new_initial_state()
    while not state.is_terminal():
        frame, turned_frame = frames.frame(state), frames.frame(turned)
        np.testing.assert_array_equal(
            frame.reshape(len(frame), -1)[channels][:, cells], turned_frame.reshape(len(frame), -1)
        )
        np.testing.assert_array_equal(symmetries.turn(frame, number), turned_frame)
        legal = state.legal_actions()
        assert sorted(actions[legal].tolist()) == turned.legal_actions()
        move = int(rng.choice(legal))
        state.apply_action(move)
        turned.apply_action(int(actions[move]))
        assert state.current_player() == turned.current_player()
        assert state.rewards() == turned.rewards()
    assert turned.is_terminal() and state.returns() == turned.returns()


@pytest.mark.parametrize(("name", "parameters", "frame_shape", "count"), GAMES, ids=NAMES)
def test_turned_moves_make_the_turned_game(name, parameters, frame_shape, count):
    game, frames = make(name, parameters, frame_shape)
    symmetries = frames.spec.symmetries
    assert symmetries is not None and len(symmetries) == count
    for number in range(count):
        for seed in range(3):
            play_turned(game, frames, symmetries, number, seed)


@pytest.mark.parametrize(("name", "parameters", "frame_shape", "count"), GAMES, ids=NAMES)
def test_the_declared_symmetries_are_a_group(name, parameters, frame_shape, count):
    symmetries = make(name, parameters, frame_shape)[1].spec.symmetries
    assert symmetries.cells[0].tolist() == list(range(symmetries.cells.shape[1]))
    assert symmetries.actions[0].tolist() == list(range(symmetries.actions.shape[1]))
    parts = [symmetries.cells, symmetries.actions]
    parts += [] if symmetries.channels is None else [symmetries.channels]
    for part in parts:
        assert (np.sort(part, axis=1) == np.arange(part.shape[1])).all()
    known = {tuple(np.concatenate([part[g] for part in parts]).tolist()) for g in range(count)}
    assert len(known) == count
    for g in range(count):
        for h in range(count):
            # Turned by g and then by h: cells are looked up in the order h, g; actions go through g, then h.
            after = [part[g][part[h]] for part in parts]
            after[1] = symmetries.actions[h][symmetries.actions[g]]
            assert tuple(np.concatenate(after).tolist()) in known


def turned_rectangles(numbers):
    """Turns of a board that its game does not have: 1 and 3 by a quarter, 4 to 7 reflected."""

    def make_wrong(game, frames):
        height, width = frames.spec.frame_shape[1:]
        full = dihedral(height, width, game.num_distinct_actions())
        return [full.subset([number]) for number in numbers]

    return make_wrong


def without_channels(game, frames):
    """Half a turn of hex's planes that forgets that west has become east."""
    return [replace(frames.spec.symmetries.subset([1]), channels=None)]


def unmoved_actions(game, frames):
    """The board turns and the moves do not."""
    found = frames.spec.symmetries
    still = np.broadcast_to(found.actions[0], found.actions.shape)
    return [replace(found, actions=still).subset([g]) for g in range(1, len(found))]


def inverse_actions(game, frames):
    """Moves turn the other way than the board."""
    found = frames.spec.symmetries
    inverse = replace(found, actions=np.argsort(found.actions, axis=1))
    differs = (inverse.actions != found.actions).any(axis=1)
    return [inverse.subset([number]) for number in np.flatnonzero(differs)]


def unmirrored_directions(game, frames):
    """Breakthrough's mirror that leaves steps to the left steps to the left."""
    return [mirrored_steps(*frames.spec.frame_shape[1:], range(6), 2).subset([1])]


def shifted_by_a_cell(game, frames):
    """The right turns about the wrong centre."""
    found = frames.spec.symmetries
    shifted = np.argsort(np.roll(np.arange(found.cells.shape[1]), 1))
    cells = shifted[found.cells]
    return [
        Symmetries(cells[number][None], np.argsort(cells[number])[None])
        for number in range(1, len(found))
    ]


# Hex: the transpose (5 or 7) swaps the players' goals, in the others a cell has other neighbours. Othello's first discs lie crosswise.
WRONG = [
    ("hex", {"board_size": 4, "plain_obs_tensor": True}, turned_rectangles([1, 3, 4, 5, 6, 7])),
    ("hex", {"num_rows": 3, "num_cols": 5, "plain_obs_tensor": True}, turned_rectangles([2, 3])),
    ("hex", {"board_size": 4}, without_channels),
    ("othello", {}, turned_rectangles([1, 3, 4, 6])),
    ("breakthrough", {"rows": 5, "columns": 5}, unmirrored_directions),
    ("go", {"board_size": 5}, unmoved_actions),
    ("go", {"board_size": 5}, inverse_actions),
    ("connect_four", {}, unmoved_actions),
    ("dots_and_boxes", {}, unmoved_actions),
    ("dots_and_boxes", {}, inverse_actions),
    ("y", {"board_size": 5}, shifted_by_a_cell),
    ("havannah", {"board_size": 4}, inverse_actions),
]


@pytest.mark.parametrize(("name", "parameters", "wrong"), WRONG)
def test_a_wrong_symmetry_is_noticed(name, parameters, wrong):
    """What holds for the declared symmetries does not hold for others that look like them."""
    game, frames = make(name, parameters)
    found = wrong(game, frames)
    assert found
    for symmetries in found:
        with pytest.raises(AssertionError):
            for seed in range(3):
                play_turned(game, frames, symmetries, 0, seed)


def test_permutations_of_small_boards():
    assert len(dihedral(3, 3, 10)) == 8 and len(dihedral(2, 4, 8)) == 4
    assert dihedral(3, 3, 10).actions[:, 9].tolist() == [9] * 8  # a pass stays a pass
    assert mirror_columns(6, 7).actions[1].tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert half_turn(2, 3, 7).actions[1].tolist() == [5, 4, 3, 2, 1, 0, 6]
    # One box: edges top, bottom, left, right; a quarter turn moves them round.
    box = edges_of_boxes(1, 1).actions
    assert {tuple(row) for row in box.tolist()} >= {(0, 1, 2, 3), (2, 3, 1, 0), (1, 0, 3, 2)}
    # Corners of a triangle of side 2 are its three cells; cell 3 is outside.
    assert sorted(triangle(2, 4).cells.tolist()) == [
        [0, 1, 2, 3], [0, 2, 1, 3], [1, 0, 2, 3], [1, 2, 0, 3], [2, 0, 1, 3], [2, 1, 0, 3],
    ]  # fmt: skip
    # A hexagon of radius 2: the centre (4) stays, and so do the two corners of the square that are outside (2, 6).
    assert (hexagon(2, 9).cells[:, [2, 4, 6]] == [2, 4, 6]).all() and len(hexagon(2, 9)) == 12
    with pytest.raises(ValueError, match="4 actions cannot name the 9 cells"):
        dihedral(3, 3, 4)


@pytest.mark.parametrize(
    ("name", "parameters", "frame_shape"),
    [
        ("chess", {}, None),
        ("mancala", {}, None),
        ("gomoku", {"size": 5}, None),  # a flat tensor
        ("go", {"board_size": 5}, [20, 1, 5]),  # fewer cells than actions, and not the board
        ("othello", {}, [3, 4, 16]),
        ("gomoku", {"size": 3, "dims": 3, "connect": 3}, [3, 3, 9]),
    ],
)
def test_games_and_shapes_without_a_known_symmetry_declare_none(name, parameters, frame_shape):
    assert make(name, parameters, frame_shape)[1].spec.symmetries is None


def test_the_board_of_a_rectangular_hex_lies_as_it_is_played():
    """OpenSpiel calls its tensor [channels, columns, rows] though it is laid out in rows."""
    game, frames = make("hex", {"num_rows": 2, "num_cols": 4})
    assert frames.spec.frame_shape == (10, 2, 4)
    state = game.new_initial_state()
    state.apply_action(5)
    empty = frames.frame(state)[4]
    assert np.argwhere(~empty).tolist() == [[1, 1]]
    assert str(state).splitlines()[1].split() == [".", "x", ".", "."]
