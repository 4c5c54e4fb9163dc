"""Time and what is shared: an event queue, servers that answer one after another, published weights."""

import heapq
import itertools
from collections.abc import Callable


class Events:
    """What happens when; what happens at one time happens in the order it was planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Plan an action; `time` is not in the past."""
        heapq.heappush(self._heap, (time, next(self._number), action))

    def run(self, until: float) -> None:
        """Let everything up to a time happen."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = until


class Server:
    """Serves one request after another, in the order of the calls."""

    __slots__ = ("_free_at", "busy_seconds")

    def __init__(self) -> None:
        self._free_at = 0.0
        self.busy_seconds = 0.0

    def finish(self, arrival: float, seconds: float) -> float:
        """When a request that arrives then and takes so long is done."""
        self._free_at = max(arrival, self._free_at) + seconds
        self.busy_seconds += seconds
        return self._free_at


class Weights:
    """Versions that learners publish and hosts pull: one copy per host, through the link of the store's host."""

    def __init__(
        self, *, put_seconds: float, pull_seconds: float, num_hosts: int, publish_seconds: float
    ) -> None:
        self.link = Server()
        self._put_seconds, self._pull_seconds = put_seconds, pull_seconds
        self._publish_seconds = publish_seconds
        self._ready_at = 0.0
        self._version = self._pending = 0
        self._published_at = 0.0
        self._hosts = [0] * num_hosts

    def publish(self, now: float, version: int) -> None:
        """Publish, unless the last publication is too near or not done: then this version is left out."""
        if now >= self._ready_at and now - self._published_at >= self._publish_seconds:
            self._version, self._pending = self._pending, version
            self._published_at, self._ready_at = now, now + self._put_seconds

    def newest(self, now: float) -> int:
        """The newest version that can be pulled."""
        if now >= self._ready_at:
            self._version = self._pending
        return self._version

    def pull(self, now: float, host: int) -> tuple[int, float]:
        """The version a worker on this host begins with, and when it has it."""
        newest = self.newest(now)
        if newest > self._hosts[host]:
            self._hosts[host] = newest
            return newest, self.link.finish(now, self._pull_seconds)
        return self._hosts[host], now
