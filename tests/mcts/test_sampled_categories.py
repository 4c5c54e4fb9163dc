"""Sampled categories: closed forms of the prior, a naive twin, the distribution they are drawn from."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mcts.counter_random import draw_keys
from mcts.sampled_categories import CategoricalSampler, FactoredSampler, bin_values
from tests.oracles.plain_sampling import sample_categories
from tests.oracles.sampled_cases import draw, keys_of, normalised, spread


def test_prior_is_the_multiplicity_when_samples_come_from_the_policy():
    sampler = CategoricalSampler(5, 40)
    logits = np.random.default_rng(0).normal(size=(200, 5)) * 2
    actions, log_weights, slots = draw(sampler, logits, keys_of(1, 200))
    multiplicity = np.exp(slots) * 40
    # Whole numbers that sum to K, not the policy: that would count the probability twice.
    np.testing.assert_allclose(multiplicity, np.round(multiplicity), atol=1e-9)
    np.testing.assert_allclose(multiplicity.sum(axis=1), 40)
    used = slots > -np.inf
    assert ((multiplicity >= 1 - 1e-9) == used).all()
    pi = normalised(logits)
    for row in range(200):
        distinct = actions[row, used[row], 0]
        assert (np.diff(distinct) > 0).all()
        beta_hat = multiplicity[row, used[row]] / 40
        np.testing.assert_allclose(
            np.exp(log_weights[row, used[row]]), beta_hat / pi[row, distinct]
        )
        # Slots without an action repeat the first.
        assert (actions[row, ~used[row], 0] == distinct[0]).all()
        assert (log_weights[row, ~used[row]] == -np.inf).all()


def test_prior_is_multiplicity_times_policy_when_samples_are_even():
    sampler = CategoricalSampler(6, 30, temperature=np.inf)
    logits = np.random.default_rng(2).normal(size=(100, 6))
    logits[:, 4] = -np.inf
    actions, log_weights, slots = draw(sampler, logits, keys_of(3, 100))
    used = slots > -np.inf
    # beta is 1 / 5 on each of the five actions that have a probability.
    multiplicity = np.exp(log_weights) * 30 / 5
    np.testing.assert_allclose(multiplicity.sum(axis=1), 30)
    np.testing.assert_allclose(multiplicity, np.round(multiplicity), atol=1e-9)
    pi = normalised(logits)
    expected = np.where(used, multiplicity * np.take_along_axis(pi, actions[..., 0], axis=1), 0)
    np.testing.assert_allclose(
        normalised(slots), expected / expected.sum(axis=1, keepdims=True), atol=1e-12
    )
    assert not (actions == 4).any()


def test_equal_multiplicities_have_the_same_prior_to_the_last_bit():
    _, _, slots = draw(
        CategoricalSampler(1000, 20),
        np.random.default_rng(4).normal(size=(50, 1000)),
        keys_of(5, 50),
        dtype=np.float32,
    )
    assert set(np.unique(slots)) <= {-np.inf, *np.float32(np.log(np.arange(1, 21) / 20))}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(1, 25),
    st.sampled_from([0.5, 1.0, 2.5, np.inf]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_categories_equal_their_plain_twin(
    num_bins, num_samples, temperature, share, node, is_masked, seed
):
    rng = np.random.default_rng(seed)
    sampler = FactoredSampler(num_bins, num_samples, temperature=temperature, flat_share=share)
    keys = draw_keys(rng, 3)
    bounds = np.cumsum(num_bins)[:-1]
    logits = rng.normal(size=(3, sum(num_bins))) * 3
    logits[rng.random(logits.shape) < 0.2] = -np.inf
    legal = rng.random(logits.shape) < 0.6
    for row in range(3):  # every factor has a legal category with a finite logit
        for part, mask in zip(
            np.split(logits[row], bounds), np.split(legal[row], bounds), strict=True
        ):
            sure = rng.integers(len(part))
            part[sure], mask[sure] = 0.3, True
    actions, _, slots = draw(sampler, logits, keys, legal if is_masked else None, node=node)
    for row in range(3):
        mask = legal[row] if is_masked else np.ones_like(legal[row])
        prior = sample_categories(
            [part.tolist() for part in np.split(logits[row], bounds)],
            [part.tolist() for part in np.split(mask, bounds)],
            int(keys[row]),
            node,
            num_samples,
            temperature,
            0 if temperature == 1 else round(share * num_samples),
        )
        count = len(prior)
        assert [tuple(action) for action in actions[row, :count].tolist()] == list(prior)
        np.testing.assert_allclose(np.exp(slots[row, :count]), list(prior.values()), rtol=1e-9)
        assert (slots[row, count:] == -np.inf).all()


def test_categories_have_the_frequencies_of_beta():
    logits = np.log([[0.5, 0.3, 0.15, 0.05]])
    num_rows, num_samples = 2000, 50
    for temperature in (1.0, 2.0):
        sampler = CategoricalSampler(4, num_samples, temperature=temperature)
        parameters = np.repeat(logits, num_rows, axis=0)
        actions, log_weights, _ = draw(sampler, parameters, keys_of(6, num_rows))
        beta = normalised(logits / temperature)[0]
        multiplicity = np.exp(log_weights) * beta[actions[..., 0]] * num_samples
        counts = spread(actions, multiplicity, 4).sum(axis=0)
        expected = beta * num_rows * num_samples
        assert stats.chisquare(counts, expected).pvalue > 1e-4
        # Draws of a row are independent: the variance of a count is the binomial one.
        per_row = spread(actions, multiplicity, 4)
        np.testing.assert_allclose(per_row.var(axis=0), num_samples * beta * (1 - beta), rtol=0.15)


def test_sampled_prior_is_on_average_the_policy():
    """`E[beta_hat / beta * pi] = pi` for every beta; a prior that counts the probability twice gives `pi^2`."""
    pi = np.array([0.6, 0.25, 0.1, 0.05])
    num_rows = 4000
    parameters = np.repeat(np.log(pi)[None], num_rows, axis=0)
    for share, temperature in ((0.0, 1.0), (1.0, 3.0), (0.5, np.inf)):
        sampler = CategoricalSampler(4, 16, temperature=temperature, flat_share=share)
        actions, log_weights, slots = draw(sampler, parameters, keys_of(7, num_rows))
        mean = spread(actions, np.exp(slots), 4).mean(axis=0)
        np.testing.assert_allclose(mean, pi, atol=0.01)
        # The trap: the policy's own probability on samples that already came in proportion to it.
        twice = spread(actions, np.exp(log_weights + 2 * np.log(pi[actions[..., 0]])), 4)
        assert np.abs((twice / twice.sum(axis=1, keepdims=True)).mean(axis=0) - pi).max() > 0.1


def test_category_density_by_hand():
    sampler = FactoredSampler([2, 3], 1)
    parameters = np.log([[0.25, 0.75, 0.2, 0.3, 0.5]])
    actions = np.array([[[1, 0], [0, 2]]])
    density = np.exp(sampler.log_density(parameters, actions))
    np.testing.assert_allclose(density, [[0.15, 0.125]])
    legal = np.array([[True, True, True, False, True]])
    masked = np.exp(sampler.log_density(parameters, np.array([[[1, 0], [0, 1]]]), legal))
    np.testing.assert_allclose(masked, [[0.75 * 2 / 7, 0]])


def test_bins_lie_evenly_from_low_to_high():
    actions = np.array([[0, 0, 0], [1, 2, 0], [2, 6, 0]])
    values = bin_values(actions, [3, 7, 1], [-1.0, 0.0, 4.0], [1.0, 3.0, 6.0])
    np.testing.assert_allclose(values, [[-1, 0, 5], [0, 1, 5], [1, 3, 5]])


def test_illegal_and_impossible_actions_are_never_drawn():
    rng = np.random.default_rng(14)
    for temperature in (1.0, 50.0, np.inf):
        sampler = CategoricalSampler(12, 64, temperature=temperature)
        logits = rng.normal(size=(300, 12))
        logits[:, 3] = -np.inf
        logits[:, 5] = 100.0  # as likely as can be, but illegal
        legal = rng.random((300, 12)) < 0.4
        legal[:, 5] = False
        legal[:, 0] = True
        actions, _, slots = draw(sampler, logits, keys_of(15, 300), legal)
        taken = legal[np.arange(300)[:, None], actions[..., 0]]
        assert taken.all()
        assert not (actions == 3).any()
        assert np.isfinite(slots).any(axis=1).all()


def test_illegal_actions_may_have_all_the_mass_and_be_no_numbers():
    logits = np.array([[5.0, -1e9, -1e9, 9.0], [np.nan, 0.0, 0.0, np.inf]])
    legal = np.array([[False, True, True, False]] * 2)
    actions, _, slots = draw(CategoricalSampler(4, 4000), logits, keys_of(16, 2), legal)
    for row in range(2):
        assert actions[row, :2, 0].tolist() == [1, 2]
        np.testing.assert_allclose(np.exp(slots[row, :2]), 0.5, atol=0.05)
        assert (slots[row, 2:] == -np.inf).all()


def test_every_factor_needs_a_legal_category_with_a_finite_logit():
    logits = np.zeros((3, 5))
    logits[1, 2:] = -np.inf
    logits[2, 2:4] = -np.inf
    legal = np.ones((3, 5), bool)
    sampler = FactoredSampler([2, 3], 5)
    _, _, slots = draw(sampler, logits, keys_of(17, 3), legal)
    assert np.isnan(slots).all(axis=1).tolist() == [False, True, False]
    legal[2, 4] = False
    _, _, slots = draw(sampler, logits, keys_of(17, 3), legal)
    assert np.isnan(slots).all(axis=1).tolist() == [False, True, True]
