import json

import pyspiel
import pytest

from muzero.evaluation.arena import read_records
from muzero.evaluation.evaluator import (
    evaluate_board,
    evaluate_exhaustively,
    evaluate_opponents,
    make_opponent,
)
from muzero.evaluation.exact import solve
from muzero.evaluation.players import AlphaBetaPlayer, PerfectPlayer, RandomPlayer, RolloutPlayer


@pytest.fixture(scope="module")
def game():
    return pyspiel.load_game("tic_tac_toe")


def test_opponents_by_name(game, tmp_path):
    assert isinstance(make_opponent("random", game), RandomPlayer)
    assert isinstance(make_opponent("perfect", game), PerfectPlayer)
    rollout = make_opponent("rollout:123", game)
    assert isinstance(rollout, RolloutPlayer)
    assert rollout.num_simulations == 123
    loaded = []
    run = make_opponent(str(tmp_path), game, lambda path: loaded.append(path) or RandomPlayer())
    assert isinstance(run, RandomPlayer)
    assert loaded == [tmp_path]


def test_alpha_beta_by_name(game):
    player = make_opponent("alphabeta:3", game)
    assert isinstance(player, AlphaBetaPlayer)
    assert player.depth == 3
    with pytest.raises(ValueError, match=r"alphabeta:<depth> with at least 1, such as alphabeta:4"):
        make_opponent("alphabeta:deep", game)


@pytest.mark.parametrize("name", ["rollout:", "rollout:0", "rollout:-3", "rollout:many", "rollout"])
def test_rollouts_need_a_number(game, name):
    with pytest.raises(ValueError, match=r"evaluation\.opponents.*rollout:<simulations>"):
        make_opponent(name, game)


@pytest.mark.parametrize("name", ["randm", "runs/none", ""])
def test_unknown_opponents_are_told(game, name):
    with pytest.raises(ValueError, match=r"evaluation\.opponents.*none of random"):
        make_opponent(name, game, lambda path: RandomPlayer())


def test_perfect_needs_a_small_game():
    with pytest.raises(
        ValueError, match=r"evaluation\.opponents: perfect: exact play.*chess.*rollout"
    ):
        make_opponent("perfect", pyspiel.load_game("chess"))
    with pytest.raises(ValueError, match="no chance"):
        make_opponent("perfect", pyspiel.load_game("pig"))


def test_a_report_has_the_promised_fields_and_is_json(game, tmp_path):
    player = PerfectPlayer(solve(game))
    report = evaluate_board(
        player,
        "random",
        RandomPlayer(),
        game,
        games=20,
        max_opening_moves=0,
        seed=0,
        records=tmp_path / "games.jsonl",
    )
    assert list(report) == [
        "opponent",
        "games",
        "wins",
        "draws",
        "losses",
        "win_rate",
        "win_rate_interval",
        "draw_rate",
        "draw_rate_interval",
        "loss_rate",
        "loss_rate_interval",
        "as_first",
        "as_second",
        "games_played",
        "duplicate_games",
        "cut_games",
    ]
    assert json.loads(json.dumps(report)) == report
    records = read_records(tmp_path / "games.jsonl")
    assert sum(record.score > 0 for record in records) == report["wins"] > 0
    assert report["losses"] == 0
    low, high = report["win_rate_interval"]
    assert low < report["win_rate"] == report["wins"] / 20 < high or report["win_rate"] == high == 1


def test_openings_against_perfect_play_are_not_lost(game):
    solution = solve(game)
    perfect = PerfectPlayer(solution)
    report = evaluate_board(
        perfect, "perfect", perfect, game, games=40, max_opening_moves=4, seed=0
    )
    assert (report["draws"], report["lost_openings"]) == (40, 0)


def test_lost_openings_are_counted_where_there_are_no_others():
    game = pyspiel.load_game("nim(pile_sizes=1;2;3,is_misere=false)")  # lost for the first seat
    perfect = PerfectPlayer(solve(game))
    report = evaluate_board(
        perfect, "perfect", perfect, game, games=10, max_opening_moves=0, seed=0
    )
    assert (report["games_played"], report["duplicate_games"]) == (10, 1)
    assert report["lost_openings"] == report["as_first"]["losses"] == 5
    assert report["as_second"]["wins"] == 4


def test_several_opponents_share_the_exhaustive_report(game, tmp_path):
    player = PerfectPlayer(solve(game))
    names = ["random", "rollout:5", "perfect"]
    reports = evaluate_opponents(
        player,
        {name: make_opponent(name, game) for name in names},
        game,
        games=4,
        max_opening_moves=2,
        seed=0,
        exhaustive=True,
        folder=tmp_path,
    )
    assert [report["opponent"] for report in reports] == names
    for report in reports:
        assert report["optimal_move_rate"] == 1.0
        assert report["losing_lines"] == report["losing_lines_as_first"] == 0
        assert report["positions"] == 4_520
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "games_perfect.jsonl",
        "games_random.jsonl",
        "games_rollout-5.jsonl",
    ]


def test_games_against_two_runs_of_one_name_lie_in_two_files(game, tmp_path):
    player = make_opponent("random", game)
    evaluate_opponents(
        player,
        {"runs/a/mine": player, "runs/b/mine": player},
        game,
        games=2,
        max_opening_moves=0,
        seed=0,
        folder=tmp_path,
    )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["games_mine_0.jsonl", "games_mine_1.jsonl"]


def test_random_play_loses_lines(game):
    report = evaluate_exhaustively(RandomPlayer(), game)
    assert report["losing_lines"] > 0
    assert (
        report["losing_lines"] == report["losing_lines_as_first"] + report["losing_lines_as_second"]
    )
    assert 0.3 < report["optimal_move_rate"] < 0.9
    assert report["lines"] > report["losing_lines"]
