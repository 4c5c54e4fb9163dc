"""The search workers of the simulation: they do self-play or reanalyze by lease."""

from collections.abc import Callable
from random import Random

from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.simulation.report import Counts
from muzero.runtime.simulation.resources import Events, Server, Weights
from muzero.runtime.simulation.ring import Ring
from muzero.runtime.simulation.scenario import Costs, Scenario


class Workers:
    """Gives leases as the supervisor does: by the wished share, self-play only while the limiter allows it.

    A worker that the limiter refuses reanalyzes; where nothing is due either, it is parked until something changes.

    Args:
        learner_version: The learners' present step.
        on_insert: Called when positions have been inserted: learners may draw.
    """

    def __init__(
        self,
        scenario: Scenario,
        costs: Costs,
        events: Events,
        limiter: FleetLimiter,
        ring: Ring,
        weights: Weights,
        shards: list[Server],
        links: list[Server],
        *,
        learner_version: Callable[[], int],
        on_insert: Callable[[], None],
    ) -> None:
        self._scenario, self._costs, self._events, self._limiter = scenario, costs, events, limiter
        self._ring, self._weights, self._shards, self._links = ring, weights, shards, links
        self._learner_version, self._on_insert = learner_version, on_insert
        self._random = Random(scenario.seed)
        self.supervisor = Server()
        self.selfplay_share = 1.0
        self.num_workers = 0
        """Workers with a lower index get leases; the others are let go when their lease ends."""
        self._started = 0
        self._credit = 0.0
        self._parked: list[tuple[int, float]] = []
        self._away: set[int] = set()
        self._turn = 0
        self._due = 0.0  # positions to refresh until enough targets are fresh
        self.counts = Counts()
        self._selfplay_seconds = scenario.selfplay_seconds(costs)
        self._reanalyze_seconds = scenario.reanalyze_seconds(costs)

    def resize(self, num_workers: int) -> None:
        """Keep so many workers: start what is missing, let go of parked ones that are too many."""
        self.num_workers = num_workers
        self._limiter.resize(num_workers)
        waking = [index for index in sorted(self._away) if index < num_workers]
        waking += range(self._started, num_workers)
        self._started = max(self._started, num_workers)
        self._away.difference_update(waking)
        self.settle_parked()
        self._away.update(index for index, _ in self._parked if index >= num_workers)
        self._parked = [each for each in self._parked if each[0] < num_workers]
        for index in waking:
            self._ask(index)
        self.wake()

    def wake(self) -> None:
        """Let parked workers ask again, until one is parked again."""
        waiting, self._parked = self._parked, []
        while waiting:
            index, since = waiting.pop(0)
            self._note_parked(since)
            self._ask(index)
            if self._parked:
                break
        self._parked += waiting

    def settle_parked(self) -> None:
        """Count the parked time up to now."""
        now = self._events.now
        for _, since in self._parked:
            self._note_parked(since)
        self._parked = [(index, now) for index, _ in self._parked]

    def watch_freshness(self) -> None:
        """Look how many targets are due for a refresh."""
        scenario, ring = self._scenario, self._ring
        fresh = ring.fresh_fraction(self._learner_version(), scenario.max_target_age)
        self._due = (scenario.fresh_fraction - fresh) * ring.size
        if self._due > 0.0:
            self.wake()

    def _note_parked(self, since: float) -> None:
        seconds = self._events.now - since
        self.counts.idle_seconds += seconds
        self.counts.blocked_seconds += seconds

    def _ask(self, index: int) -> None:
        """A worker is free: give it a lease, or park it."""
        if index >= self.num_workers:
            self._away.add(index)
            return
        scenario = self._scenario
        moves = round(scenario.lease_seconds / (scenario.num_games * self._selfplay_seconds))
        quantum = min(max(1, moves) * scenario.num_games, self._limiter.longest_lease)
        is_stale = self._due > 0.0
        wants_selfplay = self._credit >= 0.0 or not is_stale
        if wants_selfplay and self._limiter.reserve(quantum):
            self._pay(quantum * self._selfplay_seconds * (self.selfplay_share - 1.0))
            self._selfplay(index, quantum)
        elif is_stale and self._reanalyze(index, is_blocked=wants_selfplay):
            pass
        elif not wants_selfplay and self._limiter.reserve(quantum):
            self._selfplay(index, quantum)
        else:
            self._parked.append((index, self._events.now))

    def _pay(self, seconds: float) -> None:
        """Self-play's credit in work time: it is lent when reanalyze has had more than its share."""
        most = self._scenario.lease_seconds * max(1, self.num_workers)
        self._credit = min(max(self._credit + seconds, -most), most)

    def _begin(self, index: int) -> tuple[float, int]:
        """When a worker has its lease and its weights, and their version."""
        costs = self._costs
        granted = self.supervisor.finish(self._events.now, 2.0 * costs.supervisor_call_seconds)
        version, ready = self._weights.pull(
            granted + costs.call_seconds, index // self._scenario.cores_per_host
        )
        return ready, version

    def _noisy(self, seconds: float) -> float:
        return seconds * self._random.lognormvariate(0.0, self._scenario.noise)

    def _shard(self) -> int:
        self._turn = (self._turn + 1) % len(self._shards)
        return self._turn

    def _carry(self, shard: int, arrival: float, nbytes: float) -> float:
        """When bytes have gone through the link of a shard's host; on a single host, through its memory."""
        one_host = self._scenario.num_hosts == 1
        costs = self._costs
        rate = costs.memory_bytes_per_second if one_host else costs.link_bytes_per_second
        return self._links[shard].finish(arrival, nbytes / rate)

    def _selfplay(self, index: int, quantum: int) -> None:
        costs, start = self._costs, self._events.now
        ready, version = self._begin(index)
        search = self._noisy(quantum * self._selfplay_seconds)

        def insert() -> None:
            shard = self._shard()
            arrived = self._carry(shard, self._events.now, quantum * costs.position_bytes)
            done = self._shards[shard].finish(
                arrived + costs.call_seconds / 2, quantum * costs.insert_seconds
            )
            self._events.at(done + costs.call_seconds / 2, end)

        def end() -> None:
            counts = self.counts
            counts.leases += 1
            counts.positions += quantum
            counts.search_seconds += search
            counts.selfplay_seconds += self._events.now - start
            self._ring.insert(quantum, version)
            self._limiter.settle(quantum, quantum)
            self._on_insert()
            self._ask(index)

        self._events.at(ready + search, insert)

    def _reanalyze(self, index: int, *, is_blocked: bool) -> bool:
        """Begin a lease of reanalyze; False if no target is older than the weights there are."""
        scenario, costs, start = self._scenario, self._costs, self._events.now
        stalest = self._ring.stalest
        if stalest is None or stalest >= self._weights.newest(start):
            return False
        ready, version = self._begin(index)
        size = scenario.reanalyze_batch
        batches = max(1, round(scenario.lease_seconds / (size * self._reanalyze_seconds)))
        taken = self._ring.take(batches * size, version)
        count = sum(part.count for part in taken)
        self._due -= count
        shard = self._shard()
        work = count * costs.take_seconds / 2.0
        given = self._shards[shard].finish(ready + costs.call_seconds, work)
        given = self._carry(shard, given, count * costs.reanalyze_bytes)
        if not is_blocked:
            self._pay(count * self._reanalyze_seconds * self.selfplay_share)
        search = self._noisy(count * self._reanalyze_seconds)

        def give_back() -> None:
            done = self._shards[shard].finish(self._events.now + costs.call_seconds, work)
            self._events.at(done, end)

        def end() -> None:
            counts, seconds = self.counts, self._events.now - start
            counts.leases += 1
            counts.searched += count
            counts.reanalyzed += self._ring.give_back(taken, version)
            counts.search_seconds += search
            counts.reanalyze_seconds += seconds
            if is_blocked:
                counts.blocked_seconds += seconds
            self._ask(index)

        self._events.at(given + search, give_back)
        return True
