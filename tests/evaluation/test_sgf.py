"""Games of Go as SGF: the moves are those of OpenSpiel, read back by its names of the points."""

import re

import numpy as np
import pyspiel
import pytest

from muzero.config.arguments import parse_arguments
from muzero.config.compose import compose
from muzero.config.store import save_config
from muzero.evaluation.arena import GameRecord, Setup, draw_setups, play_games, write_records
from muzero.evaluation.players import RandomPlayer
from muzero.evaluation.sgf import to_sgf
from muzero.inspect_run import InspectArguments, inspect

_COLUMNS = "abcdefghjklmnopqrst"  # Go names no column i


def record(actions=(), score=1.0, first_seat=0, cut=False):
    setup = Setup(opening=(), first_seat=first_seat, seed=0)
    return GameRecord(setup=setup, actions=tuple(actions), score=score, cut=cut)


def properties(sgf):
    assert sgf.startswith("(;") and sgf.endswith(")")
    header, *moves = sgf[2:-1].split(";")
    return dict(re.findall(r"([A-Z]+)\[((?:\\.|[^\]])*)\]", header)), moves


@pytest.mark.parametrize("size", [5, 9, 19])
def test_moves_are_those_of_the_game(size):
    game = pyspiel.load_game(f"go(board_size={size},komi=6.5)")
    state, rng, names = game.new_initial_state(), np.random.default_rng(size), []
    while not state.is_terminal() and len(names) < 80:
        action = int(rng.choice(state.legal_actions()))
        names.append(state.action_to_string(action))
        state.apply_action(action)
    header, moves = properties(to_sgf(record(state.history()), game, names=("we", "they")))
    assert (header["GM"], header["FF"], header["SZ"], header["KM"]) == ("1", "4", str(size), "6.5")
    read = []
    for move in moves:
        colour, point = re.fullmatch(r"([BW])\[([a-s]{2})?\]", move).groups()
        place = f"{_COLUMNS[ord(point[0]) - 97]}{size - (ord(point[1]) - 97)}" if point else "PASS"
        read.append(f"{colour} {place}")
    assert read == names


def test_a_known_game():
    game = pyspiel.load_game("go(board_size=9)")
    # a1, j9, pass, pass
    sgf = to_sgf(record([0, 80, 81, 81], score=-2.0), game, names=("we", "they"))
    assert sgf.endswith(";B[ai];W[ia];B[];W[])")
    assert "SZ[9]" in sgf and "RE[W+]" in sgf and "PB[we]PW[they]" in sgf


@pytest.mark.parametrize(
    ("score", "seat", "cut", "result"),
    [
        (2.0, 0, False, "B+"),
        (2.0, 1, False, "W+"),
        (-2.0, 1, False, "B+"),
        (0.0, 0, False, "0"),
        (0.0, 1, True, "Void"),
    ],
)
def test_results_and_seats(score, seat, cut, result):
    game = pyspiel.load_game("go(board_size=5)")
    sgf = to_sgf(record((), score, seat, cut), game, names=("we", "they"))
    header, moves = properties(sgf)
    assert header["RE"] == result
    assert (header["PB"], header["PW"]) == (("we", "they") if seat == 0 else ("they", "we"))
    assert moves == []


def test_handicap_stones_are_set_and_names_escaped():
    game = pyspiel.load_game("go(board_size=19,handicap=3)")
    state = game.new_initial_state()
    sgf = to_sgf(record([0]), game, names=("a]b\\c:d", "they"))
    header, (move,) = properties(sgf)
    assert header["HA"] == "3"
    assert len(re.search(r"AB((?:\[[a-s]{2}\])+)", sgf)[1]) == 3 * 4
    assert move[0] == "BW"[state.current_player()] == "W"
    assert header["PB"] == "a\\]b\\\\c\\:d"


def test_other_games_have_no_sgf():
    with pytest.raises(ValueError, match=r"format=sgf is for games of Go, .*tic_tac_toe"):
        to_sgf(record(), pyspiel.load_game("tic_tac_toe"), names=("we", "they"))


def test_the_inspect_command_prints_them(tmp_path, capsys):
    config = compose(
        ["env=open_spiel", "env.game=go", "env.parameters.board_size=5"], run_dir=str(tmp_path)
    )
    save_config(config, tmp_path)
    game = pyspiel.load_game("go(board_size=5)")
    setups = draw_setups(game, games=2, max_opening_moves=2, seed=1)
    records = play_games(RandomPlayer(), RandomPlayer(), game, setups, max_moves=30)
    (tmp_path / "evaluation" / "some").mkdir(parents=True)
    write_records(tmp_path / "evaluation" / "some" / "games_0.jsonl", records)

    def printed(*arguments):
        given = [f"run={tmp_path}", *arguments]
        inspect(
            *parse_arguments(given, InspectArguments, program="muzero-inspect", overrides=False)
        )
        return capsys.readouterr().out.splitlines()

    names = (str(tmp_path), "opponent")
    expected = [to_sgf(each, game, names=names) for each in records]
    assert printed("show=games", "format=sgf") == expected
    assert printed("show=game", "index=1", "format=sgf") == expected[1:]
    assert "player 0: B" in "\n".join(printed("show=game"))
    with pytest.raises(ValueError, match="format='dot' must be text or sgf with show=games"):
        printed("show=games", "format=dot")
