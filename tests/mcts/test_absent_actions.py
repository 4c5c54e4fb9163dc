"""A logit of minus infinity says that an action does not exist at a node."""

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, draw_noise, run
from tests.oracles.table_model import TableModel

KINDS = ["puct", "gumbel"]
NORMALIZATIONS = ["tree", "siblings", "bounds", "none"]


def search_table(kind, model, *, num_rows=6, num_simulations=60, noise=True, **options):
    settings = SearchSettings(kind=kind, num_simulations=num_simulations, **options)
    search = Search(settings, batch_size=num_rows, num_actions=model.num_actions)
    states = np.arange(num_rows)
    legal = np.ones((num_rows, model.num_actions), bool)
    drawn = draw_noise(settings, legal, np.random.default_rng(0)) if noise else None
    return search, run(search, model, model.root(states, num_simulations + 1), legal, drawn)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("urgency", ["minimum", "parent", "mean"])
def test_absent_actions_are_never_visited_and_have_no_prior(kind, normalization, urgency):
    rng = np.random.default_rng(0)
    model = TableModel.draw(
        rng, num_states=40, num_actions=7, absent_fraction=0.6, players=2, dtype=np.float32
    )
    # What does not exist would be worth most: every q that is seen is far below the first guesses.
    model.reward[:] = -1.0
    search, output = search_table(
        kind, model, normalization=normalization, first_play_urgency=urgency, value_min=-100.0
    )
    absent = model.logits == -np.inf
    tree = search.tree
    visited_absent = 0
    for row in range(6):
        for node in np.flatnonzero(tree.visits[row]):
            gone = absent[model.nodes[row, node]]
            assert (tree.child_index[row, node][gone] == -1).all()
            assert (tree.priors[row, node][gone] == 0).all()
            visited_absent += gone.sum()
    assert visited_absent > 500
    np.testing.assert_allclose(tree.priors.sum(axis=-1)[tree.visits > 0], 1, atol=1e-5)
    assert (output.visits[absent[:6]] == 0).all()
    assert (output.policy[absent[:6]] == 0).all()
    assert (output.visits.sum(axis=1) == 60).all()
    np.testing.assert_allclose(output.policy.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("num_simulations", [6, 60])
def test_more_absent_actions_change_nothing(kind, normalization, mixed, num_simulations):
    """A search over 5 actions equals one over 9, of which 4 do not exist anywhere."""
    rng = np.random.default_rng(1)
    small = TableModel.draw(rng, num_actions=5, players="mixed", dtype=np.float32)
    places = np.array([1, 2, 4, 5, 8])
    wide = {
        name: rng.normal(size=(64, 9)).astype(np.float32)
        for name in ("logits", "reward", "discount")
    }
    wide["successor"] = rng.integers(64, size=(64, 9))
    wide["logits"][:] = -np.inf
    for name, array in wide.items():
        array[:, places] = getattr(small, name)
    large = TableModel(value=small.value, dtype=np.float32, **wide)
    options = {"normalization": normalization, "use_mixed_value": mixed, "noise": False}
    options |= {"num_rows": 40, "num_simulations": num_simulations}
    first_search, first = search_table(kind, small, **options)
    second_search, second = search_table(kind, large, **options)
    np.testing.assert_array_equal(first.visits, second.visits[:, places])
    np.testing.assert_array_equal(places[first.best_action], second.best_action)
    np.testing.assert_array_equal(first.value, second.value)
    np.testing.assert_array_equal(first_search.tree.parents, second_search.tree.parents)
    np.testing.assert_array_equal(first_search.tree.values, second_search.tree.values)
    # Sums over more addends, all of them 0, are taken in another order.
    np.testing.assert_allclose(first.policy, second.policy[:, places], atol=1e-6)
    assert (np.delete(second.policy, places, axis=1) == 0).all()


def test_policy_of_absent_actions_is_zero_however_large_the_values():
    """1e30 marks a logit that is no logit; values near that must not carry it into the policy."""
    settings = SearchSettings(kind="gumbel", num_simulations=4, normalization="none")
    search = Search(settings, batch_size=1, num_actions=4)

    class Heavy:
        def recurrent(self, selection):
            zeros = np.zeros(1, np.float32)
            logits = np.array([[0.0, -np.inf, 0.0, 0.0]], np.float32)
            return ModelOutput(zeros - 1e28, zeros, logits, zeros)

    root = RootOutput(np.array([[0.0, -np.inf, 0.0, 0.0]]), np.array([1e30]))
    output = run(search, Heavy(), root, np.array([[True, True, True, False]]))
    assert output.policy[0, [1, 3]].tolist() == [0.0, 0.0]
    assert output.policy[0].sum() == pytest.approx(1)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_of_absent_actions_goes_to_the_others(kind):
    settings = SearchSettings(
        kind=kind, num_simulations=1, root_exploration_fraction=0.5, root_dirichlet_alpha=0.5
    )
    rng = np.random.default_rng(0)
    search = Search(settings, batch_size=400, num_actions=6, dtype=np.float64)
    logits = rng.normal(size=(400, 6))
    logits[:, [0, 4]] = -np.inf
    legal = np.ones((400, 6), bool)
    legal[:, 5] = False
    noise = draw_noise(settings, legal, rng, np.float64)
    search.begin(RootOutput(logits, np.zeros(400)), legal)
    plain = search.tree.priors[:, 0].copy()
    search.begin(RootOutput(logits, np.zeros(400)), legal, noise)
    if kind == "gumbel":
        np.testing.assert_array_equal(search.tree.priors[:, 0], plain)
        assert (search.tree.gumbel[:, [0, 4, 5]] == 0).all()
        np.testing.assert_array_equal(search.tree.gumbel[:, 1:4], noise[:, 1:4])
        return
    there = [1, 2, 3]
    mixed = search.tree.priors[:, 0]
    share = noise[:, there] / noise[:, there].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mixed[:, there], 0.5 * plain[:, there] + 0.5 * share, atol=1e-12)
    assert (mixed[:, [0, 4, 5]] == 0).all()
    # A Dirichlet sample over three actions: mean 1/3, variance (1/3)(2/3) / (3 alpha + 1).
    np.testing.assert_allclose(share.mean(axis=0), 1 / 3, atol=0.05)
    np.testing.assert_allclose(share.var(), (2 / 9) / 2.5, rtol=0.1)


def test_noise_that_lies_on_absent_actions_alone_leaves_the_prior():
    settings = SearchSettings(kind="puct", num_simulations=1)
    search = Search(settings, batch_size=1, num_actions=3)
    root = RootOutput(np.array([[0.0, 0.0, -np.inf]]), np.zeros(1))
    search.begin(root, np.ones((1, 3), bool), np.array([[0.0, 0.0, 1.0]]))
    assert search.tree.priors[0, 0].tolist() == [0.5, 0.5, 0.0]


def test_halving_starts_with_actions_that_exist():
    settings = SearchSettings(kind="gumbel", num_simulations=16, max_num_considered_actions=8)
    search = Search(settings, batch_size=1, num_actions=8)
    model = TableModel.draw(np.random.default_rng(0), num_actions=8)
    root = model.root([0], 17)
    root.prior_logits[:, 3:] = -np.inf
    output = run(search, model, root, np.ones((1, 8), bool))
    # Three actions: 2 rounds of 16 // (2 * 3) = 2 visits each, then 2 actions share the other ten.
    assert sorted(output.visits[0].tolist()) == [0, 0, 0, 0, 0, 2, 7, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_node_without_any_action_is_refused(kind):
    settings = SearchSettings(kind=kind, num_simulations=10)
    search = Search(settings, batch_size=2, num_actions=3)
    model = TableModel.draw(np.random.default_rng(0), num_actions=3)
    legal = np.array([[True, True, True], [True, False, True]])
    root = model.root([0, 1], 11)
    root.prior_logits[1, [0, 2]] = -np.inf
    with pytest.raises(ValueError, match=r"row 1: .* minus infinity for every legal action"):
        search.begin(root, legal)
    root.prior_logits[1] = 0.0
    search.begin(root, legal)
    output = model.recurrent(search.select())
    output.prior_logits[0] = -np.inf
    with pytest.raises(ValueError, match="non-finite values: row 0, simulation 0"):
        search.update(output)
