"""What a simulation counted, per interval for the controller and over the whole for the reader."""

from dataclasses import asdict, dataclass
from typing import Any

CAUSES = ("limiter", "assembly", "transfer")
_FULL = 0.9
_WAIT_TOLERATED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Means over the measured part of a simulated run."""

    cores: int
    learners: int
    num_workers: int
    """Search workers at the end: the controller may have let some go."""
    seconds: float
    samples_per_second: float
    steps_per_second: float
    positions_per_second: float
    """Inserted by self-play."""
    reanalyzed_per_second: float
    """Written back."""
    dropped_fraction: float
    """Share of the positions that reanalyze searched for nothing: they had left the ring."""
    samples_per_insert: float
    learner_wait_fraction: float
    learner_wait_causes: dict[str, float]
    selfplay_share: float
    """Of the workers' time, as the controller set it last."""
    idle_fraction: float
    insert_blocked_fraction: float
    lease_seconds: float
    leases_per_second: float
    behaviour_age: float
    """Mean over the ring, in learner steps."""
    target_age: float
    """Median over the ring, in learner steps."""
    fresh_fraction: float
    utilisations: dict[str, float]
    """Busy share of every kind of resource, of its busiest one."""
    bottleneck: str
    """The resource that limits the learner's samples."""
    next_bottleneck: str
    """The busiest of the others: it would limit next."""
    filled: bool
    """Whether the replay had its first `min_size` positions before the measured part began."""

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return asdict(self)


def find_bottleneck(
    wait_fraction: float, causes: dict[str, float], utilisations: dict[str, float]
) -> tuple[str, str]:
    """The resource that limits, and the busiest of the others.

    A learner that hardly waits limits itself. If it waits, its cause says on which side to look: at what makes new positions,
    where a full resource goes before the search, or at what brings batches.
    """
    if wait_fraction <= _WAIT_TOLERATED:
        found = "learner"
    elif max(causes, key=causes.__getitem__) == "assembly":
        found = "replay shard"
    elif max(causes, key=causes.__getitem__) == "transfer":
        found = "network link"
    else:
        shared = ("supervisor", "replay shard", "network link", "weights")
        found = max(shared, key=utilisations.__getitem__)
        if utilisations[found] < _FULL:
            found = "search"
    others = {name: share for name, share in utilisations.items() if name != found}
    return found, max(others, key=others.__getitem__)


class Counts:
    """Sums of an interval."""

    def __init__(self) -> None:
        self.samples = self.steps = self.positions = self.reanalyzed = self.searched = (
            self.leases
        ) = 0
        self.learner_seconds = 0.0
        self.waits = dict.fromkeys(CAUSES, 0.0)
        self.selfplay_seconds = self.reanalyze_seconds = 0.0
        self.search_seconds = 0.0
        """Of these, computing."""
        self.idle_seconds = self.blocked_seconds = 0.0
        self.worker_seconds = 0.0

    def add(self, other: "Counts") -> None:
        """Add another interval."""
        for name, value in vars(other).items():
            if name == "waits":
                self.waits = {cause: self.waits[cause] + value[cause] for cause in CAUSES}
            else:
                setattr(self, name, getattr(self, name) + value)
