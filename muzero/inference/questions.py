"""A client's request as the server holds it, whichever way it came.

Letters: `n` rows of a request, `N` nodes of a tree, `A` actions.
"""

import threading
import time
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from mcts.base import IntArray
from muzero.inference.emit import kernel
from muzero.inference.messages import (
    ANSWERED,
    JOINABLE,
    LENGTH,
    MESSAGE_BYTES,
    REFUSED,
    STATUS,
    VERSION,
    Array,
    CallReply,
    CallRequest,
    Kind,
    ServerInfo,
    arrays_in,
    check_room,
)
from muzero.inference.ring import ServerEnd, ServerLost


class Question(ABC):
    """A request that waits for its answer; see `batching.Request`."""

    kind: int
    is_joinable: bool
    num_rows: int
    """Rows, or nodes of a request that is about nodes."""
    arrived: float
    """Seconds of `time.monotonic`."""
    arrays: list[Array]
    """What was sent."""
    replies: list[Array]
    """Arrays to write the answer into."""

    def __init__(self, client: int) -> None:
        self.client = client

    @abstractmethod
    def finish(self, version: int) -> None:
        """Tell the client that the answer has been written."""

    @abstractmethod
    def refuse(self, reason: str) -> None:
        """Let the client raise a ValueError."""


class RingQuestion(Question):
    """What the client at the other end of a ring asks now; the same object for all that it asks."""

    def __init__(self, end: ServerEnd, info: ServerInfo) -> None:
        super().__init__(end.client)
        self.end, self._info = end, info
        self._known: dict[tuple[int, int], tuple[list[Array], list[Array]]] = {}

    def read(self) -> None:
        """Take the request that has come.

        Raises:
            ValueError: If it is unknown, or for more than a client has room for.
        """
        slots = self.end.slots
        kind, count, sent = slots.request_header[:3].tolist()
        known = self._known.get((kind, count))
        if known is None:
            kind, info = Kind(kind), self._info
            check_room(info, kind, count)
            known = (
                arrays_in(slots.request, info.request_layout(kind, count)),
                arrays_in(slots.reply, info.reply_layout(kind, count)),
            )
            if kind in JOINABLE:  # of few sizes
                self._known[kind, count] = known
        self.arrays, self.replies = known
        self.kind, self.num_rows = kind, count
        self.is_joinable = kind in JOINABLE
        # The client's own clock: it has waited since then, in the socket at first. Never later than now.
        self.arrived = min(sent * 1e-9, time.monotonic())

    def finish(self, version: int) -> None:
        """See `Question.finish`."""
        header = self.end.slots.reply_header
        header[STATUS], header[VERSION] = ANSWERED, version
        self.end.ring()

    def refuse(self, reason: str) -> None:
        """See `Question.refuse`."""
        slots = self.end.slots
        message = reason.encode()[:MESSAGE_BYTES]
        slots.reply[: len(message)] = np.frombuffer(message, np.uint8)
        slots.reply_header[STATUS], slots.reply_header[LENGTH] = REFUSED, len(message)
        self.end.ring()


class CallQuestion(Question):
    """A request in a call of `InferenceServer.answer`, whose thread waits for it.

    Raises:
        ValueError: If the arrays are not what such a request is made of, or too large.
    """

    def __init__(self, client: int, request: CallRequest, info: ServerInfo) -> None:
        super().__init__(client)
        self.kind, self.arrays = Kind(request.kind), list(request.arrays)
        count = 0
        if self.arrays and self.arrays[0].ndim > 0:
            is_by_column = self.kind in (Kind.RECURRENT, Kind.MOVE, Kind.READ, Kind.WRITE)
            count = self.arrays[0].shape[-1 if is_by_column else 0]
        check_room(info, self.kind, count)
        found = [(array.shape, array.dtype) for array in self.arrays]
        layouts = info.request_layout(self.kind, count)
        expected = [(shape, np.dtype(dtype)) for shape, dtype in layouts]
        if found != expected:
            raise ValueError(
                f"a request {self.kind.name} holds {found}; the server expects {expected}"
            )
        self.is_joinable, self.num_rows = self.kind in JOINABLE, count
        self.replies = [np.empty(*layout) for layout in info.reply_layout(self.kind, count)]
        self.arrived = time.monotonic()
        self._done = threading.Event()
        self._reply: CallReply | Exception | None = None

    def finish(self, version: int) -> None:
        """See `Question.finish`."""
        self._end_with(CallReply(version, self.replies))

    def refuse(self, reason: str) -> None:
        """See `Question.refuse`."""
        self._end_with(ValueError(reason))

    def abandon(self) -> None:
        """Tell the client that the server ends."""
        self._end_with(ServerLost("the inference server has ended"))

    def wait(self, timeout_seconds: float) -> CallReply:
        """The reply, or what the server has raised instead."""
        self._done.wait(timeout_seconds)
        reply = self._reply
        if reply is None:
            raise ServerLost(
                f"the inference server has not answered within {timeout_seconds:g} seconds"
            )
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _end_with(self, reply: CallReply | Exception) -> None:
        if not self._done.is_set():
            self._reply = reply
            self._done.set()


@kernel
def take_edges(
    edges: IntArray,
    first_row: int,
    num_rows: int,
    num_nodes: int,
    num_actions: int,
    start: int,
    together: IntArray,
) -> bool:
    """Copy edges `[4, n]` of a client behind those of others, with its rows where they are in the server's model.

    Returns whether all are in range: compiled networks look at no bounds, and a wrong row would be another client's.
    """
    is_right = True
    for i in range(edges.shape[1]):
        row, parent, action, node = edges[0, i], edges[1, i], edges[2, i], edges[3, i]
        is_right &= 0 <= row < num_rows and 0 <= parent < num_nodes
        is_right &= 0 <= action < num_actions and 0 <= node < num_nodes
        together[0, start + i] = first_row + row
        together[1, start + i] = parent
        together[2, start + i] = action
        together[3, start + i] = node
    return is_right


def are_nodes(places: npt.NDArray[np.int32], num_rows: int, num_nodes: int) -> bool:
    """Whether rows and nodes `[2 or 3, k]` are in range."""
    rows, nodes = places[0], places[1:]
    if rows.size == 0:
        return True
    is_row = rows.min() >= 0 and rows.max() < num_rows
    return bool(is_row and nodes.min() >= 0 and nodes.max() < num_nodes)
