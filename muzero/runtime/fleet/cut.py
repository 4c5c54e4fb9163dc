"""A checkpoint of a running fleet: every role's state at a cut, and how a fleet continues from one.

Shards and workers are cut before the learner, so that no position in a checkpoint was played by weights that are newer than the
checkpoint's own. Parts are those of a local run; of further shards and workers they are numbered: `replay_1`, `selfplay_1`.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from muzero.checkpoint import Checkpoint, Part
from muzero.config.schema import Config
from muzero.runtime.fleet.training import Snapshot
from muzero.weights import Arrays, to_arrays, to_tensors


def part_name(name: str, index: int) -> str:
    """Name of a part of the shard or worker `index`."""
    return name if index == 0 else f"{name}_{index}"


class Cut:
    """Collects the answers of all roles; `finish` is called with the parts when the last one is in.

    Args:
        num_shards, num_workers: How many will answer, or be given up (`drop`).
        ask_learner: Is called when all of them have: the learner comes last.
    """

    def __init__(self, num_shards: int, num_workers: int, ask_learner: Callable[[], None]) -> None:
        self._missing = num_shards + num_workers
        self._ask_learner = ask_learner
        self.parts: dict[str, Part] = {}
        self.log_cuts: dict[int, int] = {}
        """By shard, the number of the log file that begins with this cut."""
        self.failed = False
        """Whether the replay or the learner could not be had: this cut makes no checkpoint."""

    def begin(self) -> None:
        """Go on to the learner at once if nobody else is asked."""
        if self._missing == 0:
            self._ask_learner()

    def add_shard(self, index: int, answer: tuple[Arrays, dict[str, Any]]) -> None:
        """A shard's state."""
        arrays, state = answer
        if arrays:
            self.parts[part_name("replay", index)] = arrays
        self.parts[part_name("replay_state", index)] = state
        if state["cut"] is not None:
            self.log_cuts[index] = state["cut"]
        self._count()

    def add_worker(self, index: int, answer: tuple[Arrays, dict[str, Any]]) -> None:
        """A worker's running games."""
        self.parts[part_name("selfplay", index)] = answer[0]
        self.parts[part_name("selfplay_state", index)] = answer[1]
        self._count()

    def drop(self) -> None:
        """A worker was lost: its games are not in the checkpoint."""
        self._count()

    def fail(self) -> None:
        """A shard or the learner was lost."""
        self.failed = True

    def _count(self) -> None:
        self._missing -= 1
        if self._missing == 0 and not self.failed:
            self._ask_learner()

    def finish(self, snapshot: Snapshot, state: dict[str, Any], config: Config) -> dict[str, Part]:
        """All parts, with the learner's and the supervisor's own `state`."""
        tensors = to_tensors(snapshot.tensors)
        acting = to_tensors(snapshot.acting)
        return {
            **self.parts,
            "learner": tensors,
            "learner_state": snapshot.meta,
            "acting": acting,
            "state": {**state, "version_offset": snapshot.version_offset},
            "config": asdict(config),
        }


def learner_arrays(checkpoint: Checkpoint) -> tuple[Arrays, dict[str, Any]]:
    """The learner's state in a checkpoint."""
    return to_arrays(checkpoint.tensors("learner")), checkpoint.json("learner_state")


def shard_state(checkpoint: Checkpoint, index: int) -> tuple[Arrays | None, dict[str, Any]]:
    """A shard's state in a checkpoint.

    Raises:
        ValueError: The run had fewer shards then.
    """
    state = part_name("replay_state", index)
    if state not in checkpoint.parts:
        raise ValueError(
            f"the checkpoint of learner step {checkpoint.step} has no replay shard {index}: "
            "runtime.num_replay_shards cannot change when a run is resumed"
        )
    name = part_name("replay", index)
    arrays = checkpoint.arrays(name) if name in checkpoint.parts else None
    return arrays, checkpoint.json(state)


def worker_state(checkpoint: Checkpoint, index: int) -> tuple[Arrays, dict[str, Any]] | None:
    """A worker's running games in a checkpoint; None if there are none of this index."""
    name = part_name("selfplay", index)
    if name not in checkpoint.parts:
        return None
    return checkpoint.arrays(name), checkpoint.json(part_name("selfplay_state", index))
