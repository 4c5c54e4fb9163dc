"""Elo ratings against closed forms, a general optimiser, and simulated tournaments."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from muzero.evaluation.elo import POINTS_PER_E, expected_score, fit, log_likelihood


@example(wins=0, losses=192, draws=0, prior=0.5)  # the gradient vanishes well before the top
@example(wins=0, losses=100_000, draws=0, prior=0.5)
@example(wins=100_000, losses=99_999, draws=50_000, prior=0.5)
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 200), st.integers(0, 200), st.integers(0, 50), st.sampled_from([0.5, 1.0, 4.0])
)
def test_two_players_have_a_closed_form(wins, losses, draws, prior):
    if wins + losses + draws == 0:
        return
    won, lost = wins + draws / 2, losses + draws / 2
    ratings = fit(
        ["a", "b"], [[0, won], [lost, 0]], anchor="b", anchor_elo=500.0, prior_draws=prior
    )
    odds = (won + prior / 2) / (lost + prior / 2)
    assert ratings.elo == pytest.approx([500.0 + 400.0 * np.log10(odds), 500.0], abs=1e-6)
    share = odds / (1.0 + odds)
    variance = 1.0 / ((won + lost + prior) * share * (1.0 - share))  # of a binomial's log-odds
    assert ratings.covariance[0, 0] == pytest.approx(POINTS_PER_E**2 * variance, rel=1e-5)
    assert not ratings.covariance[1].any()
    low, high = ratings.intervals()[0]
    assert high - low == pytest.approx(2 * 1.959964 * POINTS_PER_E * np.sqrt(variance), rel=1e-5)
    assert ratings.intervals()[1].tolist() == [500.0, 500.0]


def test_three_to_one_is_191_points():
    assert fit(["a", "b"], [[0, 75], [25, 0]], anchor="b", prior_draws=0.0).elo[0] == pytest.approx(
        190.8485, abs=1e-3
    )
    assert expected_score(190.8485) == pytest.approx(0.75, abs=1e-6)
    assert expected_score(-400.0) == pytest.approx(1 / 11)


def random_table(rng, num_players, density=0.6):
    """Points of a linked tournament."""
    table = np.zeros((num_players, num_players))
    for i in range(num_players):
        for j in range(i):
            if j == i - 1 or rng.random() < density:
                games = int(rng.integers(2, 60))
                table[i, j] = rng.integers(0, 2 * games + 1) / 2
                table[j, i] = games - table[i, j]
    return table


@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_is_a_general_optimisers(seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng, 6)
    names = list("abcdef")
    ratings = fit(names, table, anchor="c", prior_draws=1.0)
    with_prior = table + 0.5 * ((table + table.T) > 0)

    def loss(free):
        return -log_likelihood(with_prior, np.insert(free, 2, 0.0))

    found = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-9, "maxiter": 2_000})
    np.testing.assert_allclose(
        np.delete(ratings.elo, 2), POINTS_PER_E * found.x, rtol=1e-3, atol=0.05
    )
    assert ratings.elo[2] == 0.0


def test_the_covariance_is_the_inverse_of_the_numerical_hessian():
    table = random_table(np.random.default_rng(9), 4)
    ratings = fit(list("abcd"), table, anchor="a", prior_draws=1.0)
    with_prior = table + 0.5 * ((table + table.T) > 0)
    top, h = ratings.elo / POINTS_PER_E, 1e-4

    def at(*steps):
        strength = top.copy()
        for index, step in steps:
            strength[index] += step
        return log_likelihood(with_prior, strength)

    hessian = [
        [
            (at((i, h), (j, h)) - at((i, h), (j, -h)) - at((i, -h), (j, h)) + at((i, -h), (j, -h)))
            / (4 * h * h)
            for j in (1, 2, 3)
        ]
        for i in (1, 2, 3)
    ]
    expected = np.linalg.inv(-np.array(hessian))
    np.testing.assert_allclose(ratings.covariance[1:, 1:] / POINTS_PER_E**2, expected, rtol=1e-3)


def test_another_anchor_moves_all_and_keeps_the_differences():
    table = random_table(np.random.default_rng(3), 5)
    first, second = (fit(list("abcde"), table, anchor=anchor) for anchor in "ae")
    np.testing.assert_allclose(first.elo - first.elo[4], second.elo, atol=1e-5)
    assert first.difference("b", "d") == pytest.approx(second.difference("b", "d"), abs=1e-4)
    points, low, high = first.difference("b", "a")
    assert (points, low, high) == pytest.approx((first.elo[1], *first.intervals()[1]))


def test_a_player_that_won_everything_has_a_finite_rating_by_the_prior():
    table = [[0, 100], [0, 0]]
    assert fit(["a", "b"], table, anchor="b").elo[0] == pytest.approx(400 * np.log10(201))
    assert fit(["a", "b"], table, anchor="b", prior_draws=10.0).elo[0] == pytest.approx(
        400 * np.log10(21)
    )
    with pytest.raises(ValueError, match=r"^a: all games .* prior_draws=1"):
        fit(["a", "b"], table, anchor="b", prior_draws=0.0)


def test_finite_ratings_through_others_need_no_prior():
    # Each beat one and lost to another: a circle.
    table = [[0, 3, 0], [0, 0, 3], [3, 0, 0]]
    assert fit(list("abc"), table, anchor="a", prior_draws=0.0).elo == pytest.approx([0, 0, 0])
    # d lost to all of them.
    table = [[0, 3, 0, 2], [0, 0, 3, 0], [3, 0, 0, 0], [0, 0, 0, 0]]
    with pytest.raises(ValueError, match=r"^d: all games"):
        fit(list("abcd"), table, anchor="a", prior_draws=0.0)


@pytest.mark.parametrize(
    ("names", "points", "anchor", "words"),
    [
        ("ab", [[0, 1], [1, 0]], "c", "anchor='c' is none of the players a, b"),
        ("abc", [[0, 1, 0], [1, 0, 0], [0, 0, 0]], "a", "no games link c to the anchor a"),
        ("ab", [[0, 1, 2]], "a", r"shape \(1, 3\)"),
        ("aa", [[0, 1], [1, 0]], "a", "different names"),
        ("ab", [[0, -1], [1, 0]], "a", "at least 0"),
        ("ab", [[1, 1], [1, 0]], "a", "0 against oneself"),
        ("ab", [[0, float("nan")], [1, 0]], "a", "must be numbers"),
    ],
)
def test_slips_are_told(names, points, anchor, words):
    with pytest.raises(ValueError, match=words):
        fit(list(names), points, anchor=anchor)


def coverage(draw_rate, seed, tournaments=300, games=60):
    """Share of the intervals that hold the true rating, over simulated tournaments of a sparse schedule."""
    rng = np.random.default_rng(seed)
    true = np.array([0.0, 150.0, 260.0, 90.0, -120.0])
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)]
    held = []
    for _ in range(tournaments):
        table = np.zeros((5, 5))
        for i, j in pairs:
            share = expected_score(true[i] - true[j])
            draw = draw_rate * min(share, 1 - share) * 2
            wins, draws, losses = rng.multinomial(
                games, [share - draw / 2, draw, 1 - share - draw / 2]
            )
            table[i, j], table[j, i] = wins + draws / 2, losses + draws / 2
        low, high = fit(list("abcde"), table, anchor="a").intervals().T
        held.append((low[1:] <= true[1:]) & (true[1:] <= high[1:]))
    return float(np.mean(held))


def test_95_percent_intervals_hold_the_truth_as_often_as_they_say():
    assert coverage(0.0, seed=1) == pytest.approx(0.95, abs=0.02)


def test_draws_only_widen_the_intervals():
    assert coverage(0.6, seed=2) > 0.97
