"""Prioritised sampling, and the faults that users of other trainers have met (peers, rows 35 to 38)."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from muzero.config.schema import ReplayConfig, TargetsConfig
from muzero.replay import ReplayBuffer
from muzero.replay.priorities import EPSILON
from tests.oracles.games import Game, n_step, segment_of, spec_of

VALUES = [0.0, 0.5, -1.0, 2.0, 0.25, 1.5, -0.5, 3.0]


def game_with_values(values: Sequence[float] = VALUES) -> Game:
    """Its return is 0 everywhere, so the error of a position is its stored value."""
    return Game([0] * (len(values) + 1), [0.0] * len(values), [*values, 9.0])


def make_buffer(**settings: object) -> ReplayBuffer:
    defaults: dict = {"capacity": 64, "min_size": 1, "prioritized": True}
    buffer = ReplayBuffer(
        spec_of(),
        ReplayConfig(**(defaults | settings)),
        TargetsConfig(discount=1.0, td_steps=100),
        num_unroll_steps=2,
        with_next_observation=False,
        batch_size=8,
        insert_quantum=8,
        generator=np.random.default_rng(5),
    )
    buffer.add(segment_of(game_with_values()))
    return buffer


def drawn_share(buffer: ReplayBuffer, num_batches: int = 400, batch_size: int = 50) -> np.ndarray:
    slots = np.concatenate([buffer.sample(batch_size).slot for _ in range(num_batches)])
    return np.bincount(slots, minlength=8) / len(slots)


@pytest.mark.parametrize("exponent", [1.0, 0.5, 0.0])
def test_new_positions_are_drawn_by_their_own_error(exponent: float) -> None:
    buffer = make_buffer(priority_exponent=exponent)
    weights = (np.abs(VALUES) + EPSILON) ** exponent
    expected = weights / weights.sum()
    np.testing.assert_allclose(drawn_share(buffer), expected, atol=0.005)


def test_own_error_uses_the_targets_of_sampling() -> None:
    game = Game([0, 1, 1, 0], [1.0, 2.0, -1.0], [0.5, 1.5, -2.5, 4.0], truncated=True)
    buffer = ReplayBuffer(
        spec_of(),
        ReplayConfig(capacity=20, min_size=1, prioritized=True),
        TargetsConfig(discount=0.5, td_steps=2, bootstrap="target_network"),
        num_unroll_steps=0,
        with_next_observation=False,
        batch_size=1,
        insert_quantum=1,
        generator=np.random.default_rng(0),
    )
    buffer.add(segment_of(game))
    errors = np.abs([game.values[t] - n_step(game, t, 0.5, 2) for t in range(3)])
    np.testing.assert_allclose(
        drawn_share(buffer)[:3], (errors + EPSILON) / (errors + EPSILON).sum(), atol=0.005
    )


def test_returned_priorities_are_stored() -> None:
    """Row 35: the sampled positions get the returned errors, nothing is dropped without an eviction."""
    buffer = make_buffer()
    batch = buffer.sample(8)
    returned = (batch.slot + 1).astype(np.float32)
    assert buffer.update_priorities(batch.slot, batch.generation, returned) == 0
    expected = np.abs(VALUES) + EPSILON
    expected[batch.slot] = returned + EPSILON
    np.testing.assert_allclose(drawn_share(buffer), expected / expected.sum(), atol=0.005)


def test_only_evicted_positions_are_skipped() -> None:
    buffer = make_buffer(capacity=16)
    buffer.add(segment_of(game_with_values([1.0] * 8)))
    batch = buffer.sample(16)
    old = batch.slot < 8
    assert old.any() and not old.all()
    buffer.add(segment_of(game_with_values([1.0] * 3)))  # takes the room of the first game
    dropped = buffer.update_priorities(batch.slot, batch.generation, np.full(16, 50.0, np.float32))
    assert dropped == old.sum()
    assert buffer.statistics()["replay/dropped_priorities"] == dropped
    touched = drawn_share_of_three(buffer)
    assert touched[:3].sum() < 0.2 and touched[:3].min() > 0  # the new game kept its own errors


def drawn_share_of_three(buffer: ReplayBuffer) -> np.ndarray:
    slots = np.concatenate([buffer.sample(50).slot for _ in range(400)])
    return np.bincount(slots, minlength=16) / len(slots)


def test_weights_belong_to_their_samples() -> None:
    """Row 36: weights are per sample, at most 1, largest for the least probable."""
    buffer = make_buffer(importance_exponent=0.7)
    batch = buffer.sample(64)
    errors = np.abs(VALUES) + EPSILON
    probability = (errors / errors.sum())[batch.slot]
    importance = (1 / (8 * probability)) ** 0.7
    np.testing.assert_allclose(batch.weight, importance / importance.max(), rtol=1e-5)
    assert batch.weight.max() == 1.0 and len(np.unique(batch.weight)) > 3
    assert batch.root_value.tolist() == [VALUES[slot] for slot in batch.slot]


@pytest.mark.parametrize("highest", [0.5, 6.0])
def test_new_positions_may_get_the_highest_error(highest: float) -> None:
    buffer = make_buffer(initial_priority="max")
    np.testing.assert_allclose(drawn_share(buffer), np.full(8, 1 / 8), atol=0.01)
    batch = buffer.sample(200)
    assert len(np.unique(batch.slot)) == 8
    errors = np.where(batch.slot == 3, highest, 0.25)
    buffer.update_priorities(batch.slot, batch.generation, errors)
    buffer.add(segment_of(game_with_values([0.0])))
    share = np.bincount(np.concatenate([buffer.sample(50).slot for _ in range(400)]), minlength=9)
    expected = np.array([0.25] * 3 + [highest] + [0.25] * 4 + [max(1.0, highest)])
    np.testing.assert_allclose(share / share.sum(), expected / expected.sum(), atol=0.01)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 1.0, 1e6]), min_size=8, max_size=8))
def test_zero_priorities_can_be_sampled(priorities: list[float]) -> None:
    """Row 37: no division by zero, and no position is lost for ever."""
    buffer = make_buffer()
    first = buffer.sample(8)
    slots = np.arange(8)
    buffer.update_priorities(slots, np.full(8, first.generation[0]), np.array(priorities))
    batch = buffer.sample(32)
    assert np.isfinite(batch.weight).all() and (batch.weight > 0).all()
    if not any(priorities):
        np.testing.assert_allclose(batch.weight, 1.0, rtol=1e-6)
        assert len(np.unique(batch.slot)) == 8


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_impossible_priorities_are_refused(wrong: float) -> None:
    buffer = make_buffer()
    batch = buffer.sample(2)
    with pytest.raises(ValueError, match="finite and at least 0"):
        buffer.update_priorities(batch.slot, batch.generation, np.array([1.0, wrong]))


def test_exponents_of_zero() -> None:
    """Row 38: alpha 0 is uniform with weights 1; beta 0 gives weights 1."""
    flat = make_buffer(priority_exponent=0.0)
    assert (flat.sample(64).weight == 1.0).all()
    np.testing.assert_allclose(drawn_share(flat), np.full(8, 1 / 8), atol=0.005)
    uncorrected = make_buffer(importance_exponent=0.0)
    assert (uncorrected.sample(64).weight == 1.0).all()


def test_full_correction_is_unbiased() -> None:
    """Row 38: with beta 1, weighted means estimate the mean over all positions.

    Every batch holds the least probable position, so that the division by the batch's largest weight is the same for all.
    """
    buffer = make_buffer(importance_exponent=1.0, priority_exponent=0.6)
    generation = np.full(8, buffer.sample(1).generation[0])
    buffer.update_priorities(np.arange(8), generation, np.linspace(1, 4, 8))
    total = weights = 0.0
    for _ in range(2000):
        batch = buffer.sample(64)
        assert batch.slot.min() == 0
        total += float((batch.weight * batch.slot**2).sum())
        weights += float(batch.weight.sum())
    assert total / weights == pytest.approx((np.arange(8) ** 2).mean(), rel=0.02)


def test_uniform_sampling_is_uniform_and_ignores_priorities() -> None:
    buffer = make_buffer(prioritized=False)
    batch = buffer.sample(4)
    assert (batch.weight == 1.0).all()
    buffer.update_priorities(batch.slot, batch.generation, np.full(4, 1e9))
    slots = np.concatenate([buffer.sample(1).slot for _ in range(8000)])
    assert stats.chisquare(np.bincount(slots, minlength=8)).pvalue > 0.01


def test_prioritised_histogram() -> None:
    """Independent single draws, chi-square against the probabilities."""
    buffer = make_buffer(priority_exponent=0.6)
    slots = np.concatenate([buffer.sample(1).slot for _ in range(8000)])
    weights = (np.abs(VALUES) + EPSILON) ** 0.6
    keep = weights / weights.sum() * 8000 > 5
    counts = np.bincount(slots, minlength=8)
    expected = weights[keep] / weights[keep].sum() * counts[keep].sum()
    assert stats.chisquare(counts[keep], expected).pvalue > 0.01
