"""What the fleet's processes say to each other.

Whatever changes something carries who sent it, in which incarnation and as which message, so that a repeated one does no harm.
"""

from dataclasses import dataclass, field
from typing import Any

from muzero.replay.batch import Batch
from muzero.replay.storage import RootPositions
from muzero.selfplay import Totals

SELFPLAY, REANALYZE = "selfplay", "reanalyze"


class ShardLost(RuntimeError):
    """A replay shard does not answer; its data is gone or will be back with another incarnation."""


class StoreLost(RuntimeError):
    """The weight store does not answer; it will be back, and filled again by the learner."""


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """A replay shard as others reach it."""

    index: int
    incarnation: int
    handle: Any
    """The actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One quantum of work for a search worker."""

    number: int
    """Unique in the run."""
    kind: str
    """`selfplay` or `reanalyze`."""
    amount: int
    """Moves of all games, or batches of positions."""
    reserved: int
    """Positions that the limiter has reserved for it."""
    learner_step: int
    """Decides the temperature of self-play."""
    version: int
    """The learner's present version: ages are counted from it."""
    shard: ShardAddress
    """Where inserts go, or positions come from."""
    store: Any
    """The weight store: an actor."""
    server: Any = None
    """`ServerAddress` of the worker's inference server; None while there is none."""


@dataclass(slots=True, kw_only=True)
class LeaseReport:
    """What came of a lease."""

    lease: Lease
    inserted: int = 0
    """Positions that the shard has confirmed."""
    lost: int = 0
    """Positions that no shard took."""
    totals: Totals = field(default_factory=Totals)
    """What self-play did in this lease."""
    searched: int = 0
    """Positions that reanalyze searched."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Means of self-play."""
    version: int = -1
    """Weights version that worked; -1 if none did."""
    seconds: float = 0.0
    """Length of the lease."""
    split: dict[str, float] = field(default_factory=dict)
    """Seconds by what they went to: `search`, `insert`, `weights`."""
    memory_bytes: int = 0
    """Resident memory of the worker."""
    used_local_inference: bool = False
    """Whether central inference was replaced by the worker's own, its server being lost."""


@dataclass(frozen=True, slots=True)
class InsertAck:
    """What a shard did with an insert."""

    inserted: int
    """Positions that its sender may count: those of its first arrival, if this answer is the first that can reach it."""
    is_repeated: bool
    """Whether the same message had arrived before."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Batches from a shard."""

    batches: list[Batch]
    mass: float
    """Sum of the shard's sampling weights: shards are drawn from in proportion to it."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of a reanalyze lease, keyed for the way back."""

    ticket: int
    """The shard's own number for them."""
    positions: RootPositions
    """What a search needs."""


@dataclass(slots=True, kw_only=True)
class LearnerStatus:
    """What the learner tells when it is asked; sums and means are since it was asked last."""

    step: int
    """Learner steps done."""
    version: int
    """Version of the newest weights."""
    sampled: int
    """Positions sampled since this incarnation began."""
    means: dict[str, tuple[float, float]]
    """Sum and weight by metric."""
    lasts: dict[str, float]
    """Newest value by metric."""
    steps: int
    """Steps since it was asked last."""
    seconds: float
    """Wall time since then."""
    busy_seconds: float
    """Thereof computing."""
    wait_seconds: dict[str, float]
    """Thereof waiting, by cause: `limiter`, `assembly`, `transfer`."""
    ready_batches: int
    """Batches ready now."""
    memory_bytes: int
    """Resident memory."""
    target_age: float
    """Median age of the sampled targets, in learner steps."""
