"""What a local run tells of itself: one row of metrics at a time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import psutil

from muzero.config.schema import Config
from muzero.learner.learner import LearnerReport
from muzero.metrics import Row, time_metrics, wait_metrics
from muzero.replay.batch import Batch

if TYPE_CHECKING:
    from muzero.runtime.local import LocalRuntime

_WAITS = ("selfplay", "reanalyze", "replay", "sampling")


def step_metrics(
    batch: Batch, report: LearnerReport, version: int, config: Config
) -> tuple[dict[str, float], dict[str, float]]:
    """What a learner step adds to means, and what it leaves as newest values. Ages are counted from `version`."""
    lasts = {
        f"learner/{name}": report.metrics[name]
        for name in ("learning_rate", "skipped_steps")
        if name in report.metrics
    }
    means = {f"learner/{name}": value for name, value in report.metrics.items()}
    means = {name: value for name, value in means.items() if name not in lasts}
    age = version - batch.target_version
    means |= {
        "learner/behaviour_age": float(np.mean(version - batch.behaviour_version)),
        "learner/target_age": float(np.mean(age)),
        "learner/policy_target_fraction": float(np.mean(batch.policy_mask[:, 0])),
        "reanalyze/fresh_fraction": float(np.mean(age <= config.reanalyze.max_target_age)),
    }
    return means, lasts


class Reporter:
    """Collects what the roles report and writes the rows."""

    def __init__(self, runtime: "LocalRuntime") -> None:
        self._runtime = runtime
        self._process = psutil.Process()
        self._counted: dict[str, int] = {}
        self.newest: Row = {}
        """The newest row."""

    def note_step(self, batch: Batch, report: LearnerReport) -> None:
        """Count a learner step."""
        runtime = self._runtime
        means, lasts = step_metrics(batch, report, runtime.learner_step, runtime.config)
        runtime.metrics.means(means)
        runtime.metrics.lasts(lasts)
        runtime.metrics.rate("learner/steps_per_second", 1)

    def write(self, evaluation: Mapping[str, float] | None = None) -> None:
        """Write a row of everything since the last one."""
        runtime = self._runtime
        metrics, totals = runtime.metrics, runtime.totals
        metrics.lasts(runtime.gatherer.report())
        metrics.lasts(runtime.replay.statistics())
        metrics.last("replay/samples_per_insert_target", runtime.config.replay.samples_per_insert)
        metrics.last("selfplay/weights_age", runtime.learner_step - runtime.acting_version)
        if runtime.reanalyze is not None:
            metrics.lasts(runtime.reanalyze.report())
            self._rate("reanalyze/positions_per_second", runtime.reanalyze.totals.searched)
        if runtime.gatekeeper is not None:
            metrics.lasts(runtime.gatekeeper.report(runtime.acting_version))
        if evaluation is not None:
            metrics.lasts(evaluation)
        fractions = runtime.timer.fractions()
        metrics.lasts(time_metrics(fractions))
        waits = {cause: fractions.get(cause, 0.0) for cause in _WAITS}
        metrics.lasts(wait_metrics(waits))
        metrics.last("system/memory_bytes", self._process.memory_info().rss)
        self._rate("selfplay/env_steps_per_second", totals.env_steps)
        self._rate("selfplay/simulations_per_second", totals.simulations)
        self.newest = metrics.write(runtime.learner_step, totals.env_steps)

    def _rate(self, name: str, total: int) -> None:
        """Note how much a total has grown since the last row."""
        self._runtime.metrics.rate(name, total - self._counted.get(name, 0))
        self._counted[name] = total
