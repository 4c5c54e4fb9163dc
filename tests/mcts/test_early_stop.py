"""A search that stops early plays what the full search plays."""

import numpy as np
import pytest

from mcts import Search, SearchSettings, draw_noise, run
from tests.oracles.plain_search import halving_schedule
from tests.oracles.table_model import TableModel

NUM_ROWS = 64


def both(seed, num_simulations, *, num_actions=6, peaked=1.0, counts=None, **options):
    """The outputs of a full search and of one that stops early, of the same roots."""
    rng = np.random.default_rng(seed)
    model = TableModel.draw(
        rng,
        num_states=512,
        num_actions=num_actions,
        players="mixed",
        absent_fraction=0.2,
        dtype=np.float32,
    )
    model.logits *= peaked
    states = rng.integers(512, size=NUM_ROWS)
    legal = rng.random((NUM_ROWS, num_actions)) < 0.7
    legal |= ~(legal & (model.logits[states] > -np.inf)).any(axis=1, keepdims=True)
    outputs = []
    noise = None
    for stop_early in (False, True):
        settings = SearchSettings(num_simulations=num_simulations, stop_early=stop_early, **options)
        if noise is None:
            noise = draw_noise(settings, legal, rng)
        search = Search(settings, batch_size=NUM_ROWS, num_actions=num_actions)
        root = model.root(states, num_simulations + 1)
        outputs.append(run(search, model, root, legal, noise, num_simulations=counts))
    return outputs


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_simulations", [1, 2, 7, 25, 60])
@pytest.mark.parametrize(
    "options",
    [
        {"kind": "puct"},
        {"kind": "puct", "normalization": "siblings", "max_depth": 2},
        {"kind": "puct", "forced_playouts": 3.0},
        {"kind": "gumbel"},
        {"kind": "gumbel", "max_num_considered_actions": 3, "normalization": "siblings"},
        {"kind": "gumbel", "max_num_considered_actions": 1},
    ],
    ids=str,
)
def test_early_stop_never_changes_the_best_action(options, num_simulations, seed):
    full, stopped = both(seed, num_simulations, peaked=2.0, **options)
    np.testing.assert_array_equal(stopped.best_action, full.best_action)
    assert (full.num_simulations == num_simulations).all()
    assert (stopped.num_simulations >= 1).all()
    assert (stopped.num_simulations <= num_simulations).all()
    np.testing.assert_array_equal(stopped.visits.sum(axis=1), stopped.num_simulations)
    if num_simulations > 2:
        assert stopped.num_simulations.sum() < full.num_simulations.sum()


def test_early_stop_saves_much_where_the_prior_is_sharp():
    full, stopped = both(0, 50, kind="puct", peaked=4.0, root_exploration_fraction=0.0)
    np.testing.assert_array_equal(stopped.best_action, full.best_action)
    assert stopped.num_simulations.mean() < 36


def test_rows_stop_at_the_first_simulation_that_decides():
    rng = np.random.default_rng(3)
    model = TableModel.draw(rng, num_actions=4, dtype=np.float32)
    states = np.arange(32)
    legal = np.ones((32, 4), bool)
    counts = rng.integers(1, 31, size=32)
    full = Search(SearchSettings(kind="puct", num_simulations=30), batch_size=32, num_actions=4)
    full.begin(model.root(states, 31), legal, num_simulations=counts)
    first = counts.copy()
    made = 0
    while (selection := full.select()) is not None:
        full.update(model.recurrent(selection))
        made += 1
        visits = np.sort(full.result().visits, axis=1)
        is_decided = visits[:, -1] - visits[:, -2] > counts - made
        first = np.where(is_decided & (first > made), made, first)
    settings = SearchSettings(kind="puct", num_simulations=30, stop_early=True)
    search = Search(settings, batch_size=32, num_actions=4)
    output = run(search, model, model.root(states, 31), legal, num_simulations=counts)
    np.testing.assert_array_equal(output.num_simulations, first)
    assert (first < counts).sum() > 10


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_single_action_needs_a_single_simulation(kind):
    settings = SearchSettings(kind=kind, num_simulations=30, stop_early=True)
    search = Search(settings, batch_size=3, num_actions=4)
    model = TableModel.draw(np.random.default_rng(0), num_actions=4)
    legal = np.array([[False, True, False, False], [True, True, True, True], [True] * 4])
    root = model.root(np.arange(3), 31)
    root.prior_logits[2, :3] = -np.inf
    output = run(search, model, root, legal)
    assert output.num_simulations[[0, 2]].tolist() == [1, 1]
    assert output.num_simulations[1] > 10
    assert output.best_action[[0, 2]].tolist() == [1, 3]


@pytest.mark.parametrize("num_simulations", range(2, 40))
def test_gumbel_leaves_out_a_last_simulation_that_would_only_confirm_the_leader(num_simulations):
    legal_size = 6
    settings = SearchSettings(kind="gumbel", num_simulations=num_simulations, stop_early=True)
    search = Search(settings, batch_size=2, num_actions=legal_size)
    model = TableModel.draw(np.random.default_rng(0), num_actions=legal_size)
    output = run(search, model, model.root([0, 1], num_simulations + 1), np.ones((2, 6), bool))
    schedule = halving_schedule(legal_size, num_simulations)
    most_before = max(schedule[:-1]) + 1
    expected = num_simulations - (schedule[-1] == most_before)
    assert output.num_simulations.tolist() == [expected] * 2


def test_early_stop_in_kept_trees_never_changes_the_best_action():
    rng = np.random.default_rng(5)
    model = TableModel.draw(rng, num_states=512, num_actions=5, players=2, dtype=np.float32)
    searches = [
        Search(
            SearchSettings(kind=kind, num_simulations=40, stop_early=stop_early),
            batch_size=NUM_ROWS,
            num_actions=5,
        )
        for kind in ("puct", "gumbel")
        for stop_early in (False, True)
    ]
    legal = np.ones((NUM_ROWS, 5), bool)
    states = rng.integers(512, size=NUM_ROWS)
    actions = rng.integers(5, size=NUM_ROWS)
    outputs = []
    for search in searches:
        root = model.root(states, 41)
        search.begin(root, legal)
        for _ in range(12):  # too few for a row to stop
            selection = search.select()
            assert len(selection.row) == NUM_ROWS
            search.update(model.recurrent(selection))
        kept = search.keep_subtrees(actions)
        model.move_nodes(kept.source, kept.num_nodes)
        following = model.successor[states, actions]
        outputs.append(run(search, model, model.replant(following), legal, kept=True))
    for full, stopped in (outputs[:2], outputs[2:]):
        np.testing.assert_array_equal(full.best_action, stopped.best_action)
    assert outputs[1].num_simulations.sum() < 0.95 * outputs[0].num_simulations.sum()
