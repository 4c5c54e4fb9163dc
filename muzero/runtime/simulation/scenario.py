"""What a simulated run costs and how large it is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


class _Numbers:
    """A dataclass of numbers above or at 0 that can be read from JSON."""

    __slots__ = ()

    def check(self) -> None:
        """Raise ValueError for a number that is negative or not finite."""
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{each.name} is {value}; it must be a finite number, at least 0")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Values by name; the others keep their defaults.

        Raises:
            ValueError: For a name that there is not, or a value that is no number.
        """
        known = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"unknown name {name}; there are {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} is {value!r}; it must be a number")
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs(_Numbers):
    """Seconds of one core and bytes.

    The defaults are `experiment=connect_four` (a ResNet of 32 channels), measured by `scripts/simulate_cluster.py --measure`
    on 2 shared x86-64 cores (AMD EPYC, AVX-512), 2026-11-30; those of messages are Ray 2.60's on such a machine.
    """

    search_seconds: float = 6.0e-7
    """The tree's own work, per simulation."""
    network_seconds: float = 2.9e-5
    """The network's answer, per simulation."""
    move_seconds: float = 6.0e-5
    """Whatever else a self-play position costs: environment, root evaluation, recording."""
    refresh_seconds: float = 2.2e-5
    """Whatever else a reanalyzed position costs: root evaluation."""
    learner_step_seconds: float = 0.17
    """A learner step with one batch."""
    sample_seconds: float = 2.9e-6
    """A shard's work per sample: targets and priorities included."""
    insert_seconds: float = 3.0e-6
    """A shard's work per position inserted."""
    take_seconds: float = 2.1e-6
    """A shard's work per position given to reanalyze and written back."""
    position_bytes: float = 223.0
    """A position on its way to a shard."""
    sample_bytes: float = 512.0
    """A sample on its way to a learner, its unrolled steps included."""
    reanalyze_bytes: float = 253.0
    """A position on its way to reanalyze and back."""
    weights_bytes: float = 5.3e5
    """Published weights."""
    call_seconds: float = 5.5e-4
    """Latency of an actor call."""
    supervisor_call_seconds: float = 1.85e-4
    """The supervisor's own work per call: one process makes 5,400 calls/s."""
    link_bytes_per_second: float = 1.25e9
    """A host's network link: 10 Gbit/s."""
    memory_bytes_per_second: float = 4.5e8
    """Copying into the object store of a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(_Numbers):
    """The size of the cluster, and the settings of the run that shape its load; defaults of `experiment=connect_four`."""

    cores: int = 2
    learners: int = 1
    shards: int = 0
    """Replay shards; 0 takes one per learner."""
    workers: int = 0
    """Search workers; 0 takes one on every core that learners, shards and supervisor leave."""
    cores_per_host: int = 32
    learner_cores: int = 1
    """Cores that a learner keeps for itself."""
    num_games: int = 256
    num_simulations: int = 16
    reanalyze_simulations: int = 16
    reanalyze_batch: int = 256
    batch_size: int = 256
    """Of each learner."""
    samples_per_insert: float = 4.0
    num_unroll_steps: int = 4
    capacity: int = 750_000
    min_size: int = 10_000
    fresh_fraction: float = 0.5
    """Wished share of fresh targets; 0 turns reanalyze off."""
    max_target_age: int = 1_000
    lease_seconds: float = 0.5
    publish_seconds: float = 0.5
    controller_seconds: float = 10.0
    noise: float = 0.1
    """Standard deviation of the logarithm of a lease's length."""
    seed: int = 0

    @property
    def num_shards(self) -> int:
        """Replay shards."""
        return self.shards or self.learners

    @property
    def shares_learner_core(self) -> bool:
        """Whether supervisor and shards share the learners' cores: below eight cores there is none for them."""
        return self.cores < 8

    @property
    def num_workers(self) -> int:
        """Search workers.

        Raises:
            ValueError: If no core is left for them.
        """
        if self.workers:
            return self.workers
        taken = self.learners * self.learner_cores
        if not self.shares_learner_core:
            taken += self.num_shards + 1
        if self.cores - taken < 1:
            raise ValueError(
                f"cores={self.cores} leave none for search: {self.learners} learners of {self.learner_cores} cores, "
                f"{self.num_shards} replay shards and the supervisor take {taken}; use more cores or fewer learners, or set "
                "workers to let them share"
            )
        return self.cores - taken

    @property
    def crowding(self) -> float:
        """How much longer computing takes because workers and learners share cores; 1 where each has its own."""
        return max(1.0, (self.num_workers + self.learners * self.learner_cores) / self.cores)

    @property
    def num_hosts(self) -> int:
        """Machines."""
        return math.ceil(self.cores / self.cores_per_host)

    def check(self) -> None:
        """Raise ValueError for a setting out of range."""
        _Numbers.check(self)
        for name in (
            "cores", "learners", "cores_per_host", "num_games", "reanalyze_batch", "batch_size", "capacity", "min_size",
            "lease_seconds", "controller_seconds", "samples_per_insert",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        assert self.num_workers >= 1

    def selfplay_seconds(self, costs: Costs) -> float:
        """Core seconds of a self-play position."""
        simulation = costs.search_seconds + costs.network_seconds
        return self.crowding * (costs.move_seconds + self.num_simulations * simulation)

    def reanalyze_seconds(self, costs: Costs) -> float:
        """Core seconds of a reanalyzed position."""
        simulation = costs.search_seconds + costs.network_seconds
        return self.crowding * (costs.refresh_seconds + self.reanalyze_simulations * simulation)

    def step_seconds(self, costs: Costs) -> float:
        """A step of all learners together: gradients are summed over a ring of links; on few cores shards take their part."""
        seconds = self.crowding * costs.learner_step_seconds
        if self.learners > 1:
            share = 2.0 * (self.learners - 1) / self.learners
            rate = (
                costs.memory_bytes_per_second
                if self.num_hosts == 1
                else costs.link_bytes_per_second
            )
            seconds += share * costs.weights_bytes / rate + costs.call_seconds
        if self.shares_learner_core:
            inserted = self.batch_size / self.samples_per_insert
            seconds += self.batch_size * costs.sample_seconds + inserted * costs.insert_seconds
        return seconds
