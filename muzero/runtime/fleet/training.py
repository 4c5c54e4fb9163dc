"""The learner of a fleet: one loop that trains, threads beside it that load batches and publish weights."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import psutil

from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import Config
from muzero.replay.batch import Batch
from muzero.runtime.build import Builder, Role, role_seed
from muzero.runtime.fleet.loader import Loader, Ready, SampleLink
from muzero.runtime.fleet.messages import LearnerStatus, ShardAddress
from muzero.runtime.fleet.waiting import WaitAccount
from muzero.runtime.report import step_metrics
from muzero.weights import Arrays, to_arrays, to_tensors

_PRIORITY_STEPS = 8  # are sent together

Update = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]


class LearnerLinks(SampleLink, Protocol):
    """How the learner reaches the others."""

    def update_priorities(self, shard: ShardAddress, updates: list[Update]) -> None:
        """See `ReplayShard.update_priorities`; what cannot be delivered is dropped."""

    def publish(self, version: int, weights: Arrays) -> None:
        """Hand the acting weights to the weight store."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The learner's part of a checkpoint, as arrays."""

    step: int
    tensors: Arrays
    meta: dict[str, Any]
    acting: Arrays
    version_offset: int


class Training:
    """Trains until `learner.num_steps`; other threads may ask, allow and stop.

    Versions are learner steps plus an offset. A learner that goes on from an older checkpoint while the fleet has seen newer
    versions gets an offset that puts its own above those, so that versions never repeat.

    Args:
        incarnation: Rises each time the learner is made anew; its randomness is another then.
    """

    def __init__(self, config: Config, incarnation: int, links: LearnerLinks) -> None:
        assert isinstance(config.runtime, RayRuntimeConfig)
        builder = Builder.of(config)
        self._config, self._links = config, links
        self._publish_seconds = config.runtime.publish_seconds
        self._learner, self._augmenter = builder.learner(), builder.augmenter(incarnation)
        self._offset = 0
        self._waits = WaitAccount()
        self._loader = Loader(
            links,
            self._prepare,
            self._waits,
            batch_size=config.learner.batch_size,
            depth=config.runtime.prefetch,
            threads=1,
            seed=role_seed(config, Role.AUGMENTATION, incarnation, 0),
        )
        self._updates: dict[ShardAddress, list[Update]] = {}
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="publisher")
        self._publishing: Future[None] | None = None
        self._published_at = -float("inf")
        self._publishes_anew = False
        self._stop = threading.Event()
        self._has_ended = False
        self._snapshots: list[Future[Snapshot]] = []
        self._lock = threading.Lock()
        self._process = psutil.Process()
        self._reset_window()

    @property
    def version(self) -> int:
        """Version of the newest weights."""
        return self._learner.num_steps_done + self._offset

    def restore(
        self, tensors: Arrays, meta: dict[str, Any], *, offset: int, newest_version: int
    ) -> None:
        """Go on from a snapshot, with versions above `newest_version`."""
        copies = to_tensors(tensors)
        self._learner.restore(copies, meta)
        self._offset = max(offset, newest_version + 1 - self._learner.num_steps_done)

    def start_over(self, newest_version: int) -> None:
        """Begin with untrained weights whose versions lie above `newest_version`."""
        self._offset = newest_version + 1

    def run(self) -> int:
        """Train to the end, or until `stop`; returns the learner steps done.

        Raises:
            TrainingDiverged: See `Learner`.
        """
        last = self._config.learner.num_steps
        self._publish(wait=True)
        try:
            while self._learner.num_steps_done < last and not self._stop.is_set():
                self._answer_snapshots()
                ready = self._loader.next(self._is_interrupted)
                if ready is not None:
                    self._step(ready)
                self._publish()
            self._send_priorities()
            self._publish(wait=True)
        finally:
            self._loader.close()
            with self._lock:
                self._has_ended = True
            self._answer_snapshots()
            self._publisher.shutdown()
        return self._learner.num_steps_done

    def allow(self, total: int) -> None:
        """Let so many positions be sampled in all since this incarnation began."""
        self._loader.allow(total)

    def connect(self, shards: list[ShardAddress]) -> None:
        """Draw batches from these shards."""
        self._loader.connect(shards)

    def tune(self, prefetch: int, assembly_threads: int) -> None:
        """Change the depth of the queue of ready batches, and how many are asked for at once."""
        self._loader.tune(prefetch, assembly_threads)

    def stop(self) -> None:
        """End after the step that is running."""
        self._stop.set()
        self._loader.wake()

    def snapshot(self, timeout_seconds: float) -> Snapshot:
        """The state between two steps. Raises TimeoutError if the loop does not get there."""
        future: Future[Snapshot] = Future()
        with self._lock:
            has_ended = self._has_ended
            if not has_ended:
                self._snapshots.append(future)
        if has_ended:
            return self._take_snapshot()
        self._loader.wake()
        return future.result(timeout_seconds)

    def status(self) -> LearnerStatus:
        """What has happened since the last call."""
        with self._lock:
            seconds = time.monotonic() - self._window_start
            status = LearnerStatus(
                step=self._learner.num_steps_done,
                version=self.version,
                sampled=self._loader.sampled,
                means=self._means,
                lasts=self._lasts,
                steps=self._steps,
                seconds=seconds,
                busy_seconds=self._busy_seconds,
                wait_seconds=self._waits.take(),
                ready_batches=self._loader.num_ready,
                memory_bytes=self._process.memory_info().rss,
                target_age=float(np.median(self._target_ages or [0.0])),
            )
            self._reset_window()
            return status

    def publish_anew(self) -> None:
        """There is another weight store: give it the weights at the next opportunity."""
        self._publishes_anew = True
        self._loader.wake()

    def _reset_window(self) -> None:
        self._window_start = time.monotonic()
        self._means: dict[str, tuple[float, float]] = {}
        self._lasts: dict[str, float] = {}
        self._target_ages: list[float] = []
        self._steps, self._busy_seconds = 0, 0.0

    def _prepare(self, batch: Batch) -> tuple[Batch, Any]:
        if self._augmenter is not None:
            with self._lock:  # its generator is one for all loaders
                batch = self._augmenter(batch)
        return batch, self._learner.prepare(batch)

    def _step(self, ready: Ready) -> None:
        start = time.monotonic()
        report = self._learner.step(ready.batch, ready.inputs)
        busy = time.monotonic() - start
        self._loader.note_version(self.version)
        means, lasts = step_metrics(ready.batch, report, self.version, self._config)
        with self._lock:
            for name, value in means.items():
                total, weight = self._means.get(name, (0.0, 0.0))
                self._means[name] = total + value, weight + 1.0
            self._lasts |= lasts
            self._target_ages.append(float(np.median(self.version - ready.batch.target_version)))
            self._steps += 1
            self._busy_seconds += busy
        if self._config.replay.prioritized and not report.skipped:
            batch = ready.batch
            update = batch.slot, batch.generation, report.priorities
            self._updates.setdefault(ready.shard, []).append(update)
            if self._learner.num_steps_done % _PRIORITY_STEPS == 0:
                self._send_priorities()

    def _send_priorities(self) -> None:
        updates, self._updates = self._updates, {}
        for shard, batches in updates.items():
            self._links.update_priorities(shard, batches)

    def _publish(self, *, wait: bool = False) -> None:
        """Give the weights to the publisher, unless the last ones are too young or still on their way."""
        anew = self._publishes_anew
        if anew:  # set back before the weights go out, and only if seen: a store that comes now is not forgotten
            self._publishes_anew = False
        if wait or anew:
            if self._publishing is not None:
                self._publishing.result()
            self._links.publish(self.version, to_arrays(self._learner.acting_weights()))
            self._published_at = time.monotonic()
            return
        if time.monotonic() - self._published_at < self._publish_seconds:
            return
        if self._publishing is not None:
            if not self._publishing.done():
                return
            self._publishing.result()
        self._published_at = time.monotonic()
        weights = to_arrays(self._learner.acting_weights())
        self._publishing = self._publisher.submit(self._links.publish, self.version, weights)

    def _is_interrupted(self) -> bool:
        return self._stop.is_set() or self._publishes_anew or bool(self._snapshots)

    def _answer_snapshots(self) -> None:
        with self._lock:
            waiting, self._snapshots = self._snapshots, []
        if waiting:
            snapshot = self._take_snapshot()
            for future in waiting:
                future.set_result(snapshot)

    def _take_snapshot(self) -> Snapshot:
        tensors, meta = self._learner.state()
        acting = self._learner.acting_weights()
        return Snapshot(
            self._learner.num_steps_done, to_arrays(tensors), meta, to_arrays(acting), self._offset
        )
