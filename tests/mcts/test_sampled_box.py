"""Sampled actions of a box: a naive twin, densities from elsewhere, moments, saturation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mcts.counter_random import draw_keys
from mcts.sampled_box import SquashedGaussianSampler
from tests.oracles.plain_sampling import sample_box
from tests.oracles.sampled_cases import draw, keys_of


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 25),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.5, 3.0]),
    st.integers(0, 3),
    st.integers(0, 2**32 - 1),
)
def test_boxes_equal_their_plain_twin(num_dims, num_samples, share, std_factor, node, seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-3, 1, num_dims)
    high = low + rng.uniform(0.5, 4, num_dims)
    sampler = SquashedGaussianSampler(
        low, high, num_samples, wide_share=share, std_factor=std_factor
    )
    mean, log_std = rng.normal(size=(2, 3, num_dims))
    keys = draw_keys(rng, 3)
    actions, _, slots = draw(sampler, np.concatenate([mean, log_std], axis=1), keys, node=node)
    assert ((actions >= low - 1e-6) & (actions <= high + 1e-6)).all()
    for row in range(3):
        samples = sample_box(
            mean[row], np.exp(log_std[row]), low, high, int(keys[row]), node, num_samples,
            round(share * num_samples), std_factor,
        )  # fmt: skip
        merged = {}
        for action, weight in samples:
            action = tuple(np.float32(action).tolist())
            merged[action] = merged.get(action, 0.0) + weight
        count = (slots[row] > -np.inf).sum()
        # Equal to rounding: the twin adds in another order, and float32 may round the other way.
        assert abs(count - len(merged)) <= 1
        if count == len(merged):
            np.testing.assert_allclose(actions[row, :count], list(merged), atol=1e-6)
            np.testing.assert_allclose(np.exp(slots[row, :count]), list(merged.values()), rtol=1e-8)
        assert np.exp(slots[row]).sum() == pytest.approx(sum(merged.values()))


@pytest.mark.parametrize("wide_share", [0.0, 0.5, 1.0])
def test_weighted_box_samples_have_the_moments_of_the_policy(wide_share):
    low, high = np.array([-2.0, 0.0]), np.array([1.0, 5.0])
    parameters = np.array([0.4, -0.3, np.log(0.5), np.log(0.8)])
    sampler = SquashedGaussianSampler(low, high, 64, wide_share=wide_share, std_factor=2.0)
    actions, _, slots = draw(sampler, np.repeat(parameters[None], 2000, axis=0), keys_of(8, 2000))
    weights = np.exp(slots)
    assert weights.sum(axis=1).mean() == pytest.approx(1, abs=0.015)
    for dim in range(2):
        grid = np.linspace(-8, 8, 20001)
        pdf = stats.norm.pdf(grid, parameters[dim], np.exp(parameters[2 + dim]))
        values = low[dim] + (high[dim] - low[dim]) * (1 + np.tanh(grid)) / 2
        for power in (1, 2):
            expected = np.trapezoid(pdf * values**power, grid)
            estimates = (weights * np.float64(actions[..., dim]) ** power).sum(axis=1)
            error = estimates.std() / np.sqrt(2000)
            assert estimates.mean() == pytest.approx(expected, abs=4 * error)
            assert error < 0.03


def test_box_samples_of_the_policy_pass_a_goodness_of_fit_test():
    sampler = SquashedGaussianSampler([-1.0], [1.0], 50)
    actions, _, _ = draw(sampler, np.repeat([[0.3, np.log(0.6)]], 200, axis=0), keys_of(9, 200))
    u = np.arctanh(np.float64(actions[..., 0])).ravel()
    assert stats.kstest(u, stats.norm(0.3, 0.6).cdf).pvalue > 1e-3


def test_box_density_is_that_of_a_transformed_normal():
    torch = pytest.importorskip("torch")
    low, high = np.array([-2.0, 0.0, -1.0]), np.array([1.0, 5.0, 1.0])
    sampler = SquashedGaussianSampler(low, high, 4)
    rng = np.random.default_rng(10)
    parameters = rng.normal(size=(7, 6))
    actions = rng.uniform(low + 0.01, high - 0.01, size=(7, 4, 3))
    distributions = torch.distributions
    for row in range(7):
        mean, log_std = torch.tensor(parameters[row]).split(3)
        policy = distributions.TransformedDistribution(
            distributions.Normal(mean, log_std.exp()),
            [
                distributions.TanhTransform(),
                distributions.AffineTransform(
                    torch.tensor((low + high) / 2), torch.tensor((high - low) / 2)
                ),
            ],
        )
        expected = policy.log_prob(torch.tensor(actions[row])).sum(dim=-1)
        actual = sampler.log_density(parameters[row : row + 1], actions[row : row + 1])[0]
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-6)


def test_box_density_integrates_to_one_and_is_finite_at_the_bounds():
    sampler = SquashedGaussianSampler([-1.0], [3.0], 1)
    grid = np.linspace(-1, 3, 200001)
    parameters = np.array([[0.5, np.log(0.4)]])
    density = np.exp(sampler.log_density(parameters, grid[None, :, None]))[0]
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)
    for action in (-1.0, 3.0, -1.5, 9.0):
        assert np.isfinite(sampler.log_density(parameters, np.array([[[action]]]))).all()


def test_saturated_actions_are_one_slot_with_their_weights_added():
    sampler = SquashedGaussianSampler([-1.0], [1.0], 32, wide_share=0.5, std_factor=3.0)
    parameters = np.array([[6.0, np.log(4.0)]])
    actions, _, slots = draw(sampler, parameters.repeat(3000, axis=0), keys_of(13, 3000))
    used = slots > -np.inf
    for row in range(20):
        distinct = actions[row, used[row], 0]
        assert len(np.unique(distinct)) == len(distinct)
    at_bound = used & (actions[..., 0] == np.float32(1 - 1e-6))
    assert (at_bound.sum(axis=1) == 1).mean() > 0.99
    # The atom has the mass of all that saturates, not the density at its place.
    mass = np.where(at_bound, np.exp(slots), 0).sum(axis=1).mean()
    assert mass == pytest.approx(stats.norm.sf(np.arctanh(1 - 1e-6), 6, 4), rel=0.02)
