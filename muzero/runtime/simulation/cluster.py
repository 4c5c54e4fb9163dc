"""The simulated run: roles, shared resources, the real limiter and the real controller around one event queue."""

from collections.abc import Callable
from typing import Any

from muzero.runtime.controller import Controller, Decision, Perceived, record
from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.simulation.learners import Learners
from muzero.runtime.simulation.report import CAUSES, Counts, Report, find_bottleneck
from muzero.runtime.simulation.resources import Events, Server, Weights
from muzero.runtime.simulation.ring import Ring
from muzero.runtime.simulation.scenario import Costs, Scenario
from muzero.runtime.simulation.workers import Workers

_FRESHNESS_SECONDS = 1.0


class Simulation:
    """One run of a fleet.

    Example:
        >>> report = Simulation(Scenario(cores=64, learners=2), Costs()).run(seconds=300.0)
        >>> report.bottleneck

    Args:
        controller: Decides every `controller_seconds`; None makes one of the scenario.

    Raises:
        ValueError: If the scenario or the costs are out of range, or leave no core for search.
    """

    def __init__(
        self, scenario: Scenario, costs: Costs, controller: Controller | None = None
    ) -> None:
        scenario.check()
        costs.check()
        self._scenario = scenario
        self.events = Events()
        shards = [Server() for _ in range(scenario.num_shards)]
        links = [Server() for _ in range(scenario.num_shards)]
        self._shards, self._links = shards, links
        self.controller = controller or Controller(
            max_workers=scenario.num_workers, reanalyzes=scenario.fresh_fraction > 0.0
        )
        self.limiter = FleetLimiter(
            samples_per_insert=scenario.samples_per_insert,
            min_size=scenario.min_size,
            batch_size=scenario.batch_size * scenario.learners,
            capacity=scenario.capacity,
            num_games=scenario.num_games,
            num_leases=scenario.num_workers,
            num_batches=self.controller.settings["max_prefetch"],
            clock=lambda: self.events.now,
        )
        self.ring = Ring(scenario.capacity)
        one_host = scenario.num_hosts == 1
        rate = costs.memory_bytes_per_second if one_host else costs.link_bytes_per_second
        self.weights = Weights(
            put_seconds=costs.weights_bytes / costs.memory_bytes_per_second,
            pull_seconds=costs.weights_bytes / rate,
            num_hosts=scenario.num_hosts,
            publish_seconds=scenario.publish_seconds,
        )
        self.learners = Learners(
            scenario, costs, self.events, self.limiter, shards, links,
            on_drawn=lambda: self.workers.wake(),
            on_step=lambda version: self.weights.publish(self.events.now, version),
        )  # fmt: skip
        self.workers = Workers(
            scenario, costs, self.events, self.limiter, self.ring, self.weights, shards, links,
            learner_version=lambda: self.learners.version,
            on_insert=self.learners.draw,
        )  # fmt: skip
        self.decisions: list[dict[str, Any]] = []
        """Lines of controller.jsonl."""
        self._total = Counts()
        self._ticked_at = 0.0
        self._apply(self.controller.decide(self._perceive(Counts(), 0.0)), scenario.num_workers)

    def run(self, seconds: float, warmup: float = 0.0) -> Report:
        """Simulate so long and report on what comes after `warmup`.

        Raises:
            ValueError: If `warmup` leaves nothing to measure.
        """
        if not 0.0 <= warmup < seconds:
            raise ValueError(
                f"warmup is {warmup}; it must be at least 0 and below seconds={seconds}"
            )
        self._every(self._scenario.controller_seconds, self._tick)
        if self._scenario.fresh_fraction > 0.0:
            self._every(_FRESHNESS_SECONDS, self.workers.watch_freshness)
        self.events.run(warmup)
        self._collect()
        self._total = Counts()
        filled = self.limiter.inserts >= self._scenario.min_size
        before = self._busy_seconds()
        self.events.run(seconds)
        self._collect()
        return self._report(seconds - warmup, before, filled)

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self.events.at(self.events.now + seconds, act)

        self.events.at(self.events.now + seconds, act)

    def _apply(self, decision: Decision, num_workers: int) -> None:
        self.workers.selfplay_share = decision.selfplay_share
        self.learners.assembly_threads = decision.assembly_threads
        self.learners.prefetch = decision.prefetch
        self.workers.resize(min(num_workers, self._scenario.num_workers))
        self.learners.draw()

    def _collect(self) -> Counts:
        """Counts since the last time, waits that are going on included; they go into the total."""
        self.learners.settle_wait()
        self.workers.settle_parked()
        counts = Counts()
        for role in (self.learners, self.workers):
            counts.add(role.counts)
            role.counts = Counts()
        elapsed = self.events.now - self._ticked_at
        counts.worker_seconds = elapsed * self.workers.num_workers
        self._ticked_at = self.events.now
        self._total.add(counts)
        return counts

    def _tick(self) -> None:
        seconds = self.events.now - self._ticked_at
        perceived = self._perceive(self._collect(), seconds)
        decision = self.controller.decide(perceived)
        self.decisions.append(record(perceived, decision))
        self._apply(decision, decision.num_workers)

    def _perceive(self, counts: Counts, seconds: float) -> Perceived:
        scenario, step = self._scenario, self.learners.version
        length = seconds or 1.0
        worker_seconds = counts.worker_seconds or 1.0
        fresh = self.ring.fresh_fraction(step, scenario.max_target_age)
        return Perceived(
            seconds=seconds,
            num_workers=self.workers.num_workers,
            num_cpus=float(scenario.cores),
            learner_samples_per_second=counts.samples / length,
            learner_busy_fraction=min(1.0, counts.learner_seconds / length),
            wait_fractions={cause: counts.waits[cause] / length for cause in CAUSES},
            selfplay_positions_per_second=counts.positions / (counts.selfplay_seconds or 1.0),
            reanalyze_positions_per_second=counts.searched / (counts.reanalyze_seconds or 1.0),
            samples_per_insert=scenario.samples_per_insert,
            limiter_error=self.limiter.error,
            error_buffer=self.limiter.error_buffer,
            insert_blocked_fraction=min(1.0, counts.blocked_seconds / worker_seconds),
            idle_fraction=min(1.0, counts.idle_seconds / worker_seconds),
            fresh_fraction=fresh,
            fresh_fraction_target=scenario.fresh_fraction,
            num_unroll_steps=scenario.num_unroll_steps,
            target_age_median=self.ring.median_target_age(step),
            memory_fraction=0.0,
        )

    def _busy_seconds(self) -> dict[str, list[float]]:
        return {
            "supervisor": [self.workers.supervisor.busy_seconds],
            "replay shard": [shard.busy_seconds for shard in self._shards],
            "network link": [link.busy_seconds for link in self._links],
            "weights": [self.weights.link.busy_seconds],
        }

    def _report(self, seconds: float, before: dict[str, list[float]], filled: bool) -> Report:
        scenario, counts, step = self._scenario, self._total, self.learners.version
        waits = {cause: counts.waits[cause] / seconds for cause in CAUSES}
        waited = sum(waits.values())
        utilisations = {
            name: min(1.0, max(new - old for new, old in zip(busy, before[name], strict=True)) / seconds)
            for name, busy in self._busy_seconds().items()
        }  # fmt: skip
        worker_seconds = counts.worker_seconds or 1.0
        utilisations["search"] = min(1.0, counts.search_seconds / worker_seconds)
        utilisations["learner"] = min(1.0, counts.learner_seconds / seconds)
        bottleneck, next_one = find_bottleneck(waited, waits, utilisations)
        leased = counts.selfplay_seconds + counts.reanalyze_seconds
        return Report(
            cores=scenario.cores,
            learners=scenario.learners,
            num_workers=self.workers.num_workers,
            seconds=seconds,
            samples_per_second=counts.samples / seconds,
            steps_per_second=counts.steps / seconds,
            positions_per_second=counts.positions / seconds,
            reanalyzed_per_second=counts.reanalyzed / seconds,
            dropped_fraction=1.0 - counts.reanalyzed / counts.searched if counts.searched else 0.0,
            samples_per_insert=counts.samples / max(counts.positions, 1),
            learner_wait_fraction=waited,
            learner_wait_causes=waits,
            selfplay_share=self.workers.selfplay_share,
            idle_fraction=min(1.0, counts.idle_seconds / worker_seconds),
            insert_blocked_fraction=min(1.0, counts.blocked_seconds / worker_seconds),
            lease_seconds=leased / max(counts.leases, 1),
            leases_per_second=counts.leases / seconds,
            behaviour_age=self.ring.mean_behaviour_age(step),
            target_age=self.ring.median_target_age(step),
            fresh_fraction=self.ring.fresh_fraction(step, scenario.max_target_age),
            utilisations=utilisations,
            bottleneck=bottleneck,
            next_bottleneck=next_one,
            filled=filled,
        )
