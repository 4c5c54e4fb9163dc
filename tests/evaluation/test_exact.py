import pyspiel
import pytest

from muzero.evaluation.exact import exhaustive, position_key, require_solution, solve
from muzero.evaluation.players import PerfectPlayer
from tests.oracles import tictactoe


@pytest.fixture(scope="module")
def game():
    return pyspiel.load_game("tic_tac_toe")


@pytest.fixture(scope="module")
def solution(game):
    return solve(game)


class HistoryPlayer:
    """Plays `choose(moves)` of a game's moves."""

    def __init__(self, choose, num_frames=1):
        self.choose, self.num_frames, self.num_asked = choose, num_frames, 0

    def select(self, states, seeds):
        self.num_asked += len(states)
        return [self.choose(tuple(state.history())) for state in states]


def lowest(moves):
    return tictactoe.legal(moves)[0]


def zigzag(moves):
    """Hangs on the position and on the cell that was filled last."""
    actions = tictactoe.legal(moves)
    return actions[-1 if moves and moves[-1] % 2 else 0]


def replay(game, moves):
    state = game.new_initial_state()
    for action in moves:
        state.apply_action(action)
    return state


def test_tic_tac_toe_has_its_known_numbers_of_positions(solution):
    assert len(solution.values) == 5_478
    assert solution.num_positions == 4_520
    states = list(solution.positions)
    assert len({position_key(state) for state in states}) == 4_520
    assert not any(state.is_terminal() for state in states)
    assert states[0].history() == []


def test_every_value_and_optimal_move_agrees_with_plain_python(solution):
    for state in solution.positions:
        moves = tuple(state.history())
        assert solution.value(state) == tictactoe.value(moves)
        best = [
            a
            for a in tictactoe.legal(moves)
            if -tictactoe.value((*moves, a)) == tictactoe.value(moves)
        ]
        assert solution.optimal_actions(state) == best


def test_known_positions(game, solution):
    assert solution.value(game.new_initial_state()) == 0
    assert solution.optimal_actions(replay(game, [0])) == [4]  # a corner is answered in the centre
    assert solution.value(replay(game, [0, 1])) == 1
    assert solution.optimal_actions(replay(game, [0, 3, 1, 4])) == [2]  # win rather than block
    assert solution.action_values(replay(game, [0, 4, 1]))[2] == 0  # the only move that holds
    assert solution.optimal_actions(replay(game, [0, 4, 1])) == [2]


def test_positions_stand_behind_all_that_can_follow(solution):
    rank = {key: number for number, key in enumerate(solution.values)}
    for state in solution.positions:
        assert all(
            rank[position_key(state.child(action))] < rank[position_key(state)]
            for action in state.legal_actions()
        )


@pytest.mark.parametrize(
    ("name", "winner"),
    [
        ("nim(pile_sizes=1;2;3,is_misere=false)", -1),  # xor of the piles is 0
        ("nim(pile_sizes=1;2;4,is_misere=false)", 1),
        ("nim(pile_sizes=1;1,is_misere=true)", 1),
        ("hex(board_size=3)", 1),
    ],
)
def test_other_games_with_known_winners(name, winner):
    game = pyspiel.load_game(name)
    assert solve(game).value(game.new_initial_state()) == winner


def test_a_game_in_which_a_player_moves_twice_in_a_row():
    # 1 x 2 dots and boxes: whoever closes a box moves again
    game = pyspiel.load_game("dots_and_boxes(num_rows=1,num_cols=2)")
    solution = solve(game)

    def minimax(state):
        if state.is_terminal():
            return state.player_return(0)
        pick = max if state.current_player() == 0 else min
        return pick(minimax(state.child(action)) for action in state.legal_actions())

    turns = 0
    for state in solution.positions:
        sign = 1 if state.current_player() == 0 else -1
        assert solution.value(state) == sign * minimax(state)
        turns += any(
            state.child(a).current_player() == state.current_player() for a in state.legal_actions()
        )
    assert turns > 0


def test_solving_twice_takes_the_first_answer(game, solution):
    assert solve(pyspiel.load_game("tic_tac_toe")) is solution


@pytest.mark.parametrize("name", ["connect_four", "chess"])
def test_large_games_are_refused_with_a_way_out(name):
    game = pyspiel.load_game(name)
    assert solve(game, max_positions=5_000) is None
    with pytest.raises(ValueError, match=rf"evaluation\.exhaustive.*5,000.*{name}.*rollout:1000"):
        require_solution(game, "evaluation.exhaustive", max_positions=5_000)


@pytest.mark.slow
def test_connect_four_is_too_large_by_default():
    with pytest.raises(ValueError, match="200,000"):
        require_solution(pyspiel.load_game("connect_four"), "evaluation.opponents: perfect")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pig", "no chance"),
        ("kuhn_poker", "perfect information"),
        ("matrix_rps", "turns"),
        ("2048", "two players"),
    ],
)
def test_games_of_another_kind_are_refused(name, reason):
    with pytest.raises(ValueError, match=f"exact play needs.*{reason}"):
        solve(pyspiel.load_game(name))


def test_perfect_play_is_perfect_everywhere(solution):
    report = exhaustive(PerfectPlayer(solution), solution)
    assert report.optimal_move_rate == 1.0
    assert report.losing_lines == 0
    assert report.losing_lines_by_seat == (0, 0)
    assert report.positions == 4_520
    assert min(report.lines_by_seat) > 0


@pytest.mark.parametrize("choose", [lowest, lambda moves: tictactoe.legal(moves)[-1]])
def test_lines_of_a_fixed_player_are_counted_one_by_one(solution, choose):
    report = exhaustive(HistoryPlayer(choose), solution)
    expected = [tictactoe.lines(choose, seat) for seat in (0, 1)]
    assert report.losing_lines_by_seat == tuple(lost for lost, _ in expected)
    assert report.lines_by_seat == tuple(count for _, count in expected)
    assert report.losing_lines == sum(lost for lost, _ in expected) > 0
    kept = [
        -tictactoe.value((*moves, choose(moves))) == tictactoe.value(moves)
        for moves in (tuple(state.history()) for state in solution.positions)
    ]
    assert report.optimal_move_rate == sum(kept) / 4_520


def test_a_player_that_sees_two_frames_is_asked_once_per_pair(solution):
    player = HistoryPlayer(zigzag, num_frames=2)
    report = exhaustive(player, solution)
    expected = [tictactoe.lines(zigzag, seat) for seat in (0, 1)]
    assert report.losing_lines_by_seat == tuple(lost for lost, _ in expected)
    assert report.lines_by_seat == tuple(count for _, count in expected)
    # The same player, taken for one that sees the position alone, is somebody else.
    assert exhaustive(HistoryPlayer(zigzag), solution).losing_lines != report.losing_lines


def test_every_position_is_asked_for_once(solution):
    player = HistoryPlayer(lowest)
    exhaustive(player, solution)
    assert player.num_asked == 4_520
