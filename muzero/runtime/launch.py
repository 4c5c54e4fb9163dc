"""The runtime that a config asks for."""

from pathlib import Path
from typing import Protocol

from muzero.checkpoint import Checkpoint
from muzero.config.schema import Config
from muzero.runtime.local import LocalRuntime
from muzero.selfplay import Totals


class Runtime(Protocol):
    """Trains a run."""

    config: Config
    run_dir: Path

    @property
    def learner_step(self) -> int:
        """Learner steps done."""
        ...

    @property
    def totals(self) -> Totals:
        """What self-play has done since the start of the run."""
        ...

    def train(self) -> dict[str, float]:
        """Train to the end, or until a signal; returns the last evaluation's metrics."""
        ...


def make_runtime(config: Config, run_dir: Path, checkpoint: Checkpoint | None = None) -> Runtime:
    """The runtime of `runtime.kind`, ready to train; Ray is only imported where it is used.

    Raises:
        ValueError: If the checkpoint does not fit the config.
    """
    if config.runtime.kind == "local":
        return LocalRuntime(config, run_dir, checkpoint)
    from muzero.runtime.fleet.supervisor import FleetRuntime

    return FleetRuntime(config, run_dir, checkpoint)
