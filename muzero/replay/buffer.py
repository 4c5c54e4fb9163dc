"""The replay buffer: segments in, batches with targets out, priorities and refreshed targets back.

Letters: `B` samples, `K` unrolled steps, `A` actions, `n` positions.
Positions are addressed by slot and generation; what comes back for a position that has been evicted meanwhile is
dropped and counted. The buffer has no lock: its owner serialises the calls.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.config.schema import ReplayConfig, TargetsConfig
from muzero.envs.base import EnvSpec
from muzero.replay.batch import Batch
from muzero.replay.batch_maker import BatchMaker
from muzero.replay.episode import Segment
from muzero.replay.limiter import RateLimiter
from muzero.replay.priorities import Priorities
from muzero.replay.refresh import TARGET_COLUMNS, fresh_mass, oldest_targets, write_targets
from muzero.replay.retirement import Retirement
from muzero.replay.segments import check_segment, head_length, tail_length
from muzero.replay.storage import RootPositions, Storage

IndexArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

_COUNTERS = (
    "inserted",
    "evicted",
    "sampled",
    "evicted_samples",
    "evicted_unsampled",
    "expired",
    "used_up",
    "dropped_priorities",
    "written_back",
    "dropped_write_backs",
)


class ReplayBuffer:
    """Positions of the newest segments, sampled uniformly or by priority (PER, proportional variant).

    The error of a new position is `|root_value - target|` with the target that a sample would get (bootstrapped from
    stored root values even where the learner values the bootstrap itself), or the highest error so far under
    `initial_priority=max`; see `muzero.replay.priorities`.
    `generator` draws the samples and the actions behind an end; its state is part of the buffer's.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: ReplayConfig,
        targets: TargetsConfig,
        *,
        num_unroll_steps: int,
        with_next_observation: bool,
        batch_size: int,
        insert_quantum: int,
        generator: np.random.Generator,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allocate the ring. `batch_size` and `insert_quantum` (most positions inserted after one `limiter.can_insert`) fit the limiter.

        Raises ValueError for settings that contradict each other.
        """
        if config.min_size > config.capacity:
            raise ValueError(
                f"replay.min_size is {config.min_size}, more than replay.capacity={config.capacity}; lower min_size"
            )
        self._head = head_length(spec.num_stacked_frames)
        self._tail = tail_length(num_unroll_steps, targets.td_steps)
        self._spec = spec
        self._generator = generator
        self._storage = Storage(spec, config.capacity)
        self._maker = BatchMaker(
            self._storage,
            targets,
            num_unroll_steps=num_unroll_steps,
            with_next_observation=with_next_observation,
        )
        self._retirement = Retirement(config)
        self._priorities = Priorities(config, config.capacity)
        self._in_flight = np.zeros(config.capacity, np.bool_)
        self._size = 0
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self.limiter = RateLimiter(
            samples_per_insert=config.samples_per_insert,
            min_size=config.min_size,
            batch_size=batch_size,
            insert_quantum=insert_quantum,
            error_buffer=config.error_buffer,
            clock=clock,
        )

    @property
    def size(self) -> int:
        """Positions that can be sampled."""
        return self._size

    @property
    def num_segments(self) -> int:
        """Segments held."""
        return len(self._storage.segments)

    @property
    def mass(self) -> float:
        """Sum of the sampling weights: what a part of a replay is worth beside the others."""
        return self._priorities.tree.total

    @property
    def bytes(self) -> int:
        """Memory of the ring and the sum tree, allocated once."""
        return self._storage.bytes + self._priorities.tree.bytes + self._in_flight.nbytes

    def add(self, segment: Segment) -> None:
        """Insert a segment; the oldest ones make room, whole. Raises ValueError if it does not fit this buffer."""
        check_segment(segment, self._spec, head=self._head, tail=self._tail)
        storage = self._storage
        if len(segment) > storage.capacity:
            raise ValueError(
                f"a segment of {len(segment)} positions does not fit replay.capacity={storage.capacity}; "
                "raise the capacity, or lower selfplay.segment_length or targets.td_steps"
            )
        while storage.capacity - storage.num_used < len(segment):
            self._evict_oldest()
        rows = storage.append(segment)
        self._insert_priorities(rows)
        self._retirement.note_new(storage.columns["behaviour_version"][rows])
        self._size += len(rows)
        self._counts["inserted"] += len(rows)
        self.limiter.record_insert(len(rows))
        self._tell_limiter()

    def _evict_oldest(self) -> None:
        rows, num_sampleable = self._storage.evict_oldest()
        self._priorities.clear(rows)
        self._in_flight[rows] = False
        times = self._storage.columns["times_sampled"][rows]
        self._size -= num_sampleable
        self._counts["evicted"] += len(rows)
        self._counts["evicted_samples"] += int(times.sum())
        self._counts["evicted_unsampled"] += int((times == 0).sum())

    def _insert_priorities(self, rows: IndexArray) -> None:
        error = self._maker.errors(rows) if self._priorities.needs_errors else None
        self._priorities.insert(rows, error)

    def sample(self, batch_size: int) -> Batch:
        """Draw `batch_size` positions with replacement and make their targets; counted by the limiter.

        Raises ValueError if nothing is left to sample; `limiter.can_sample` says so before.
        """
        if self._size == 0:
            raise ValueError(self._why_empty())
        columns, maker = self._storage.columns, self._maker
        slot = self._priorities.tree.sample(batch_size, self._generator)
        random_action = self._generator.integers(
            self._storage.num_actions, size=(batch_size, maker.num_unroll_steps), dtype=np.int64
        )
        np.add.at(columns["times_sampled"], slot, 1)
        self._counts["sampled"] += batch_size
        self.limiter.record_sample(batch_size)
        batch = maker.make(slot, random_action, self._priorities.importance_weights(slot))
        self._retire(self._retirement.used_up(columns, slot), "used_up")
        return batch

    def expire(self, newest_version: int) -> int:
        """Sample no longer what `replay.max_behaviour_age` says is too old beside `newest_version`; returns how many.

        Called now and then, such as once per learner step; where there is no limit, or nothing can be too old, it costs
        nothing. The positions stay in the ring, as context of others, until their segment is overwritten.
        """
        rows = self._retirement.outdated(self._storage.columns, newest_version)
        self._retire(rows, "expired")
        return len(rows)

    def _why_empty(self) -> str:
        if self.num_segments == 0:
            return "the replay buffer is empty: nothing can be sampled before a segment is added"
        return (
            "nothing is left to sample in the replay buffer until a segment is added: of all positions inserted, "
            f"{self._counts['used_up']} were used as often as replay.max_times_sampled allows, {self._counts['expired']} became "
            "older than replay.max_behaviour_age; ask limiter.can_sample before sampling, or raise the two settings"
        )

    def _retire(self, rows: IndexArray, cause: str) -> None:
        if len(rows) == 0:
            return
        self._storage.columns["sampleable"][rows] = False
        self._priorities.clear(rows)
        self._size -= len(rows)
        self._counts[cause] += len(rows)
        self._tell_limiter()

    def _tell_limiter(self) -> None:
        self.limiter.starved = self._size == 0 and self.limiter.inserts > 0

    def update_priorities(
        self, slot: IndexArray, generation: IndexArray, priority: npt.NDArray[Any]
    ) -> int:
        """Set the value errors of positions `[n]`; returns how many were dropped because their position is gone.

        Those of positions that are no longer sampled change nothing. Without prioritised sampling the errors are not used. Raises ValueError if an error is negative or not finite.
        """
        if not (np.isfinite(priority).all() and (priority >= 0).all()):
            raise ValueError("priorities must be finite and at least 0")
        columns = self._storage.columns
        alive = columns["generation"][slot] == generation
        sampled = alive & columns["sampleable"][slot]
        self._priorities.set(slot[sampled], priority[sampled])
        dropped = int(np.count_nonzero(~alive))
        self._counts["dropped_priorities"] += dropped
        return dropped

    def stalest(self, count: int, newest_version: int) -> IndexArray:
        """Up to `count` positions whose targets are older than `newest_version`, oldest first (ties: lowest slot first).

        They count as being refreshed, and are not given again, until `write_back` or `release`.
        """
        columns = self._storage.columns
        slots: IndexArray = oldest_targets(
            columns["target_version"], columns["sampleable"], self._in_flight, count, newest_version
        )
        self._in_flight[slots] = True
        return slots

    def roots(self, slots: IndexArray) -> RootPositions:
        """Positions `slots[n]` as roots of a new search."""
        return self._storage.roots(slots)

    def write_back(
        self,
        slot: IndexArray,
        generation: IndexArray,
        policy: FloatArray,
        root_value: FloatArray,
        version: int,
    ) -> tuple[int, int]:
        """Replace the targets of positions `[n]` by those that weights `version` searched; returns (written, dropped).

        A position that had no policy target has one now.
        Dropped are results of evicted positions and those not newer than the stored target. Priorities stay as they are
        until the position is sampled. Copies of a position in the context of another segment keep their targets.
        """
        columns = self._storage.columns
        written = int(
            write_targets(
                tuple(columns[name] for name in TARGET_COLUMNS),
                columns["generation"],
                self._in_flight,
                slot,
                generation,
                (policy, root_value, version),
            )
        )
        dropped = len(slot) - written
        self._counts["written_back"] += written
        self._counts["dropped_write_backs"] += dropped
        return written, dropped

    def release(self, slot: IndexArray, generation: IndexArray) -> None:
        """Give up refreshing positions `[n]` without a result; `stalest` may give them again."""
        alive = self._storage.columns["generation"][slot] == generation
        self._in_flight[slot[alive]] = False

    def fresh_fraction(self, newest_version: int, max_age: int) -> float:
        """Probability that a sample's policy target is at most `max_age` versions old; 0 in an empty buffer."""
        if self._size == 0:
            return 0.0
        version = self._storage.columns["target_version"]
        fresh = fresh_mass(self._priorities.tree.weights, version, newest_version - max_age)
        return float(fresh) / self._priorities.tree.total

    def statistics(self) -> dict[str, float]:
        """Metrics of this buffer and its limiter; counts are totals of the run."""
        counts, limiter = self._counts, self.limiter
        evicted = max(1, counts["evicted"])
        statistics = {
            "size": self._size,
            "segments": self.num_segments,
            "bytes": self.bytes,
            "used_fraction": self._storage.num_used / self._storage.capacity,
            "reuse": counts["evicted_samples"] / evicted,
            "never_sampled_fraction": counts["evicted_unsampled"] / evicted,
            "samples_per_insert": limiter.achieved_samples_per_insert,
            "limiter_error": limiter.error,
            "insert_wait_seconds": limiter.insert_wait_seconds,
            "sample_wait_seconds": limiter.sample_wait_seconds,
        }
        for name in _COUNTERS:
            if not name.startswith("evicted_"):
                statistics[name] = counts[name]
        return {f"replay/{name}": float(number) for name, number in statistics.items()}

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON that `restore` continues from, bit for bit.

        The arrays are views: write or copy them before the buffer changes. Positions being refreshed count as given up.
        """
        arrays, storage = self._storage.state()
        arrays["weight"] = self._priorities.tree.weights[: len(arrays["generation"])]
        return arrays, {
            "storage": storage,
            "limiter": self.limiter.state(),
            "counts": dict(self._counts),
            "priorities": self._priorities.state(),
            "head": self._head,
            "tail": self._tail,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, arrays: dict[str, npt.NDArray[Any]] | None, meta: dict[str, Any]) -> None:
        """Continue from `state`.

        Without `arrays` the buffer stays empty and its limiter in the filling stage; totals and randomness continue.
        If the settings of prioritised sampling have changed, positions get the priorities of new ones.
        Raises ValueError if the saved buffer does not fit this one, which is not to be used then.
        """
        if arrays is not None:
            if self._head > meta["head"] or self._tail > meta["tail"]:
                raise ValueError(
                    f"the saved replay holds {meta['head']} positions before and {meta['tail']} behind the sampled ones of a "
                    f"segment, but these settings need {self._head} and {self._tail}; lower env.num_stacked_frames, "
                    "learner.num_unroll_steps or targets.td_steps, or start a new run"
                )
            self._storage.restore(arrays, meta["storage"])
            rows = np.flatnonzero(arrays["sampleable"])
            if not self._priorities.restore(rows, arrays.get("weight"), meta["priorities"]):
                self._insert_priorities(rows)
            self._in_flight.fill(False)
            self._size = len(rows)
            self._retirement.forget()
            self.limiter.restore(meta["limiter"])
            self._tell_limiter()
        # Older checkpoints lack the counters that have come since.
        self._counts = {name: int(meta["counts"].get(name, 0)) for name in _COUNTERS}
        self._generator.bit_generator.state = meta["generator"]
