import pytest

from muzero.config.environments import OpenSpielConfig
from muzero.envs.registry import make_env


def make(game, **settings):
    return make_env(OpenSpielConfig(game=game, name=game, **settings), 1)


@pytest.mark.parametrize(
    ("game", "reason"),
    [
        ("goofspiel", "simultaneously"),
        ("kuhn_poker", "hidden information"),
        ("stones_and_gems", "neither seeded nor restored"),
        ("morpion_solitaire", "no observation tensor"),
        ("open_spiel.python.games:python_ant_foraging", "not zero-sum"),
    ],
)
def test_games_that_do_not_fit_are_refused_with_the_reason(game, reason):
    with pytest.raises(ValueError, match=f"{game} cannot be learned by this trainer: .*{reason}"):
        make(game)


def test_three_players_are_refused():
    with pytest.raises(ValueError, match="3 players, one or two are supported"):
        make("quoridor", parameters={"players": 3})


@pytest.mark.parametrize(
    ("game", "suggestion"),
    [("connect4", "connect_four"), ("chekers", "checkers"), ("tictactoe", "tic_tac_toe")],
)
def test_unknown_names_get_a_suggestion(game, suggestion, capfd):
    with pytest.raises(
        ValueError, match=f"env.game={game} is not a game of OpenSpiel; did you mean .*{suggestion}"
    ):
        make(game)
    assert capfd.readouterr().err == ""  # OpenSpiel was not asked, it would print all its games


def test_unknown_parameters_are_told_with_those_that_exist():
    with pytest.raises(
        ValueError, match="go has no size; it has board_size, handicap, komi, max_game_length"
    ):
        make("go", parameters={"size": 9})


@pytest.mark.parametrize("value", ["9", 9.5, True])
def test_parameters_of_a_wrong_type_are_refused(value):
    with pytest.raises(
        ValueError, match=r"env.parameters.board_size=.* must be of type int \(as its default, 19\)"
    ):
        make("go", parameters={"board_size": value})


def test_a_whole_number_is_accepted_for_a_float():
    env = make("go", parameters={"board_size": 5, "komi": 7})
    assert env.spec.frame_shape == (5, 5, 5)


def test_values_that_openspiel_refuses_are_told():
    with pytest.raises(ValueError, match=r"env.game=go refuses env.parameters=\{'board_size': 0\}"):
        make("go", parameters={"board_size": 0})


@pytest.mark.parametrize("shape", [[3, 15, 16], [3, 225], [-3, 15, -15], []])
def test_a_frame_shape_that_does_not_fit_is_refused(shape):
    with pytest.raises(
        ValueError, match=r"env.frame_shape=.* does not fit gomoku, whose tensor .* \[3, 225\]"
    ):
        make("gomoku", frame_shape=shape)


def test_a_turn_order_that_the_game_contradicts_is_refused():
    with pytest.raises(
        ValueError, match=r"env.turn_order=alternating, but in this game a player may move twice"
    ):
        make("amazons", turn_order="alternating")
    with pytest.raises(
        ValueError, match=r"env.turn_order='sometimes' must be one of auto, alternating, repeated"
    ):
        make("tic_tac_toe", turn_order="sometimes")


def test_a_missing_module_is_told():
    with pytest.raises(ValueError, match="cannot import no_such_module"):
        make("no_such_module:game")
