"""When the requests of several clients are answered, and which of them together."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar


class Request(Protocol):
    """What the queue has to know of a request."""

    client: int
    kind: int
    """Requests of one kind may be answered together."""
    is_joinable: bool
    """Whether this kind may at all."""
    num_rows: int
    arrived: float
    """Seconds of the queue's clock."""


@dataclass(frozen=True, slots=True)
class BatchingRule:
    """A batch starts when enough clients wait, when it is full, or when the oldest request has waited long enough.

    Enough is a share of the clients that live, so nobody waits for the dead. Waiting longer than the network took last could
    not pay: in that time the batch would have been answered.
    """

    max_rows: int = 512
    """Most rows of a batch."""
    max_wait_seconds: float = 0.002
    """Longest wait for others."""
    min_client_fraction: float = 0.5
    """Share of the live clients whose requests start a batch, 0 to 1; one request at least."""

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ValueError(f"max_rows is {self.max_rows}; it has to be at least 1")
        if not 0.0 <= self.max_wait_seconds < math.inf:
            raise ValueError(
                f"max_wait_seconds is {self.max_wait_seconds}; it has to be 0 or above, and finite"
            )
        if not 0.0 <= self.min_client_fraction <= 1.0:
            raise ValueError(
                f"min_client_fraction is {self.min_client_fraction}; it has to be from 0 to 1"
            )

    def min_requests(self, num_clients: int) -> int:
        """Requests that start a batch while so many clients live."""
        return max(1, math.ceil(self.min_client_fraction * num_clients))

    def longest_wait(self, forward_seconds: float) -> float:
        """Seconds that a request waits for others, if the network took so long last."""
        return min(self.max_wait_seconds, forward_seconds)

    def is_enough(self, num_requests: int, num_rows: int, num_clients: int) -> bool:
        """Whether what is there starts a batch at once."""
        return num_requests >= self.min_requests(num_clients) or num_rows >= self.max_rows


R = TypeVar("R", bound=Request)


class Batch(NamedTuple, Generic[R]):
    """Requests of one kind, to be answered together, in the order they came."""

    requests: list[R]
    timed_out: bool
    """Whether it started because the oldest had waited long enough."""


class RequestQueue(Generic[R]):
    """Requests that wait: at most one per client.

    Args:
        clock: In seconds.
    """

    def __init__(self, rule: BatchingRule, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rule, self._clock = rule, clock
        self._waiting: dict[int, R] = {}
        self._num_rows = 0
        self.num_clients = 0
        """Clients that live."""
        self.forward_seconds = 0.0
        """What the last batch took."""

    def put(self, request: R) -> R | None:
        """Let a request wait. One of the same client that still waits is dropped, and returned: it has been given up."""
        dropped = self.drop(request.client)
        self._waiting[request.client] = request
        self._num_rows += request.num_rows
        return dropped

    def drop(self, client: int) -> R | None:
        """Forget, and return, what a client has asked."""
        request = self._waiting.pop(client, None)
        if request is not None:
            self._num_rows -= request.num_rows
        return request

    def drain(self) -> list[R]:
        """All that wait; none does afterwards."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._num_rows = 0
        return waiting

    def seconds_left(self) -> float | None:
        """Seconds until the next batch starts if no more requests come; 0 if it starts now, None if nothing waits."""
        if not self._waiting:
            return None
        if self.rule.is_enough(len(self._waiting), self._num_rows, self.num_clients):
            return 0.0
        oldest = min(request.arrived for request in self._waiting.values())
        return max(0.0, oldest + self.rule.longest_wait(self.forward_seconds) - self._clock())

    def take(self) -> Batch[R] | None:
        """The batch that starts now, if one does: the oldest request and those of its kind, as many as have room."""
        enough = self.rule.is_enough(len(self._waiting), self._num_rows, self.num_clients)
        if not self._waiting or not (enough or self.seconds_left() == 0.0):
            return None
        waiting = sorted(self._waiting.values(), key=lambda request: request.arrived)
        first = waiting[0]
        taken, num_rows = [first], first.num_rows
        for request in waiting[1:] if first.is_joinable else []:
            if request.kind == first.kind and num_rows + request.num_rows <= self.rule.max_rows:
                taken.append(request)
                num_rows += request.num_rows
        for request in taken:
            self.drop(request.client)
        return Batch(taken, not enough)
