"""Searches in trees that were kept: what they make of what they find."""

import numpy as np

from mcts import Search, SearchSettings, draw_noise, run
from mcts.export import to_dict
from tests.oracles.table_game import (
    NUM_ACTIONS,
    NUM_ROWS,
    NUM_SIMULATIONS,
    draw_game,
    play,
    search_on,
)
from tests.oracles.table_model import TableModel


def test_puct_searches_on_as_if_it_had_never_stopped():
    """With the state that the tree has seen as the new root, no noise, and q scaled within a node."""
    settings = SearchSettings(kind="puct", num_simulations=200, normalization="siblings")
    model = TableModel.draw(np.random.default_rng(6), num_actions=4, players=2)
    legal = np.ones((1, 4), bool)
    search = Search(settings, batch_size=1, num_actions=4, dtype=np.float64)
    output = run(search, model, model.root([3], 201), legal)
    action = output.best_action
    inherited = output.visits[0, action[0]] - 1
    state = play(search, model, np.array([3]), action)
    assert 20 < inherited < 180
    continued = run(search, model, model.replant(state), legal, kept=True)
    assert continued.num_simulations[0] == 200 - inherited
    whole = Search(settings, batch_size=1, num_actions=4, dtype=np.float64)
    expected = run(whole, model, model.root(state, 201), legal)
    np.testing.assert_array_equal(continued.visits, expected.visits)
    np.testing.assert_allclose(continued.value, expected.value, atol=1e-12)
    np.testing.assert_allclose(continued.qvalues, expected.qvalues, atol=1e-12)
    assert without_sums(to_dict(search.tree)) == without_sums(to_dict(whole.tree))


def without_sums(record):
    """Structure and visits."""
    children = sorted((child["action"], without_sums(child)) for child in record["children"])
    return record["visits"], children


def test_halving_spends_what_is_left_on_the_actions_alike():
    """Sequential halving counts the visits of its own search; the winner is one of those that it visited most."""
    rng, search, model, states = draw_game(7, "gumbel", max_num_considered_actions=4)
    legal = np.ones((NUM_ROWS, NUM_ACTIONS), bool)
    output = search_on(search, model, states, legal)
    following = play(search, model, states, output.best_action)
    before = search.tree.child_visits[:, 0]
    noise = draw_noise(search.settings, legal, rng)
    output = search_on(search, model, following, legal, noise, kept=True)
    stays = model.logits[following] > -np.inf
    new = output.visits - np.where(stays, before, 0)
    np.testing.assert_array_equal(new.sum(axis=1), output.num_simulations)
    assert (np.count_nonzero(new, axis=1) <= 4).all()
    best = new[np.arange(NUM_ROWS), output.best_action]
    np.testing.assert_array_equal(best, new.max(axis=1))
    assert (output.num_simulations < NUM_SIMULATIONS).all()


def test_first_round_of_halving_knows_the_q_of_kept_children():
    """Of actions alike in the prior, the one that is known to be good is considered first."""
    settings = SearchSettings(
        kind="gumbel", num_simulations=12, max_num_considered_actions=4, normalization="none"
    )
    search = Search(settings, batch_size=1, num_actions=4, dtype=np.float64)
    model = TableModel.draw(np.random.default_rng(8), num_actions=4, players=1)
    model.logits[:] = 0.0
    run(search, model, model.root([1], 13), np.ones((1, 4), bool))
    state = play(search, model, np.array([1]), search.result().best_action)
    q, visits = search.tree.child_q[0, 0], search.tree.child_visits[0, 0]
    search.begin(model.replant(state), np.ones((1, 4), bool), kept=True)
    mean = q[visits > 0].mean()
    value = model.value[state][0]
    mixed = (value + visits.sum() * mean) / (1 + visits.sum())
    completed = np.where(visits > 0, q, mixed)
    selection = search.select()
    node, first = int(selection.parent[0]), int(selection.action[0])
    while node != 0:
        first = int(search.tree.actions[0, node])
        node = int(search.tree.parents[0, node])
    assert first == np.argmax(completed)
    assert search.result().best_action[0] == first


def test_depth_is_that_of_the_new_simulations():
    _, search, model, states = draw_game(9, "puct")
    legal = np.ones((NUM_ROWS, NUM_ACTIONS), bool)
    output = search_on(search, model, states, legal)
    following = play(search, model, states, output.best_action)
    search.begin(model.replant(following), legal, kept=True)
    depths = [[] for _ in range(NUM_ROWS)]
    while (selection := search.select()) is not None:
        for row, parent in zip(selection.row, selection.parent, strict=True):
            depths[row].append(search.tree.depths[row, parent] + 1)
        search.update(model.recurrent(selection))
    output = search.result()
    assert [len(row) for row in depths] == output.num_simulations.tolist()
    np.testing.assert_allclose(output.depth, [np.mean(row) for row in depths], rtol=1e-6)
