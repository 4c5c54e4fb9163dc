"""What the supervisor does with the controller: tells it what it saw, and does what it decided."""

import json
import time
from pathlib import Path
from typing import Any

import psutil

from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import Config
from muzero.runtime.controller import Controller, record, start_record
from muzero.runtime.fleet.cluster import Cluster
from muzero.runtime.fleet.hiring import LEARNER, WORKER
from muzero.runtime.fleet.leasing import LEASES_AHEAD, Leasing
from muzero.runtime.fleet.report import FleetReporter
from muzero.runtime.fleet.staff import Staff

_ANY_NUMBER = 1_000_000  # of workers: the cores that are there decide


class Steering:
    """Lets the controller decide every `runtime.controller_seconds`, and writes every decision to `controller.jsonl`."""

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        cluster: Cluster,
        staff: Staff,
        leasing: Leasing,
        reporter: FleetReporter,
    ) -> None:
        runtime = config.runtime
        assert isinstance(runtime, RayRuntimeConfig)
        self._cluster, self._staff, self._crew = cluster, staff, staff.crew
        self._leasing, self._reporter = leasing, reporter
        self._interval = runtime.controller_seconds
        workers = runtime.num_workers
        self._controller = Controller(
            max_workers=_ANY_NUMBER if workers == "auto" else int(workers),
            reanalyzes=config.reanalyze.fresh_fraction > 0.0,
            prefetch=runtime.prefetch,
            max_prefetch=max(16, runtime.prefetch),
        )
        self._decided_at = time.monotonic()
        self._file = open(run_dir / "controller.jsonl", "a")  # noqa: SIM115

    def begin(self) -> None:
        """Write down what the decisions of this process start from."""
        self._write(start_record(self._controller))

    def steer(self, now: float) -> None:
        """Decide if it is time at `now` (seconds), and do it."""
        learner, workers = self._crew.get(LEARNER), self._crew.serving(WORKER)
        if now - self._decided_at < self._interval or learner is None or not workers:
            return
        self._decided_at = now
        perceived = self._reporter.perceive(
            workers=len(workers),
            num_cpus=self._cluster.num_cpus,
            memory_fraction=psutil.virtual_memory().percent / 100.0,
        )
        decision = self._controller.decide(perceived)
        self._write(record(perceived, decision))
        self._leasing.selfplay_share = decision.selfplay_share
        tuned = learner.actor.tune.remote(decision.prefetch, decision.assembly_threads)
        self._crew.call(learner, "tune its loader", tuned, lambda _: None)
        count = self._staff.wanted_workers(decision.num_workers)
        if count != self._staff.num_workers or len(self._crew.all(WORKER)) > count:
            self._staff.set_workers(count)
            self._leasing.limiter.resize(LEASES_AHEAD * count)

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        return self._controller.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._controller.restore(state)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
