"""A search worker: plays games or searches stored positions again, whichever its lease says."""

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import psutil

from muzero.config.schema import Config
from muzero.inference import ServerLost
from muzero.replay.episode import Segment
from muzero.replay.segment_block import SegmentBlock
from muzero.runtime.build import Builder, Role, role_seed
from muzero.runtime.fleet.insert_log import Stamp
from muzero.runtime.fleet.messages import (
    SELFPLAY,
    InsertAck,
    Lease,
    LeaseReport,
    Positions,
    ShardAddress,
    ShardLost,
    StoreLost,
)
from muzero.runtime.fleet.models import ModelSource
from muzero.selfplay import SelfPlay, Totals
from muzero.weights import Arrays, to_tensors
from reanalyze import Refreshed, Refresher

logger = logging.getLogger(__name__)

T = TypeVar("T")
# A message that is bigger is hard to place in an object store that is nearly full.
_BLOCK_BYTES = 16_000_000
_MOST_UNSENT = 64  # blocks
_PAUSE_SECONDS = 0.25  # behind an insert that failed: a shard takes seconds to be back


class Links(Protocol):
    """How a worker reaches the others. Each call has a deadline; a shard that does not answer is `ShardLost`."""

    def pull_weights(self, store: Any, version: int | None) -> tuple[int, Arrays] | None:
        """Version and arrays of the newest weights, if newer than `version`. A store that does not answer is `StoreLost`."""

    def insert(self, shard: ShardAddress, stamp: Stamp, block: SegmentBlock) -> InsertAck:
        """See `ReplayShard.insert`."""

    def take(
        self, shard: ShardAddress, count: int, version: int, learner_step: int
    ) -> Positions | None:
        """See `ReplayShard.take`."""

    def give_back(self, shard: ShardAddress, ticket: int, refreshed: Refreshed) -> bool:
        """See `ReplayShard.give_back`."""


class SearchWorker:
    """Works off one lease at a time, with the newest weights there are when it begins.

    Self-play and reanalyze are the same work, batched search with weights; a worker has both at hand and changes between
    them without a cost. Segments that a lost shard did not confirm are kept and sent again under the same stamp.

    Args:
        incarnation: Rises each time the worker is made anew; its randomness is another then.
        models: Where self-play's models come from: one per group of games.
    """

    def __init__(
        self, config: Config, index: int, incarnation: int, links: Links, models: ModelSource
    ) -> None:
        self._builder = builder = Builder.of(config)
        self._config, self._links, self._models = config, links, models
        self.index, self.incarnation = index, incarnation
        self._groups = [
            builder.selfplay(
                num_games=num_games,
                model=model,
                seed=role_seed(config, Role.WORKER, index, incarnation, group),
            )
            for group, (num_games, model) in enumerate(models.groups(builder))
        ]
        self._threads = ThreadPoolExecutor(len(self._groups), thread_name_prefix="games")
        self._refresher: Refresher | None = builder.refresher(models.refreshing(builder))
        self._weights: tuple[int, Arrays] | None = None
        self._sequence = 0
        self._unsent: deque[tuple[int, Stamp, SegmentBlock]] = deque()
        self._process = psutil.Process()
        self._split: dict[str, float] = {}

    def work(self, lease: Lease) -> LeaseReport:
        """Work off a lease.

        Raises:
            RuntimeError: The environment or the search failed: names worker, seed, host, and carries the cause.
        """
        start = time.monotonic()
        self._split = {"search": 0.0, "insert": 0.0, "weights": 0.0}
        report = LeaseReport(lease=lease)
        try:
            with self._measured("weights"):
                self._pull(lease)
            if lease.kind == SELFPLAY:
                self._play(lease, report)
            else:
                self._search_again(lease, report)
        except StoreLost:
            return (
                report  # without weights nothing can be done; the next lease finds the store again
            )
        except Exception as error:
            seed = role_seed(self._config, Role.WORKER, self.index, self.incarnation)
            raise RuntimeError(
                f"search worker {self.index} (incarnation {self.incarnation}, seed {seed.entropy} branch "
                f"{list(seed.spawn_key)}, host {socket.gethostname()}) failed in a lease of {lease.kind}: {error!r}"
            ) from error
        report.split, report.seconds = self._split, time.monotonic() - start
        report.memory_bytes = self._process.memory_info().rss
        report.used_local_inference = self._models.is_substituted
        return report

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and JSON of the running games, for a checkpoint."""
        arrays: Arrays = {}
        meta: dict[str, Any] = {"groups": []}
        for number, group in enumerate(self._groups):
            own, state = group.state()
            arrays |= {f"{number}/{name}": array for name, array in own.items()}
            meta["groups"].append(state)
        return arrays, meta

    def restore(self, arrays: Arrays, meta: dict[str, Any]) -> bool:
        """Go on with saved games; False if they do not fit this worker's groups, whose games then begin anew."""
        if len(meta["groups"]) != len(self._groups):
            return False
        for number, (group, state) in enumerate(zip(self._groups, meta["groups"], strict=True)):
            prefix = f"{number}/"
            own = {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            }
            group.restore(own, state)
        return True

    def close(self) -> None:
        """Free what it holds."""
        self._threads.shutdown()
        self._models.close()
        for group in self._groups:
            group.env.close()

    def _pull(self, lease: Lease) -> None:
        known = None if self._weights is None else self._weights[0]
        try:
            self._weights = self._links.pull_weights(lease.store, known) or self._weights
        except StoreLost:
            if known is None:
                raise
        if self._weights is None:
            raise StoreLost("the weight store has no weights yet")
        version, arrays = self._weights
        self._models.prepare(version, arrays, lease.server)
        for model in self._local_models():
            if model.version != version:
                model.load(to_tensors(arrays), version)

    def _local_models(self) -> list[Any]:
        models: list[Any] = [group.model for group in self._groups]
        if self._refresher is not None:
            models.append(self._refresher.model)
        return [model for model in models if self._models.takes_weights(model)]

    def _play(self, lease: Lease, report: LeaseReport) -> None:
        before = [asdict(group.totals) for group in self._groups]

        def play(group: SelfPlay) -> list[Segment]:
            return [
                segment
                for _ in range(lease.amount)
                for segment in self._insist(lambda: group.play(lease.learner_step), group.model)
            ]

        with self._measured("search"):
            if len(self._groups) == 1:
                segments = play(self._groups[0])
            else:  # while one group waits for its network, the other steps
                segments = [s for part in self._threads.map(play, self._groups) for s in part]
        report.totals = _difference(self._groups, before)
        report.version = min(group.model.version for group in self._groups)
        report.metrics = _means([group.report() for group in self._groups])
        for chunk in _chunks(segments):
            self._sequence += 1
            stamp = Stamp(self.index, self.incarnation, self._sequence)
            self._unsent.append((lease.shard.index, stamp, SegmentBlock.of(chunk)))
        with self._measured("insert"):
            self._send(lease.shard, report)

    def _send(self, shard: ShardAddress, report: LeaseReport) -> None:
        """Hand in what is not confirmed yet, in order; other shards' blocks wait for a lease of theirs."""
        waiting: deque[tuple[int, Stamp, SegmentBlock]] = deque()
        lost = False
        for index, stamp, block in self._unsent:
            if lost or index != shard.index:
                waiting.append((index, stamp, block))
                continue
            try:
                report.inserted += self._links.insert(shard, stamp, block).inserted
            except ShardLost:
                lost = True
                waiting.append((index, stamp, block))
                time.sleep(_PAUSE_SECONDS)
        while len(waiting) > _MOST_UNSENT:
            report.lost += waiting.popleft()[2].num_sampled
        self._unsent = waiting

    def _search_again(self, lease: Lease, report: LeaseReport) -> None:
        refresher = self._refresher
        if refresher is None:
            raise AssertionError("a lease of reanalyze, which is off")
        assert self._weights is not None
        report.version = self._weights[
            0
        ]  # a server's may be a little older: what is not newer is not written
        for _ in range(lease.amount):
            try:
                with self._measured("insert"):
                    taken = self._links.take(
                        lease.shard,
                        self._config.reanalyze.batch_size,
                        report.version,
                        lease.learner_step,
                    )
                if taken is None:
                    return
                with self._measured("search"):
                    refreshed = self._insist(
                        partial(refresher.refresh, taken.positions), refresher.model
                    )
                with self._measured("insert"):
                    self._links.give_back(lease.shard, taken.ticket, refreshed)
            except ShardLost:
                return
            report.searched += len(refreshed.root_value)

    def _insist(self, search: Callable[[], T], model: Any) -> T:
        """What a search gives; one that lost its server begins anew."""
        while True:
            try:
                return search()
            except ServerLost as error:
                logger.warning("worker %d: an inference server is lost: %s", self.index, error)
                self._models.lost(model)

    @contextmanager
    def _measured(self, what: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._split[what] += time.monotonic() - start


def _difference(groups: Sequence[SelfPlay], before: Sequence[dict[str, int]]) -> Totals:
    """What has been added to the totals of all groups."""
    return Totals(
        **{
            field.name: sum(
                getattr(group.totals, field.name) - old[field.name]
                for group, old in zip(groups, before, strict=True)
            )
            for field in fields(Totals)
        }
    )


def _means(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over the groups; totals, which the supervisor counts itself, are left out."""
    totals = {f"selfplay/{field.name}" for field in fields(Totals)}
    names = {name for report in reports for name in report} - totals
    return {
        name: float(np.mean([report[name] for report in reports if name in report]))
        for name in sorted(names)
    }


def _chunks(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Segments in pieces of at most 16 MB."""
    chunks: list[list[Segment]] = []
    size = _BLOCK_BYTES
    for segment in segments:
        nbytes = segment.frame.nbytes + segment.policy.nbytes + segment.legal.nbytes
        if size + nbytes > _BLOCK_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(segment)
        size += nbytes
    return chunks
