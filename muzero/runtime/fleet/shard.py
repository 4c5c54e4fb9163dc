"""A replay shard: a part of the replay in a process of its own."""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.config.schema import Config
from muzero.replay.segment_block import SegmentBlock
from muzero.runtime.build import Builder, Role, role_seed
from muzero.runtime.fleet.insert_log import InsertLog, Stamp, cuts, read_log
from muzero.runtime.fleet.messages import InsertAck, Positions, Samples
from muzero.weights import Arrays
from reanalyze import Lease, ReanalyzeWorker, Refreshed

logger = logging.getLogger(__name__)

_LEASE_SECONDS = (
    300.0  # a worker that died brings nothing back: its positions may be taken by another
)


class ReplayShard:
    """Holds positions, samples batches with targets, gives positions to reanalyze.

    Messages are answered one at a time. An insert that arrives twice (a worker repeats what it had no answer to) counts once.

    Args:
        num_shards: The shards share `replay.capacity`.
        incarnation: Rises each time the shard is made anew.
        log_folder: Where inserts are logged; None keeps none.
    """

    def __init__(
        self,
        config: Config,
        index: int,
        num_shards: int,
        incarnation: int,
        log_folder: Path | None = None,
    ) -> None:
        capacity = config.replay.capacity // num_shards
        config = replace(
            config,
            replay=replace(config.replay, capacity=capacity, min_size=1, error_buffer=None),
        )
        self._replay = Builder.of(config).replay(
            insert_quantum=capacity, seed=role_seed(config, Role.SHARD, index, incarnation)
        )
        self._config, self.index, self.incarnation = config, index, incarnation
        self._reanalyze = ReanalyzeWorker()
        self._taken: OrderedDict[int, tuple[float, Lease]] = OrderedDict()
        self._next_ticket = 0
        self._newest: dict[int, tuple[int, int]] = {}  # (incarnation, sequence) by worker
        self._last_insert: dict[int, tuple[tuple[int, int], int]] = {}  # the same, and positions
        self._repeated = self._log_errors = 0
        self._log: InsertLog | None = None
        if log_folder is not None:
            self._log = InsertLog(log_folder, max(cuts(log_folder), default=-1) + 1)

    def insert(self, stamp: Stamp, block: SegmentBlock) -> InsertAck:
        """Insert segments, copied; a message that has arrived before is not inserted again."""
        newest = stamp.incarnation, stamp.sequence
        if newest <= self._newest.get(stamp.worker, (-1, -1)):
            self._repeated += 1
            # Its sender had no answer, so nobody has counted it; of an earlier incarnation's the supervisor has.
            last, inserted = self._last_insert.get(stamp.worker, ((-1, -1), 0))
            return InsertAck(inserted if last == newest else 0, True)
        inserted = self._add(block)
        self._last_insert[stamp.worker] = newest, inserted
        self._newest[stamp.worker] = newest
        if self._log is not None:
            try:
                self._log.append(stamp, block)
            except OSError as error:  # training goes on; the loss of this shard would cost more now
                self._log_errors += 1
                if self._log_errors == 1:
                    logger.error("replay shard %d cannot log its inserts: %s", self.index, error)
        return InsertAck(inserted, False)

    def sample(self, batch_size: int, count: int, newest_version: int) -> Samples:
        """Draw `count` batches; fewer if nothing is left to sample. What is too old beside `newest_version` is left out."""
        self._replay.expire(newest_version)
        batches = []
        for _ in range(count):
            if self._replay.size == 0:
                break
            batches.append(self._replay.sample(batch_size))
        return Samples(batches, self._replay.mass)

    def update_priorities(
        self, updates: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]]
    ) -> None:
        """Set new value errors: (slot, generation, error) of some batches."""
        for slot, generation, error in updates:
            self._replay.update_priorities(slot, generation, error)

    def take(self, count: int, version: int, learner_step: int) -> Positions | None:
        """The `count` stalest positions for weights `version`; None if no target is older."""
        now = time.monotonic()
        while self._taken and now - next(iter(self._taken.values()))[0] > _LEASE_SECONDS:
            _, (_, lost) = self._taken.popitem(last=False)
            self._replay.release(lost.slot, lost.positions.generation)
        lease = self._reanalyze.take(
            self._replay, count, version=version, learner_step=learner_step
        )
        if lease is None:
            return None
        self._next_ticket += 1
        self._taken[self._next_ticket] = now, lease
        return Positions(self._next_ticket, lease.positions)

    def give_back(self, ticket: int, refreshed: Refreshed) -> bool:
        """Write new targets over the old ones; False if the ticket is not known (given back before, or too late)."""
        taken = self._taken.pop(ticket, None)
        if taken is None:
            return False
        self._reanalyze.give_back(self._replay, taken[1], refreshed)
        return True

    def statistics(self, newest_version: int) -> dict[str, float]:
        """Metrics of the shard: totals, and reanalyze's means since the last call."""
        statistics = self._replay.statistics() | self._reanalyze.report()
        maximum = self._config.reanalyze.max_target_age
        fresh = self._replay.fresh_fraction(newest_version, maximum)
        return statistics | {
            "replay/fresh_fraction": fresh,
            "replay/repeated_inserts": float(self._repeated),
            "replay/log_errors": float(self._log_errors),
        }

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and JSON for a checkpoint; the log begins a new file with this cut."""
        arrays, state = self._replay.state()
        cut = None if self._log is None else self._log.rotate()
        meta = {
            "replay": state,
            "reanalyze": self._reanalyze.state(),
            "newest": {str(worker): list(pair) for worker, pair in self._newest.items()},
            "cut": cut,
        }
        kept = arrays if self._config.replay.save_with_checkpoint else {}
        return {name: array.copy() for name, array in kept.items()}, meta

    def restore(self, arrays: Arrays | None, meta: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._replay.restore(arrays or None, meta["replay"])
        self._reanalyze.restore(meta["reanalyze"])
        self._newest = {int(worker): (pair[0], pair[1]) for worker, pair in meta["newest"].items()}

    def recover(self, cut: int | None) -> int:
        """Insert what the log holds from a cut on, or forget all that it holds (None).

        Returns the positions inserted into this shard since the start of the run, in all its incarnations.
        """
        if self._log is not None and cut is None:
            self._log.forget_before(self._log.cut)
        elif self._log is not None and cut is not None:
            for stamp, block in read_log(self._log.folder, cut, before=self._log.cut):
                newest = stamp.incarnation, stamp.sequence
                if newest > self._newest.get(stamp.worker, (-1, -1)):
                    self._add(block)
                    self._newest[stamp.worker] = newest
        return int(self._replay.statistics()["replay/inserted"])

    def forget_before(self, cut: int) -> None:
        """The checkpoint with this cut is safe: the log before it can go."""
        if self._log is not None:
            self._log.forget_before(cut)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def _add(self, block: SegmentBlock) -> int:
        for segment in block.segments():
            self._replay.add(segment)
        return block.num_sampled
