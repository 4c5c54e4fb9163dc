"""A server of a session in a thread, and a client that asks as the page does."""

import http.client
import json
import threading
from contextlib import contextmanager

from muzero.play.web import PlayServer


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
