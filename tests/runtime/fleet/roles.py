"""What the fleet's tests share: a small config, whole games drawn at random, and links to roles in this process."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from muzero.config.compose import compose
from muzero.config.schema import Config
from muzero.envs.base import EnvSpec
from muzero.envs.registry import make_spec
from muzero.replay import Segment
from muzero.replay.segment_block import SegmentBlock
from muzero.runtime.fleet.insert_log import Stamp
from muzero.runtime.fleet.messages import (
    InsertAck,
    Lease,
    Positions,
    Samples,
    ShardAddress,
    ShardLost,
    StoreLost,
)
from muzero.runtime.fleet.shard import ReplayShard
from muzero.weights import Arrays
from reanalyze import Refreshed


@cache
def _composed(overrides: tuple[str, ...]) -> Config:
    return compose(["experiment=tictactoe", "debug=smoke", "runtime=ray", *overrides])


def small(*overrides: str) -> Config:
    """Tic-tac-toe, everything small; sections may be changed."""
    config = _composed(overrides)
    sections = ("env", "replay", "learner", "selfplay", "reanalyze", "search", "runtime")
    return replace(config, **{name: replace(getattr(config, name)) for name in sections})


@cache
def spec() -> EnvSpec:
    return make_spec(small().env)


def game(rng: np.random.Generator, length: int | None = None, version: int = 0) -> Segment:
    """A whole episode of the small config's size, its contents drawn at random."""
    length, env = length or int(rng.integers(1, 10)), spec()
    policy = rng.random((length, env.num_actions)).astype(np.float32)
    frames = rng.integers(0, 2, (length, *env.frame_shape))
    return Segment(
        frame=frames.astype(env.frame_dtype),
        action=rng.integers(0, env.num_actions, length, dtype=np.int32),
        reward=rng.normal(size=length).astype(np.float32),
        turn=np.array([-1] * (length - 1) + [0], np.int8),
        to_play=(np.arange(length) % 2).astype(np.int8),
        legal=rng.integers(0, 2, (length, env.num_actions)).astype(bool),
        policy=policy / policy.sum(axis=1, keepdims=True),
        has_policy=rng.random(length) < 0.8,
        root_value=rng.uniform(-1, 1, length).astype(np.float32),
        has_action=np.ones(length, bool),
        version=np.full(length, version, np.int32),
        first=0,
        count=length,
        starts_episode=True,
    )


def block(rng: np.random.Generator, num_games: int = 3, version: int = 0) -> SegmentBlock:
    return SegmentBlock.of([game(rng, version=version) for _ in range(num_games)])


def address(index: int = 0, incarnation: int = 0) -> ShardAddress:
    return ShardAddress(index, incarnation, f"handle {index}.{incarnation}")


class Store:
    """A weight store."""

    def __init__(self, version: int | None = None, weights: Arrays | None = None) -> None:
        self.version, self.weights = version, weights
        self.is_lost = False


class FleetLinks:
    """Every role's links, to shards and a store in this process.

    `lost` shards do not answer; those in `forgets_answers` do what they are asked, and then do not answer.
    """

    def __init__(self, *shards: ReplayShard) -> None:
        self.shards = {shard.index: shard for shard in shards}
        self.lost: set[int] = set()
        self.forgets_answers: set[int] = set()
        self.calls: Counter[str] = Counter()
        self.inserts: list[tuple[int, Stamp, SegmentBlock]] = []
        self.published: list[tuple[int, Arrays]] = []
        self.priorities: list[tuple[ShardAddress, list[Any]]] = []
        self.pulled: list[int | None] = []
        self.refreshed: list[Refreshed] = []

    def pull_weights(self, store: Store, version: int | None) -> tuple[int, Arrays] | None:
        self.pulled.append(version)
        if store.is_lost:
            raise StoreLost("the weight store does not answer")
        if store.version is None or (version is not None and store.version <= version):
            return None
        assert store.weights is not None
        weights = {name: array.copy() for name, array in store.weights.items()}
        for array in weights.values():
            array.flags.writeable = False  # as what comes out of an object store
        return store.version, weights

    def insert(self, shard: ShardAddress, stamp: Stamp, block: SegmentBlock) -> InsertAck:
        self._check(shard, "insert")
        self.inserts.append((shard.index, stamp, block))
        return self._answer(shard, self.shards[shard.index].insert(stamp, block))

    def take(
        self, shard: ShardAddress, count: int, version: int, learner_step: int
    ) -> Positions | None:
        self._check(shard, "take")
        return self._answer(shard, self.shards[shard.index].take(count, version, learner_step))

    def give_back(self, shard: ShardAddress, ticket: int, refreshed: Refreshed) -> bool:
        self._check(shard, "give_back")
        self.refreshed.append(refreshed)
        return self._answer(shard, self.shards[shard.index].give_back(ticket, refreshed))

    def sample(
        self, shard: ShardAddress, batch_size: int, count: int, newest_version: int
    ) -> Samples:
        self._check(shard, "sample")
        return self.shards[shard.index].sample(batch_size, count, newest_version)

    def update_priorities(self, shard: ShardAddress, updates: list[Any]) -> None:
        self.priorities.append((shard, updates))

    def publish(self, version: int, weights: Arrays) -> None:
        self.published.append((version, weights))

    def _check(self, shard: ShardAddress, what: str) -> None:
        self.calls[what] += 1
        if shard.index in self.lost:
            raise ShardLost(f"replay shard {shard.index} does not answer")

    def _answer(self, shard: ShardAddress, answer: Any) -> Any:
        if shard.index in self.forgets_answers:
            raise ShardLost(f"replay shard {shard.index} does not answer")
        return answer


def lease(kind: str, store: Store, *, shard: ShardAddress | None = None, **rest: Any) -> Lease:
    defaults: dict[str, Any] = {
        "number": 1,
        "amount": 1,
        "reserved": 4,
        "learner_step": 0,
        "version": 0,
    }
    return Lease(kind=kind, store=store, shard=shard or address(), **(defaults | rest))


def assert_same_replay(left: ReplayShard, right: ReplayShard) -> None:
    """Sizes, columns, priorities and totals of two shards."""
    ours, theirs = left.state(), right.state()
    assert ours[0].keys() == theirs[0].keys()
    for name, array in ours[0].items():
        np.testing.assert_array_equal(array, theirs[0][name], err_msg=name)
    ours[1].pop("cut"), theirs[1].pop("cut")
    for meta in (ours[1], theirs[1]):
        meta["replay"].pop("generator")
        meta["replay"]["limiter"] = {
            name: meta["replay"]["limiter"][name] for name in ("inserts", "samples")
        }
    assert ours[1] == theirs[1]


def fill_shard(shard: ReplayShard, num_games: int) -> int:
    """Insert so many games; returns their positions."""
    made = block(np.random.default_rng(shard.index), num_games)
    return shard.insert(Stamp(999, shard.incarnation, 1), made).inserted


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(4000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never came to that")
