import numpy as np
import pytest
from scipy import stats

from muzero.evaluation.statistics import (
    bootstrap_interval,
    interquartile_mean,
    tally,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 10), (10, 10), (3, 7), (57, 100), (1, 1), (499, 1000)]
)
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_interval_equals_scipy(successes, trials, confidence):
    expected = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    interval = wilson_interval(successes, trials, confidence)
    np.testing.assert_allclose(interval, (expected.low, expected.high), atol=1e-12)


def test_wilson_interval_without_trials_says_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3)])
def test_wilson_interval_refuses_impossible_counts(successes, trials):
    with pytest.raises(ValueError, match="successes"):
        wilson_interval(successes, trials)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 10, 101])
def test_interquartile_mean_equals_scipy(size):
    scores = np.random.default_rng(size).normal(3, 50, size)
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25), rel=1e-12)


def test_interquartile_mean_ignores_outliers():
    assert interquartile_mean([1.0, 2.0, 3.0, 1e9]) == 2.5


def test_bootstrap_interval_agrees_with_scipy():
    scores = np.random.default_rng(1).exponential(10, 60)
    expected = stats.bootstrap(
        (scores,),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    low, high = bootstrap_interval(scores, np.random.default_rng(3), num_resamples=20_000)
    assert low == pytest.approx(expected.low, rel=0.03)
    assert high == pytest.approx(expected.high, rel=0.03)


def test_bootstrap_interval_of_equal_scores_is_a_point():
    assert bootstrap_interval([5.0] * 9, np.random.default_rng(0)) == (5.0, 5.0)


def test_tally_counts_signs():
    report = tally([1.0, -1.0, 0.0, 2.5])
    assert (report["games"], report["wins"], report["draws"], report["losses"]) == (4, 2, 1, 1)
    assert report["win_rate"] == 0.5
    assert report["win_rate_interval"] == list(wilson_interval(2, 4))
    assert report["draw_rate"] == report["loss_rate"] == 0.25
    assert report["draw_rate_interval"] == report["loss_rate_interval"]
    assert report["draw_rate_interval"] == pytest.approx([0.0456, 0.6994], abs=1e-4)


def test_tally_of_no_games_has_no_rate():
    report = tally([])
    assert report["win_rate"] is report["draw_rate"] is report["loss_rate"] is None
    assert report["loss_rate_interval"] == [0.0, 1.0]
