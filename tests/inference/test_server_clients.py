"""Clients of central inference that come, go, err or die, and servers that end."""

import threading

import numpy as np
import pytest

from muzero.inference import (
    BatchingRule,
    CallRequest,
    RemoteModel,
    RingTransport,
    ServerLost,
)
from muzero.inference.messages import Kind
from tests.inference.served import (
    FLAT,
    LONG,
    ROWS,
    assert_same,
    calling,
    client_of,
    local_of,
    network_of,
    observations,
    selection,
    server_of,
    serving,
    wait_until,
)


def test_a_place_begins_anew_with_its_next_client():
    with serving(server_of(network_of(), max_clients=1)) as server:
        step = selection(np.random.default_rng(0), 3, np.arange(2), 1)
        for _ in range(2):
            remote = client_of(server)
            with pytest.raises(ValueError, match="call roots first"):
                remote.recurrent(step)
            remote.roots(observations(FLAT, 2))
            remote.recurrent(step)
            with pytest.raises(ValueError, match="no room"):
                client_of(server)
            with pytest.raises(ValueError, match="no room for client x; raise the server's max"):
                server.attach("x")
            remote.close()
            wait_until(lambda: server.report()["inference/clients"] == 0.0 and server._free == [0])
        for _ in range(2):  # a worker that was started anew
            remote = calling(server, "x")
            with pytest.raises(ValueError, match="call roots first"):
                remote.recurrent(step)
            remote.roots(observations(FLAT, 2))
        server.detach("x")
        server.detach("x")
        with pytest.raises(ServerLost, match="knows no client x"):
            remote.recurrent(step)
        wait_until(lambda: server._free == [0])


def test_calls_of_the_wrong_form_are_refused():
    with serving(server_of(network_of())) as server:
        server.attach("a")
        for kind, arrays in (
            (Kind.ROOTS, [np.zeros((2, 5))]),
            (Kind.ROOTS, []),
            (Kind.ROOTS, [np.zeros((ROWS + 1, 5), np.float32)]),
            (Kind.RECURRENT, [np.zeros((3, 2), np.int32)]),
            (99, []),
        ):
            with pytest.raises(ValueError):
                server.answer("a", CallRequest(kind, arrays), timeout_seconds=LONG)
        assert server.answer("a", CallRequest(Kind.HELLO, []), timeout_seconds=LONG).version == 0


def test_a_server_that_stops_in_the_middle_of_requests_loses_its_clients():
    server = server_of(network_of())
    models: list[RemoteModel] = []
    failures: list[Exception] = []

    def ask(make) -> None:
        try:
            model = make()
            models.append(model)
            while True:
                model.roots(observations(FLAT, ROWS))
        except ServerLost as failure:
            failures.append(failure)

    makers = (lambda: client_of(server), lambda: client_of(server), lambda: calling(server, "c"))
    threads = [threading.Thread(target=ask, args=(make,)) for make in makers]
    with serving(server):
        for thread in threads:
            thread.start()
        wait_until(lambda: len(models) == 3)
    for thread in threads:
        thread.join(LONG)
    assert len(failures) == 3
    with pytest.raises(ServerLost):
        client_of(server)
    with pytest.raises(ServerLost):
        server.attach("d")
    with pytest.raises(RuntimeError, match="make another"):
        server.serve()


def test_a_server_that_never_serves_keeps_nobody_waiting():
    server = server_of(network_of())
    with pytest.raises(ServerLost, match="lets this process in"):
        RingTransport(server.ticket(), timeout_seconds=0.05)
    server.attach("a")
    with pytest.raises(ServerLost, match=r"not answered within 0\.05"):
        server.answer("a", CallRequest(Kind.HELLO, []), timeout_seconds=0.05)
    server.close()


def test_a_network_that_fails_ends_the_server_and_tells_everybody(monkeypatch):
    server = server_of(network_of())

    def fail(*_: object) -> None:
        raise MemoryError("no room on the device")

    monkeypatch.setattr(server._model, "recurrent", fail)
    raised: list[BaseException] = []

    def serve() -> None:
        try:
            server.serve()
        except MemoryError as failure:
            raised.append(failure)

    thread = threading.Thread(target=serve)
    thread.start()
    ringing, by_call = client_of(server), calling(server, "b")
    for model in (ringing, by_call):
        model.roots(observations(FLAT, 1))
    for model in (by_call, ringing):
        with pytest.raises(ServerLost):
            model.recurrent(selection(np.random.default_rng(0), 3, np.arange(1), 1))
    thread.join(LONG)
    assert len(raised) == 1


def test_a_client_that_leaves_with_a_request_under_way_is_forgotten():
    network = network_of()
    with serving(server_of(network)) as server:
        leaver, stayer = client_of(server), client_of(server)
        ring = leaver._transport._ring
        leaver._transport.prepare(Kind.ROOTS, 2)[0][:] = 0
        ring.slots.request_header[:2] = Kind.ROOTS, 2
        ring._socket.send(b"\0")
        leaver.close()
        wait_until(lambda: server.report()["inference/clients"] == 1.0)
        observation = observations(FLAT, ROWS)
        assert_same(stayer.roots(observation), local_of(network).roots(observation))
        stayer.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_clients": 0}, "max_clients is 0"),
        ({"rows_per_client": 0}, "rows_per_client is 0"),
        ({"rule": BatchingRule(max_rows=5)}, "rows_per_client is 6, and a batch has at most 5"),
    ],
)
def test_settings_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        server_of(network_of(), **settings)
