"""The page's API over real HTTP: it plays, and it refuses whatever is not the page's own, clearly and without a traceback."""

import http.client
import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from muzero.play.web import MAX_BODY, MAX_REQUESTS, PlayServer
from tests.play.games import TIC_TAC_TOE, make_session


@contextmanager
def serving(session, **address):
    """A server of a session, in a thread."""
    with PlayServer(session, **address) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server():
    with serving(make_session(*TIC_TAC_TOE)) as server:
        yield server


@pytest.fixture
def client(server):
    session = server.session
    session.new_game(session.version)
    session.change(session.version, side="first", step=0, num_simulations=12)
    return Client(server)


class Client:
    """Asks as the page does, unless told otherwise."""

    def __init__(self, server):
        self.server = server

    def request(self, method, path, body=None, **headers):
        """Status, headers and JSON (or text) of an answer; a header that is None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        given = {"Host": f"127.0.0.1:{self.server.port}", "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = (
            None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        if data is not None:
            given.setdefault("Content-Length", str(len(data)))
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert "Traceback" not in text
        is_json = answer.headers["Content-Type"] == "application/json"
        return answer.status, answer.headers, json.loads(text) if is_json and text else text

    def get(self, path):
        status, _, answer = self.request("GET", path)
        assert status == 200, answer
        return answer

    def post(self, name, **fields):
        status, _, answer = self.request("POST", f"/api/{name}", fields)
        assert status == 200, answer
        return answer

    def refused(self, method, path, body=None, **headers):
        """Status and code of a refusal, which has a sentence."""
        status, _, answer = self.request(method, path, body, **headers)
        assert set(answer) == {"error"}
        assert answer["error"]["message"]
        return status, answer["error"]["code"]


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


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/api",
        "/api/",
        "/api/x",
        "http://[/",
        "/../../etc/passwd",
        "/page/index.html",
        "/api/state/",
    ],
)
def test_unknown_addresses(client, path):
    assert client.refused("GET", path) == (404, "unknown")


@pytest.mark.parametrize(
    "query",
    ["ply=x", "ply=1.0", "ply=", "ply", "ply=0&a=1", "&".join(["a=1"] * 9), "ply=" + "9" * 300],
)
def test_queries_that_make_no_sense(client, query):
    assert client.refused("GET", f"/api/state?{query}") == (400, "bad_value")


@pytest.mark.parametrize("query", ["", "version=0", "version=0&ply=0&node=x"])
def test_a_tree_needs_its_fields(client, query):
    assert client.refused("GET", f"/api/tree?{query}")[0] in (400, 409)


def test_a_tree_of_a_position_that_was_not_searched(client):
    version = client.server.session.version
    path = f"/api/tree?version={version}&ply=0&node=0"
    assert client.refused("GET", path) == (404, "unknown")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"4", b"null", b'"x"', b"\xff\xfe", b'{"version": NaN}', b"[" * 30_000],
    ids=["empty", "open", "list", "number", "null", "string", "bytes", "nan", "deep"],
)
def test_bodies_that_are_not_a_json_object(client, body):
    assert client.refused("POST", "/api/move", body) == (400, "bad_json")


def test_a_huge_body_is_refused_unread(client):
    assert client.refused("POST", "/api/move", b"", Content_Length=str(MAX_BODY + 1)) == (
        413,
        "too_large",
    )
    assert client.refused("POST", "/api/move", b"", Content_Length="9" * 18) == (413, "too_large")


@pytest.mark.parametrize("length", [None, "-1", "x", "1e3", "9" * 30, "٣"])
def test_a_length_must_be_given(client, length):
    raw = None if length is None else length.encode("utf-8").decode("latin-1")
    assert client.refused("POST", "/api/move", None, Content_Length=raw) == (411, "length_required")


def test_chunks_are_not_read(client):
    answer = client.refused("POST", "/api/move", b"", Transfer_Encoding="chunked")
    assert answer == (411, "length_required")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_forms_of_other_pages_cannot_post(client, kind):
    """A page elsewhere may send these without asking; JSON it may not."""
    body = {"version": client.server.session.version, "action": 4}
    assert client.refused("POST", "/api/move", body, Content_Type=kind) == (415, "wrong_type")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods(client, method):
    status, headers, answer = client.request(method, "/api/state")
    assert (status, answer["error"]["code"]) == (405, "wrong_method")
    assert headers["Allow"] == "GET, POST"


def test_reads_are_not_posted_and_writes_not_got(client):
    assert client.refused("POST", "/api/state", {}) == (405, "wrong_method")
    assert client.refused("GET", "/api/undo") == (405, "wrong_method")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}",
     "10.0.0.7:{port}", "", None],
)  # fmt: skip
def test_names_that_point_here_from_elsewhere_are_refused(client, host):
    """DNS rebinding: a page of evil.example, whose name now points at this machine."""
    port = client.server.port
    given = None if host is None else host.format(port=port)
    for path in ("/", "/api/state"):
        assert client.refused("GET", path, Host=given) == (403, "forbidden")


@pytest.mark.parametrize(
    "host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}"]
)
def test_own_names(client, host):
    assert client.request("GET", "/api/state", Host=host.format(port=client.server.port))[0] == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1",
        "http://localhost:{port}",
    ],
)
def test_pages_of_other_origins_are_refused(client, origin):
    body = {"version": client.server.session.version, "action": 4}
    given = origin.format(port=client.server.port)
    assert client.refused("POST", "/api/move", body, Origin=given) == (403, "forbidden")
    assert client.refused("GET", "/api/state", Origin=given) == (403, "forbidden")


def test_the_page_itself_may_post(client):
    body = {"version": client.server.session.version, "action": 4}
    own = f"http://127.0.0.1:{client.server.port}"
    status, headers, _ = client.request(
        "POST", "/api/move", body, Origin=own, Sec_Fetch_Site="same-origin"
    )
    assert status == 200
    assert "Access-Control-Allow-Origin" not in headers


def test_the_browsers_own_word_is_enough_to_refuse(client):
    assert client.refused("GET", "/api/state", Sec_Fetch_Site="cross-site") == (403, "forbidden")
    assert client.request("GET", "/", Sec_Fetch_Site="cross-site")[0] == 200  # a link


def test_headers_of_every_answer(client):
    for path in ("/", "/api/state", "/nothing"):
        _, headers, _ = client.request("GET", path)
        assert headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'sha256-"
        )
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]


def raw_answer(server, data):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"BREW / HTTP/1.1\r\n\r\n",
     b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
     b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"],
    ids=["tls", "short", "version", "method", "long", "headers", "hosts"],
)  # fmt: skip
def test_broken_requests_are_answered_or_dropped_and_the_server_lives(client, data):
    answer = raw_answer(client.server, data)
    assert answer == "" or '"error"' in answer
    assert "Traceback" not in answer
    assert client.get("/api/state")["turn"] == "person"


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


def test_a_port_in_use_is_named(server):
    with pytest.raises(ValueError, match=rf"port={server.port}: cannot be listened on"):
        PlayServer(server.session, port=server.port)


def test_only_this_machine_unless_asked(server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_server_for_others_takes_addresses_but_no_names():
    with serving(make_session(*TIC_TAC_TOE), host="0.0.0.0") as server:
        client = Client(server)
        assert server.url == f"http://127.0.0.1:{server.port}/"
        assert client.request("GET", "/api/state", Host=f"192.0.2.7:{server.port}")[0] == 200
        assert client.refused("GET", "/", Host=f"evil.example:{server.port}") == (403, "forbidden")
