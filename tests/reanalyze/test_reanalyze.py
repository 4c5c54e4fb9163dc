"""Reanalyze refreshes the stalest targets, and with the same weights it changes nothing."""

import numpy as np
import pytest
import torch

from muzero.config.compose import compose
from muzero.runtime.build import Builder
from reanalyze import ReanalyzeWorker, Schedule
from reanalyze.schedule import ReanalyzeConfig

OVERRIDES = (
    "experiment=tictactoe",
    "debug=smoke",
    "selfplay.num_games=8",
    "selfplay.opening_fraction=0.5",
    "replay.min_size=1",
    "reanalyze.fresh_fraction=1.0",
    "reanalyze.batch_size=8",
    "learner.batch_size=16",
)


def make(*overrides: str):
    builder = Builder.of(compose([*OVERRIDES, *overrides]))
    return builder, builder.replay(), builder.selfplay(), builder.refresher()


def take(worker, replay, count, version):
    return worker.take(replay, count, version=version, learner_step=version)


def fill(selfplay, replay, num_positions: int) -> None:
    while replay.size < num_positions:
        for segment in selfplay.play(learner_step=0):
            replay.add(segment)


def other_weights(builder, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in builder.network().state_dict().items()
    }


@pytest.mark.parametrize("kind", ["gumbel", "puct"])
def test_the_same_weights_without_noise_make_the_same_targets(kind):
    builder, replay, selfplay, refresher = make(
        f"search.kind={kind}",
        "search.gumbel_scale=0",
        "search.root_exploration_fraction=0",
        "search.num_simulations=12",
        "selfplay.opening_fraction=0",
    )
    weights = other_weights(builder, 1)
    for model in (selfplay.model, refresher.model):
        model.load(weights, 5)
    fill(selfplay, replay, 150)
    assert take(ReanalyzeWorker(), replay, 8, 5) is None  # nothing is older than these weights
    slots = np.flatnonzero(replay._storage.columns["sampleable"])
    for start in range(0, len(slots) - 7, 8):
        positions = replay.roots(slots[start : start + 8])
        refreshed = refresher.refresh(positions)
        np.testing.assert_array_equal(refreshed.policy, positions.policy)
        np.testing.assert_array_equal(refreshed.root_value, positions.root_value)
    # Batches of another size sum in another order, so there rounding may differ, and nothing else.
    few = replay.roots(slots[:3])
    refreshed = refresher.refresh(few)
    np.testing.assert_allclose(refreshed.root_value, few.root_value, atol=2e-6)


def test_refreshed_targets_replace_the_oldest_and_carry_the_new_version():
    builder, replay, selfplay, refresher = make()
    fill(selfplay, replay, 60)
    before = replay.roots(np.arange(8))
    worker = ReanalyzeWorker()
    refresher.model.load(other_weights(builder, 2), 7)
    lease = take(worker, replay, 8, 7)
    assert lease is not None
    result = refresher.refresh(lease.positions)
    worker.give_back(replay, lease, result)
    after = replay.roots(lease.slot)
    assert (after.target_version == 7).all()
    np.testing.assert_array_equal(after.policy, result.policy)
    np.testing.assert_array_equal(after.root_value, result.root_value)
    assert not np.array_equal(after.policy, before.policy)
    np.testing.assert_allclose(after.policy.sum(axis=1), 1.0, atol=1e-5)
    assert (after.policy[~after.legal] == 0).all()
    assert worker.totals.written == 8
    # The acting weights' version, which tells the behaviour's age, is not touched.
    assert (replay._storage.columns["behaviour_version"][lease.slot] == 0).all()


def test_what_was_searched_fast_gets_its_policy_target_by_a_refresh():
    builder, replay, selfplay, refresher = make(
        "selfplay.full_search_fraction=0.3",
        "selfplay.fast_simulations=2",
        "search.num_simulations=12",
    )
    fill(selfplay, replay, 120)
    sampleable = np.flatnonzero(replay._storage.columns["sampleable"])
    before = replay.roots(sampleable)
    assert 0.15 < before.has_policy.mean() < 0.45
    worker = ReanalyzeWorker()
    refresher.model.load(other_weights(builder, 2), 7)
    policies, results = [], []
    while (lease := take(worker, replay, 8, 7)) is not None:
        policies.append(lease.positions.policy[lease.positions.has_policy])
        result = refresher.refresh(lease.positions)
        results.append(result.policy[lease.positions.has_policy])
        worker.give_back(replay, lease, result)
    after = replay.roots(sampleable)
    assert after.has_policy.all()
    np.testing.assert_allclose(after.policy.sum(axis=1), 1.0, atol=1e-5)
    assert (replay.sample(64).policy_mask[:, 0] == 1).all()
    # The change is told of the policies that there were.
    changes = [
        0.5 * np.abs(new - old).sum(axis=1).mean()
        for old, new in zip(policies, results, strict=True)
        if len(old)
    ]
    report = worker.report()
    assert report["reanalyze/policy_change"] == pytest.approx(np.mean(changes), rel=1e-5)
    assert report["reanalyze/value_change"] > 0


def test_a_lease_without_any_policy_tells_no_change_of_policies():
    builder, replay, selfplay, refresher = make(
        "selfplay.full_search_fraction=0.0001", "selfplay.fast_simulations=2"
    )
    fill(selfplay, replay, 30)
    worker, other = ReanalyzeWorker(), ReanalyzeWorker()
    refresher.model.load(other_weights(builder, 2), 7)
    lease = take(worker, replay, 8, 7)
    worker.give_back(replay, lease, refresher.refresh(lease.positions))
    other.restore(worker.state())
    for each in (worker, other):
        report = each.report()
        assert report["reanalyze/written"] == 8 and "reanalyze/value_change" in report
        assert "reanalyze/policy_change" not in report


def test_results_for_evicted_positions_are_dropped_and_counted():
    builder, replay, selfplay, refresher = make(
        "replay.capacity=64", "replay.min_size=8", "selfplay.segment_length=10"
    )
    fill(selfplay, replay, 40)
    worker = ReanalyzeWorker()
    refresher.model.load(other_weights(builder, 2), 7)
    lease = take(worker, replay, 8, 7)
    result = refresher.refresh(lease.positions)
    for _ in range(60):
        for segment in selfplay.play(learner_step=0):
            replay.add(segment)
    worker.give_back(replay, lease, result)
    assert (worker.totals.written, worker.totals.dropped) == (0, 8)
    assert (replay.roots(np.arange(40)).target_version == 0).all()


def test_the_fresh_fraction_rises_to_the_wish_and_the_share_of_work_is_bounded():
    builder, replay, selfplay, refresher = make("reanalyze.max_target_age=3")
    fill(selfplay, replay, 200)
    schedule = Schedule(builder.config.reanalyze)
    worker = ReanalyzeWorker()
    refresher.model.load(other_weights(builder, 2), 10)
    played = selfplay.totals.env_steps
    assert replay.fresh_fraction(10, 3) == 0.0
    while due := schedule.due(
        replay, learner_step=10, refreshed=worker.totals.searched, played=played
    ):
        lease = take(worker, replay, due, 10)
        if lease is None:
            break
        worker.give_back(replay, lease, refresher.refresh(lease.positions))
    assert replay.fresh_fraction(10, 3) > 0.99
    share = worker.totals.searched / (worker.totals.searched + played)
    assert share <= builder.config.reanalyze.max_share


def test_reanalyze_waits_when_its_share_of_the_work_is_used_up():
    _, replay, selfplay, _ = make()
    fill(selfplay, replay, 50)
    schedule = Schedule(ReanalyzeConfig(fresh_fraction=1.0, batch_size=8, max_share=0.5))
    assert schedule.due(replay, learner_step=5000, refreshed=100, played=107) == 0
    assert schedule.due(replay, learner_step=5000, refreshed=100, played=108) == 8


def test_off_means_no_worker():
    builder = Builder.of(compose(["experiment=tictactoe", "reanalyze.fresh_fraction=0"]))
    assert builder.refresher() is None
