"""Positions that are used up or too old are no longer sampled: `max_times_sampled`, `max_behaviour_age`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muzero.config.schema import ReplayConfig, TargetsConfig
from muzero.replay import RateLimiter, ReplayBuffer
from muzero.replay.retirement import Retirement
from tests.oracles.games import Game, segment_of, spec_of

BATCH = 5


def game_of(length: int, name: int = 0) -> Game:
    return Game([0] * (length + 1), [0.5] * length, [0.25] * (length + 1), name=name)


def make_buffer(**settings: Any) -> ReplayBuffer:
    defaults: dict[str, Any] = {"capacity": 40, "min_size": 1, "samples_per_insert": 2.0}
    return ReplayBuffer(
        spec_of(),
        ReplayConfig(**(defaults | settings)),
        TargetsConfig(discount=0.9, td_steps=3),
        num_unroll_steps=2,
        with_next_observation=False,
        batch_size=BATCH,
        insert_quantum=8,
        generator=np.random.default_rng(0),
    )


def assert_same_batches(mine: Any, expected: Any) -> None:
    for name in (
        "slot",
        "generation",
        "observation",
        "action",
        "reward",
        "value",
        "policy",
        "weight",
    ):
        np.testing.assert_array_equal(getattr(mine, name), getattr(expected, name), err_msg=name)


@pytest.mark.parametrize("prioritized", [False, True])
def test_no_limits_and_limits_out_of_reach_change_nothing(prioritized: bool) -> None:
    plain = make_buffer(prioritized=prioritized)
    loose = make_buffer(prioritized=prioritized, max_times_sampled=10**6, max_behaviour_age=10**6)
    for version in range(30):
        for buffer in (plain, loose):
            buffer.add(segment_of(game_of(1 + version % 7, version), version=version))
        batches = [buffer.sample(BATCH) for buffer in (plain, loose)]
        assert_same_batches(*batches)
        for buffer, batch in zip((plain, loose), batches, strict=True):
            buffer.update_priorities(batch.slot, batch.generation, batch.root_value + 1)
            assert buffer.expire(version) == 0
    assert plain.statistics() == loose.statistics()
    (arrays, meta), (other_arrays, other_meta) = plain.state(), loose.state()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], other_arrays[name], err_msg=name)
    assert meta == other_meta


def test_a_position_is_sampled_so_often_and_no_more() -> None:
    buffer = make_buffer(max_times_sampled=3)
    buffer.add(segment_of(game_of(6)))
    times = np.zeros(40, int)
    while buffer.size > 0:
        before = times.copy()
        slot = buffer.sample(1).slot
        times[slot] += 1
        assert before[slot] < 3
        assert buffer.size == np.count_nonzero(times[:6] < 3)
    assert times[:6].tolist() == [3] * 6
    assert buffer.statistics()["replay/used_up"] == 6
    assert buffer.statistics()["replay/expired"] == 0


def test_positions_too_old_are_no_longer_sampled() -> None:
    buffer = make_buffer(max_behaviour_age=10)
    for version in (3, 7, 5):
        buffer.add(segment_of(game_of(4, version), version=version))
    assert [buffer.expire(newest) for newest in (0, 13, 14, 14, 15)] == [0, 0, 4, 0, 0]
    assert set(buffer.sample(64).behaviour_version) == {5, 7}
    assert [buffer.expire(newest) for newest in (16, 17)] == [4, 0]
    assert set(buffer.sample(64).behaviour_version) == {7}
    buffer.add(segment_of(game_of(2), version=6))  # one that was long under way
    assert buffer.expire(17) == 2
    assert buffer.expire(18) == 4
    assert buffer.statistics()["replay/expired"] == 14


def test_the_ring_is_looked_at_only_if_something_may_be_too_old(monkeypatch) -> None:
    import muzero.replay.retirement as module

    looks, look = [], module._older_rows
    monkeypatch.setattr(module, "_older_rows", lambda *a: looks.append(1) or look(*a))
    buffer = make_buffer(max_behaviour_age=10)
    buffer.add(segment_of(game_of(4), version=20))
    buffer.expire(20)
    assert len(looks) == 1  # nothing was known yet
    for newest in range(20, 31):
        buffer.expire(newest)
    assert len(looks) == 1
    assert buffer.expire(31) == 4
    assert len(looks) == 2
    assert (
        Retirement(ReplayConfig()).outdated({}, 10**9).tolist() == []
    )  # no limit: no ring is needed


def test_what_comes_back_for_a_retired_position_does_not_revive_it() -> None:
    buffer = make_buffer(prioritized=True, max_times_sampled=1)
    buffer.add(segment_of(game_of(5), version=0))
    stale = buffer.stalest(1, 3)
    roots = buffer.roots(stale)
    batch = buffer.sample(BATCH)
    assert buffer.size < 5
    left = buffer.size
    assert buffer.update_priorities(batch.slot, batch.generation, np.full(BATCH, 100.0)) == 0
    assert buffer.size == left
    if left > 0:
        assert not set(buffer.sample(BATCH).slot) & set(batch.slot)
    # Its targets are still those of a position that others unroll into.
    policy, value = np.ones((1, 3), np.float32), np.ones(1, np.float32)
    assert buffer.write_back(stale, roots.generation, policy, value, 2) == (1, 0)
    assert not set(buffer.stalest(10, 3)) & set(batch.slot)


def test_with_nothing_left_the_limiter_asks_for_data_and_sample_says_why() -> None:
    buffer = make_buffer(max_behaviour_age=2, max_times_sampled=50, min_size=4)
    limiter = buffer.limiter
    assert limiter.can_insert(8) and not limiter.can_sample(BATCH)
    buffer.add(segment_of(game_of(8), version=0))
    while limiter.can_sample(BATCH):
        buffer.sample(BATCH)
    buffer.add(segment_of(game_of(8), version=0))
    assert limiter.can_sample(BATCH)
    error = limiter.error
    assert buffer.expire(3) == 16
    assert limiter.can_insert(8) and not limiter.can_sample(BATCH)
    with pytest.raises(
        ValueError, match=r"16 became older than replay\.max_behaviour_age.*can_sample"
    ):
        buffer.sample(BATCH)
    buffer.add(segment_of(game_of(8), version=2))
    assert limiter.error == error  # the new ones stand in for those that were lost
    assert limiter.can_sample(BATCH)
    assert set(buffer.sample(BATCH).behaviour_version) == {2}


class Life(RuleBasedStateMachine):
    """Adding, sampling, ageing, saving, in any order, against sets and counts in plain Python."""

    @initialize(
        times=st.one_of(st.none(), st.integers(2, 6)),
        age=st.one_of(st.none(), st.integers(1, 6)),
        prioritized=st.booleans(),
        min_size=st.integers(1, 12),
    )
    def begin(self, times: int | None, age: int | None, prioritized: bool, min_size: int) -> None:
        self.settings = {
            "max_times_sampled": times,
            "max_behaviour_age": age,
            "prioritized": prioritized,
            "min_size": min_size,
        }
        self.times, self.age = times, age
        self.buffer = make_buffer(**self.settings)
        self.newest = self.added = 0
        self.segments: list[list[int]] = []
        self.held: dict[int, list[int]] = {}  # slot: generation, version, times sampled
        self.lost = {"expired": 0, "used_up": 0}
        self.next = 0
        self.batches: list[Any] = []

    @rule(length=st.integers(1, 8), behind=st.integers(0, 8))
    def add(self, length: int, behind: int) -> None:
        if not self.buffer.limiter.can_insert(8):
            return
        version = max(0, self.newest - behind)
        self.buffer.add(segment_of(game_of(length), version=version))
        while sum(map(len, self.segments)) + length > 40:
            for slot in self.segments.pop(0):
                self.held.pop(slot, None)
        slots = [(self.next + i) % 40 for i in range(length)]
        self.segments.append(slots)
        self.held |= {slot: [self.added, version, 0] for slot in slots}
        self.next, self.added = (self.next + length) % 40, self.added + 1

    @rule()
    def sample(self) -> None:
        if not self.buffer.limiter.can_sample(BATCH):
            return
        batch = self.buffer.sample(BATCH)
        assert set(batch.slot) <= set(self.held)
        assert [self.held[slot][0] for slot in batch.slot] == batch.generation.tolist()
        for slot in batch.slot:
            self.held[slot][2] += 1
        used = {
            slot
            for slot in batch.slot
            if self.times is not None and self.held[slot][2] >= self.times
        }
        for slot in used:
            del self.held[slot]
        self.lost["used_up"] += len(used)
        self.batches = [*self.batches[-3:], batch]

    @rule(errors=st.lists(st.integers(0, 9), min_size=BATCH, max_size=BATCH))
    def update_priorities(self, errors: list[int]) -> None:
        for batch in self.batches:
            self.buffer.update_priorities(batch.slot, batch.generation, np.array(errors, float))

    @rule(steps=st.integers(0, 3))
    def learn(self, steps: int) -> None:
        self.newest += steps
        old = [
            slot
            for slot, (_, version, _) in self.held.items()
            if self.age is not None and self.newest - version > self.age
        ]
        assert self.buffer.expire(self.newest) == len(old)
        for slot in old:
            del self.held[slot]
        self.lost["expired"] += len(old)

    @precondition(lambda self: hasattr(self, "buffer"))
    @rule()
    def save_and_restore(self) -> None:
        arrays, meta = self.buffer.state()
        arrays = {name: array.copy() for name, array in arrays.items()}
        self.buffer = make_buffer(**self.settings)
        self.buffer.restore(arrays, meta)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "held"):
            return
        buffer = self.buffer
        assert buffer.size == len(self.held)
        statistics = buffer.statistics()
        for name, count in self.lost.items():
            assert statistics[f"replay/{name}"] == count
        weights = buffer._priorities.tree.weights
        assert set(np.flatnonzero(weights).tolist()) == set(self.held)

    @invariant()
    def somebody_may_go_on(self) -> None:
        if hasattr(self, "held"):
            limiter = self.buffer.limiter
            assert limiter.can_insert(8) or limiter.can_sample(BATCH)
            if not self.held:
                assert limiter.can_insert(8) and not limiter.can_sample(BATCH)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@settings(max_examples=300, deadline=None)
@given(st.floats(0.1, 20), st.integers(1, 200), st.integers(1, 200), st.data())
def test_a_starved_limiter_never_deadlocks_and_owes_nothing_for_the_rescue(
    spi: float, batch: int, quantum: int, data: st.DataObject
) -> None:
    limiter = RateLimiter(
        samples_per_insert=spi, min_size=10, batch_size=batch, insert_quantum=quantum
    )
    limiter.record_insert(10 + data.draw(st.integers(0, 50)))
    for _ in range(data.draw(st.integers(0, 20))):
        limiter.starved = data.draw(st.booleans())
        may_insert, may_sample = limiter.can_insert(quantum), limiter.can_sample(batch)
        assert may_insert or may_sample
        assert not (limiter.starved and may_sample)
        before = limiter.error
        if may_sample:
            limiter.record_sample(batch)
        else:
            limiter.record_insert(quantum)
            due = 0.0 if limiter.starved else quantum * spi
            assert limiter.error == pytest.approx(before + due)
        limiter.restore(limiter.state())
    assert abs(limiter.error) <= limiter.error_buffer + 60 * spi


def test_a_starved_limiter_still_fills_first() -> None:
    limiter = RateLimiter(samples_per_insert=2, min_size=10, batch_size=4, insert_quantum=4)
    limiter.starved = True
    limiter.record_insert(10)
    assert limiter.error == 0
    limiter.starved = False
    assert limiter.can_sample(4)
    limiter.record_insert(4)
    assert limiter.error == 8


def test_a_saved_buffer_of_before_the_settings_is_restored() -> None:
    buffer = make_buffer()
    buffer.add(segment_of(game_of(6)))
    buffer.sample(BATCH)
    arrays, meta = buffer.state()
    for name in ("expired", "used_up"):
        del meta["counts"][name]
    del meta["limiter"]["unowed_inserts"]
    fresh = make_buffer()
    fresh.restore(arrays, meta)
    assert fresh.statistics() | {"replay/sample_wait_seconds": 0} == buffer.statistics() | {
        "replay/sample_wait_seconds": 0
    }
    assert_same_batches(fresh.sample(BATCH), buffer.sample(BATCH))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 9), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 15),
)
def test_outdated_rows_are_those_of_the_definition(rows, newest) -> None:
    assume(newest > 0)
    columns = {
        "behaviour_version": np.array([version for version, _ in rows], np.int32),
        "sampleable": np.array([sampleable for _, sampleable in rows]),
    }
    found = Retirement(ReplayConfig(max_behaviour_age=4)).outdated(columns, newest)
    expected = [i for i, (version, ok) in enumerate(rows) if ok and newest - version > 4]
    assert found.tolist() == expected
