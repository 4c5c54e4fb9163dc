"""A channel between a client process and a server process of one host: messages in shared memory, a socket as the bell.

A client has one request under way at a time, so a channel is one slot for requests and one for replies. Who waits sleeps in the
socket, without the interpreter's lock; when the other end dies, however it does, the socket hangs up and the wait ends.

The memory has no name: the server makes it and hands its descriptor through the socket, so nothing is left behind by any exit. (Where
sockets need a path, outside Linux, a killed server leaves an empty one in the temporary folder.)
"""

import hmac
import mmap
import os
import secrets
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
NUM_FIELDS = 8
"""int64 fields of a header, whose meaning is the callers'."""

Bytes = npt.NDArray[np.uint8]
_BELL = b"\0"
_TOKEN_BYTES = 16
_WELCOME = struct.Struct("<q")  # the client's number, or _FULL
_FULL = -1
_FD_SETSIZE = 1024


class ServerLost(ConnectionError):
    """The inference server has ended, or has not answered in time. Its latents are gone: searches under way must begin anew."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a client of this host attaches with. Any number of clients may use the same one."""

    address: str
    token: bytes
    """Shows that the client was given the ticket: addresses are open to every user of the host."""
    request_bytes: int
    reply_bytes: int


SPIN_SECONDS = 1e-4
"""How long either side looks before it sleeps: about a small network's answer."""


class Slots:
    """Both ends' view of a channel's memory: two headers, a request, a reply."""

    def __init__(self, descriptor: int, request_bytes: int, reply_bytes: int) -> None:
        header = NUM_FIELDS * 8
        start = 2 * header
        middle = start + align(request_bytes)
        memory = np.frombuffer(mmap.mmap(descriptor, middle + align(reply_bytes)), np.uint8)
        self.request_header: npt.NDArray[np.int64] = memory[:header].view(np.int64)
        self.reply_header: npt.NDArray[np.int64] = memory[header:start].view(np.int64)
        self.request: Bytes = memory[start : start + request_bytes]
        self.reply: Bytes = memory[middle : middle + reply_bytes]


def align(size: int) -> int:
    """`size` rounded up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class ClientRing:
    """The client's end: fill `slots.request` and its header, `call`, read `slots.reply` and its header.

    For one thread at a time; a process may have several.

    Args:
        timeout_seconds: Of every wait for the server.

    Raises:
        ServerLost: If no server answers the ticket in time.
        ValueError: If the server has no room for another client.
    """

    def __init__(self, ticket: Ticket, *, timeout_seconds: float = 10.0) -> None:
        if not timeout_seconds > 0.0:
            raise ValueError(f"timeout_seconds is {timeout_seconds}; it has to be above 0")
        self._timeout = timeout_seconds
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout_seconds)
            self._socket.connect(ticket.address)
            self._socket.sendall(ticket.token)
            message, descriptors, *_ = socket.recv_fds(self._socket, _WELCOME.size, 1)
        except OSError as failure:
            self._socket.close()
            raise ServerLost(
                f"no inference server lets this process in ({failure}): it has ended, or runs on another host or in "
                "another container"
            ) from failure
        if len(message) < _WELCOME.size or not descriptors:
            self._socket.close()
            if len(message) == _WELCOME.size:
                raise ValueError(
                    "the inference server has no room for another client; raise its max_clients"
                )
            raise ServerLost("the inference server hung up on a client that was attaching")
        (self.client,) = _WELCOME.unpack(message)
        try:
            self.slots = Slots(descriptors[0], ticket.request_bytes, ticket.reply_bytes)
        finally:
            os.close(descriptors[0])
        # The kernel keeps the time: a timeout of Python's own would cost a second system call per wait.
        seconds = int(timeout_seconds)
        microseconds = max(1, int((timeout_seconds - seconds) * 1e6))
        self._socket.settimeout(None)
        self._socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", seconds, microseconds)
        )

    def call(self) -> None:
        """Ring, and wait for the reply. Whatever is raised, this ring is closed then.

        Raises:
            ServerLost: If the server is gone, or does not answer in time.
        """
        try:
            self._socket.send(_BELL)
            if self._spins() or self._socket.recv(1):
                return
        except BlockingIOError as failure:
            self.close()
            raise ServerLost(
                f"the inference server has not answered within {self._timeout:g} seconds"
            ) from failure
        except OSError as failure:
            self.close()
            raise ServerLost(f"the inference server has ended ({failure})") from failure
        except BaseException:
            self.close()  # an answer that still comes must not be taken for the next one's
            raise
        self.close()
        raise ServerLost("the inference server has ended")

    def _spins(self) -> bool:
        """Look for the reply without sleeping, for a little while: waking an idle core takes longer than most answers."""
        deadline = time.perf_counter() + SPIN_SECONDS
        while time.perf_counter() < deadline:
            os.sched_yield()  # whoever else wants this core, the server above all, goes first
            try:
                return bool(self._socket.recv(1, socket.MSG_DONTWAIT))
            except BlockingIOError:
                continue
        return False

    def close(self) -> None:
        """Hang up; the server frees the place. The memory goes with the last array that shows it."""
        self._socket.close()


class ServerEnd:
    """The server's end of one client's channel."""

    def __init__(self, client: int, line: socket.socket, slots: Slots) -> None:
        self.client, self.slots = client, slots
        self._line = line

    def ring(self) -> None:
        """Tell the client that its reply is there; to one that is gone, nothing (`Listener.poll` tells of that)."""
        try:
            self._line.send(_BELL)
        except OSError:
            return


class Polled(NamedTuple):
    """What has happened since the last poll."""

    asked: list[ServerEnd]
    """Clients whose requests have come."""
    left: list[int]
    """Numbers of clients that have gone; their places are free to be given away."""


class Listener:
    """The server's side of all channels. All but `wake` is for one thread.

    Args:
        take_place: Gives a number to a client that attaches; None if there is no room.
    """

    def __init__(
        self, *, request_bytes: int, reply_bytes: int, take_place: Callable[[], int | None]
    ) -> None:
        name = f"muzero-{secrets.token_hex(8)}"
        self._path: Path | None = None
        if sys.platform == "linux":
            address = "\0" + name  # of no file
        else:
            self._path = Path(tempfile.gettempdir()) / name
            address = str(self._path)
        token = secrets.token_bytes(_TOKEN_BYTES)
        self.ticket = Ticket(address, token, request_bytes, reply_bytes)
        self._take_place = take_place
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(address)
        self._door.listen(128)
        self._bell, self._rope = socket.socketpair()
        self._lines: dict[int, socket.socket] = {}  # by descriptor, as are the following
        self._ends: dict[int, ServerEnd] = {}
        self._poll = select.poll()
        for each in (self._door, self._bell, self._rope):
            each.setblocking(False)
        for each in (self._door, self._bell):
            self._poll.register(each.fileno(), select.POLLIN)

    def poll(self, timeout_seconds: float) -> Polled:
        """Wait until something happens, at most so long; let clients in and out."""
        asked: list[ServerEnd] = []
        left: list[int] = []
        for descriptor, _ in self._wait(timeout_seconds):
            line = self._lines.get(descriptor)
            if line is None:
                self._serve_door(descriptor)
                continue
            end = self._ends.get(descriptor)
            try:
                message = line.recv(_TOKEN_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                message = b""
            if end is None:
                self._let_in(descriptor, message)
            elif message == _BELL:
                asked.append(end)
            else:  # hung up, or breaks the rule of one request at a time
                self._drop(descriptor)
                left.append(end.client)
        return Polled(asked, left)

    def wake(self) -> None:
        """End a `poll` that waits; from any thread."""
        try:
            self._rope.send(_BELL)
        except OSError:
            return  # full of earlier calls, or closed

    def close(self) -> None:
        """Hang up on everybody."""
        for descriptor in list(self._lines):
            self._drop(descriptor)
        for each in (self._door, self._bell, self._rope):
            each.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _wait(self, seconds: float) -> list[tuple[int, int]]:
        if self._ends:  # as in `ClientRing._spins`
            deadline = time.perf_counter() + min(SPIN_SECONDS, seconds)
            while time.perf_counter() < deadline:
                if rung := self._poll.poll(0):
                    return rung
                os.sched_yield()
        if 0.0 < seconds < 0.005:
            # poll() counts in milliseconds, and a forward pass may take less than one.
            descriptors = [self._door.fileno(), self._bell.fileno(), *self._lines]
            if max(descriptors) < _FD_SETSIZE:
                ready, _, _ = select.select(descriptors, [], [], seconds)
                return [(descriptor, select.POLLIN) for descriptor in ready]
        return self._poll.poll(seconds * 1000.0)

    def _serve_door(self, descriptor: int) -> None:
        if descriptor == self._bell.fileno():
            self._bell.recv(4096)
            return
        try:
            line, _ = self._door.accept()
        except OSError:
            return  # gone again
        line.setblocking(False)
        self._lines[line.fileno()] = line
        self._poll.register(line.fileno(), select.POLLIN)

    def _let_in(self, descriptor: int, token: bytes) -> None:
        """Give a client that shows its ticket a place and its memory."""
        if not hmac.compare_digest(token, self.ticket.token):
            self._drop(descriptor)
            return
        line = self._lines[descriptor]
        client = self._take_place()
        if client is None:
            _send_quietly(line, _WELCOME.pack(_FULL), [])
            self._drop(descriptor)
            return
        sizes = (self.ticket.request_bytes, self.ticket.reply_bytes)
        memory = _make_memory(2 * NUM_FIELDS * 8 + align(sizes[0]) + align(sizes[1]))
        try:
            self._ends[descriptor] = ServerEnd(client, line, Slots(memory, *sizes))
            # If the client has gone meanwhile, its line hangs up at the next poll like any other.
            _send_quietly(line, _WELCOME.pack(client), [memory])
        finally:
            os.close(memory)

    def _drop(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._lines.pop(descriptor).close()
        self._ends.pop(descriptor, None)


def _send_quietly(line: socket.socket, message: bytes, descriptors: list[int]) -> None:
    try:
        if descriptors:
            socket.send_fds(line, [message], descriptors)
        else:
            line.send(message)
    except OSError:
        return


def _make_memory(size: int) -> int:
    """Descriptor of `size` bytes of memory that no name leads to."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("muzero-ring")
        try:
            os.posix_fallocate(descriptor, 0, size)  # now, rather than by a bus error later
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())
