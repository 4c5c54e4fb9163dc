"""Requests that are not the page's own are refused, clearly and without a traceback."""

import json
import socket

import pytest

from muzero.play.web import MAX_BODY, PlayServer
from tests.play.games import TIC_TAC_TOE, make_session
from tests.play.served import Client, serving


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


def test_a_body_shorter_than_its_length_is_not_acted_upon(client):
    body = json.dumps({"version": client.server.session.version, "action": 4}).encode()
    head = (
        f"POST /api/move HTTP/1.1\r\nHost: 127.0.0.1:{client.server.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    )
    assert "bad_json" in raw_answer(client.server, head.encode() + body)
    assert client.server.session.moves == []


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


def test_a_port_in_use_is_named(server):
    with pytest.raises(ValueError, match=rf"port={server.port}: cannot be listened on"):
        PlayServer(server.session, port=server.port)


def test_only_this_machine_unless_asked(server):
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_the_other_loopback():
    try:
        server = PlayServer(make_session(*TIC_TAC_TOE), host="::1")
    except ValueError:
        pytest.skip("this machine has no ::1")
    with server:
        assert server.url == f"http://[::1]:{server.port}/"
        assert server.is_own_host(f"[::1]:{server.port}")
        assert not server.is_own_host(f"[2001:db8::1]:{server.port}")


def test_a_server_for_others_takes_addresses_but_no_names():
    with serving(make_session(*TIC_TAC_TOE), host="0.0.0.0") as server:
        client = Client(server)
        assert server.url == f"http://127.0.0.1:{server.port}/"
        assert client.request("GET", "/api/state", Host=f"192.0.2.7:{server.port}")[0] == 200
        assert client.refused("GET", "/", Host=f"evil.example:{server.port}") == (403, "forbidden")
