"""The fleet's learner with links to a shard in this process: its loop, and what others may ask of it meanwhile."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from muzero.config.schema import Config
from muzero.learner import TrainingDiverged
from muzero.runtime.build import Builder
from muzero.runtime.fleet import loader as loader_module
from muzero.runtime.fleet.messages import ShardLost
from muzero.runtime.fleet.shard import ReplayShard
from muzero.runtime.fleet.training import Training
from muzero.weights import Arrays, to_arrays
from tests.runtime.fleet.roles import FleetLinks, address, fill_shard, small, until

BATCH, STEPS = 16, 20


class Case:
    """A training, its links, and a thread in which it runs."""

    def __init__(self, config: Config, incarnation: int = 0) -> None:
        self.links = FleetLinks(ReplayShard(config, 0, 1, 0))
        fill_shard(self.links.shards[0], 40)
        self.training = Training(config, incarnation, self.links)
        self.training.connect([address()])
        self.learner: Any = self.training._learner
        self._threads = ThreadPoolExecutor(2)
        self.run: Future[int] | None = None

    def start(self) -> Future[int]:
        self.run = self._threads.submit(self.training.run)
        return self.run

    def elsewhere(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self._threads.submit(call, *arguments)

    def train(self, steps: int = STEPS) -> int:
        self.training.allow(steps * BATCH)
        return self.start().result(30.0)

    def wait_until_it_waits(self, step: int) -> None:
        until(lambda: self.learner.num_steps_done == step)
        until(lambda: self.training._waits._since is not None)

    def close(self) -> None:
        self.training.stop()
        if self.run is None:
            self.start()
        self.run.exception(30.0)
        self._threads.shutdown()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Case]]:
    monkeypatch.setattr(loader_module, "_PAUSE_SECONDS", 0.002)
    cases: list[Case] = []

    def make(*overrides: str, incarnation: int = 0) -> Case:
        config = small(f"learner.num_steps={STEPS}", *overrides)
        config = replace(config, runtime=replace(config.runtime, publish_seconds=0.0))
        cases.append(Case(config, incarnation))
        return cases[-1]

    yield make
    for case in cases:
        case.close()


def assert_equal(left: Arrays, right: Arrays) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


def test_it_trains_to_the_end_and_tells_what_it_did(make) -> None:
    case = make()
    assert case.train(1000) == STEPS
    status = case.training.status()
    assert (status.step, status.version, status.steps) == (STEPS, STEPS, STEPS)
    assert STEPS * BATCH <= status.sampled <= (STEPS + 8) * BATCH
    total, weight = status.means["learner/loss"]
    assert weight == STEPS and 0.0 < total / weight < 100.0
    assert "learner/learning_rate" in status.lasts and status.target_age > 0.0
    assert 0.0 < status.busy_seconds <= status.seconds
    again = case.training.status()
    assert (again.steps, again.means, again.busy_seconds) == (0, {}, 0.0)
    assert (again.step, again.sampled) == (STEPS, status.sampled)


def test_weights_are_published_with_rising_versions_from_the_first_to_the_last(make) -> None:
    case = make()
    case.train()
    versions = [version for version, _ in case.links.published]
    assert versions[0] == 0 and versions[-1] == STEPS and versions == sorted(versions)
    assert len(set(versions)) > 2
    untrained = to_arrays(Builder.of(small()).network().state_dict())
    assert_equal(case.links.published[0][1], untrained)
    assert_equal(case.links.published[-1][1], case.training.snapshot(1.0).acting)
    changed = case.links.published[-1][1]
    assert any(not np.array_equal(changed[name], array) for name, array in untrained.items())


def test_weights_are_not_published_more_often_than_wished(make) -> None:
    case = make()
    case.training._publish_seconds = 1e9
    case.train()
    assert [version for version, _ in case.links.published] == [0, STEPS]


def test_publishing_never_holds_the_training_up(make) -> None:
    case = make()
    gate, publish = threading.Event(), case.links.publish

    def slowly(version: int, weights: Arrays) -> None:
        if version > 0:
            assert gate.wait(20.0)
        publish(version, weights)

    case.links.publish = slowly
    case.training.allow(6 * BATCH)
    run = case.start()
    case.wait_until_it_waits(6)
    assert [version for version, _ in case.links.published] == [0]
    gate.set()
    case.training.stop()
    assert run.result(30.0) == 6
    versions = [version for version, _ in case.links.published]
    assert set(versions) == {0, versions[1], 6}  # those between were skipped


def test_it_goes_no_further_than_allowed_and_can_be_stopped_while_it_waits(make) -> None:
    case = make()
    case.training.allow(5 * BATCH + 7)
    run = case.start()
    case.wait_until_it_waits(5)
    status = case.training.status()
    assert (status.step, status.sampled, status.ready_batches) == (5, 5 * BATCH, 0)
    case.training.allow(7 * BATCH)
    case.wait_until_it_waits(7)
    case.training.stop()
    assert run.result(30.0) == 7
    assert case.links.published[-1][0] == 7


def test_a_store_that_comes_later_gets_the_weights_while_the_learner_waits(make) -> None:
    case = make()
    case.training._publish_seconds = 1e9
    case.training.allow(3 * BATCH)
    case.start()
    case.wait_until_it_waits(3)
    assert [version for version, _ in case.links.published] == [0]
    case.training.publish_anew()
    until(lambda: len(case.links.published) == 2)
    assert case.links.published[1][0] == 3


def test_a_snapshot_between_two_steps_is_whole(make) -> None:
    case = make("learner.num_steps=100000")
    states: dict[int, Arrays] = {0: to_arrays(case.learner.state()[0])}
    step = case.learner.step

    def recording(*arguments: Any) -> Any:
        report = step(*arguments)
        states[case.learner.num_steps_done] = to_arrays(case.learner.state()[0])
        return report

    case.learner.step = recording
    case.training.allow(10**6)
    case.start()
    for _ in range(3):
        reached = case.learner.num_steps_done
        until(lambda reached=reached: case.learner.num_steps_done > reached + 2)
        snapshot = case.training.snapshot(20.0)
        assert snapshot.step == snapshot.meta["num_steps_done"] > reached
        assert_equal(snapshot.tensors, states[snapshot.step])
    case.training.stop()


def test_a_snapshot_can_be_had_before_during_and_after_the_training(
    make,
) -> None:
    case = make()
    with pytest.raises(TimeoutError):
        case.training.snapshot(0.01)
    early = case.elsewhere(case.training.snapshot, 20.0)
    until(lambda: len(case.training._snapshots) == 2)
    case.training.allow(4 * BATCH)
    case.start()
    assert early.result(20.0).step == 0
    case.wait_until_it_waits(4)
    assert case.training.snapshot(20.0).step == 4
    case.training.allow(STEPS * BATCH)
    case.run.result(30.0)
    late = case.training.snapshot(0.0)
    assert late.step == STEPS
    assert_equal(late.acting, to_arrays(case.learner.acting_weights()))


def test_a_snapshot_does_not_tear_the_step_that_a_stop_lets_end(make) -> None:
    case = make()
    begun, gate, step = threading.Event(), threading.Event(), case.learner.step

    def slowly(*arguments: Any) -> Any:
        begun.set()
        assert gate.wait(20.0)
        return step(*arguments)

    case.learner.step = slowly
    case.training.allow(BATCH)
    case.start()
    assert begun.wait(20.0)
    case.training.stop()
    snapshot = case.elsewhere(case.training.snapshot, 20.0)
    until(lambda: bool(case.training._snapshots) or snapshot.done())
    assert not snapshot.done()
    gate.set()
    assert snapshot.result(20.0).step == case.run.result(20.0) == 1


def test_a_restored_learner_goes_on_with_versions_that_nobody_has_seen(make) -> None:
    first = make()
    first.training.allow(8 * BATCH)
    first.start()
    first.wait_until_it_waits(8)
    snapshot = first.training.snapshot(20.0)
    for offset, newest, version in ((0, -1, 8), (5, -1, 13), (0, 8, 9), (0, 30, 31), (40, 30, 48)):
        case = make(incarnation=1)
        case.training.restore(snapshot.tensors, snapshot.meta, offset=offset, newest_version=newest)
        assert case.training.version == version > newest
        assert_equal(to_arrays(case.learner.state()[0]), snapshot.tensors)
    assert case.train() == STEPS
    published = [version for version, _ in case.links.published]
    assert published[0] == 48 and published[-1] == STEPS + 40
    assert case.training.snapshot(1.0).version_offset == 40
    assert case.training.status().steps == STEPS - 8


def test_a_learner_that_starts_over_does_not_repeat_versions(make) -> None:
    case = make(incarnation=2)
    case.training.start_over(17)
    case.train(1000)
    published = [version for version, _ in case.links.published]
    assert published[0] == 18 and published[-1] == 18 + STEPS
    assert case.training.status().step == STEPS


def test_errors_become_priorities_of_their_shard(make) -> None:
    case = make("replay.prioritized=true")
    case.train()
    assert [len(updates) for _, updates in case.links.priorities] == [8, 8, STEPS - 16]
    for shard, updates in case.links.priorities:
        assert shard == address()
        for slot, generation, error in updates:
            assert slot.shape == generation.shape == error.shape == (BATCH,)
            assert (error >= 0.0).all() and error.any()
    shard = case.links.shards[0]
    before = shard.sample(1, 1, 0).mass
    shard.update_priorities(case.links.priorities[0][1])
    assert shard.sample(1, 1, 0).mass != before
    assert shard.statistics(0)["replay/dropped_priorities"] == 0


def test_uniform_sampling_sends_no_priorities(make) -> None:
    case = make("replay.prioritized=false")
    case.train()
    assert case.links.priorities == []


def test_errors_of_a_skipped_step_are_not_sent(make) -> None:
    case = make("replay.prioritized=true")
    step = case.learner.step

    def skipping(*arguments: Any) -> Any:
        report = step(*arguments)
        return replace(report, skipped=case.learner.num_steps_done == 3)

    case.learner.step = skipping
    case.train()
    assert sum(len(updates) for _, updates in case.links.priorities) == STEPS - 1


def test_training_that_diverges_ends_the_run_and_leaves_no_question_open(make) -> None:
    case = make()
    begun, gate = threading.Event(), threading.Event()

    def diverge(*_: Any) -> Any:
        begun.set()
        assert gate.wait(20.0)
        raise TrainingDiverged("5 steps in a row")

    case.learner.step = diverge
    case.training.allow(1000)
    run = case.start()
    assert begun.wait(20.0)
    snapshot = case.elsewhere(case.training.snapshot, 20.0)
    until(lambda: bool(case.training._snapshots))
    gate.set()
    with pytest.raises(TrainingDiverged, match="5 steps in a row"):
        run.result(20.0)
    assert snapshot.result(20.0).step == 0
    assert not any(thread.is_alive() for thread in case.training._loader._threads)


def test_a_loaders_error_ends_the_run(make, monkeypatch) -> None:
    case = make()

    def fail(*_: Any) -> Any:
        raise ValueError("the batch holds a NaN target")

    monkeypatch.setattr(case.learner, "prepare", fail)
    case.training.allow(1000)
    with pytest.raises(ValueError, match="the batch holds a NaN target"):
        case.start().result(20.0)


def test_a_shard_that_comes_back_goes_on_being_learned_from(make, monkeypatch) -> None:
    case = make()
    sample, failures = case.links.sample, iter(range(3))

    def failing(*arguments: Any) -> Any:
        if next(failures, None) is not None:
            raise ShardLost("gone")
        return sample(*arguments)

    monkeypatch.setattr(case.links, "sample", failing)
    assert case.train() == STEPS
    assert case.training.status().sampled == STEPS * BATCH


def test_more_may_be_loaded_at_once(make) -> None:
    case = make()
    case.training.tune(8, 3)
    case.training.allow(STEPS * BATCH)
    until(lambda: case.training.status().ready_batches == 8)
    assert case.start().result(30.0) == STEPS
