"""The page and its API over HTTP, for one person on this machine; the standard library's server.

Who may talk to it: requests whose `Host` is this server's own (so no name that somebody points at this machine will do) and
whose `Origin`, where there is one, is its page. Bodies are JSON of at most `MAX_BODY` bytes.
"""

import base64
import hashlib
import ipaddress
import json
import logging
import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import BaseServer
from typing import Any
from urllib.parse import parse_qsl

from muzero.play.api import READS, WRITES, Fields
from muzero.play.refusal import Refusal
from muzero.play.session import Session

logger = logging.getLogger(__name__)

MAX_BODY = 64 * 1024
MAX_REQUESTS = 16
"""Requests that are answered at the same time."""
IDLE_SECONDS = 30.0
CLOSING_SECONDS = 10.0
_STATUS = {
    "bad_value": 400,
    "bad_json": 400,
    "forbidden": 403,
    "unknown": 404,
    "wrong_method": 405,
    "stale": 409,
    "wrong_turn": 409,
    "game_over": 409,
    "nothing_to_undo": 409,
    "length_required": 411,
    "too_large": 413,
    "wrong_type": 415,
    "illegal_move": 422,
    "internal": 500,
    "busy": 503,
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PlayServer(ThreadingHTTPServer):
    """Serves one session; `serve_forever` and `shutdown` are the standard library's.

    Args:
        host: Address to listen on.
        port: 0 takes a free one; `port` says which.

    Raises:
        ValueError: If the address cannot be had.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, session: Session, host: str = "127.0.0.1", port: int = 0) -> None:
        self.session = session
        self.page = files("muzero.play").joinpath("page/index.html").read_bytes()
        self.policy = content_security_policy(self.page.decode())
        if ":" in host:
            self.address_family = socket.AF_INET6
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ValueError(
                f"host={host} port={port}: cannot be listened on ({error}); port=0 takes a free port"
            ) from error
        self.host, self.port = host, int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where the page is."""
        name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        if ":" in name and not name.startswith("["):
            name = f"[{name}]"
        return f"http://{name}:{self.port}/"

    def is_own_host(self, value: str) -> bool:
        """Whether a `Host` header names this server by its host, an address, or `localhost`: never by a foreign name."""
        name, colon, port = value.rpartition(":")
        if not colon or port != str(self.port):
            return False
        name = name.lower().removeprefix("[").removesuffix("]")
        if name in ("localhost", self.host.lower()):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not _is_loopback(self.host)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, while there are few."""
        with self._changed:
            is_free = len(self._open) < MAX_REQUESTS
            if is_free:
                self._open.add(request)
        if not is_free:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What a thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def server_close(self) -> None:
        """End searches, hang up, and wait for the threads: one that still computed when Python ends would abort it."""
        super().server_close()
        self.session.end_searches()
        with self._changed:
            for request in self._open:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._open, timeout=CLOSING_SECONDS)

    def _forget(self, request: socket.socket) -> None:
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection broke: that is no news."""
        logger.debug("a connection from %s broke", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "muzero-play", ""
    protocol_version = "HTTP/1.0"  # one request a connection: nothing is left unread in it
    timeout = IDLE_SECONDS
    server: BaseServer

    def do_GET(self) -> None:
        """The page, or a read."""
        self._answer(reads=True)

    def do_POST(self) -> None:
        """A write."""
        self._answer(reads=False)

    def do_other(self) -> None:
        """Any other method."""
        self._refuse(Refusal("wrong_method", "only GET and POST are understood"))

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_other

    def _answer(self, *, reads: bool) -> None:
        try:
            self._check_sender()
            path, _, query = self.path.partition("?")
            if reads and path == "/":
                self._send(200, self._play_server.page, "text/html; charset=utf-8")
                return
            name = path.removeprefix("/api/") if path.startswith("/api/") else ""
            handler = (READS if reads else WRITES).get(name)
            if handler is None:
                if name in (WRITES if reads else READS):
                    raise Refusal("wrong_method", f"/api/{name} takes {'POST' if reads else 'GET'}")
                raise Refusal("unknown", "there is nothing at this address")
            values = _query(query) if reads else self._body()
            answer = handler(self._play_server.session, Fields(values))
            body = json.dumps(answer, allow_nan=False).encode()
        except Refusal as refusal:
            self._refuse(refusal)
        except Exception:
            logger.exception("%s %s failed", self.command, self.path)
            self._refuse(Refusal("internal", "the server failed; its own output says why"))
        else:
            self._send(200, body, "application/json")

    @property
    def _play_server(self) -> PlayServer:
        assert isinstance(self.server, PlayServer)
        return self.server

    def _check_sender(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self._play_server.is_own_host(hosts[0]):
            raise Refusal("forbidden", "the Host of this request is not this server")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            raise Refusal("forbidden", "requests from other pages are not answered")
        is_foreign = self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        if is_foreign and (self.command, self.path) != ("GET", "/"):  # a link to the page is fine
            raise Refusal("forbidden", "requests from other pages are not answered")

    def _body(self) -> Mapping[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise Refusal("wrong_type", "the body must be application/json")
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,18}", length):
            raise Refusal("length_required", "the body's length must be given")
        if int(length) > MAX_BODY:
            raise Refusal("too_large", f"a body may have {MAX_BODY} bytes")
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            raise Refusal("bad_json", "the body is shorter than its length says")
        try:
            values = json.loads(data, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Refusal("bad_json", "the body is not JSON") from error
        if not isinstance(values, dict):
            raise Refusal("bad_json", "the body must be a JSON object")
        return values

    def _refuse(self, refusal: Refusal) -> None:
        error = {"code": refusal.code, "message": str(refusal)}
        body = json.dumps({"error": error}).encode()
        self._send(_STATUS[refusal.code], body, "application/json")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", self._play_server.policy)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == 405:
            self.send_header("Allow", "GET, POST")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses itself (a broken request line): JSON too, and nothing of the request in it."""
        if not hasattr(self, "headers"):
            self.command = self.command or "GET"
        error = {"code": "bad_request", "message": "this request is not understood"}
        self._send(code, json.dumps({"error": error}).encode(), "application/json")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are no news."""
        logger.debug(format, *args)


def content_security_policy(page: str) -> str:
    """A policy under which the page's own script and style run, and nothing else, and which talks to its server alone."""

    def hashes(tag: str) -> str:
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = (hashlib.sha256(part.encode()).digest() for part in parts)
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _query(query: str) -> dict[str, Any]:
    """The fields of an address, whole numbers as such."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8
        )
    except ValueError as error:
        raise Refusal("bad_value", "the query is not understood") from error
    return {
        name: int(value) if re.fullmatch(r"-?[0-9]{1,15}", value) else value
        for name, value in pairs
    }


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
