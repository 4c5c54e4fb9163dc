"""Batches made ready ahead of the learner."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from muzero.replay.batch import Batch
from muzero.runtime.fleet.messages import Samples, ShardAddress, ShardLost
from muzero.runtime.fleet.waiting import ASSEMBLY, TRANSFER, WaitAccount

MOST_THREADS = 8
_PAUSE_SECONDS = 0.25  # behind an empty answer of a shard, which then has nothing to give
_MOST_REQUESTS = 64  # per shard, until one is asked again for what it has


class SampleLink(Protocol):
    """How the learner reaches a shard; one that does not answer is `ShardLost`."""

    def sample(
        self, shard: ShardAddress, batch_size: int, count: int, newest_version: int
    ) -> Samples:
        """See `ReplayShard.sample`."""


class Ready(NamedTuple):
    """A batch that can be learned from."""

    batch: Batch
    inputs: Any
    """What `prepare` made of it."""
    shard: ShardAddress


class Loader:
    """Threads that draw batches from the shards, as far as the allowance and the queue's depth permit; oldest first.

    Args:
        link: To the shards.
        prepare: Turns a batch into what the learner's device wants.
        depth: Batches held ready.
        threads: Requests at once.
        seed: Of the choice among shards.
    """

    def __init__(
        self,
        link: SampleLink,
        prepare: Callable[[Batch], tuple[Batch, Any]],
        waits: WaitAccount,
        *,
        batch_size: int,
        depth: int,
        threads: int,
        seed: np.random.SeedSequence,
    ) -> None:
        self._link, self._prepare, self._waits = link, prepare, waits
        self._batch_size, self._rng = batch_size, np.random.default_rng(seed)
        self._lock = threading.Lock()
        # Two conditions, and no more threads than are asked for: whoever is woken in vain takes the interpreter from the learner.
        self._filled, self._room = (threading.Condition(self._lock) for _ in range(2))
        self._ready: deque[Ready] = deque()
        self._shards: list[ShardAddress] = []
        self._mass: dict[int, float] = {}  # as each shard has told last
        self._asked: dict[int, int] = {}  # number of the last request to each shard
        self._requests = 0
        self._allowance = self._requested = self.sampled = 0
        self._in_flight = 0
        self._version = 0
        self._stopped = False
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._depth = self._active_threads = 0
        self.tune(depth, threads)

    @property
    def num_ready(self) -> int:
        """Batches ready now."""
        return len(self._ready)

    def allow(self, total: int) -> None:
        """Let so many positions be sampled in all; a smaller total than before changes nothing."""
        with self._lock:
            self._allowance = max(self._allowance, total)
            self._room.notify_all()

    def connect(self, shards: list[ShardAddress]) -> None:
        """Draw from these shards from now on."""
        with self._lock:
            self._shards = list(shards)
            self._mass = {s.index: self._mass[s.index] for s in shards if s.index in self._mass}
            self._asked = {s.index: self._asked[s.index] for s in shards if s.index in self._asked}
            self._room.notify_all()

    def tune(self, depth: int, threads: int) -> None:
        """Change depth and number of requests at once."""
        with self._lock:
            self._depth, self._active_threads = depth, min(threads, MOST_THREADS)
            for number in range(len(self._threads), self._active_threads):
                thread = threading.Thread(
                    target=self._serve, args=(number,), name="loader", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._room.notify_all()

    def note_version(self, version: int) -> None:
        """The learner's present version, for the shards' cut of what is too old."""
        self._version = version

    def next(self, interrupted: Callable[[], bool]) -> Ready | None:
        """The oldest ready batch; waits for one, and gives None as soon as `interrupted` after a `wake`."""
        with self._lock:
            if not self._ready and self._error is None:
                self._waits.begin()
                try:
                    while not self._ready and self._error is None:
                        if interrupted():
                            return None
                        self._filled.wait(1.0)
                finally:
                    self._waits.end()
            if self._error is not None:
                raise self._error
            ready = self._ready.popleft()
            self._room.notify_all()
            return ready

    def wake(self) -> None:
        """Let `next` look whether it is interrupted."""
        with self._lock:
            self._filled.notify_all()

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            self._stopped = True
            self._room.notify_all()
        for thread in self._threads:
            thread.join(5.0)

    def _serve(self, number: int) -> None:
        try:
            while (job := self._next_job(number)) is not None:
                self._load(*job)
        except BaseException as error:  # reaches the learner, which ends with it
            with self._lock:
                self._error = error
                self._filled.notify_all()

    def _next_job(self, number: int) -> tuple[ShardAddress, int] | None:
        """A shard and a number of batches that may be asked of it; None at the end."""
        with self._lock:
            while not self._stopped:
                room = self._depth - len(self._ready) - self._in_flight
                allowed = (self._allowance - self._requested) // self._batch_size
                half = max(1, self._depth // 2)
                count = min(room, allowed, half)
                is_due = (
                    room >= half or not self._ready
                )  # one message for half a queue, not one for each batch
                if number < self._active_threads and count > 0 and is_due and self._shards:
                    self._in_flight += count
                    self._requested += count * self._batch_size
                    return self._choose(), count
                self._room.wait()
            return None

    def _choose(self) -> ShardAddress:
        """In proportion to the masses; a shard of which nothing has been heard for long is asked whatever it had then."""
        self._requests += 1
        longest = _MOST_REQUESTS * len(self._shards)
        chosen = min(self._shards, key=lambda shard: self._asked.get(shard.index, -longest))
        if self._requests - self._asked.get(chosen.index, -longest) < longest:
            mass = np.array([self._mass.get(shard.index, 0.0) for shard in self._shards]) + 1e-12
            chosen = self._shards[int(self._rng.choice(len(mass), p=mass / mass.sum()))]
        self._asked[chosen.index] = self._requests
        return chosen

    def _load(self, shard: ShardAddress, count: int) -> None:
        samples: Samples | None = None
        self._waits.enter(ASSEMBLY)
        try:
            samples = self._link.sample(shard, self._batch_size, count, self._version)
        except ShardLost:
            pass
        finally:
            self._waits.leave(ASSEMBLY)
        batches = [] if samples is None else samples.batches
        for batch in batches:
            self._waits.enter(TRANSFER)
            try:
                turned, inputs = self._prepare(batch)
            finally:
                self._waits.leave(TRANSFER)
            with self._lock:
                self._in_flight -= 1
                self.sampled += self._batch_size
                self._ready.append(Ready(turned, inputs, shard))
                self._filled.notify_all()
        missing = count - len(batches)
        with self._lock:
            if samples is not None and shard in self._shards:
                self._mass[shard.index] = samples.mass
            self._in_flight -= missing
            self._requested -= missing * self._batch_size
            self._room.notify_all()
        if missing:
            time.sleep(_PAUSE_SECONDS)
