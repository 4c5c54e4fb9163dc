"""Chance nodes: closed forms and properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import ModelOutput, RootOutput, Search, SearchSettings, draw_noise, run
from mcts.chance import AfterstateOutput, AlternatingModel
from tests.oracles.chance_cases import Fixed, search_table
from tests.oracles.chance_table import ChanceTable

KINDS = ["puct", "gumbel"]


class CertainBandit:
    """mctx's own test: an action pays its reward, by a certain outcome of `num_outcomes`, and ends the episode."""

    def __init__(self, num_actions, num_outcomes):
        self.num_actions = num_actions
        self.num_outcomes = num_outcomes

    def recurrent(self, selection):
        size = len(selection.row)
        zeros = np.zeros(size)
        return ModelOutput(zeros, zeros, np.zeros((size, self.num_actions)), zeros)

    def afterstates(self, selection):
        logits = np.full((len(selection.row), self.num_outcomes), -np.inf)
        logits[:, 0] = 1.0
        return AfterstateOutput(logits, np.zeros(len(logits)))

    def states(self, selection):
        return self.recurrent(selection)


@pytest.mark.parametrize(
    "options", [{"kind": "puct"}, {"kind": "gumbel", "max_num_considered_actions": 2}]
)
@pytest.mark.parametrize("num_outcomes", [1, 5])
def test_a_certain_outcome_needs_twice_the_simulations_of_plain_search(options, num_outcomes):
    root = RootOutput(
        np.array([[-1.0, 0.0, 2.0, 3.0], [0.0, 2.0, 5.0, -4.0]]), np.array([1.0, 0.0])
    )
    legal = np.array([[True, True, True, False], [False, True, False, True]])
    model = CertainBandit(4, num_outcomes)
    options = {"normalization": "siblings", **options}
    plain = Search(SearchSettings(num_simulations=10, **options), batch_size=2, num_actions=4)
    expected = run(plain, model, root, legal)
    chance = Search(
        SearchSettings(num_simulations=20, num_chance_outcomes=num_outcomes, **options),
        batch_size=2,
        num_actions=4,
    )
    output = run(chance, AlternatingModel(model, chance), root, legal)
    np.testing.assert_array_equal(output.best_action, expected.best_action)
    np.testing.assert_array_equal(output.visits, 2 * expected.visits)
    if options["kind"] == "puct":  # Gumbel's policy depends on the number of visits itself
        np.testing.assert_allclose(output.policy, expected.policy, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_are_visited_in_proportion_to_their_probability(kind):
    sigma = np.array([0.05, 0.4, 0.0, 0.25, 0.1, 0.2])
    num_simulations = 1001
    model = Fixed(sigma, rewards=[9.0, -7.0, 100.0, 0.0, 3.0, 1.0], discounts=np.ones(6))
    search, _ = model.search(kind=kind, num_simulations=num_simulations, max_depth=2)
    counts = search.tree.child_visits[0, 1]
    assert counts.sum() == num_simulations - 1
    # Rewards do not matter; D'Hondt's rule never falls below the rounded-down share.
    assert (counts >= np.floor(sigma * counts.sum() - 1e-9)).all()
    assert counts[2] == 0
    np.testing.assert_allclose(counts / counts.sum(), sigma, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_outcomes_go_by_turns_from_the_lowest(kind):
    model = Fixed(np.full(3, 1 / 3), rewards=np.zeros(3), discounts=np.zeros(3))
    search, _ = model.search(kind=kind, num_simulations=8, max_depth=2)
    tree = search.tree
    assert tree.actions[0, :5].tolist() == [-1, 0, 0, 1, 2]
    assert tree.child_visits[0, 1].tolist() == [3, 2, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_value_of_an_afterstate_is_the_mean_over_its_outcomes(kind):
    sigma, rewards = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, -3.0])
    discounts = np.array([0.9, -0.9, 0.0])
    model = Fixed(sigma, rewards, discounts, value=0.7, afterstate_value=0.25)
    search, output = model.search(kind=kind, num_simulations=101, max_depth=2)
    counts = search.tree.child_visits[0, 1]
    assert counts.tolist() == [50, 30, 20]
    total = 0.25 + counts @ (rewards + discounts * 0.7)
    assert search.tree.values[0, 1] == pytest.approx(total / 101)
    # The edge from the state to the afterstate adds nothing.
    assert output.qvalues[0, 0] == pytest.approx(total / 101)
    assert output.value[0] == pytest.approx((0.7 + total) / 102)


@pytest.mark.parametrize("kind", KINDS)
def test_discount_counts_once_for_each_step_of_the_environment(kind):
    # One action, one outcome, reward 1 per step: every value is a plain sum of powers of the discount.
    model = Fixed([1.0], rewards=[1.0], discounts=[0.5])
    search, _ = model.search(kind=kind, num_simulations=6)
    tree = search.tree
    assert tree.depths[0].tolist() == list(range(7))
    assert tree.discounts[0].tolist() == [1, 1, 0.5, 1, 0.5, 1, 0.5]
    assert tree.rewards[0].tolist() == [0, 0, 1, 0, 1, 0, 1]
    # Six simulations end 0, 1, 1, 2, 2, 3 whole steps ahead.
    steps = np.array([0, 0, 1, 1, 2, 2, 3])
    assert tree.values[0, 0] == pytest.approx((2 - 2 * 0.5**steps).mean())


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["tree", "siblings", "bounds", "none"]),
    st.sampled_from([None, 1, 2, 3]),
    st.integers(1, 40),
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(0, 2**32 - 1),
)
def test_counts_kinds_and_masks(
    kind, normalization, max_depth, num_simulations, num_actions, num_outcomes, seed
):
    rng = np.random.default_rng(seed)
    model = ChanceTable.draw(
        rng,
        num_actions=num_actions,
        num_outcomes=num_outcomes,
        players="mixed",
        absent_actions=0.2,
        absent_outcomes=0.2,
        dtype=np.float32,
    )
    search_settings = SearchSettings(
        kind=kind,
        normalization=normalization,
        max_depth=max_depth,
        num_simulations=num_simulations,
        num_chance_outcomes=num_outcomes,
    )
    states = rng.integers(64, size=5)
    exists = model.logits[states] > -np.inf
    legal = rng.random((5, num_actions)) < 0.6
    legal |= exists & ~(legal & exists).any(axis=1, keepdims=True)
    noise = draw_noise(search_settings, legal, rng)
    search, output = search_table(search_settings, model, states, legal, noise, np.float32)
    # Each simulation asks one network, for one row.
    assert model.num_asked == 5 * num_simulations
    assert output.visits.shape == output.policy.shape == output.qvalues.shape == legal.shape
    assert (output.visits.sum(axis=1) == num_simulations).all()
    assert (output.visits[~(legal & exists)] == 0).all()
    assert (output.policy[~(legal & exists)] == 0).all()
    np.testing.assert_allclose(output.policy.sum(axis=1), 1, atol=1e-5)
    tree = search.tree
    used = tree.visits > 0
    is_chance = tree.depths % 2 == 1
    branches = np.arange(max(num_actions, num_outcomes))
    visited = tree.child_visits > 0
    assert (visited & is_chance[..., None] & (branches >= num_outcomes)).sum() == 0
    assert (visited & ~is_chance[..., None] & (branches >= num_actions)).sum() == 0
    np.testing.assert_allclose(tree.priors.sum(axis=-1)[used], 1, atol=1e-5)
    for kind_of_node, logits in ((False, model.logits), (True, model.chance_logits)):
        rows, nodes = np.nonzero(used & (is_chance == kind_of_node) & (tree.depths > 0))
        expected = np.exp(logits[model.nodes[rows, nodes]])
        expected /= expected.sum(axis=-1, keepdims=True)
        width = logits.shape[1]
        np.testing.assert_allclose(tree.priors[rows, nodes][:, :width], expected, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.data())
def test_rows_with_chance_are_independent(kind, seed, data):
    rng = np.random.default_rng(seed)
    model = ChanceTable.draw(rng, num_actions=5, num_outcomes=4, players="mixed", dtype=np.float32)
    search_settings = SearchSettings(kind=kind, num_simulations=30, num_chance_outcomes=4)
    states = rng.integers(64, size=8)
    legal = rng.random((8, 5)) < 0.6
    legal[:, 0] |= ~legal.any(axis=1)
    noise = draw_noise(search_settings, legal, rng)
    _, together = search_table(search_settings, model, states, legal, noise, np.float32)
    rows = np.array(data.draw(st.permutations(range(8))))[: data.draw(st.integers(1, 8))]
    _, subset = search_table(
        search_settings, model, states[rows], legal[rows], noise[rows], np.float32
    )
    _, threaded = search_table(
        search_settings,
        model,
        states,
        legal,
        noise,
        np.float32,
        num_threads=3,
        min_rows_per_thread=2,
    )
    for name in ("visits", "policy", "value", "qvalues", "best_action", "best_value", "depth"):
        np.testing.assert_array_equal(getattr(together, name)[rows], getattr(subset, name))
        np.testing.assert_array_equal(getattr(together, name), getattr(threaded, name))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_stand_at_different_kinds_of_nodes(kind):
    """Rows out of step ask both networks in one simulation, each for its own rows only."""
    rng = np.random.default_rng(0)
    model = ChanceTable.draw(rng, num_actions=3, num_outcomes=3)
    calls = []

    class Counted:
        def afterstates(self, selection):
            calls.append(("afterstates", len(selection.row)))
            return model.afterstates(selection)

        def states(self, selection):
            calls.append(("states", len(selection.row)))
            return model.states(selection)

    search_settings = SearchSettings(kind=kind, num_simulations=20, num_chance_outcomes=3)
    search = Search(search_settings, batch_size=16, num_actions=3, dtype=np.float64)
    root = model.root(np.arange(16), 21)
    run(search, AlternatingModel(Counted(), search), root, np.ones((16, 3), bool))
    # All rows first look at an action.
    assert calls[0] == ("afterstates", 16)
    assert sum(size for _, size in calls) == 16 * 20
    assert 20 < len(calls) <= 40
    assert {size for _, size in calls} != {16}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["tree", "siblings", "bounds", "none"])
def test_the_other_players_values_count_negated_behind_chance(kind, normalization):
    """One step deep, discount -1 into the opponent's values is discount +1 into their negation."""
    options = {"num_actions": 4, "num_outcomes": 3, "terminal_fraction": 0.0}
    theirs = ChanceTable.draw(np.random.default_rng(9), players=2, **options)
    mine = ChanceTable.draw(np.random.default_rng(9), **options)
    assert (theirs.discount == -mine.discount).all()
    states = np.arange(6)
    own_values = theirs.value[states]
    mine.value = -theirs.value
    search_settings = SearchSettings(
        kind=kind,
        num_simulations=60,
        max_depth=2,
        normalization=normalization,
        value_max=2.0,
        num_chance_outcomes=3,
    )
    outputs = []
    for model in (theirs, mine):
        search = Search(search_settings, batch_size=6, num_actions=4, dtype=np.float64)
        root = RootOutput(model.root(states, 61).prior_logits, own_values)
        outputs.append(run(search, AlternatingModel(model, search), root, np.ones((6, 4), bool)))
    for name in ("visits", "policy", "value", "qvalues", "best_action"):
        np.testing.assert_array_equal(getattr(outputs[0], name), getattr(outputs[1], name))


def test_wide_outcomes_do_not_widen_the_range_of_the_tree():
    # One action; its outcomes pay 1000 and -1000, so its q stays small after an even number of them.
    model = Fixed([0.5, 0.5], rewards=[1000.0, -1000.0], discounts=[0.0, 0.0])
    search, _ = model.search(kind="puct", num_simulations=101, max_depth=2)
    q = [0.0]
    for count in range(1, 101):
        q.append(1000.0 * (count % 2) / (count + 1))
    low, high = search.tree.rows[0, :2]
    assert low == 0.0
    assert high == pytest.approx(max(q))
