"""The connect four solver against naive search, and as a player."""

import sys

import numpy as np
import pyspiel
import pytest

from muzero.evaluation.arena import draw_setups, is_lost, opening_state, read_records
from muzero.evaluation.connect_four import ConnectFourSolver, is_connect_four
from muzero.evaluation.evaluator import evaluate_board, make_opponent
from muzero.evaluation.players import PerfectPlayer, RandomPlayer
from tests.oracles.plain_connect_four import plain_scores


@pytest.fixture(scope="module")
def game():
    return pyspiel.load_game("connect_four")


@pytest.fixture(scope="module")
def solver():
    pytest.importorskip("bitbully", reason="needs the extra `solver`")
    return ConnectFourSolver()


def random_state(game, num_stones, rng):
    """A position of `num_stones` stones where somebody has to move."""
    while True:
        state = game.new_initial_state()
        while state.move_number() < num_stones and not state.is_terminal():
            state.apply_action(int(rng.choice(state.legal_actions())))
        if not state.is_terminal():
            return state


def test_the_scores_of_the_empty_board_are_the_known_ones(solver):
    assert solver.scores([]) == {0: -2, 1: -1, 2: 0, 3: 1, 4: 0, 5: -1, 6: -2}


def test_every_move_of_late_positions_scores_as_naive_search_says(game, solver):
    rng = np.random.default_rng(0)
    signs = []
    for num_stones in (28, 30, 31, 33, 34, 36, 37, 39, 40, 41) * 4:
        state = random_state(game, num_stones, rng)
        expected = plain_scores(state)
        assert solver.action_scores(state) == expected, state
        best = max(expected.values())
        assert solver.value(state) == np.sign(best)
        assert solver.optimal_actions(state) == [a for a, s in expected.items() if s == best]
        signs.append(np.sign(best))
    assert {-1, 0, 1} <= set(signs)


def test_a_win_at_once_counts_its_own_stone(solver):
    # Seven stones lie there; the mover has three of them and wins with its fourth.
    assert solver.scores([3, 0, 3, 0, 3, 0])[3] == 22 - 4
    assert solver.scores([3, 0, 3, 0, 3, 0, 6])[0] == 22 - 4


def test_the_value_of_a_finished_game_is_zero(game, solver):
    state = game.new_initial_state()
    for action in (3, 0, 3, 0, 3, 0, 3):
        state.apply_action(action)
    assert state.is_terminal()
    assert solver.value(state) == 0.0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([3, 0, 3, 0, 3, 0, 3], "over after 7 stones"),
        ([3, 0, 3, 0, 3, 0, 3, 1], "over after 7 stones of 8"),
        ([2] * 7, "stone 7 cannot be put into column 2"),
        ([0, 7], "stone 2 cannot be put into column 7"),
        ([-1], "stone 1 cannot be put into column -1"),
    ],
)
def test_what_cannot_be_scored_is_told(solver, columns, message):
    with pytest.raises(ValueError, match=message):
        solver.scores(columns)


def test_boards_of_other_sizes_are_left_to_exhaustive_search(game):
    assert is_connect_four(game)
    assert is_connect_four(pyspiel.load_game("connect_four(egocentric_obs_tensor=true)"))
    assert not is_connect_four(pyspiel.load_game("connect_four(rows=4,columns=4,x_in_row=3)"))
    assert not is_connect_four(pyspiel.load_game("tic_tac_toe"))


def test_perfect_by_name_wins_from_the_empty_board(game, solver, tmp_path):
    perfect = make_opponent("perfect", game)
    report = evaluate_board(
        perfect,
        "random",
        RandomPlayer(),
        game,
        games=6,
        max_opening_moves=0,
        seed=1,
        records=tmp_path / "games.jsonl",
    )
    assert report["wins"] == report["games"] == 6
    first = read_records(tmp_path / "games.jsonl")[::2]
    assert {record.actions[0] for record in first} == {3}  # the only move that wins


def test_perfect_chooses_among_its_best_moves_by_the_seed(game, solver):
    state = game.new_initial_state()
    for _ in range(6):
        state.apply_action(3)
    best = solver.optimal_actions(state)
    assert len(best) > 1
    player = PerfectPlayer(solver)
    chosen = player.select([state] * 60, list(range(60)))
    assert set(chosen) == set(best)
    assert player.select([state] * 60, list(range(60))) == chosen


def test_openings_against_perfect_play_are_not_lost(game, solver):
    setups = draw_setups(game, games=12, max_opening_moves=4, seed=3, only_sound_openings=solver)
    states = [opening_state(game, setup) for setup in setups]
    assert not any(
        is_lost(solver, state, s.first_seat) for state, s in zip(states, setups, strict=True)
    )
    assert len({tuple(setup.opening) for setup in setups}) == 6


def test_without_the_solver_perfect_names_the_extra(game, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitbully", None)
    with pytest.raises(
        ValueError,
        match=r"evaluation\.opponents: perfect.*bitbully.*AGPL.*\[solver\].*rollout:1000",
    ):
        make_opponent("perfect", game)
