"""What clients and the inference server say to each other: arrays only, the same through shared memory and through calls.

Letters: `n` rows of a request, `k` nodes, `A` actions, `*O` observation shape, `*M` a latent as the server keeps it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from muzero.inference.ring import Bytes, ServerLost, Ticket, align
from muzero.network.base import NetworkSpec

Array = npt.NDArray[Any]


class Kind(IntEnum):
    """What is asked for."""

    HELLO = 0
    """Nothing but the version."""
    ROOTS = 1
    """Observations `[n, *O]` for the roots of the client's first `n` rows -> logits `[n, A]`, value `[n]`."""
    PREDICT = 2
    """Observations `[n, *O]` -> logits `[n, A]`, value `[n]`; touches no tree."""
    RECURRENT = 3
    """Row, parent, action, node `[4, n]` -> logits `[n, A]`; value, reward and discount `[3, n]`."""
    MOVE = 4
    """Row, source and target node `[3, k]`: latents move within their rows."""
    READ = 5
    """Row and node `[2, k]` -> latents `[k, *M]`."""
    WRITE = 6
    """Row and node `[2, k]`, latents `[k, *M]`."""


JOINABLE = (Kind.ROOTS, Kind.PREDICT, Kind.RECURRENT)
"""What the server answers for several clients at once."""


class Layout(NamedTuple):
    """Shape and type of one array of a message."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a client has to know of the server; the same for all clients of a run."""

    spec: NetworkSpec
    rows_per_client: int
    """Trees of a client."""
    num_nodes: int
    """Nodes of a tree."""
    discount: float
    """Discount per step, gamma."""
    observation_dtype: str
    """What observations are sent as."""
    latent_format: str
    """See `LocalModel.latent_format`."""
    latent_shape: tuple[int, ...]
    """`*M`."""
    latent_dtype: str

    def request_layout(self, kind: int, count: int) -> list[Layout]:
        """Arrays of a request for `count` rows or nodes."""
        match kind:
            case Kind.ROOTS | Kind.PREDICT:
                return [Layout((count, *self.spec.observation_shape), self.observation_dtype)]
            case Kind.RECURRENT:
                return [Layout((4, count), np.int32)]
            case Kind.MOVE:
                return [Layout((3, count), np.int32)]
            case Kind.READ:
                return [Layout((2, count), np.int32)]
            case Kind.WRITE:
                latents = Layout((count, *self.latent_shape), self.latent_dtype)
                return [Layout((2, count), np.int32), latents]
        return []

    def reply_layout(self, kind: int, count: int) -> list[Layout]:
        """Arrays of its reply."""
        logits = Layout((count, self.spec.num_actions), np.float32)
        match kind:
            case Kind.ROOTS | Kind.PREDICT:
                return [logits, Layout((count,), np.float32)]
            case Kind.RECURRENT:
                return [logits, Layout((3, count), np.float32)]
            case Kind.READ:
                return [Layout((count, *self.latent_shape), self.latent_dtype)]
        return []

    def most(self, kind: int) -> int:
        """Most rows or nodes of a request: what has room where all rows have."""
        if kind in JOINABLE:
            return self.rows_per_client
        if kind == Kind.MOVE:
            return self.rows_per_client * self.num_nodes
        latent_bytes = prod(self.latent_shape) * np.dtype(self.latent_dtype).itemsize
        return max(1, _LATENT_BYTES // latent_bytes)

    @property
    def request_bytes(self) -> int:
        """Size of a slot that holds any request."""
        return max(size_of(self.request_layout(kind, self.most(kind))) for kind in Kind)

    @property
    def reply_bytes(self) -> int:
        """Size of a slot that holds any reply; `MESSAGE_BYTES` at least, for what is told of an error."""
        sizes = [size_of(self.reply_layout(kind, self.most(kind))) for kind in Kind]
        return max(MESSAGE_BYTES, *sizes)


# Fields of a ring's headers.
KIND, COUNT, SENT = 0, 1, 2
STATUS, VERSION, LENGTH = 0, 1, 2
ANSWERED, REFUSED = 0, 1

MESSAGE_BYTES = 1024
_LATENT_BYTES = 1 << 16  # of latents that are read or written by one request


def size_of(layouts: Sequence[Layout]) -> int:
    """Bytes of these arrays, each on cache lines of its own."""
    return sum(align(prod(shape) * np.dtype(dtype).itemsize) for shape, dtype in layouts)


def arrays_in(memory: Bytes, layouts: Sequence[Layout]) -> list[Array]:
    """The arrays, one after the other in `memory`.

    Raises:
        ValueError: If they need more than there is.
    """
    arrays: list[Array] = []
    start = 0
    for shape, dtype in layouts:
        size = prod(shape) * np.dtype(dtype).itemsize
        if start + size > len(memory):
            raise ValueError(
                f"a message of {size_of(layouts)} bytes does not fit into a slot of {len(memory)} bytes: ask for fewer rows "
                "at a time, or give the server a larger rows_per_client"
            )
        arrays.append(memory[start : start + size].view(dtype).reshape(shape))
        start += align(size)
    return arrays


@dataclass(frozen=True, slots=True)
class RingTicket:
    """What a client of the server's host attaches with; small, and may be pickled."""

    ring: Ticket
    info: ServerInfo


class CallRequest(NamedTuple):
    """A request as one function call carries it."""

    kind: int
    arrays: list[Array]


class CallReply(NamedTuple):
    """Its reply."""

    version: int
    """Version of the weights that answered."""
    arrays: list[Array]


Call = Callable[[CallRequest], CallReply]
"""Hands a request of one client to `InferenceServer.answer`, wherever that is, and gives back what it returns.

Raises `ServerLost` if the server is gone or does not answer in time, and hands on the server's ValueErrors.
"""


class Transport(Protocol):
    """How requests of one client get to the server. One request at a time."""

    info: ServerInfo

    def prepare(self, kind: Kind, count: int) -> list[Array]:
        """Arrays to be filled with the request; ValueError if it has no room."""

    def ask(self, kind: Kind, count: int) -> tuple[int, list[Array]]:
        """Send what has been prepared; the version that answered, and its answer, valid until the next call.

        Raises:
            ServerLost: If the server is gone or does not answer in time.
            ValueError: If the server refuses the request.
        """

    def close(self) -> None:
        """Leave the server."""


class CallTransport:
    """Requests as function calls, for clients on other hosts than the server.

    Example:
        >>> info = server.attach("worker 3")  # on the server's side
        >>> model = RemoteModel(CallTransport(lambda request: server.answer("worker 3", request), info))
    """

    def __init__(self, call: Call, info: ServerInfo) -> None:
        self.info = info
        self._call = call
        self._arrays: list[Array] = []

    def prepare(self, kind: Kind, count: int) -> list[Array]:
        """See `Transport.prepare`; fresh arrays, because the call may only look at them later."""
        check_room(self.info, kind, count)
        self._arrays = [np.empty(*layout) for layout in self.info.request_layout(kind, count)]
        return self._arrays

    def ask(self, kind: Kind, count: int) -> tuple[int, list[Array]]:
        """See `Transport.ask`."""
        reply = self._call(CallRequest(int(kind), self._arrays))
        shapes = [(array.shape, array.dtype) for array in reply.arrays]
        expected = [
            (shape, np.dtype(dtype)) for shape, dtype in self.info.reply_layout(kind, count)
        ]
        if shapes != expected:
            raise ServerLost(f"the server answers with {shapes}, not {expected}: it is another one")
        return reply.version, list(reply.arrays)

    def close(self) -> None:
        """See `Transport.close`; whoever called `InferenceServer.attach` calls `detach`."""


def check_room(info: ServerInfo, kind: int, count: int) -> None:
    """Raise a ValueError if the request is larger than any may be, or asks for nothing."""
    most = info.most(kind)
    if count > most:
        raise ValueError(
            f"a request for {count} rows or nodes; a client of this server has room for {most}: ask for fewer "
            "at a time, or give the server a larger rows_per_client"
        )
    if count < 1 and kind != Kind.HELLO:
        raise ValueError(f"a request for {count} rows; it has to be at least 1")
