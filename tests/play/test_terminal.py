"""A game in the terminal: what is typed and what is shown."""

import json

import pytest

from muzero.play.terminal import Terminal
from tests.play.games import CONNECT_FOUR, TIC_TAC_TOE, make_session


def typed(session, *lines):
    """Everything that is shown while the lines are typed; then input ends."""
    pending, shown = iter(lines), []

    def ask(prompt):
        shown.append(prompt)
        try:
            return next(pending)
        except StopIteration:
            raise EOFError from None

    Terminal(session, ask, shown.append).run()
    return "\n".join(shown)


@pytest.fixture(scope="module")
def shared():
    return make_session(*TIC_TAC_TOE)


@pytest.fixture
def session(shared):
    shared.new_game(shared.version)
    shared.change(shared.version, side="first")
    return shared


@pytest.mark.parametrize("text", ["4", "x(1,1)", "X(1,1)", "  x(1,1) "])
def test_a_move_by_name_or_number_and_the_agents_answer(session, text):
    shown = typed(session, text)
    assert session.moves[0].action == 4
    assert len(session.moves) == 2
    assert f"agent (player 1) plays {session.moves[1].name}" in shown
    assert "2 . x ." in shown


@pytest.mark.parametrize("text", ["9", "x(3,3)", "o(0,0)", "-1", "jump", "4 4"])
def test_what_is_no_move_is_said_so(session, text):
    shown = typed(session, text)
    assert "no legal move" in shown
    assert session.moves == []


def test_undo_moves_new_and_record(session):
    shown = typed(session, "4", "u", "m", "0", "r", "n", "u")
    assert "4:x(1,1)" in shown
    (record,) = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert record["actions"][0] == 0
    assert len(record["actions"]) == 2
    assert "no move of yours to take back" in shown
    assert session.moves == []


def test_a_hint_is_the_searchs_table(session):
    shown = typed(session, "h")
    analysis = session.position.analysis
    (best,) = [line for line in shown.splitlines() if line.startswith("*")]
    _, number, _, visits, *_ = best[1:].split()
    assert int(number) == analysis.best_action
    assert int(visits) == analysis.visits[analysis.best_action]
    assert f"value {analysis.value:+.3f}" in shown


def test_a_game_is_watched_to_its_end(session):
    shown = typed(session, "s watch", *[""] * 9, "q", "never read")
    assert session.position.is_over
    first, second = session.position.state.returns()
    assert f"result: player 0 {first:+g}, player 1 {second:+g}" in shown
    assert shown.rstrip().endswith("q quit)>")


def test_an_unknown_side_is_refused(session):
    assert "must be one of first, second, both, watch" in typed(session, "s third")


def test_columns_are_drawn_for_connect_four():
    session = make_session(*CONNECT_FOUR, side="both", num_simulations=4)
    shown = typed(session, "x3", "o3", "3")
    assert [move.action for move in session.moves] == [3, 3, 3]
    assert " 0 1 2 3 4 5 6\n" in shown
    assert " . . . x . . .\n . . . o . . .\n . . . x . . .\n" in shown
