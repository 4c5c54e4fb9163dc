"""The page's API over real HTTP: it plays, refuses what the game does not allow, and lives on, whatever happens."""

import http.client
import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from muzero.play.refusal import Refusal
from muzero.play.web import MAX_REQUESTS
from tests.play.games import TIC_TAC_TOE, make_session
from tests.play.served import Client, serving


def test_a_game_over_http(client):
    state = client.get("/api/state")
    assert state["turn"] == "person"
    assert state["board"]["rows"] == state["board"]["columns"] == 3
    assert [move["action"] for move in state["legal"]] == list(range(9))
    moved = client.post("move", version=state["version"], action=4)
    assert moved["turn"] == "agent"
    assert moved["board"]["cells"][4] == ["x", 0]
    assert moved["last_cells"] == [4]
    answered = client.post("agent", version=moved["version"])
    assert answered["turn"] == "person"
    assert len(answered["moves"]) == 2
    undone = client.post("undo", version=answered["version"])
    assert undone["moves"] == []
    assert undone["board"]["cells"] == [None] * 9


def test_overlays_show_the_searchs_own_numbers(client):
    session = client.server.session
    told = client.post("analyse", version=session.version)["analysis"]
    analysis = session.position.analysis
    assert told["value"] == analysis.value
    assert told["network_value"] == analysis.network_value
    assert told["best_action"] == analysis.best_action
    assert (told["made"], told["planned"], told["step"]) == (12, 12, 0)
    assert len(told["moves"]) == 9
    for move in told["moves"]:
        action = move["action"]
        assert move["cells"] == [action]
        assert move["visits"] == analysis.visits[action]
        assert move["q"] == float(analysis.qvalues[action])
        assert move["policy"] == float(analysis.policy[action])
        assert move["prior"] == float(analysis.prior[action])


def test_an_older_position_is_shown_with_its_search(client):
    session = client.server.session
    session.play(session.version, 4)
    session.play_agent(session.version)
    state = client.get("/api/state?ply=1")
    assert not state["is_newest"]
    assert state["analysis"]["best_action"] == session.moves[1].action
    assert client.get("/api/state")["analysis"] is None


def test_tree_lines_and_record(client):
    session = client.server.session
    session.change(session.version, side="both")
    for action in (4, 0, 8):
        session.play(session.version, action)
    session.analyse(session.version, 1)
    version = session.version
    top = client.get(f"/api/tree?version={version}&ply=1&node=0")["children"]
    assert sum(child["visits"] for child in top) == 12
    lines = client.get(f"/api/lines?version={version}&ply=1")
    assert [stage["action"] for stage in lines["played"]] == [0, 8]
    assert (
        lines["imagined"][0]["action"]
        == max(top, key=lambda child: (child["visits"], child["q"]))["action"]
    )
    assert client.get("/api/record")["actions"] == [4, 0, 8]


@pytest.mark.parametrize(
    ("name", "fields", "status", "code"),
    [
        ("move", {"action": 9}, 422, "illegal_move"),
        ("move", {"action": -1}, 422, "illegal_move"),
        ("move", {"action": "4"}, 400, "bad_value"),
        ("move", {"action": 4.0}, 400, "bad_value"),
        ("move", {"action": True}, 400, "bad_value"),
        ("move", {"action": 10**400}, 400, "bad_value"),
        ("move", {"action": None}, 400, "bad_value"),
        ("move", {}, 400, "bad_value"),
        ("move", {"action": 4, "more": 1}, 400, "bad_value"),
        ("move", {"action": 4, "version": -1}, 409, "stale"),
        ("move", {"action": 4, "version": None}, 400, "bad_value"),
        ("agent", {}, 409, "wrong_turn"),
        ("undo", {}, 409, "nothing_to_undo"),
        ("analyse", {"ply": 1}, 404, "unknown"),
        ("settings", {"simulations": 0}, 400, "bad_value"),
        ("settings", {"simulations": 10**9}, 400, "bad_value"),
        ("settings", {"step": 7}, 400, "bad_value"),
        ("settings", {"step": 9}, 404, "unknown"),
        ("settings", {"side": "third"}, 400, "bad_value"),
        ("settings", {"side": ["first"]}, 400, "bad_value"),
        ("new", {"moves": [4, 4]}, 422, "illegal_move"),
        ("new", {"moves": "4"}, 400, "bad_value"),
        ("new", {"moves": [0] * 10_001}, 400, "bad_value"),
        ("none", {}, 404, "unknown"),
    ],
)
def test_what_is_refused_changes_nothing(client, name, fields, status, code):
    before = client.get("/api/state")
    body = {"version": before["version"], **fields}
    assert client.refused("POST", f"/api/{name}", body) == (status, code)
    assert client.get("/api/state") == before


def test_a_fault_of_the_server_is_logged_and_not_told(client, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("secret")

    monkeypatch.setattr(client.server.session, "record", broken)
    with caplog.at_level(logging.ERROR, "muzero.play.web"):
        status, _, answer = client.request("GET", "/api/record")
    assert (status, answer["error"]["code"]) == (500, "internal")
    assert "secret" not in json.dumps(answer)
    assert "secret" in caplog.text


def test_a_search_does_not_keep_readers_waiting_and_a_new_move_ends_it(client):
    """The agent searches in one request; another undoes meanwhile, and what was searched is not played."""
    session = client.server.session
    session.change(session.version, num_simulations=1000)
    session.play(session.version, 4)
    version = session.version
    entered, searching = threading.Event(), session.analyst.analyse

    def slow(state, step, simulations, is_cancelled):
        entered.set()
        for _ in range(3000):
            if is_cancelled():
                break
            threading.Event().wait(0.01)
        return searching(state, step, simulations, is_cancelled)

    session.analyst.analyse = slow
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.refused, "POST", "/api/agent", {"version": version})
            assert entered.wait(60)
            assert client.get("/api/state")["turn"] == "agent"
            assert client.post("undo", version=version)["turn"] == "person"
            assert answer.result(60) == (409, "stale")
    finally:
        del session.analyst.analyse
    assert session.moves == []


def test_closing_ends_searches_and_idle_connections():
    session = make_session(*TIC_TAC_TOE, side="second")
    entered, ended = threading.Event(), threading.Event()

    def endless(state, step, simulations, is_cancelled):
        entered.set()
        while not is_cancelled():
            threading.Event().wait(0.01)
        ended.set()
        raise Refusal("stale", "cancelled")

    session.analyst.analyse = endless
    with ThreadPoolExecutor(1) as pool, serving(session) as server:
        idle = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        body = {"version": session.version}
        answer = pool.submit(Client(server).refused, "POST", "/api/agent", body)
        assert entered.wait(60)
    assert ended.is_set()
    assert answer.result(60) == (409, "stale")
    assert idle.recv(1) == b""  # hung up
    idle.close()


def test_of_many_clicks_at_once_one_moves(client):
    version = client.server.session.version
    body = {"version": version, "action": 4}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.request("POST", "/api/move", body)[0], range(8)))
    assert sorted(answers) == [200] + [409] * 7
    assert len(client.server.session.moves) == 1


def test_too_many_connections_are_dropped_and_the_server_lives(client):
    held = [
        socket.create_connection(("127.0.0.1", client.server.port), timeout=60)
        for _ in range(MAX_REQUESTS)
    ]
    try:
        for connection in held:
            connection.sendall(b"GET /")  # and nothing more
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            for _ in range(1000):
                client.request("GET", "/api/state")
    finally:
        for connection in held:
            connection.close()
    for _ in range(1000):
        try:
            assert client.get("/api/state")["turn"] == "person"
            return
        except (http.client.RemoteDisconnected, ConnectionError):
            threading.Event().wait(0.01)
    pytest.fail("the server does not answer any more")
