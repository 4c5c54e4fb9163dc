"""The rules of a session: whose turn, what undo takes back, what is stale, what is recorded."""

import numpy as np
import pyspiel
import pytest

from mcts import run
from muzero.inference.rules import plant_roots
from muzero.play.refusal import Refusal
from muzero.runtime.build import search_settings
from muzero.runtime.players import agent_player
from tests.play.games import CONNECT_FOUR, HEX, TIC_TAC_TOE, make_session


def refused(code):
    """What a refusal of one code is expected as."""
    return pytest.raises(Refusal, check=lambda refusal: refusal.code == code)


@pytest.fixture(scope="module")
def shared():
    """An analyst of tic-tac-toe; sessions are made anew."""
    return make_session(*TIC_TAC_TOE)


@pytest.fixture
def session(shared):
    """A new game that the person begins."""
    shared.new_game(shared.version)
    shared.change(shared.version, side="first", step=0, num_simulations=12)
    return shared


def history(session):
    return session.position.state.history()


def test_the_agent_answers_with_the_best_action_of_its_search(session):
    session.play(session.version, 4)
    analysis = session.play_agent(session.version)
    assert history(session) == [4, analysis.best_action]
    assert [move.is_agents for move in session.moves] == [False, True]
    assert session.is_persons_turn


def test_a_search_has_the_numbers_of_the_same_search_made_by_hand(session):
    session.play(session.version, 4)
    analysis = session.analyse(session.version)
    builder = session.analyst.builder
    settings = search_settings(builder.config.search, 12)
    model, search = builder.model(1, 12), builder.search(1, settings)
    model.load(builder.network().state_dict(), 0)
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    state.apply_action(4)
    player = agent_player(builder, builder.agent(1, 0))
    legal = player.legal([state])
    root = plant_roots(model, player.observations([state]), [state])
    output = run(search, model, root, legal)
    np.testing.assert_array_equal(analysis.visits, output.visits[0])
    np.testing.assert_array_equal(analysis.qvalues, output.qvalues[0])
    np.testing.assert_array_equal(analysis.policy, output.policy[0])
    assert analysis.value == output.value[0]
    assert analysis.best_action == output.best_action[0]
    assert analysis.network_value == root.value[0]
    logits = np.where(legal[0], root.prior_logits[0], -np.inf)
    weights = np.exp(logits - logits.max())
    np.testing.assert_allclose(analysis.prior, weights / weights.sum(), rtol=1e-5)


def test_undo_goes_back_to_the_persons_own_move(session):
    session.play(session.version, 4)
    session.play_agent(session.version)
    session.play(session.version, session.legal_moves()[0][0])
    session.undo(session.version)  # the agent has not answered yet
    assert len(session.moves) == 2
    session.undo(session.version)  # its answer goes with the move that it answered
    assert history(session) == []
    with refused("nothing_to_undo"):
        session.undo(session.version)


def test_undo_leaves_the_agents_first_move_alone(session):
    session.change(session.version, side="second")
    session.play_agent(session.version)
    with refused("nothing_to_undo"):
        session.undo(session.version)
    assert len(session.moves) == 1


def test_undo_takes_single_moves_of_one_who_plays_both_sides(session):
    session.change(session.version, side="both")
    for action in (0, 1, 2):
        session.play(session.version, action)
    session.undo(session.version)
    assert history(session) == [0, 1]


def test_undo_after_the_end_goes_on(session):
    session.new_game(session.version, [0, 3, 1, 4, 2])
    with refused("game_over"):
        session.play(session.version, 5)
    assert session.record()["returns"] == [1.0, -1.0]
    session.undo(session.version)
    assert history(session) == [0, 3, 1, 4]
    assert session.is_persons_turn


@pytest.mark.parametrize("action", [4, -1, 9, 10**6])
def test_an_illegal_move_changes_nothing(session, action):
    session.change(session.version, side="both")
    session.play(session.version, 4)
    version = session.version
    with refused("illegal_move"):
        session.play(version, action)
    assert (session.version, history(session)) == (version, [4])


def test_nobody_moves_out_of_turn(session):
    with refused("wrong_turn"):
        session.play_agent(session.version)
    session.play(session.version, 4)
    with refused("wrong_turn"):
        session.play(session.version, 0)


def test_what_was_meant_for_an_older_position_is_refused(session):
    seen = session.version
    session.play(seen, 4)
    for act in (
        lambda: session.play(seen, 0),
        lambda: session.undo(seen),
        lambda: session.analyse(seen),
        lambda: session.play_agent(seen),
        lambda: session.new_game(seen),
        lambda: session.change(seen, side="both"),
    ):
        with refused("stale"):
            act()
    assert history(session) == [4]
    assert session.side == "first"


def test_an_illegal_line_leaves_the_old_game(session):
    session.play(session.version, 4)
    with refused("illegal_move"):
        session.new_game(session.version, [0, 0])
    with refused("game_over"):
        session.new_game(session.version, [0, 3, 1, 4, 2, 5])
    assert history(session) == [4]


def test_another_checkpoint_thinks_otherwise_and_the_old_thoughts_go(session):
    before = session.analyse(session.version)
    value = session.position.network_value
    session.change(session.version, step=5)
    assert session.position.analysis is None
    assert session.position.network_value != value
    after = session.analyse(session.version)
    assert after.step == 5
    assert after.network_value != before.network_value
    session.change(session.version, step=0)
    again = session.analyse(session.version)
    np.testing.assert_array_equal(again.visits, before.visits)
    assert again.value == before.value


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"step": 7}, "bad_value"),
        ({"step": 9}, "unknown"),  # listed, and damaged
        ({"num_simulations": 0}, "bad_value"),
        ({"num_simulations": 10_001}, "bad_value"),
        ({"side": "third"}, "bad_value"),
    ],
)
def test_settings_that_cannot_be_are_refused(session, change, code):
    version = session.version
    with refused(code):
        session.change(version, **change)
    assert (session.version, session.step, session.num_simulations) == (version, 0, 12)


def test_more_simulations_are_made_when_asked_for(session):
    assert session.analyse(session.version).made == 12
    session.change(session.version, num_simulations=30)
    analysis = session.analyse(session.version)
    assert analysis.made == 30 == analysis.visits.sum()


def test_a_search_is_made_once(session):
    assert session.analyse(session.version) is session.analyse(session.version)


def test_a_search_that_the_game_left_behind_is_thrown_away(session, monkeypatch):
    searching = session.analyst.analyse

    def overtaken(*arguments):
        session.undo(session.version)
        return searching(*arguments)

    session.play(session.version, 4)
    monkeypatch.setattr(session.analyst, "analyse", overtaken)
    with refused("stale"):
        session.play_agent(session.version)
    assert history(session) == []
    assert session.position.analysis is None


def test_time_runs_out_and_the_simulations_made_count():
    times = iter(range(1000))
    session = make_session(
        *TIC_TAC_TOE, num_simulations=50, time_limit=5.0, clock=lambda: float(next(times))
    )
    analysis = session.analyse(session.version)
    assert (analysis.made, analysis.planned) == (5, 50)
    assert analysis.visits.sum() == 5
    assert analysis.visits[analysis.best_action] > 0


@pytest.mark.parametrize("game", [CONNECT_FOUR, HEX], ids=["connect_four", "hex"])
def test_the_agent_plays_a_whole_game_and_the_record_replays_it(game):
    session = make_session(*game, side="watch", num_simulations=6)
    while not session.position.is_over:
        session.play_agent(session.version)
    record = session.record()
    state = pyspiel.load_game(record["game"], record["parameters"]).new_initial_state()
    for action, name in zip(record["actions"], record["moves"], strict=True):
        assert state.action_to_string(action) == name
        state.apply_action(action)
    assert state.is_terminal()
    assert record["returns"] == state.returns()
    assert sum(move.reward * (1 if move.player == 0 else -1) for move in session.moves) == (
        pytest.approx(state.returns()[0])
    )


def test_a_game_of_one_player_with_chance_is_played_watched_and_taken_back():
    session = make_session(
        "env=open_spiel", "env.game=2048", "network=mlp", side="watch", num_simulations=4
    )
    for _ in range(3):
        session.play_agent(session.version)
    before = history(session)
    session.undo(session.version)
    assert len(session.moves) == 2
    assert before[: len(history(session))] == history(session)
    assert len(history(session)) > 2  # chance's moves are in it
    session.change(session.version, side="first")
    assert session.is_persons_turn
    with refused("bad_value"):
        session.change(session.version, side="second")
