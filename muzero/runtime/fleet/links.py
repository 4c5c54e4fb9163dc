"""How the roles call each other through Ray: every call with a deadline."""

from contextlib import suppress
from typing import Any

from muzero.replay.segment_block import SegmentBlock
from muzero.runtime.fleet.faults import ask
from muzero.runtime.fleet.insert_log import Stamp
from muzero.runtime.fleet.messages import (
    InsertAck,
    Positions,
    Samples,
    ShardAddress,
    ShardLost,
    StoreLost,
)
from muzero.runtime.fleet.training import Update
from muzero.weights import Arrays
from reanalyze import Refreshed


class RayLinks:
    """Calls to shards and store, each with a deadline."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def pull_weights(self, store: Any, version: int | None) -> tuple[int, Arrays] | None:
        """See `Links`."""
        newest = ask(store.pull.remote(version), self._seconds, StoreLost, "the weight store")
        if newest is None:
            return None
        found, reference = newest
        return found, ask(reference, self._seconds, StoreLost, "the weight store")

    def insert(self, shard: ShardAddress, stamp: Stamp, block: SegmentBlock) -> InsertAck:
        """See `Links`."""
        ack: InsertAck = self._ask(shard, shard.handle.insert.remote(stamp, block))
        return ack

    def take(
        self, shard: ShardAddress, count: int, version: int, learner_step: int
    ) -> Positions | None:
        """See `Links`."""
        call = shard.handle.take.remote(count, version, learner_step)
        positions: Positions | None = self._ask(shard, call)
        return positions

    def give_back(self, shard: ShardAddress, ticket: int, refreshed: Refreshed) -> bool:
        """See `Links`."""
        known: bool = self._ask(shard, shard.handle.give_back.remote(ticket, refreshed))
        return known

    def sample(
        self, shard: ShardAddress, batch_size: int, count: int, newest_version: int
    ) -> Samples:
        """See `LearnerLinks`."""
        call = shard.handle.sample.remote(batch_size, count, newest_version)
        samples: Samples = self._ask(shard, call)
        return samples

    def _ask(self, shard: ShardAddress, reference: Any) -> Any:
        return ask(reference, self._seconds, ShardLost, f"replay shard {shard.index}")


class LearnerRayLinks(RayLinks):
    """The learner's calls; the weight store is told to it, and may be another one later."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.store: Any = None
        self._priorities: dict[int, Any] = {}

    def update_priorities(self, shard: ShardAddress, updates: list[Update]) -> None:
        """See `LearnerLinks`: one message to a shard at a time, so that none queue up."""
        pending = self._priorities.pop(shard.index, None)
        try:
            if pending is not None:
                self._ask(shard, pending)
            self._priorities[shard.index] = shard.handle.update_priorities.remote(updates)
        except ShardLost:
            pass  # its positions are gone, or were restored with the priorities of then

    def publish(self, version: int, weights: Arrays) -> None:
        """See `LearnerLinks`: without a store, whoever is there next will be told the next weights."""
        if self.store is None:
            return
        with suppress(StoreLost):
            ask(self.store.publish.remote(version, weights), self._seconds, StoreLost, "the store")
