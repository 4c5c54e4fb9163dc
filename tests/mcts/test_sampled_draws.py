"""What holds for all samplers: their random numbers, independence, faults."""

import numpy as np
import pytest
from scipy import stats

from mcts.counter_random import bits, draw_keys, uniform
from mcts.sampled_box import SquashedGaussianSampler
from mcts.sampled_categories import CategoricalSampler, FactoredSampler
from mcts.threads import RowThreads
from tests.oracles.plain_sampling import uniforms
from tests.oracles.sampled_cases import draw, keys_of


def test_streams_are_splitmix64():
    # The reference implementation's first numbers from the seed 1234567.
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [int(bits(np.uint64(1234567), index)) for index in range(5)] == expected
    assert uniform(np.uint64(1234567), 0) == pytest.approx(expected[0] / 2**64, abs=1e-15)


def test_keys_differ_and_follow_the_generator():
    keys = keys_of(0, 1000)
    assert len(np.unique(keys)) == 1000
    np.testing.assert_array_equal(keys, keys_of(0, 1000))
    assert keys.max() > 2**63


def test_no_two_nodes_or_keys_share_their_draws():
    numbers = [[next(stream) for _ in range(400)] for stream in
               (uniforms(key, node) for key in (1, 2, 3) for node in range(30))]  # fmt: skip
    correlation = np.corrcoef(numbers)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 5 / np.sqrt(400)
    assert stats.kstest(np.ravel(numbers), "uniform").pvalue > 1e-3


def test_weight_times_density_is_the_prior():
    rng = np.random.default_rng(11)
    box = SquashedGaussianSampler([-2.0, 0.0], [2.0, 1.0], 16, wide_share=0.5)
    joint = FactoredSampler([3, 5], 16, temperature=2.0, flat_share=0.5)
    legal = np.tile([True, True, False, True, False, True, True, False], (20, 1))
    for sampler, mask in ((box, None), (joint, None), (joint, legal)):
        parameters = rng.normal(size=(20, sampler.num_parameters)) * 0.5
        actions, log_weights, slots = draw(sampler, parameters, keys_of(12, 20), mask)
        used = slots > -np.inf
        density = sampler.log_density(parameters, actions, mask)
        np.testing.assert_allclose((log_weights + density)[used], slots[used], atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_policies_that_are_none_give_no_number(bad):
    logits = np.zeros((3, 4))
    logits[1, 2] = bad
    _, _, slots = draw(CategoricalSampler(4, 5), logits, keys_of(17, 3))
    assert np.isnan(slots).all(axis=1).tolist() == [False, True, False]
    parameters = np.zeros((3, 2))
    for position in (0, 1):
        parameters[1] = 0
        parameters[1, position] = bad
        _, _, slots = draw(SquashedGaussianSampler([0.0], [1.0], 5), parameters, keys_of(17, 3))
        assert np.isnan(slots).all(axis=1).tolist() == [False, True, False]


def test_a_row_without_legal_category_is_named():
    legal = np.ones((3, 5), bool)
    legal[2, 2:] = False
    with pytest.raises(ValueError, match="row 2, factor 1: no legal action"):
        FactoredSampler([2, 3], 4).check_legal(legal)
    with pytest.raises(ValueError, match="row 1: no legal action"):
        CategoricalSampler(2, 4).check_legal(np.array([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="a box has no illegal actions"):
        SquashedGaussianSampler([0.0], [1.0], 4).check_legal(np.zeros((1, 2), bool))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: CategoricalSampler(0, 4), "num_actions=0"),
        (lambda: CategoricalSampler(4, 0), "num_samples=0"),
        (lambda: CategoricalSampler(4, 4, temperature=0.0), "temperature=0.0"),
        (lambda: CategoricalSampler(4, 4, temperature=float("nan")), "temperature=nan"),
        (lambda: CategoricalSampler(4, 4, flat_share=1.5), "flat_share=1.5"),
        (lambda: FactoredSampler([], 4), r"num_bins=\[\]"),
        (lambda: FactoredSampler([3, 0], 4), r"num_bins=\[3, 0\]"),
        (lambda: SquashedGaussianSampler([0.0], [0.0], 4), "low below high"),
        (lambda: SquashedGaussianSampler([0.0], [np.inf], 4), "finite bounds"),
        (lambda: SquashedGaussianSampler([0.0], [1.0, 2.0], 4), "one number per dimension"),
        (lambda: SquashedGaussianSampler([0.0], [1.0], 4, std_factor=0.0), "std_factor=0.0"),
        (lambda: SquashedGaussianSampler([0.0], [1.0], 4, wide_share=-0.1), "wide_share=-0.1"),
    ],
)
def test_wrong_settings_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


SAMPLERS = {
    "categories": lambda: CategoricalSampler(300, 12, temperature=1.5, flat_share=0.5),
    "factors": lambda: FactoredSampler([4, 2, 7], 12),
    "box": lambda: SquashedGaussianSampler([-1.0] * 3, [2.0] * 3, 12, wide_share=0.5),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_rows_and_threads_change_no_sample(name):
    sampler = SAMPLERS[name]()
    rng = np.random.default_rng(18)
    parameters = rng.normal(size=(23, sampler.num_parameters))
    keys = draw_keys(rng, 23)
    expected = draw(sampler, parameters, keys, node=3)
    threads = RowThreads(3, min_rows_per_thread=2)
    for actual, wanted in zip(
        draw(SAMPLERS[name](), parameters, keys, node=3, threads=threads), expected, strict=True
    ):
        np.testing.assert_array_equal(actual, wanted)
    rows = np.array([2, 9, 10, 22], np.int32)
    for actual, wanted in zip(
        draw(sampler, parameters[rows], keys, node=3, rows=rows), expected, strict=True
    ):
        np.testing.assert_array_equal(actual, wanted[rows])
    # Another key or another node, other samples.
    assert (draw(sampler, parameters, keys + np.uint64(1), node=3)[0] != expected[0]).any()
    assert (draw(sampler, parameters, keys, node=2)[0] != expected[0]).any()
