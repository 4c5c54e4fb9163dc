"""Settings, root noise and the choice of the action to play."""

import dataclasses

import numpy as np
import pytest

from mcts import RootOutput, Search, SearchOutput, SearchSettings, draw_noise, select_actions
from muzero.config.schema import EvaluationConfig, SearchConfig


def output_of(visits, best_action=None):
    visits = np.asarray(visits, np.int32)
    num_rows = len(visits)
    zeros = np.zeros(num_rows)
    best = np.argmax(visits, axis=1) if best_action is None else np.asarray(best_action)
    return SearchOutput(
        visits=visits,
        policy=visits / np.maximum(visits.sum(axis=1, keepdims=True), 1),
        value=zeros,
        qvalues=np.zeros(visits.shape),
        best_action=best.astype(np.int32),
        best_value=zeros,
        depth=zeros,
        num_simulations=visits.sum(axis=1).astype(np.int32),
    )


def test_settings_carry_the_names_and_defaults_of_the_configuration():
    config = SearchConfig()
    settings = {field.name: field.default for field in dataclasses.fields(SearchSettings)}
    # Only play stops early, and chance is the environment's, not the user's to choose.
    assert settings.pop("stop_early") is EvaluationConfig().stop_early
    assert settings.pop("num_chance_outcomes", 0) == 0
    for name, default in settings.items():
        assert default == getattr(config, name)
    extra = {field.name for field in dataclasses.fields(config)} - set(settings)
    # How a search is run, and what is made of it.
    running = {"num_threads", "pipelined", "bfloat16", "cuda_graph"}
    assert extra == running | {"root_value", "dynamics"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "uct"),
        ("normalization", "global"),
        ("first_play_urgency", "zero"),
        ("num_simulations", 0),
        ("max_depth", 0),
        ("value_min", 1.0),
        ("min_value_range", -0.1),
        ("pb_c_init", float("nan")),
        ("pb_c_base", 0.0),
        ("forced_playouts", -1.0),
        ("forced_playouts", 2.0),
        ("root_dirichlet_alpha", 0.0),
        ("root_exploration_fraction", 1.5),
        ("max_num_considered_actions", 0),
        ("gumbel_scale", -1.0),
        ("value_scale", -1.0),
        ("maxvisit_init", -1.0),
    ],
)
def test_wrong_settings_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        SearchSettings(**{name: value})


def test_all_wrong_settings_are_told_together():
    with pytest.raises(ValueError, match=r"(?s)num_simulations.*value_scale"):
        SearchSettings(num_simulations=-3, value_scale=-1.0)


@pytest.mark.parametrize(("num_actions", "num_legal", "alpha"), [(362, 10, 0.03), (18, 9, 0.3)])
def test_dirichlet_covers_legal_actions_only(num_actions, num_legal, alpha):
    settings = SearchSettings(
        kind="puct", num_simulations=1, root_dirichlet_alpha=alpha, root_exploration_fraction=0.25
    )
    rng = np.random.default_rng(0)
    num_rows = 2000
    legal = np.zeros((num_rows, num_actions), bool)
    legal[:, rng.permutation(num_actions)[:num_legal]] = True
    noise = draw_noise(settings, legal, rng)
    assert noise.dtype == np.float32
    assert (noise[~legal] == 0).all()
    np.testing.assert_allclose(noise.sum(axis=1), 1, atol=1e-5)
    # Mean and variance of a symmetric Dirichlet.
    mean = 1 / num_legal
    variance = mean * (1 - mean) / (num_legal * alpha + 1)
    drawn = noise[:, legal[0]].astype(np.float64)
    np.testing.assert_allclose(drawn.mean(), mean, rtol=1e-5)
    np.testing.assert_allclose(drawn.var(), variance, rtol=0.1)
    # The share of noise in the root prior is the whole 0.25: a prior of 0.75 p remains.
    logits = rng.normal(size=(num_rows, num_actions))
    search = Search(settings, batch_size=num_rows, num_actions=num_actions)
    root = RootOutput(logits, np.zeros(num_rows))
    search.begin(root, legal)
    plain = search.tree.priors[:, 0].copy()
    search.begin(root, legal, noise)
    mixed = search.tree.priors[:, 0]
    np.testing.assert_allclose(mixed, 0.75 * plain + 0.25 * noise, atol=1e-6)
    np.testing.assert_allclose(mixed.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_noise_is_fresh_and_repeatable_and_rows_do_not_share_it(kind):
    settings = SearchSettings(kind=kind)
    rng = np.random.default_rng(1)
    legal = np.ones((6, 9), bool)
    first, second = draw_noise(settings, legal, rng), draw_noise(settings, legal, rng)
    assert not np.isclose(first, second).any()
    assert len(np.unique(first[:, 0])) == 6
    again = draw_noise(settings, legal, np.random.default_rng(1))
    np.testing.assert_array_equal(first, again)
    masked = legal.copy()
    masked[2:, 3:] = False
    other = draw_noise(settings, masked, np.random.default_rng(1))
    np.testing.assert_array_equal(first[:2], other[:2])


def test_gumbel_draws_have_the_distribution():
    legal = np.ones((400, 100), bool)
    noise = draw_noise(SearchSettings(kind="gumbel"), legal, np.random.default_rng(2))
    assert noise.mean() == pytest.approx(0.5772, abs=0.02)
    assert noise.var() == pytest.approx(np.pi**2 / 6, rel=0.03)


def test_single_legal_action_takes_all_noise_however_small_alpha():
    settings = SearchSettings(kind="puct", root_dirichlet_alpha=1e-4)
    legal = np.zeros((500, 5), bool)
    legal[:, 2] = True
    noise = draw_noise(settings, legal, np.random.default_rng(3))
    np.testing.assert_array_equal(noise, legal.astype(np.float32))


def test_temperature_zero_takes_the_search_choice():
    output = output_of([[5, 5, 0], [1, 2, 3]], best_action=[1, 0])
    legal = np.ones((2, 3), bool)
    actions = select_actions(output, legal, 0.0, np.random.default_rng(0))
    assert actions.dtype == np.int32
    assert actions.tolist() == [1, 0]


@pytest.mark.parametrize("temperature", [0.25, 1.0, 2.0])
def test_actions_follow_the_visits(temperature):
    counts = np.array([1, 3, 0, 6])
    num_rows = 40_000
    output = output_of(np.tile(counts, (num_rows, 1)))
    legal = np.ones((num_rows, 4), bool)
    actions = select_actions(output, legal, temperature, np.random.default_rng(0))
    expected = counts ** (1 / temperature) / (counts ** (1 / temperature)).sum()
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / num_rows, expected, atol=0.01)


@pytest.mark.parametrize("temperature", [1e-300, 1e-12, 0.01, 1e6, 1e300, np.inf])
def test_extreme_temperatures_stay_finite_and_legal(temperature):
    output = output_of([[2_000_000_000, 3, 0, 0], [0, 1, 2, 800]])
    legal = np.array([[1, 1, 1, 0], [0, 1, 1, 1]], bool)
    for seed in range(50):
        actions = select_actions(output, legal, temperature, np.random.default_rng(seed))
        assert output.visits[[0, 1], actions].all()
        if temperature <= 0.01:
            assert actions.tolist() == [0, 3]


def test_rows_have_their_own_temperature_and_draw():
    visits = np.tile([3, 3, 3, 1], (8, 1))
    output = output_of(visits, best_action=[3] * 8)
    legal = np.ones((8, 4), bool)
    warm = select_actions(output, legal, 1.0, np.random.default_rng(7))
    mixed = select_actions(output, legal, np.array([0.0, 1.0] * 4), np.random.default_rng(7))
    assert mixed[0::2].tolist() == [3] * 4
    np.testing.assert_array_equal(mixed[1::2], warm[1::2])


def test_illegal_actions_are_never_played():
    output = output_of([[50, 1, 1]])
    legal = np.array([[False, True, True]])
    drawn = {
        int(select_actions(output, legal, 1.0, np.random.default_rng(seed))[0])
        for seed in range(40)
    }
    assert drawn == {1, 2}


@pytest.mark.parametrize("temperature", [-1.0, float("nan")])
def test_bad_temperature(temperature):
    with pytest.raises(ValueError, match="temperature"):
        select_actions(
            output_of([[1, 2]]), np.ones((1, 2), bool), temperature, np.random.default_rng(0)
        )
