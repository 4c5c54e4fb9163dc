"""The learners of the simulation: they step together, each with a batch of its own, and draw batches ahead."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.simulation.report import Counts
from muzero.runtime.simulation.resources import Events, Server
from muzero.runtime.simulation.scenario import Costs, Scenario


@dataclass(slots=True)
class _Round:
    """One batch for each learner."""

    issued: float
    assembled: float
    ready: float


class Learners:
    """Learner i draws from shard i modulo their number, which is on its host if there are as many shards.

    Args:
        on_drawn: Called when samples have been drawn: the limiter may let self-play go on.
        on_step: Called with the version after each step.
    """

    def __init__(
        self,
        scenario: Scenario,
        costs: Costs,
        events: Events,
        limiter: FleetLimiter,
        shards: list[Server],
        links: list[Server],
        *,
        on_drawn: Callable[[], None],
        on_step: Callable[[int], None],
    ) -> None:
        self._scenario, self._costs, self._events, self._limiter = scenario, costs, events, limiter
        self._shards, self._links = shards, links
        self._memory = [Server() for _ in range(scenario.learners)]
        self._on_drawn, self._on_step = on_drawn, on_step
        self._step_seconds = scenario.step_seconds(costs)
        self._in_flight: deque[_Round] = deque()
        self._ready: deque[_Round] = deque()
        self._idle_since: float | None = 0.0
        self.assembly_threads = self.prefetch = 1
        self.version = 0
        self.counts = Counts()

    def draw(self) -> None:
        """Ask for rounds of batches, as many as limiter, assembly and queue allow."""
        scenario, limiter = self._scenario, self._limiter
        size = scenario.batch_size * scenario.learners
        drawn = False
        while (
            len(self._in_flight) < self.assembly_threads
            and len(self._in_flight) + len(self._ready) < self.prefetch
            and limiter.allowance - limiter.samples >= size
        ):
            limiter.record_samples(size)
            self._request()
            drawn = True
        if drawn:
            self._on_drawn()

    def _request(self) -> None:
        scenario, costs, now = self._scenario, self._costs, self._events.now
        assembled = ready = now
        for index in range(scenario.learners):
            shard = index % len(self._shards)
            done = self._shards[shard].finish(
                now + costs.call_seconds / 2, scenario.batch_size * costs.sample_seconds
            )
            sent = scenario.batch_size * costs.sample_bytes
            arrived = self._memory[index].finish(done, sent / costs.memory_bytes_per_second)
            if index >= len(self._shards) and scenario.num_hosts > 1:
                arrived = self._links[shard].finish(arrived, sent / costs.link_bytes_per_second)
            assembled, ready = max(assembled, done), max(ready, arrived + costs.call_seconds / 2)
        new = _Round(now, assembled, ready)
        self._in_flight.append(new)
        self._events.at(ready, self._arrive)

    def _arrive(self) -> None:
        self._ready.append(self._in_flight.popleft())
        self._step()
        self.draw()

    def _step(self) -> None:
        if self._idle_since is None or not self._ready:
            return
        batch = self._ready.popleft()
        self._note_wait(batch)
        self._idle_since = None
        self._events.at(self._events.now + self._step_seconds, self._finish_step)

    def _finish_step(self) -> None:
        scenario, counts = self._scenario, self.counts
        counts.learner_seconds += self._step_seconds
        counts.steps += 1
        counts.samples += scenario.batch_size * scenario.learners
        self.version += 1
        self._idle_since = self._events.now
        self._on_step(self.version)
        self._step()
        self.draw()

    def settle_wait(self) -> None:
        """Count a wait that is going on up to now."""
        if self._idle_since is not None:
            self._note_wait(self._in_flight[0] if self._in_flight else None)
            self._idle_since = self._events.now

    def _note_wait(self, batch: _Round | None) -> None:
        """Split the wait by what the batch it was for was going through; before it was asked for, the limiter refused."""
        assert self._idle_since is not None
        start, now, waits = self._idle_since, self._events.now, self.counts.waits
        issued = now if batch is None else min(max(batch.issued, start), now)
        assembled = now if batch is None else min(max(batch.assembled, issued), now)
        waits["limiter"] += issued - start
        waits["assembly"] += assembled - issued
        waits["transfer"] += now - assembled
