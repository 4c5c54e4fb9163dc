"""Exact play where a player may move several times in a row: dots and boxes against plain Python."""

import numpy as np
import pyspiel
import pytest

from muzero.evaluation.exact import exhaustive, solve
from muzero.evaluation.players import PerfectPlayer, RandomPlayer
from tests.oracles.dots_and_boxes import DotsAndBoxes


def boxes(rows, columns):
    game = pyspiel.load_game(f"dots_and_boxes(num_rows={rows},num_cols={columns})")
    return solve(game), DotsAndBoxes(rows, columns)


class FixedPlayer:
    """Plays `choose(edges, lead and player)`: the same at positions that print alike, whoever drew which edge."""

    num_frames = 1

    def __init__(self, oracle, pick):
        self.oracle, self.pick = oracle, pick

    def choose(self, moves):
        legal = self.oracle.legal(moves)
        player, lead = self.oracle.standing(moves)
        return legal[self.pick(len(legal), player, lead)]

    def select(self, states, seeds):
        return [self.choose(tuple(state.history())) for state in states]


def test_every_value_and_optimal_move_of_four_boxes_agrees_with_plain_python():
    solution, oracle = boxes(2, 2)
    assert solution.num_positions == 5_531
    repeated = 0
    for state in solution.positions:
        moves = tuple(state.history())
        player = state.current_player()
        assert player == oracle.standing(moves)[0]
        assert solution.value(state) == oracle.result(moves, player)
        assert solution.optimal_actions(state) == oracle.optimal(moves)
        repeated += any(oracle.closed(frozenset(moves), edge) for edge in oracle.legal(moves))
    assert repeated > 1_000
    assert oracle.result((), 0) == 1  # so that player 1 is lost from the start


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2), (2, 2)])
def test_perfect_play_throws_no_line_away_even_in_the_lost_seat(rows, columns):
    solution, _ = boxes(rows, columns)
    report = exhaustive(PerfectPlayer(solution), solution)
    assert report.optimal_move_rate == 1.0
    assert report.losing_lines_by_seat == (0, 0)
    assert min(report.lines_by_seat) > 0


@pytest.mark.parametrize(
    "pick",
    [
        lambda count, player, lead: 0,
        lambda count, player, lead: count - 1,
        lambda count, player, lead: (3 * count + player + lead) % count,
    ],
)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2)])
def test_lines_of_a_fixed_player_are_counted_one_by_one(rows, columns, pick):
    solution, oracle = boxes(rows, columns)
    player = FixedPlayer(oracle, pick)
    report = exhaustive(player, solution)
    expected = [oracle.lines(player.choose, seat) for seat in (0, 1)]
    assert report.losing_lines_by_seat == tuple(lost for lost, _ in expected)
    assert report.lines_by_seat == tuple(count for _, count in expected)
    kept = [
        player.choose(moves) in oracle.optimal(moves)
        for moves in (tuple(state.history()) for state in solution.positions)
    ]
    assert report.optimal_move_rate == pytest.approx(np.mean(kept))


def test_random_play_is_far_from_optimal_in_four_boxes():
    solution, _ = boxes(2, 2)
    report = exhaustive(RandomPlayer(), solution)
    shares = [
        len(solution.optimal_actions(state)) / len(state.legal_actions())
        for state in solution.positions
    ]
    assert np.mean(shares) == pytest.approx(0.5326, abs=1e-4)
    assert report.optimal_move_rate == pytest.approx(np.mean(shares), abs=0.02)
    assert report.losing_lines_by_seat[0] > 0
    assert report.losing_lines_by_seat[1] > 0
