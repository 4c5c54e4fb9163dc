"""Rows of one batch that search with different numbers of simulations, with and without noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import RootOutput, Search, SearchSettings, draw_noise, run
from tests.oracles.table_model import TableModel

KINDS = ["puct", "gumbel"]
FIELDS = (
    "visits", "policy", "value", "qvalues", "best_action", "best_value", "depth", "num_simulations",
)  # fmt: skip


def draw_case(seed, kind, *, num_rows=8, num_actions=6, num_simulations=30, **options):
    rng = np.random.default_rng(seed)
    search_settings = SearchSettings(kind=kind, num_simulations=num_simulations, **options)
    model = TableModel.draw(rng, num_actions=num_actions, players="mixed", dtype=np.float32)
    legal = rng.random((num_rows, num_actions)) < 0.6
    legal[:, 0] |= ~legal.any(axis=1)
    noise = draw_noise(search_settings, legal, rng)
    states = rng.integers(len(model.value), size=num_rows)
    counts = rng.integers(1, num_simulations + 1, size=num_rows)
    return search_settings, model, legal, noise, states, counts


def assert_row_is_alone(together, row, alone, tree, alone_tree):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(together, name)[row], getattr(alone, name)[0])
    num_nodes = alone_tree.num_nodes
    for name in ("visits", "parents", "actions", "values", "child_q", "priors"):
        whole = getattr(tree, name)[row]
        np.testing.assert_array_equal(whole[:num_nodes], getattr(alone_tree, name)[0])
        unused = -1 if name in ("parents", "actions") else 0
        assert (whole[num_nodes:] == unused).all()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from([None, 2]), st.integers(0, 2**32 - 1))
def test_row_equals_a_search_of_its_own_with_as_many_simulations(kind, max_depth, seed):
    case = draw_case(seed, kind, max_depth=max_depth, normalization="tree")
    search_settings, model, legal, noise, states, counts = case
    search = Search(search_settings, batch_size=8, num_actions=6)
    # An earlier, full search leaves its nodes behind.
    run(search, model, model.root(states[::-1], 31), legal[::-1], noise[::-1])
    root = model.root(states, 31)
    output = run(search, model, root, legal, noise, num_simulations=counts)
    np.testing.assert_array_equal(output.num_simulations, counts)
    np.testing.assert_array_equal(output.visits.sum(axis=1), counts)
    for row, count in enumerate(counts):
        own_settings = SearchSettings(
            kind=kind, max_depth=max_depth or 30, normalization="tree", num_simulations=int(count)
        )
        own = Search(own_settings, batch_size=1, num_actions=6)
        one = slice(row, row + 1)
        root = model.root(states[one], int(count) + 1)
        alone = run(own, model, root, legal[one], noise[one])
        assert_row_is_alone(output, row, alone, search.tree, own.tree)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_numbers_are_the_plain_search(kind):
    search_settings, model, legal, noise, states, _ = draw_case(3, kind)
    search = Search(search_settings, batch_size=8, num_actions=6)
    plain = run(search, model, model.root(states, 31), legal, noise)
    counts = np.full(8, 30, np.uint8)
    asked = run(search, model, model.root(states, 31), legal, noise, num_simulations=counts)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(plain, name), getattr(asked, name))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_the_rows_that_are_left(kind):
    search_settings, model, legal, noise, states, counts = draw_case(4, kind, num_rows=23)
    outputs = []
    for num_threads in (1, 3):
        search = Search(
            search_settings,
            batch_size=23,
            num_actions=6,
            num_threads=num_threads,
            min_rows_per_thread=2,
        )
        root = model.root(states, 31)
        outputs.append(run(search, model, root, legal, noise, num_simulations=counts))
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(outputs[0], name), getattr(outputs[1], name))


def test_selection_names_the_rows_that_still_search():
    search_settings, model, legal, noise, states, _ = draw_case(5, "puct", num_simulations=4)
    search = Search(search_settings, batch_size=8, num_actions=6)
    counts = np.array([2, 4, 1, 4, 3, 1, 2, 4])
    search.begin(model.root(states, 5), legal, noise, num_simulations=counts)
    for step in range(4):
        selection = search.select()
        assert all(part.dtype == np.int32 for part in selection)
        assert selection.row.tolist() == np.flatnonzero(counts > step).tolist()
        assert (selection.node == step + 1).all()
        output = search.result()
        np.testing.assert_array_equal(output.num_simulations, np.minimum(counts, step))
        np.testing.assert_array_equal(output.visits.sum(axis=1), np.minimum(counts, step))
        search.update(model.recurrent(selection))
    assert search.select() is None


@pytest.mark.parametrize("kind", KINDS)
def test_answers_for_rows_that_have_ended_are_refused(kind):
    search_settings, model, legal, noise, states, _ = draw_case(6, kind)
    search = Search(search_settings, batch_size=8, num_actions=6)
    counts = np.array([1] * 4 + [5] * 4)
    root = model.root(states, 31)
    search.begin(root, legal, noise, num_simulations=counts)
    first = model.recurrent(search.select())
    search.update(first)
    second = model.recurrent(search.select())
    with pytest.raises(ValueError, match=r"reward has shape \(8,\), expected \(4,\)"):
        search.update(first)
    search.begin(root, legal, noise, num_simulations=counts)
    search.update(model.recurrent(search.select()))
    search.select()
    second.value[2] = np.nan
    with pytest.raises(ValueError, match="non-finite values: row 6, simulation 1"):
        search.update(second)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ([3, 0, 2], r"num_simulations of row 1 is 0: it must be 1 to 10"),
        ([3, 1, 11], r"num_simulations of row 2 is 11: .* for which the trees have room"),
        ([-1, 1, 1], r"row 0 is -1"),
        ([1.0, 2.0, 3.0], r"dtype float64; it must hold integers"),
        ([True, True, True], r"dtype bool; it must hold integers"),
        ([3, 3], r"num_simulations has shape \(2,\), expected \(3,\)"),
    ],
)
def test_bad_numbers_of_simulations_are_named(counts, problem):
    search = Search(SearchSettings(num_simulations=10), batch_size=3, num_actions=2)
    root = RootOutput(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(ValueError, match=problem):
        search.begin(root, np.ones((3, 2), bool), num_simulations=np.array(counts))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_explored_get_no_noise(kind):
    search_settings, model, legal, noise, states, _ = draw_case(7, kind, gumbel_scale=20.0)
    search = Search(search_settings, batch_size=8, num_actions=6)
    explored = np.arange(8) % 3 == 0
    mixed = run(search, model, model.root(states, 31), legal, noise, explored=explored)
    noisy = run(search, model, model.root(states, 31), legal, noise)
    plain = run(search, model, model.root(states, 31), legal)
    assert (noisy.visits != plain.visits).any(axis=1).sum() > 4
    for name in FIELDS:
        expected = np.where(
            explored.reshape(-1, *[1] * (getattr(plain, name).ndim - 1)),
            getattr(noisy, name),
            getattr(plain, name),
        )
        np.testing.assert_array_equal(getattr(mixed, name), expected)
    with pytest.raises(ValueError, match=r"explored has shape \(7,\), expected \(8,\)"):
        search.begin(model.root(states, 31), legal, noise, explored=explored[:7])
