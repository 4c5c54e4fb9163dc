"""The page in a real browser: by mouse, by keyboard alone, and while things go wrong."""

import threading
from contextlib import contextmanager

import pytest

from muzero.play.web import PlayServer
from tests.play.browser import Browser, find_browser
from tests.play.games import CONNECT_FOUR, HEX, TIC_TAC_TOE, make_session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no chromium on the PATH"),
]
BREAKTHROUGH = ("env=open_spiel", "env.game=breakthrough", "env.parameters.rows=5",
                "env.parameters.columns=5", "network=mlp")  # fmt: skip
NINE_MENS_MORRIS = ("env=open_spiel", "env.game=nine_mens_morris", "network=mlp")
READY = "typeof game !== 'undefined' && game && !ui.busy && document.getElementById('undo')"
STATUS = "document.getElementById('status').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(find_browser(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@contextmanager
def page(browser, *game, **options):
    """The page of a new session; what the browser complains about fails the test."""
    session = make_session(*game, **options)
    browser.complaints.clear()
    browser.requests.clear()
    with PlayServer(session) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            browser.open(server.url)
            browser.wait(READY)
            yield session
            assert browser.complaints == []
            assert all(url.startswith((server.url, "data:")) for url in browser.requests)
        finally:
            browser.open("about:blank")
            server.shutdown()
            thread.join()


def texts(browser, selector):
    return browser.value(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")


def test_a_game_by_mouse(browser):
    with page(browser, *TIC_TAC_TOE) as session:
        browser.click('[data-cell="4"]')
        browser.wait("game.moves.length === 2 && !ui.busy")
        assert session.moves[0].action == 4
        assert "Your move" in browser.value(STATUS)
        browser.click("#hint")
        browser.wait("game.analysis && !ui.busy")
        analysis = session.position.analysis
        on_board = browser.value(
            "Object.fromEntries([...document.querySelectorAll('.cell')].filter((c) => c.querySelector('.number'))"
            ".map((c) => [c.dataset.cell, c.querySelector('.number').textContent]))"
        )
        visited = {str(a): str(n) for a, n in enumerate(analysis.visits.tolist()) if n}
        assert on_board == visited
        assert len(texts(browser, "#roots tbody tr")) == analysis.legal.sum()
        browser.click("#undo")
        browser.wait("game.moves.length === 0 && !ui.busy")


def test_a_game_by_keys_alone(browser):
    with page(browser, *TIC_TAC_TOE) as session:
        browser.press("ArrowRight", "ArrowDown", "Enter")
        browser.wait("game.moves.length === 2 && !ui.busy")
        assert session.moves[0].action == 4
        focused = "document.activeElement.getAttribute('aria-label')"
        assert browser.value(focused).startswith("b2: x, player 0")
        outline = "getComputedStyle(document.activeElement.querySelector('.cursor')).visibility"
        assert browser.value(outline) == "visible"
        browser.press("h")
        browser.wait("game.analysis && !ui.busy")
        shown = browser.value("ui.overlay")
        browser.press("o")
        assert browser.value("ui.overlay") != shown
        free = next(cell for cell in range(9) if cell not in (4, session.moves[1].action))
        browser.press(str(free + 1))
        browser.wait("game.moves.length >= 3 && !ui.busy")
        assert session.moves[2].action == free
        browser.press("u")
        browser.wait("game.moves.length === 2 && !ui.busy")
        browser.press("[")
        browser.wait("game.shown === 1")
        assert not browser.value("document.getElementById('back').hidden")
        browser.press("Escape")
        browser.wait("game.is_newest")
        browser.press("r")
        browser.wait("document.getElementById('record-dialog').open")
        record = browser.value("JSON.parse(document.getElementById('record-area').value).actions")
        assert record == session.position.state.history()
        browser.press("Escape")
        browser.wait("!document.getElementById('record-dialog').open")
        browser.press("n")
        browser.wait("game.moves.length === 0")


def test_lines_tree_and_blunders(browser):
    with page(browser, *TIC_TAC_TOE, side="both", num_simulations=40) as session:
        session.new_game(session.version, [0, 3, 1, 4, 2])
        browser.value("refresh()")
        browser.press("g")
        browser.wait("game.unsearched === 0 && !ui.busy")
        browser.press("[")
        browser.wait("game.shown === 4")
        browser.point("#roots tbody tr:nth-child(2)")
        browser.wait(
            "document.querySelector('#roots tbody tr:nth-child(2)').classList.contains('on')"
        )
        second = browser.value("game.analysis.moves[1].line.map((step) => step.name)")
        lines = texts(browser, "#line tbody td:first-child")
        assert [line.split(" ")[1] for line in lines] == second
        assert texts(browser, ".steptext")[0] == "1"
        browser.click("#tree summary")
        browser.wait("document.querySelectorAll('#tree details details, #tree .leaf').length > 1")
        nodes = texts(browser, "#tree > details > details > summary, #tree > details > .leaf")
        visited = (session.positions[4].analysis.visits > 0).sum()
        assert len(nodes) == visited
        browser.wait("document.querySelectorAll('#played tbody tr').length === 1")
        (played,) = texts(browser, "#played tbody td:first-child")
        assert played == f"1. {session.moves[4].name}"
        marks = browser.value("game.moves.map((move) => move.mark)")
        flags = len([mark for mark in marks if mark])
        assert browser.value("document.querySelectorAll('#values .flag').length") == flags


def test_columns_of_connect_four_take_clicks_anywhere_and_digits(browser):
    with page(browser, *CONNECT_FOUR, side="both", num_simulations=4) as session:
        browser.click('[data-cell="3"]')  # the top of a column
        browser.wait("game.moves.length === 1 && !ui.busy")
        browser.press("4")
        browser.wait("game.moves.length === 2 && !ui.busy")
        assert [move.action for move in session.moves] == [3, 3]
        assert browser.value("document.querySelector('[data-cell=\"31\"] .piece1') !== null")


def test_hex_and_moves_from_one_cell_to_another(browser):
    with page(browser, *HEX, side="both", num_simulations=4) as session:
        browser.click('[data-cell="5"]')
        browser.wait("game.moves.length === 1 && !ui.busy")
        assert session.moves[0].action == 5
    with page(browser, *BREAKTHROUGH, side="both", num_simulations=4) as session:
        start, end = browser.value("game.legal[0].cells")
        browser.click(f'[data-cell="{start}"]')
        browser.wait("ui.picked.length === 1")
        browser.click(f'[data-cell="{end}"]')
        browser.wait("game.moves.length === 1 && !ui.busy")
        assert session.moves[0].cells == (start, end)


def test_a_game_without_a_board_is_played_from_the_list(browser):
    with page(browser, *NINE_MENS_MORRIS, side="both", num_simulations=4) as session:
        assert "Men to deploy" in texts(browser, "#board pre")[0]
        browser.value("document.getElementById('list').value = '7'")
        browser.click("#list-play")
        browser.wait("game.moves.length === 1 && !ui.busy")
        assert session.moves[0].action == 7


def test_a_click_on_a_game_that_went_on_is_explained(browser):
    with page(browser, *TIC_TAC_TOE, side="both") as session:
        session.play(session.version, 0)  # somebody else's page
        browser.click('[data-cell="4"]')
        browser.wait(f"{STATUS}.includes('changed in the meantime') && !ui.busy")
        assert len(session.moves) == 1
        assert browser.value("game.moves.length") == 1
        browser.complaints.clear()  # the browser logs the refusal


def test_settings_are_chosen_and_a_bad_checkpoint_is_said_so(browser):
    with page(browser, *TIC_TAC_TOE) as session:
        browser.value(
            "(() => { const s = document.getElementById('step'); s.value = '5'; s.dispatchEvent(new Event('change')); })()"
        )
        browser.wait("game.settings.step === 5 && !ui.busy")
        assert session.step == 5
        browser.value(
            "(() => { const s = document.getElementById('step'); s.value = '9'; s.dispatchEvent(new Event('change')); })()"
        )
        browser.wait(f"{STATUS}.includes('cannot be loaded') && !ui.busy")
        assert browser.value("document.getElementById('step').value") == "5"
        browser.value(
            "(() => { const s = document.getElementById('side'); s.value = 'second'; s.dispatchEvent(new Event('change')); })()"
        )
        browser.wait("game.moves.length === 1 && game.turn === 'person' && !ui.busy")
        assert session.moves[0].is_agents
        browser.complaints.clear()


def test_a_game_is_watched_to_its_end(browser):
    with page(browser, *TIC_TAC_TOE, side="watch", num_simulations=4) as session:
        browser.click("#run")
        browser.wait("game.turn === 'over' && !ui.busy")
        assert session.position.is_over
        assert "Game over" in browser.value(STATUS)


def test_a_server_that_is_gone_is_said_so(browser):
    session = make_session(*TIC_TAC_TOE, side="both")
    with PlayServer(session) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        browser.open(server.url)
        browser.wait(READY)
        server.shutdown()
        thread.join()
    browser.click('[data-cell="4"]')
    browser.wait(f"{STATUS}.includes('does not answer')")
    browser.open("about:blank")
