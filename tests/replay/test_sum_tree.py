import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from muzero.replay.sum_tree import SumTree, _find

WEIGHTS = st.one_of(st.just(0.0), st.floats(1e-12, 1e12))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.lists(st.tuples(st.integers(0, 39), WEIGHTS), max_size=12), max_size=6),
)
def test_equals_numpy_after_any_updates(
    capacity: int, updates: list[list[tuple[int, float]]]
) -> None:
    tree, model = SumTree(capacity), np.zeros(capacity)
    for update in updates:
        index = np.array([i % capacity for i, _ in update], np.int64)
        weight = np.array([w for _, w in update], np.float64)
        tree.set(index, weight)
        for i, w in zip(index, weight, strict=True):
            model[i] = w
    assert np.array_equal(tree.weights, model)
    assert tree.total == pytest.approx(model.sum(), rel=1e-12)
    rebuilt = SumTree(capacity)
    rebuilt.load(model)
    assert rebuilt.total == tree.total  # a function of the leaves: bit-equal, whatever the history


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 70),
    st.lists(st.tuples(st.integers(0, 69), st.integers(1, 30)), min_size=1, max_size=6),
    st.integers(0, 2**32),
)
def test_runs_of_neighbours_give_the_same_tree_as_one_by_one(
    capacity: int, runs: list[tuple[int, int]], seed: int
) -> None:
    """Runs that touch, overlap or go round the end of the ring."""
    index = np.concatenate([np.arange(first, first + count) % capacity for first, count in runs])
    weight = np.random.default_rng(seed).random(len(index))
    together, one_by_one = SumTree(capacity), SumTree(capacity)
    together.set(index, weight)
    for i in range(len(index)):
        one_by_one.set(index[i : i + 1], weight[i : i + 1])
    np.testing.assert_array_equal(together._tree, one_by_one._tree)


def test_does_not_drift() -> None:
    tree, rng = SumTree(7), np.random.default_rng(0)
    for _ in range(2000):
        tree.set(rng.integers(7, size=3), 10.0 ** rng.uniform(-9, 9, size=3))
    tree.set(np.arange(7), np.full(7, 0.5))
    assert tree.total == 3.5


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=33), st.data())
def test_find_is_the_cumulative_sum(weights: list[int], data: st.DataObject) -> None:
    if not any(weights):
        weights = [*weights, 1]
    tree = SumTree(len(weights))
    tree.load(np.array(weights, np.float64))
    mass = data.draw(st.floats(0, sum(weights), exclude_max=True))
    expected = np.searchsorted(np.cumsum(weights), mass, side="right")
    assert _find(tree._tree, np.array([mass]))[0] == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(WEIGHTS, min_size=1, max_size=50), st.integers(0, 2**32))
def test_weightless_items_are_never_drawn(weights: list[float], seed: int) -> None:
    tree = SumTree(len(weights))
    tree.load(np.array(weights))
    rng = np.random.default_rng(seed)
    if not any(weights):
        with pytest.raises(ValueError, match="nothing to sample"):
            tree.sample(4, rng)
        return
    assert (tree.weights[tree.sample(64, rng)] > 0).all()
    # even a mass that rounding has carried to the total or past it
    edge = np.array([tree.total, np.nextafter(tree.total, np.inf)])
    assert (tree.weights[_find(tree._tree, edge)] > 0).all()


def test_frequencies_follow_the_weights() -> None:
    weights = np.array([0.0, 1, 2, 0, 3, 4, 0.5, 10, 0.0])
    tree, rng = SumTree(9), np.random.default_rng(7)
    tree.load(weights)
    # one draw per call, so that draws are independent
    drawn = np.concatenate([tree.sample(1, rng) for _ in range(20_000)])
    counts = np.bincount(drawn, minlength=9)
    used = weights > 0
    assert not counts[~used].any()
    expected = weights[used] / weights.sum() * len(drawn)
    assert stats.chisquare(counts[used], expected).pvalue > 0.01


def test_strata_give_each_item_its_share_in_every_batch() -> None:
    tree, rng = SumTree(4), np.random.default_rng(0)
    tree.load(np.array([1.0, 2.0, 4.0, 1.0]))
    for _ in range(20):
        assert np.bincount(tree.sample(8, rng)).tolist() == [1, 2, 4, 1]


def test_python_twin() -> None:
    tree = SumTree(11)
    tree.load(np.arange(11.0))
    mass = np.linspace(0, tree.total, 57, endpoint=False)
    assert np.array_equal(_find(tree._tree, mass), _find.py_func(tree._tree, mass))
