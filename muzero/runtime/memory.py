"""What a run's big arrays will take, told and checked before they are allocated."""

import math
from dataclasses import dataclass
from pathlib import Path

import psutil

from muzero.replay.storage import bytes_per_row
from muzero.replay.sum_tree import bytes_for
from muzero.runtime.build import Builder

GIGABYTE = 1e9
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of the arrays whose size the settings decide."""

    replay: int
    """Ring, priorities."""
    latents: int
    """Hidden states of the trees of self-play and reanalyze; on a GPU they are its memory."""

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self.replay + self.latents


def memory_need(builder: Builder) -> MemoryNeed:
    """The need of a run, computed without allocating anything big."""
    config = builder.config
    capacity = config.replay.capacity
    replay = capacity * (bytes_per_row(builder.spec) + 1) + bytes_for(capacity)
    nodes = config.selfplay.num_games
    if config.search.dynamics == "learned":  # the rules' states are no latents
        nodes *= 1 + (config.selfplay.num_simulations or config.search.num_simulations)
    if config.reanalyze.fresh_fraction > 0.0:
        nodes += config.reanalyze.batch_size * (
            1 + (config.reanalyze.num_simulations or config.search.num_simulations)
        )
    latents = 4 * nodes * math.prod(builder.network().latent_shape)
    return MemoryNeed(replay, latents)


def available_memory(cgroup: Path = CGROUP) -> int:
    """Bytes that this process may still take: what the machine has free, or a container's limit if that is less."""
    available = int(psutil.virtual_memory().available)
    limit, used = (_number(cgroup / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        available = min(available, max(0, limit - used))
    return available


def check_memory(builder: Builder) -> MemoryNeed:
    """The need of a run whose memory suffices.

    Raises:
        ValueError: If the run needs more than `runtime.memory_limit_gb`, or than this machine has left.
    """
    need = memory_need(builder)
    limit = builder.config.runtime.memory_limit_gb
    allowed = available_memory() if limit is None else int(limit * GIGABYTE)
    if need.total > allowed:
        per_position = need.replay / builder.config.replay.capacity
        fitting = max(0, int((allowed - need.latents) / per_position))
        source = (
            "this machine has free"
            if limit is None
            else f"runtime.memory_limit_gb={limit:g} allows"
        )
        raise ValueError(
            f"replay.capacity={builder.config.replay.capacity} takes {need.replay / GIGABYTE:.2f} GB "
            f"({per_position:.0f} bytes a position) and the search's latents {need.latents / GIGABYTE:.2f} GB, more than "
            f"the {allowed / GIGABYTE:.2f} GB that {source}; lower replay.capacity to {fitting} or less"
        )
    return need


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is no limit
