"""What a fleet tells of itself: rows of metrics from what the roles report, and what the controller perceives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from muzero.config.schema import Config
from muzero.evaluation.drawing import Image
from muzero.metrics import MetricsLogger, Row, wait_metrics
from muzero.runtime.controller import Perceived
from muzero.runtime.evaluation import PICTURE
from muzero.runtime.fleet.leasing import Leasing
from muzero.runtime.fleet.messages import LearnerStatus, LeaseReport
from muzero.runtime.fleet.waiting import CAUSES

# Of a shard's own limiter, which decides nothing here.
_OWN = ("samples_per_insert", "limiter_error")
_MEANS = (
    "used_fraction",
    "reuse",
    "never_sampled_fraction",
    "fresh_fraction",
    "target_age",
    "value_change",
    "policy_change",
)


@dataclass(slots=True)
class Window:
    """What has been seen since it was begun."""

    seconds: float = 0.0
    busy_seconds: float = 0.0
    steps: int = 0
    waits: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    worker_seconds: float = 0.0
    """Workers times time."""
    idle_seconds: float = 0.0
    """Thereof without a lease."""
    blocked_seconds: float = 0.0
    """Thereof because the limiter refused one of self-play."""
    split: dict[str, float] = field(default_factory=dict)
    """Seconds of leases by what they went to."""
    freshness: tuple[float, float] = 0.0, 0.0
    """Sum over learner steps of the share of fresh targets, and number of the steps."""
    target_age: float = 0.0


class FleetReporter:
    """Collects what the roles report, for rows of metrics and for the controller: each has a window of its own.

    Args:
        metrics: The run's logger.
    """

    def __init__(self, config: Config, metrics: MetricsLogger, leasing: Leasing) -> None:
        self._config, self._metrics, self._leasing = config, metrics, leasing
        self._row, self._interval = Window(), Window()
        self._process = psutil.Process()
        self._counted: dict[str, int] = {}
        self._shards: dict[int, dict[str, float]] = {}
        self._servers: dict[int, dict[str, float]] = {}
        self.newest: Row = {}
        """The newest row."""

    def note_status(self, status: LearnerStatus) -> None:
        """The learner's report."""
        metrics = self._metrics
        for name, (total, weight) in status.means.items():
            metrics.mean(name, total / weight, weight)
        metrics.lasts(status.lasts)
        metrics.rate("learner/steps_per_second", status.steps)
        metrics.last("learner/ready_batches", status.ready_batches)
        metrics.last("fleet/learner_memory_bytes", status.memory_bytes)
        for window in (self._row, self._interval):
            window.seconds += status.seconds
            window.busy_seconds += status.busy_seconds
            window.steps += status.steps
            if status.steps:
                window.target_age = status.target_age
            for cause, seconds in status.wait_seconds.items():
                window.waits[cause] += seconds
            if "reanalyze/fresh_fraction" in status.means:
                total, weight = status.means["reanalyze/fresh_fraction"]
                window.freshness = window.freshness[0] + total, window.freshness[1] + weight

    def note_lease(self, report: LeaseReport) -> None:
        """A worker's report of a lease."""
        self._metrics.means(report.metrics)
        if report.lease.version >= report.version >= 0:
            self._metrics.mean("selfplay/weights_age", report.lease.version - report.version)
        self._metrics.maximum("fleet/worker_memory_bytes", report.memory_bytes)
        self._metrics.mean("fleet/local_inference_fraction", float(report.used_local_inference))
        for window in (self._row, self._interval):
            for name, seconds in report.split.items():
                window.split[name] = window.split.get(name, 0.0) + seconds

    def note_workers(self, seconds: float, *, workers: int, idle: int, blocked: bool) -> None:
        """For so long so many workers were alive and so many of them had no lease."""
        for window in (self._row, self._interval):
            window.worker_seconds += seconds * workers
            window.idle_seconds += seconds * idle
            if blocked:
                window.blocked_seconds += seconds * idle

    def note_shard(self, index: int, statistics: dict[str, float]) -> None:
        """A shard's statistics."""
        self._shards[index] = statistics

    def note_server(self, index: int, statistics: dict[str, float]) -> None:
        """An inference server's statistics: means over the servers, sums of rows and clients."""
        for name, value in statistics.items():
            if name in ("inference/rows_per_second", "inference/clients"):
                self._servers[index] = self._servers.get(index, {}) | {name: value}
            else:
                self._metrics.mean(name, value)
        for name in ("inference/rows_per_second", "inference/clients"):
            total = sum(server.get(name, 0.0) for server in self._servers.values())
            self._metrics.last(name, total)

    @property
    def inserted(self) -> dict[int, int]:
        """Positions that each shard has taken since the start of the run, as they were asked last."""
        return {index: int(shard["replay/inserted"]) for index, shard in self._shards.items()}

    @property
    def fresh_fraction(self) -> float:
        """Share of the samples whose target is fresh, of all shards as they were asked last."""
        shards = list(self._shards.values())
        return sum(shard["replay/fresh_fraction"] for shard in shards) / max(1, len(shards))

    @property
    def held(self) -> int:
        """Positions that can be sampled, of all shards as they were asked last."""
        return int(sum(shard.get("replay/size", 0.0) for shard in self._shards.values()))

    def forget_shard(self, index: int) -> None:
        """A shard is lost."""
        self._shards.pop(index, None)

    def write(
        self,
        learner_step: int,
        extra: Mapping[str, float],
        evaluation: Mapping[str, float] | None = None,
    ) -> Row:
        """Write a row of everything since the last one."""
        metrics, leasing = self._metrics, self._leasing
        window, self._row = self._row, Window()
        limiter, totals, account = leasing.limiter, leasing.totals, leasing.account
        metrics.lasts(_merge(list(self._shards.values())))
        metrics.lasts(
            {
                "replay/samples_per_insert": limiter.achieved_samples_per_insert,
                "replay/samples_per_insert_target": self._config.replay.samples_per_insert,
                "replay/limiter_error": limiter.error,
                "replay/insert_wait_seconds": limiter.insert_wait_seconds,
                "replay/sample_wait_seconds": limiter.sample_wait_seconds,
                "selfplay/games": totals.games,
                "selfplay/env_steps": totals.env_steps,
                "selfplay/opening_steps": totals.opening_steps,
                "fleet/lost_positions": account.lost,
                "fleet/lost_leases": account.lost_leases,
                "fleet/selfplay_share": leasing.selfplay_share,
                "system/memory_bytes": self._process.memory_info().rss,
                **extra,
            }
        )
        if window.seconds > 0.0:
            waits = {cause: seconds / window.seconds for cause, seconds in window.waits.items()}
            metrics.lasts(wait_metrics(waits))
            metrics.last("learner/busy_fraction", window.busy_seconds / window.seconds)
        if window.worker_seconds > 0.0:
            metrics.last("fleet/idle_fraction", window.idle_seconds / window.worker_seconds)
            metrics.last("fleet/blocked_fraction", window.blocked_seconds / window.worker_seconds)
            for name, seconds in window.split.items():
                metrics.last(f"fleet/{name}_fraction", seconds / window.worker_seconds)
        for name, total in (
            ("selfplay/env_steps_per_second", totals.env_steps),
            ("selfplay/simulations_per_second", totals.simulations),
            ("reanalyze/positions_per_second", account.searched),
            ("fleet/leases_per_second", account.leases),
        ):
            metrics.rate(name, total - self._counted.get(name, 0))
            self._counted[name] = total
        if evaluation is not None:
            metrics.lasts(evaluation)
        self.newest = metrics.write(learner_step, totals.env_steps)
        return self.newest

    @property
    def shows_images(self) -> bool:
        """Whether `note_picture` does anything: TensorBoard is on."""
        return self._metrics.shows_images

    def note_match(self, score: float) -> None:
        """The score of a candidate in its match of gatekeeping."""
        self._metrics.last("gatekeeping/score", score)

    def note_picture(self, picture: Image, learner_step: int) -> None:
        """Write the picture `[H, W, 3]` of an evaluation at the learner step that was evaluated."""
        self._metrics.image(PICTURE, picture, learner_step)

    def perceive(self, *, workers: int, num_cpus: float, memory_fraction: float) -> Perceived:
        """What the controller is to know of the interval since the last call."""
        window, self._interval = self._interval, Window()
        config, leasing = self._config, self._leasing
        seconds = max(window.seconds, 1e-9)
        worker_seconds = max(window.worker_seconds, 1e-9)
        fresh, fresh_steps = window.freshness
        return Perceived(
            seconds=window.seconds,
            num_workers=workers,
            num_cpus=num_cpus,
            learner_samples_per_second=window.steps * config.learner.batch_size / seconds,
            learner_busy_fraction=min(1.0, window.busy_seconds / seconds),
            wait_fractions={c: min(1.0, s / seconds) for c, s in window.waits.items()},
            selfplay_positions_per_second=leasing.selfplay_rate,
            reanalyze_positions_per_second=leasing.reanalyze_rate,
            samples_per_insert=config.replay.samples_per_insert,
            limiter_error=leasing.limiter.error,
            error_buffer=leasing.limiter.error_buffer,
            insert_blocked_fraction=min(1.0, window.blocked_seconds / worker_seconds),
            idle_fraction=min(1.0, window.idle_seconds / worker_seconds),
            fresh_fraction=fresh / fresh_steps if fresh_steps else 0.0,
            fresh_fraction_target=config.reanalyze.fresh_fraction,
            num_unroll_steps=config.learner.num_unroll_steps,
            target_age_median=window.target_age,
            memory_fraction=memory_fraction,
        )

    def rewind(self, learner_step: int) -> None:
        """The learner goes on from here: rows of steps that are gone are dropped."""
        self._metrics.rewind(learner_step)

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        return {"metrics": self._metrics.state(), "counted": dict(self._counted)}

    def restore(self, state: dict[str, Any], learner_step: int) -> None:
        """Continue from `state`."""
        self._metrics.restore(state["metrics"], learner_step)
        self._counted = {name: int(total) for name, total in state["counted"].items()}


def _merge(shards: Sequence[dict[str, float]]) -> dict[str, float]:
    """Statistics of all shards together: counts are added, shares are averaged."""
    merged: dict[str, float] = {}
    for name in sorted({name for shard in shards for name in shard}):
        leaf = name.partition("/")[2]
        values = [shard[name] for shard in shards if name in shard]
        if leaf in _OWN:
            continue
        merged[name] = sum(values) / len(values) if leaf in _MEANS else sum(values)
    return merged
