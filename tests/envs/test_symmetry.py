"""A declared symmetry commutes with play: the turned game of turned moves is the game, turned."""

import numpy as np
import pyspiel
import pytest

from muzero.config.schema import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielFrames, load_game
from muzero.envs.symmetry import dihedral, mirror_columns

GAMES = [
    ("tic_tac_toe", {}, 8),
    ("mnk", {"m": 5, "n": 5, "k": 4}, 8),
    ("go", {"board_size": 5}, 8),
    ("connect_four", {}, 2),
]


@pytest.mark.parametrize(("name", "parameters", "count"), GAMES, ids=[game[0] for game in GAMES])
def test_turned_moves_make_the_turned_game(name, parameters, count):
    config = OpenSpielConfig(game=name, name=name, parameters=parameters)
    game = load_game(config)
    frames = OpenSpielFrames(game, config)
    symmetries = frames.spec.symmetries
    assert symmetries is not None and len(symmetries) == count
    rng = np.random.default_rng(3)
    for number in range(len(symmetries)):
        cells, actions = symmetries.cells[number], symmetries.actions[number]
        state, turned = game.new_initial_state(), game.new_initial_state()
        while not state.is_terminal():
            frame, turned_frame = frames.frame(state), frames.frame(turned)
            channels = len(frame)
            np.testing.assert_array_equal(
                frame.reshape(channels, -1)[:, cells], turned_frame.reshape(channels, -1)
            )
            legal = state.legal_actions()
            assert sorted(actions[legal].tolist()) == turned.legal_actions()
            move = int(rng.choice(legal))
            state.apply_action(move)
            turned.apply_action(int(actions[move]))
            assert state.current_player() == turned.current_player()
        assert turned.is_terminal() and state.returns() == turned.returns()


def test_the_identity_comes_first_and_all_are_permutations():
    for symmetries in (dihedral(3, 3, 10), dihedral(2, 4, 8)):
        assert symmetries.cells[0].tolist() == list(range(symmetries.cells.shape[1]))
        for permutations in (symmetries.cells, symmetries.actions):
            assert (np.sort(permutations, axis=1) == np.arange(permutations.shape[1])).all()
        assert len({tuple(row) for row in symmetries.cells.tolist()}) == len(symmetries)
    assert dihedral(3, 3, 10).actions[:, 9].tolist() == [9] * 8  # a pass stays a pass
    assert mirror_columns(6, 7).actions[1].tolist() == [6, 5, 4, 3, 2, 1, 0]


def test_games_without_a_known_symmetry_declare_none():
    config = OpenSpielConfig(game="breakthrough", name="breakthrough")
    assert OpenSpielFrames(pyspiel.load_game("breakthrough"), config).spec.symmetries is None
