"""What the controller is told of an interval, and what it answers: plain numbers that JSON can carry."""

import math
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Perceived:
    """One interval as the supervisor saw it.

    Rates and fractions that could not be measured in the interval are 0, which the controller takes as "unknown".
    """

    seconds: float
    """Length of the interval."""
    num_workers: int
    """Search workers that are alive."""
    num_cpus: float
    """Cores of the live nodes."""
    learner_samples_per_second: float
    """What the learner took."""
    learner_busy_fraction: float
    """The learner's computing time over the interval, above 0 to 1: what it took over this is what it could take."""
    wait_fractions: dict[str, float]
    """Share of the interval that the learner waited, by cause: `limiter`, `assembly`, `transfer`."""
    selfplay_positions_per_second: float
    """Of one worker while it is on self-play leases; 0 if unknown."""
    reanalyze_positions_per_second: float
    """Of one worker while it is on reanalyze leases; 0 if unknown."""
    samples_per_insert: float
    """The limiter's target."""
    limiter_error: float
    """Samples that the learner is behind (positive) or ahead (negative) of the exact ratio."""
    error_buffer: float
    """Half width of the limiter's band, in samples."""
    insert_blocked_fraction: float
    """Share of the workers' time without a self-play lease because the limiter refused one."""
    idle_fraction: float
    """Share of the workers' time without any lease."""
    fresh_fraction: float
    """Share of the sampled targets that are fresh."""
    fresh_fraction_target: float
    """Its set point; 0 where reanalyze is off."""
    num_unroll_steps: int
    """Unrolled steps K: a sample has K + 1 targets."""
    target_age_median: float
    """Learner steps."""
    memory_fraction: float
    """Memory in use on the fullest host, 0 to 1."""

    @property
    def wait_fraction(self) -> float:
        """Share of the interval that the learner waited, all causes together."""
        return math.fsum(self.wait_fractions.values())

    def cleaned(self) -> Self:
        """The same with every number that is not finite, or negative where that has no meaning, as 0."""
        row: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, dict):
                row[each.name] = {cause: _fraction(share) for cause, share in value.items()}
            elif each.name.endswith("_fraction") or each.name == "fresh_fraction_target":
                row[each.name] = _fraction(value)
            elif each.name == "limiter_error":
                row[each.name] = value if math.isfinite(value) else 0.0
            else:
                row[each.name] = max(value, 0) if math.isfinite(value) else 0
        return type(self)(**row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the supervisor should do until the next one."""

    selfplay_share: float
    """Self-play's share of all leases by work time; the rest is reanalyze."""
    assembly_threads: int
    """Batches being assembled ahead at once: prefetch requests in flight."""
    prefetch: int
    """Depth of the learner's queue of ready batches."""
    num_workers: int
    """Search workers wished for."""
    reason: str
    """One sentence."""


def _fraction(value: float) -> float:
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
