"""Batches ahead of the learner: within the allowance whatever the threads do, from every shard its share, in their order."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from muzero.runtime.fleet import loader as loader_module
from muzero.runtime.fleet.loader import MOST_THREADS, Loader
from muzero.runtime.fleet.messages import Samples, ShardAddress, ShardLost
from muzero.runtime.fleet.waiting import ASSEMBLY, CAUSES, LIMITER, TRANSFER, WaitAccount
from tests.runtime.fleet.roles import address, until

SIZE = 8  # positions of a batch


class Shards:
    """Gives numbered batches; `mass` says what a shard has, 0 that it is empty."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mass: dict[int, float] = {0: 10.0, 1: 10.0, 2: 10.0}
        self.lost: set[int] = set()
        self.asked: Counter[int] = Counter()
        self.given = self.versions = 0
        self.error: Exception | None = None
        self.gate: threading.Event | None = None

    def sample(
        self, shard: ShardAddress, batch_size: int, count: int, newest_version: int
    ) -> Samples:
        assert batch_size == SIZE
        if self.gate is not None:
            assert self.gate.wait(20.0)
        with self.lock:
            self.asked[shard.index] += 1
            self.versions = newest_version
            if shard.index in self.lost:
                raise ShardLost("gone")
            if self.error is not None:
                raise self.error
            if self.mass[shard.index] == 0.0:
                return Samples([], 0.0)
            first, self.given = self.given, self.given + count
            batches: Any = list(range(first, first + count))
            return Samples(batches, self.mass[shard.index])


class Fixture(SimpleNamespace):
    loader: Loader
    shards: Shards
    waits: WaitAccount

    def next(self) -> Any:
        """The next batch; an error if there is none within a while."""
        return self.loader.next(self.patience())

    @staticmethod
    def patience() -> Callable[[], bool]:
        looks = iter(range(15))
        return lambda: next(looks, None) is None  # `next` looks once a second

    def settle(self, ready: int) -> None:
        """Wait until so many batches are ready and the loaders are at rest."""

        def is_settled() -> bool:
            with self.loader._lock:
                return self.loader.num_ready == ready and self.loader._in_flight == 0

        until(is_settled)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fixture]]:
    monkeypatch.setattr(loader_module, "_PAUSE_SECONDS", 0.002)
    loaders: list[Loader] = []

    def make(*, depth: int = 4, threads: int = 1, prepare: Any = None) -> Fixture:
        shards, waits = Shards(), WaitAccount()
        loader = Loader(
            shards,
            prepare or (lambda batch: (batch, -batch)),
            waits,
            batch_size=SIZE,
            depth=depth,
            threads=threads,
            seed=np.random.SeedSequence(0),
        )
        loaders.append(loader)
        return Fixture(loader=loader, shards=shards, waits=waits)

    yield make
    for loader in loaders:
        loader.close()
        assert not any(thread.is_alive() for thread in loader._threads)


def test_batches_come_oldest_first_with_their_inputs_and_shard(made) -> None:
    fixture = made()
    fixture.loader.connect([address(2)])
    fixture.loader.allow(20 * SIZE)
    taken = [fixture.next() for _ in range(20)]
    assert [ready.batch for ready in taken] == list(range(20))
    assert all(ready.inputs == -ready.batch and ready.shard == address(2) for ready in taken)


def test_no_more_is_held_ready_than_the_depth(made) -> None:
    fixture = made(depth=3, threads=4)
    fixture.loader.connect([address()])
    fixture.loader.allow(100 * SIZE)
    fixture.settle(3)
    assert fixture.shards.given == 3
    fixture.next()
    fixture.settle(3)
    fixture.loader.tune(6, 2)
    fixture.settle(6)
    assert fixture.shards.given == 7 and fixture.loader.sampled == 7 * SIZE


@pytest.mark.parametrize("threads", [1, MOST_THREADS])
def test_the_allowance_is_never_exceeded_and_always_used(made, threads: int) -> None:
    fixture, rng = made(depth=16, threads=threads), np.random.default_rng(0)
    loader, shards = fixture.loader, fixture.shards
    shards.mass[1], shards.lost = 0.0, {2}  # requests that bring nothing are taken back
    loader.connect([address(0), address(1), address(2)])
    allowed = taken = 0
    for _ in range(60):
        allowed += int(rng.integers(0, 5 * SIZE))
        loader.allow(allowed)
        loader.allow(allowed - 3)  # an older message that came late
        while (taken + 1) * SIZE <= allowed:
            assert fixture.next() is not None
            taken += 1
            assert shards.given * SIZE <= allowed
    assert shards.given == allowed // SIZE == taken
    assert loader.sampled == taken * SIZE
    assert {0, 1, 2} <= set(shards.asked)


def test_without_shards_or_allowance_it_waits_and_can_be_interrupted(made) -> None:
    fixture = made()
    loader, stop = fixture.loader, threading.Event()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(loader.next(stop.is_set)))
    waiting.start()
    loader.allow(SIZE - 1)
    loader.connect([address()])
    stop.set()
    loader.wake()
    waiting.join(10.0)
    assert found == [None] and fixture.shards.given == 0
    assert fixture.waits.take().keys() == set(CAUSES)
    loader.allow(SIZE)
    assert fixture.next().batch == 0


def test_a_ready_batch_is_given_also_when_interrupted(made) -> None:
    fixture = made()
    fixture.loader.connect([address()])
    fixture.loader.allow(SIZE)
    fixture.settle(1)
    assert fixture.loader.next(lambda: True).batch == 0
    assert fixture.loader.next(lambda: True) is None


def test_a_lost_shard_takes_nothing_of_the_allowance(made) -> None:
    fixture = made()
    fixture.shards.lost = {0}
    fixture.loader.connect([address(0)])
    fixture.loader.allow(5 * SIZE)
    until(lambda: fixture.shards.asked[0] >= 3)
    assert fixture.loader.num_ready == 0 and fixture.loader.sampled == 0
    fixture.loader.connect([address(1)])
    assert [fixture.next().batch for _ in range(5)] == list(range(5))
    fixture.settle(0)
    assert fixture.shards.given == 5


def test_an_empty_shard_is_drawn_from_once_it_has_something(made) -> None:
    """What a shard has is known from its answers alone: one that had nothing then must be asked again."""
    fixture = made(depth=2)
    shards, loader = fixture.shards, fixture.loader
    shards.mass = {0: 1000.0, 1: 0.0}
    loader.connect([address(0), address(1)])
    loader.allow(100 * SIZE)
    for _ in range(100):
        fixture.next()
    assert 0 < shards.asked[1] < 10
    shards.mass[1] = 1000.0
    loader.allow(700 * SIZE)
    drawn = Counter(fixture.next().shard.index for _ in range(600))
    assert drawn[1] > 150


@pytest.mark.parametrize("mass", [{0: 30.0, 1: 10.0}, {0: 3000.0, 1: 1000.0}])
def test_shards_are_drawn_from_in_proportion_to_their_mass(made, mass: dict) -> None:
    fixture = made(depth=2)
    fixture.shards.mass = mass
    fixture.loader.connect([address(0), address(1)])
    fixture.loader.allow(1200 * SIZE)
    drawn = Counter(fixture.next().shard.index for _ in range(1200))
    assert drawn[0] / 1200 == pytest.approx(0.75, abs=0.05)


def test_a_shard_made_anew_is_asked_what_it_has(made) -> None:
    fixture = made(depth=1)
    loader, shards = fixture.loader, fixture.shards
    shards.mass = {0: 1.0, 1: 1e6}
    loader.connect([address(0), address(1)])
    loader.allow(20 * SIZE)
    for _ in range(20):
        fixture.next()
    shards.mass[0] = 1e6
    loader.connect([address(1)])
    loader.connect([address(0, 1), address(1)])
    loader.allow(120 * SIZE)
    taken = [fixture.next().shard for _ in range(100)]
    fresh = [shard.incarnation for shard in taken if shard.index == 0]
    assert len(fresh) > 20 and set(fresh) == {1}


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_of_a_loader_reaches_the_learner(made, threads: int) -> None:
    """At once: also if other threads could still load, and batches are ready."""

    def prepare(batch: Any) -> tuple[Any, Any]:
        if batch == 5:
            raise ArithmeticError("a target is NaN")
        return batch, None

    fixture = made(depth=8, threads=threads, prepare=prepare)
    fixture.loader.connect([address()])
    fixture.loader.allow(1000 * SIZE)
    until(lambda: fixture.loader._error is not None)
    assert fixture.loader.num_ready > 0
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="a target is NaN"):
            fixture.next()


def test_an_error_of_a_shard_reaches_a_learner_that_waits(made) -> None:
    fixture = made()
    fixture.shards.error = KeyError("a shard's own")
    fixture.loader.connect([address()])
    threading.Timer(0.05, fixture.loader.allow, [SIZE]).start()
    with pytest.raises(KeyError, match="a shard's own"):
        fixture.next()


def test_shards_are_told_the_learners_version(made) -> None:
    fixture = made()
    fixture.loader.note_version(77)
    fixture.loader.connect([address()])
    fixture.loader.allow(SIZE)
    fixture.next()
    assert fixture.shards.versions == 77


def test_waits_are_charged_to_their_cause(made) -> None:
    """The account's clock is replaced by one that counts the seconds in which a stage is entered."""
    gate = threading.Event()

    def prepare(batch: Any) -> tuple[Any, Any]:
        assert gate.wait(20.0)
        return batch, None

    fixture = made(prepare=prepare)
    clock, waits = SimpleNamespace(now=0.0), fixture.waits
    waits._clock = lambda: clock.now
    fixture.shards.gate = threading.Event()
    found: list[Any] = []
    learner = threading.Thread(target=lambda: found.append(fixture.next()))
    learner.start()

    until(lambda: waits._since is not None)
    clock.now += 3.0
    fixture.loader.connect([address()])
    fixture.loader.allow(SIZE)
    until(lambda: waits._active[ASSEMBLY] == 1)
    clock.now += 5.0
    fixture.shards.gate.set()
    until(lambda: waits._active[TRANSFER] == 1)
    clock.now += 7.0
    gate.set()
    learner.join(10.0)
    assert found[0].batch == 0
    assert waits.take() == {LIMITER: 3.0, ASSEMBLY: 5.0, TRANSFER: 7.0}
