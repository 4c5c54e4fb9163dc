import json

import numpy as np
import pyspiel
import pytest

from muzero.evaluation.arena import (
    GameRecord,
    MatchResult,
    Setup,
    draw_setups,
    opening_state,
    play_games,
    play_match,
    read_records,
    write_records,
)
from muzero.evaluation.exact import position_key, solve
from muzero.evaluation.players import RandomPlayer
from muzero.evaluation.statistics import wilson_interval


class LowestPlayer:
    num_frames = 1

    def __init__(self):
        self.batches = []

    def select(self, states, seeds):
        self.batches.append(len(states))
        return [state.legal_actions()[0] for state in states]


class IllegalPlayer:
    num_frames = 1

    def select(self, states, seeds):
        return [99 for _ in states]


@pytest.fixture(scope="module")
def game():
    return pyspiel.load_game("tic_tac_toe")


def test_pairs_share_an_opening_with_seats_swapped_and_openings_differ(game):
    setups = draw_setups(game, games=100, max_opening_moves=4, seed=5)
    keys = set()
    for first, second in zip(setups[::2], setups[1::2], strict=True):
        assert first.opening == second.opening
        assert (first.first_seat, second.first_seat) == (0, 1)
        assert first.seed != second.seed
        state = opening_state(game, first)
        assert not state.is_terminal()
        assert len(first.opening) <= 4
        keys.add(position_key(state))
    assert len(keys) == 50
    assert {len(setup.opening) for setup in setups} == {0, 1, 2, 3, 4}


def test_more_games_never_change_the_earlier_ones(game):
    many = draw_setups(game, games=40, max_opening_moves=4, seed=5)
    assert draw_setups(game, games=7, max_opening_moves=4, seed=5) == many[:7]
    assert draw_setups(game, games=40, max_opening_moves=4, seed=6) != many


def test_long_openings_never_end_the_game(game):
    for setup in draw_setups(game, games=60, max_opening_moves=9, seed=1):
        assert not opening_state(game, setup).is_terminal()


def test_sound_openings_of_a_game_with_draws_are_drawn(game):
    solution = solve(game)
    setups = draw_setups(game, games=60, max_opening_moves=5, seed=1, only_sound_openings=solution)
    assert {solution.value(opening_state(game, setup)) for setup in setups} == {0.0}
    unfiltered = draw_setups(game, games=60, max_opening_moves=5, seed=1)
    assert {solution.value(opening_state(game, setup)) for setup in unfiltered} > {0.0}


def test_sound_openings_of_a_game_without_draws_are_won_in_each_seat():
    game = pyspiel.load_game("hex(board_size=3)")
    solution = solve(game)
    setups = draw_setups(game, games=40, max_opening_moves=4, seed=1, only_sound_openings=solution)
    assert [setup.first_seat for setup in setups] == [0, 1] * 20
    for setup in setups:
        state = opening_state(game, setup)
        assert solution.value(state) == (1 if state.current_player() == setup.first_seat else -1)


def test_without_opening_moves_deterministic_players_repeat_themselves(game):
    player = LowestPlayer()
    result = play_match(player, player, game, games=10, max_opening_moves=0, seed=0)
    report = result.summary()
    assert (report["games_played"], report["duplicate_games"], report["games"]) == (10, 8, 2)
    assert (report["as_first"]["games"], report["as_second"]["games"]) == (1, 1)
    varied = play_match(player, player, game, games=10, max_opening_moves=4, seed=0)
    assert varied.summary()["games"] > 2


def record(seat, actions, score=0.0, cut=False):
    setup = Setup(opening=(), first_seat=seat, seed=0)
    return GameRecord(setup=setup, actions=actions, score=score, cut=cut)


def test_the_same_moves_with_seats_swapped_are_no_duplicate():
    records = [record(0, (1, 2)), record(1, (1, 2)), record(0, (1, 3)), record(0, (1, 2))]
    assert MatchResult(records).distinct() == records[:3]


def test_a_game_counts_once_however_often_it_is_played():
    """Row 96: forty games that are two are two games."""
    won, lost, cut = record(0, (1, 2), 2.0), record(1, (3, 4), -2.0), record(1, (5,), cut=True)
    report = MatchResult([won] * 19 + [lost] * 20 + [cut] * 3).summary()
    assert (report["games_played"], report["games"], report["duplicate_games"]) == (42, 3, 39)
    assert (report["wins"], report["losses"], report["draws"]) == (1, 1, 1)
    assert report["win_rate"] == pytest.approx(1 / 3)
    assert report["win_rate_interval"] == list(wilson_interval(1, 3))
    assert (report["as_first"]["wins"], report["as_first"]["games"]) == (1, 1)
    assert (report["as_second"]["losses"], report["as_second"]["games"]) == (1, 2)
    assert report["cut_games"] == 1


def test_scores_are_those_of_the_first_player_in_its_seat(game):
    result = play_match(LowestPlayer(), RandomPlayer(), game, games=50, max_opening_moves=2, seed=4)
    for record in result.records:
        state = game.new_initial_state()
        for action in record.actions:
            state.apply_action(action)
        assert state.is_terminal()
        assert np.sign(record.score) == state.player_return(record.setup.first_seat)
        assert record.actions[: len(record.setup.opening)] == record.setup.opening
        # the first player made every move of its seat behind the opening
        replay = opening_state(game, record.setup)
        for action in record.actions[len(record.setup.opening) :]:
            if replay.current_player() == record.setup.first_seat:
                assert action == replay.legal_actions()[0]
            replay.apply_action(action)
    report = result.summary()
    first, second = report["as_first"], report["as_second"]
    assert first["games"] == second["games"] == 25
    for key in ("wins", "draws", "losses", "games"):
        assert report[key] == first[key] + second[key]
    assert report["wins"] + report["draws"] + report["losses"] == report["games"]
    assert report["games"] + report["duplicate_games"] == report["games_played"] == 50
    assert json.loads(json.dumps(report)) == report


def test_games_run_in_full_batches(game):
    player = LowestPlayer()
    play_match(player, RandomPlayer(), game, games=64, max_opening_moves=0, seed=0)
    assert len(player.batches) <= 6  # a game has at most five moves of a player
    assert player.batches[1] == 64


def test_a_match_is_a_function_of_its_seed(game):
    def match(seed):
        return play_match(
            RandomPlayer(), RandomPlayer(), game, games=20, max_opening_moves=2, seed=seed
        ).records

    assert match(1) == match(1)
    assert match(1) != match(2)


def test_chance_is_part_of_the_game_and_hangs_on_its_seed_alone():
    game = pyspiel.load_game("pig")
    setups = draw_setups(game, games=6, max_opening_moves=2, seed=3)
    together = play_games(RandomPlayer(), RandomPlayer(), game, setups)
    assert together == [
        play_games(RandomPlayer(), RandomPlayer(), game, [setup])[0] for setup in setups
    ]
    assert len({record.actions for record in together}) == 6
    assert play_games(RandomPlayer(), RandomPlayer(), game, setups) == together


def test_games_are_cut_at_the_limit_and_count_as_drawn(game):
    result = play_match(
        LowestPlayer(), RandomPlayer(), game, games=8, max_opening_moves=0, seed=0, max_moves=4
    )
    report = result.summary()
    assert report["cut_games"] == report["draws"] == 8
    assert all(len(record.actions) == 4 for record in result.records)


def test_an_illegal_move_is_told_with_its_player(game):
    with pytest.raises(ValueError, match="IllegalPlayer chose action 99"):
        play_match(IllegalPlayer(), RandomPlayer(), game, games=2, max_opening_moves=0, seed=0)


def test_records_are_read_back(game, tmp_path):
    records = play_match(
        RandomPlayer(), RandomPlayer(), game, games=5, max_opening_moves=2, seed=0
    ).records
    write_records(tmp_path / "games.jsonl", records)
    assert read_records(tmp_path / "games.jsonl") == records
    assert len((tmp_path / "games.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize("fields", [{}, {"setup": 3}, {"setup": {"opening": []}}])
def test_records_of_something_else_are_refused(fields):
    with pytest.raises(ValueError, match="not the record of a game"):
        GameRecord.from_json(fields)
