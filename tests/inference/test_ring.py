"""The channel between two processes: what goes through it, and how each end learns that the other is gone."""

import contextlib
import gc
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from muzero.inference import ring
from muzero.inference.ring import ClientRing, Listener, ServerLost, Ticket

SIZE = 1000
LONG = 60.0
"""Seconds: whoever waits so long has failed."""

# Children load the one file: the package would bring torch along.
CHILD = f"""
import importlib.util, itertools, json, sys
spec = importlib.util.spec_from_file_location("ring", {str(Path(ring.__file__))!r})
ring = importlib.util.module_from_spec(spec)
sys.modules["ring"] = ring
spec.loader.exec_module(ring)
"""
SERVER = (
    CHILD
    + """
numbers = itertools.count()
listener = ring.Listener(request_bytes=1000, reply_bytes=1000, take_place=lambda: next(numbers))
ticket = listener.ticket
print(json.dumps([ticket.address, ticket.token.hex()]), flush=True)
while True:
    for end in listener.poll(60.0).asked:
        if end.slots.request_header[0] == 1:
            print("asked", flush=True)
            continue  # never answers
        end.slots.reply[:] = end.slots.request
        end.ring()
"""
)
CLIENT = (
    CHILD
    + """
address, token = json.loads(sys.argv[1])
client = ring.ClientRing(ring.Ticket(address, bytes.fromhex(token), 1000, 1000), timeout_seconds=60.0)
client.call()
print("answered", flush=True)
client.call()
"""
)


@contextlib.contextmanager
def child(code: str, *arguments: str) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Echo:
    """A server in a thread: adds one to every byte and field; asked with field 0 below zero it does not answer."""

    def __init__(self, num_places: int = 8) -> None:
        self.free = list(range(num_places))
        self.left: list[int] = []
        self.asked = threading.Semaphore(0)
        self.gone = threading.Semaphore(0)
        self.listener = Listener(
            request_bytes=SIZE,
            reply_bytes=SIZE,
            take_place=lambda: self.free.pop(0) if self.free else None,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            polled = self.listener.poll(LONG)
            self.left += polled.left
            for _ in polled.left:
                self.gone.release()
            for end in polled.asked:
                if end.slots.request_header[0] >= 0:
                    end.slots.reply[:] = end.slots.request + 1
                    end.slots.reply_header[:] = end.slots.request_header + 1
                    end.ring()
                self.asked.release()
        self.listener.close()

    def stop(self) -> None:
        self._stop.set()
        self.listener.wake()
        self._thread.join(LONG)
        assert not self._thread.is_alive()

    def __enter__(self) -> "Echo":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def test_requests_and_replies_of_two_clients_arrive_whole():
    with Echo() as echo:
        ticket = pickle.loads(pickle.dumps(echo.listener.ticket))
        clients = [ClientRing(ticket, timeout_seconds=LONG) for _ in range(2)]
        assert [client.client for client in clients] == [0, 1]
        rng = np.random.default_rng(0)
        for _ in range(100):
            for client in clients:
                request = rng.integers(0, 256, SIZE).astype(np.uint8)
                header = rng.integers(0, 2**60, ring.NUM_FIELDS)
                client.slots.request[:], client.slots.request_header[:] = request, header
                client.call()
                np.testing.assert_array_equal(client.slots.reply, request + np.uint8(1))
                np.testing.assert_array_equal(client.slots.reply_header, header + 1)
        for client in clients:
            client.close()


def test_two_threads_of_one_process_wait_side_by_side():
    with Echo() as echo:
        silent, lively = (ClientRing(echo.listener.ticket, timeout_seconds=LONG) for _ in range(2))
        failures: list[BaseException] = []

        def wait() -> None:
            silent.slots.request_header[0] = -1
            try:
                silent.call()
            except ServerLost as failure:
                failures.append(failure)

        thread = threading.Thread(target=wait)
        thread.start()
        assert echo.asked.acquire(timeout=LONG)
        for _ in range(50):
            lively.call()
        assert thread.is_alive() and not failures
        echo.stop()
        thread.join(LONG)
        assert len(failures) == 1 and "has ended" in str(failures[0])
        lively.close()


def test_a_client_that_leaves_frees_its_place_and_nobody_elses():
    with Echo(num_places=2) as echo:
        first, second = (ClientRing(echo.listener.ticket, timeout_seconds=LONG) for _ in range(2))
        with pytest.raises(ValueError, match="no room for another client; raise its max_clients"):
            ClientRing(echo.listener.ticket, timeout_seconds=LONG)
        first.close()
        assert echo.gone.acquire(timeout=LONG)
        assert echo.left == [0]
        echo.free.append(0)
        third = ClientRing(echo.listener.ticket, timeout_seconds=LONG)
        assert third.client == 0
        for client in (second, third):
            client.call()
            client.close()


def test_an_answer_that_does_not_come_is_a_lost_server():
    with Echo() as echo:
        client = ClientRing(echo.listener.ticket, timeout_seconds=0.05)
        client.slots.request_header[0] = -1
        with pytest.raises(ServerLost, match=r"not answered within 0\.05 seconds"):
            client.call()
        # A late answer to the first request must not become that of the second.
        with pytest.raises(ServerLost, match="has ended"):
            client.call()


def test_a_call_that_is_interrupted_closes_the_ring():
    class Interrupt(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    with Echo() as echo:
        client = ClientRing(echo.listener.ticket, timeout_seconds=LONG)
        client.slots.request_header[0] = -1
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupt):
                client.call()
        finally:
            signal.signal(signal.SIGALRM, before)
        with pytest.raises(ServerLost):
            client.call()


def test_who_has_no_ticket_is_not_let_in():
    with Echo() as echo:
        ticket = echo.listener.ticket
        for token in (bytes(16), b"short"):
            with pytest.raises(ServerLost):
                ClientRing(Ticket(ticket.address, token, SIZE, SIZE), timeout_seconds=LONG)
        ClientRing(ticket, timeout_seconds=LONG).close()
    with pytest.raises(ServerLost, match="no inference server lets this process in"):
        ClientRing(ticket, timeout_seconds=LONG)
    with pytest.raises(ValueError, match="timeout_seconds is 0"):
        ClientRing(ticket, timeout_seconds=0.0)


def test_a_killed_server_is_noticed_and_leaves_nothing():
    with child(SERVER) as server:
        address, token = json.loads(server.stdout.readline())
        ticket = Ticket(address, bytes.fromhex(token), SIZE, SIZE)
        client = ClientRing(ticket, timeout_seconds=LONG)
        client.slots.request[:] = 7
        client.call()
        assert (client.slots.reply == 7).all()
        assert leftovers(ticket)  # so one would be seen
        client.slots.request_header[0] = 1
        killer = threading.Thread(target=lambda: (server.stdout.readline(), server.kill()))
        killer.start()
        with pytest.raises(ServerLost, match="the inference server has ended"):
            client.call()
        killer.join(LONG)
        assert (client.slots.reply == 7).all()  # the memory lives as long as somebody looks at it
        del client
    assert leftovers(ticket) == []
    with pytest.raises(ServerLost):
        ClientRing(ticket, timeout_seconds=LONG)


def test_a_client_killed_in_the_middle_of_a_request_is_noticed_and_leaves_nothing():
    numbers = itertools.count()
    listener = Listener(request_bytes=SIZE, reply_bytes=SIZE, take_place=lambda: next(numbers))
    ticket = listener.ticket
    with child(CLIENT, json.dumps([ticket.address, ticket.token.hex()])) as client:
        (end,) = wait_for(listener, "asked")
        end.ring()
        assert client.stdout.readline() == "answered\n"
        (end,) = wait_for(listener, "asked")
        client.kill()
        client.wait()
        end.ring()  # to nobody
        assert wait_for(listener, "left") == [0]
    listener.close()
    del end
    assert leftovers(ticket) == []


def wait_for(listener: Listener, name: str) -> list:
    for _ in range(100):
        if found := getattr(listener.poll(LONG), name):
            return found
    raise AssertionError(f"nobody has {name}")


def leftovers(ticket: Ticket) -> list[str]:
    """Names of this channel that the system knows, and descriptors of its memory in this process."""
    name = ticket.address.strip("\0")
    folders = [Path("/dev/shm"), Path(tempfile.gettempdir())]
    found = [str(path) for folder in folders for path in folder.glob(f"*{Path(name).name}*")]
    sockets = Path("/proc/net/unix")
    gc.collect()  # failures of earlier tests hold frames, and those hold memory
    if sockets.exists():
        found += [line for line in sockets.read_text().splitlines() if name in line]
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(link)
                found += [target] if "muzero-ring" in target else []
    return found
