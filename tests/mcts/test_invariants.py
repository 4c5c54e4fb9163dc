"""Properties that hold for every search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import RootOutput, Search, SearchSettings, draw_noise, run
from tests.oracles.plain_search import halving_schedule
from tests.oracles.table_model import TableModel

KINDS = ["puct", "gumbel"]
NORMALIZATIONS = ["tree", "siblings", "bounds", "none"]


def draw_case(seed, kind, *, num_rows=8, num_actions=6, num_simulations=30, **options):
    rng = np.random.default_rng(seed)
    search_settings = SearchSettings(kind=kind, num_simulations=num_simulations, **options)
    model = TableModel.draw(rng, num_actions=num_actions, players="mixed", dtype=np.float32)
    legal = rng.random((num_rows, num_actions)) < 0.6
    legal[:, 0] |= ~legal.any(axis=1)
    noise = draw_noise(search_settings, legal, rng)
    states = rng.integers(len(model.value), size=num_rows)
    return search_settings, model, legal, noise, states


def search_case(search_settings, model, legal, noise, states, **options):
    num_rows, num_actions = legal.shape
    options = {"batch_size": num_rows, **options}
    search = Search(search_settings, num_actions=num_actions, **options)
    root = model.root(states, search_settings.num_simulations + 1)
    return search, run(search, model, root, legal, noise)


def assert_same(first, second, rows=slice(None)):
    for name in ("visits", "policy", "value", "qvalues", "best_action", "best_value", "depth"):
        np.testing.assert_array_equal(getattr(first, name)[rows], getattr(second, name))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(NORMALIZATIONS),
    st.sampled_from([None, 1, 3]),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_counts_masks_and_sums(kind, normalization, max_depth, num_simulations, seed):
    case = draw_case(
        seed,
        kind,
        num_simulations=num_simulations,
        normalization=normalization,
        max_depth=max_depth,
    )
    _, model, legal, _, _ = case
    search, output = search_case(*case)
    assert model.num_calls == num_simulations
    assert (output.visits.sum(axis=1) == num_simulations).all()
    assert (output.visits[~legal] == 0).all()
    assert (output.policy[~legal] == 0).all()
    assert (search.tree.priors[:, 0][~legal] == 0).all()
    np.testing.assert_allclose(output.policy.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        search.tree.priors.sum(axis=-1)[search.tree.visits > 0], 1, atol=1e-5
    )
    assert legal[np.arange(len(legal)), output.best_action].all()
    tree = search.tree
    assert (tree.visits[:, 0] == num_simulations + 1).all()
    # Each edge's visits are those of its node, and a node's are 1 + those of its edges, except at the depth limit.
    interior = (tree.visits > 0) & (tree.depths < (max_depth or num_simulations + 1))
    expected = 1 + tree.child_visits.sum(axis=-1)
    np.testing.assert_array_equal(tree.visits[interior], expected[interior])
    if max_depth is not None:
        assert tree.depths[tree.visits > 0].max() <= max_depth
    # Values of a state machine with rewards in [-1, 1] stay within the horizon's sum.
    assert (np.abs(output.qvalues) <= num_simulations + 2).all()
    if normalization == "tree":
        visited = tree.child_visits > 0
        low, high = tree.rows[:, 0, None, None], tree.rows[:, 1, None, None]
        scaled = (tree.child_q - low) / (high - low)
        assert (scaled[visited] >= -1e-6).all()
        assert (scaled[visited] <= 1 + 1e-6).all()


def test_q_lies_within_the_returns():
    # Without rewards every q is a mean of signed network values.
    rng = np.random.default_rng(0)
    model = TableModel.draw(rng, players=2, discount=1.0, zero_reward=True, num_actions=5)
    for kind in KINDS:
        case_settings = SearchSettings(kind=kind, num_simulations=100)
        states = np.arange(6)
        legal = np.ones((6, 5), bool)
        _, output = search_case(case_settings, model, legal, None, states)
        bound = np.abs(model.value).max()
        assert (np.abs(output.qvalues) <= bound).all()
        assert (np.abs(output.value) <= bound).all()


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(KINDS), st.sampled_from(NORMALIZATIONS), st.integers(0, 2**32 - 1), st.data()
)
def test_rows_are_independent(kind, normalization, seed, data):
    case = draw_case(seed, kind, normalization=normalization, first_play_urgency="mean")
    search_settings, model, legal, noise, states = case
    _, together = search_case(*case)
    rows = np.array(data.draw(st.permutations(range(len(legal)))))[: data.draw(st.integers(1, 8))]
    _, subset = search_case(search_settings, model, legal[rows], noise[rows], states[rows])
    assert_same(together, subset, rows)
    row = slice(3, 4)
    _, alone = search_case(search_settings, model, legal[row], noise[row], states[row])
    assert_same(together, alone, row)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [0, 40, 63])
def test_what_other_rows_search_does_not_matter(kind, row):
    search_settings, model, legal, noise, states = draw_case(11, kind, num_rows=64)
    _, first = search_case(search_settings, model, legal, noise, states)
    _, _, other_legal, other_noise, other_states = draw_case(12, kind, num_rows=64)
    for others, own in ((other_legal, legal), (other_noise, noise), (other_states, states)):
        others[row] = own[row]
    _, second = search_case(search_settings, model, other_legal, other_noise, other_states)
    assert (first.visits != second.visits).any()
    for name in ("visits", "policy", "value", "qvalues", "best_action", "best_value", "depth"):
        np.testing.assert_array_equal(getattr(first, name)[row], getattr(second, name)[row])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_threads", [2, 3, 7])
def test_thread_count_changes_nothing(kind, num_threads):
    case = draw_case(5, kind, num_rows=23)
    search, single = search_case(*case)
    threaded_search, threaded = search_case(*case, num_threads=num_threads, min_rows_per_thread=2)
    assert_same(single, threaded)
    for name in ("visits", "values", "child_index", "child_q"):
        np.testing.assert_array_equal(
            getattr(search.tree, name), getattr(threaded_search.tree, name)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_tree_and_reuse_leaves_no_trace(kind):
    case = draw_case(1, kind, max_depth=3)
    other = draw_case(2, kind, max_depth=3)
    search, first = search_case(*case, batch_size=11)
    kept = {name: getattr(search.tree, name).copy() for name in ("visits", "parents", "priors")}
    search_settings, model, legal, noise, states = other
    num_nodes = search_settings.num_simulations + 1
    run(search, model, model.root(states, num_nodes), legal, noise)
    _, model, legal, noise, states = case
    again = run(search, model, model.root(states, num_nodes), legal, noise)
    assert_same(first, again)
    for name, array in kept.items():
        np.testing.assert_array_equal(getattr(search.tree, name), array)
    _, fresh = search_case(*draw_case(1, kind, max_depth=3))
    assert_same(first, fresh)


@pytest.mark.parametrize("kind", KINDS)
def test_no_noise_means_no_noise(kind):
    search_settings, model, legal, noise, states = draw_case(3, kind)
    search, _ = search_case(search_settings, model, legal, noise, states)
    num_nodes = search_settings.num_simulations + 1
    after_noise = run(search, model, model.root(states, num_nodes), legal)
    _, plain = search_case(search_settings, model, legal, None, states)
    assert_same(after_noise, plain)
    _, zero = search_case(search_settings, model, legal, np.zeros_like(noise), states)
    if kind == "gumbel":
        assert_same(plain, zero)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_discount_minus_one_is_the_opponents_view(kind, normalization):
    """One step deep, values of the opponent with discount -1 are the negated values with discount +1."""
    rng = np.random.default_rng(9)
    model = TableModel.draw(rng, players=2, num_actions=4, terminal_fraction=0.0)
    mirror = TableModel.draw(np.random.default_rng(9), num_actions=4, terminal_fraction=0.0)
    mirror.value = -model.value
    two = SearchSettings(
        kind=kind, num_simulations=20, max_depth=1, normalization=normalization, value_max=2.0
    )
    states = np.arange(6)
    legal = np.ones((6, 4), bool)
    search = Search(two, batch_size=6, num_actions=4, dtype=np.float64)
    first = run(search, model, model.root(states, 21), legal)
    root = mirror.root(states, 21)
    second = run(search, mirror, RootOutput(root.prior_logits, model.value[states]), legal)
    assert_same(first, second)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["siblings", "bounds", "none"])
def test_an_opponent_without_a_choice_is_a_step_of_ones_own(kind, normalization):
    """Every second state has one action: then discount -g with negated numbers there is discount +g, at any depth.

    Not with the tree's bounds, which the opponent's q enter with their own sign.
    """
    own = TableModel.draw(np.random.default_rng(3), num_states=80, num_actions=4)
    is_forced = np.arange(80) >= 40
    own.successor = np.where(is_forced[:, None], own.successor % 40, own.successor % 40 + 40)
    own.logits[is_forced, 1:] = -np.inf
    opposed = TableModel(**{**vars(own), "discount": -own.discount})
    opposed.value = np.where(is_forced, -own.value, own.value)
    opposed.reward = np.where(is_forced[:, None], -own.reward, own.reward)
    search_settings = SearchSettings(kind=kind, num_simulations=60, normalization=normalization)
    states = np.arange(6)
    legal = np.ones((6, 4), bool)
    own_search, first = search_case(search_settings, own, legal, None, states, dtype=np.float64)
    _, second = search_case(search_settings, opposed, legal, None, states, dtype=np.float64)
    assert own_search.tree.depths.max() > 4
    assert_same(first, second)


@pytest.mark.parametrize("players", [1, 2, "mixed"])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_backup_equals_the_definition(players, discount):
    """V of a node is the mean over its own network value and the returns of all nodes below it."""
    rng = np.random.default_rng(4)
    model = TableModel.draw(rng, players=players, discount=discount, num_actions=3)
    case_settings = SearchSettings(kind="puct", num_simulations=40)
    search = Search(case_settings, batch_size=5, num_actions=3, dtype=np.float64)
    legal = np.ones((5, 3), bool)
    run(search, model, model.root(np.arange(5), 41), legal)
    tree = search.tree
    for row in range(5):
        returns = [[tree.raw_values[row, node]] for node in range(tree.num_nodes)]
        for leaf in range(1, tree.num_nodes):
            node, total = leaf, tree.raw_values[row, leaf]
            while node != 0:
                total = tree.rewards[row, node] + tree.discounts[row, node] * total
                node = tree.parents[row, node]
                returns[node].append(total)
        expected = [np.mean(values) for values in returns]
        np.testing.assert_allclose(tree.values[row], expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_depth_limit_of_the_simulations_changes_nothing(kind):
    _, free = search_case(*draw_case(6, kind, num_simulations=25))
    _, limited = search_case(*draw_case(6, kind, num_simulations=25, max_depth=25))
    assert_same(free, limited)


@pytest.mark.parametrize("num_legal", [1, 3, 16])
@pytest.mark.parametrize("num_simulations", [1, 8, 50])
@pytest.mark.parametrize("max_considered", [1, 4, 16, 100])
def test_gumbel_visits_follow_the_schedule(num_legal, num_simulations, max_considered):
    search_settings = SearchSettings(
        kind="gumbel",
        num_simulations=num_simulations,
        max_num_considered_actions=max_considered,
    )
    rng = np.random.default_rng(8)
    model = TableModel.draw(rng, num_actions=16)
    legal = np.zeros((4, 16), bool)
    for row in legal:
        row[rng.permutation(16)[:num_legal]] = True
    noise = draw_noise(search_settings, legal, rng)
    _, output = search_case(search_settings, model, legal, noise, np.arange(4))
    schedule = halving_schedule(min(num_legal, max_considered), num_simulations)
    # An action with n visits has been picked once at each count below n.
    expected = np.bincount(schedule, minlength=num_simulations)
    for row in output.visits:
        picked = [(row > count).sum() for count in range(num_simulations)]
        assert picked == expected.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_model_is_asked_once_per_row_and_simulation(kind):
    search_settings, model, legal, noise, states = draw_case(13, kind, num_simulations=12)
    counts = np.array([1, 12, 3, 3, 7, 12, 1, 5])
    search = Search(search_settings, batch_size=8, num_actions=legal.shape[1])
    search.begin(model.root(states, 13), legal, noise, num_simulations=counts)
    asked = np.zeros(8, int)
    while (selection := search.select()) is not None:
        np.testing.assert_array_equal(np.unique(selection.row), selection.row)
        asked[selection.row] += 1
        search.update(model.recurrent(selection))
    np.testing.assert_array_equal(asked, counts)
    np.testing.assert_array_equal(search.result().visits.sum(axis=1), counts)
    assert model.num_calls == 12
