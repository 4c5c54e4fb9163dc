"""Kept trees that were saved and restored are searched on as those that stayed in memory."""

import numpy as np
import pytest

from mcts import Search, SearchSettings, draw_noise, run
from mcts.layout import ACTION, BEST_UNVISITED, CHOICE, DEPTH, EDGE, FIRST_INT, NUM_CHILDREN, PARENT
from tests.oracles.table_model import TableModel

NUM_ROWS, NUM_ACTIONS, NUM_SIMULATIONS = 5, 4, 24


def make_search(**settings) -> Search:
    return Search(
        SearchSettings(num_simulations=NUM_SIMULATIONS, **settings),
        batch_size=NUM_ROWS,
        num_actions=NUM_ACTIONS,
        dtype=np.float64,
    )


def move_nodes(model: TableModel, kept) -> None:
    for row, count in enumerate(kept.num_nodes):
        model.nodes[row, :count] = model.nodes[row, kept.source[row, :count]]


def play(search: Search, model: TableModel, rng: np.random.Generator, states, kept: bool):
    """One move of every row: search, play the best action (row 0 starts afresh), keep the rest."""
    legal = (
        rng.random((NUM_ROWS, NUM_ACTIONS)) < 0.7
    )  # what was allowed inside the tree may be illegal here
    legal[np.arange(NUM_ROWS), rng.integers(NUM_ACTIONS, size=NUM_ROWS)] = True
    nodes = model.nodes.copy() if kept else None
    root = model.root(states, NUM_SIMULATIONS + 1)
    if nodes is not None:
        model.nodes[:, 1:] = nodes[:, 1:]
    noise = draw_noise(search.settings, legal, rng)
    output = run(search, model, root, legal, noise, kept=kept)
    actions = output.best_action.copy()
    following = model.successor[states, actions]
    actions[0] = -1
    move_nodes(model, search.keep_subtrees(actions))
    return output, following


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_restored_trees_are_searched_on_bit_for_bit(kind):
    search, rng = make_search(kind=kind), np.random.default_rng(1)
    model = TableModel.draw(rng, num_actions=NUM_ACTIONS, players=2)
    states = np.arange(NUM_ROWS)
    for move in range(8):
        _, states = play(search, model, rng, states, kept=move > 0)
    arrays = {name: array.copy() for name, array in search.kept_state().items()}
    assert arrays["num_nodes"][0] == 1 and arrays["num_nodes"][1:].max() > 3
    nodes, generator = model.nodes.copy(), rng.bit_generator.state
    restored = make_search(kind=kind)
    restored.restore_kept(arrays)
    for each in (search, restored):
        model.nodes[:] = nodes
        rng.bit_generator.state = generator
        at = states
        outputs = []
        for _ in range(3):
            output, at = play(each, model, rng, at, kept=True)
            outputs.append(output)
        if each is search:
            expected = outputs
    for ours, theirs in zip(outputs, expected, strict=True):
        for name in ("visits", "policy", "value", "qvalues", "best_action", "num_simulations"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    assert (expected[0].num_simulations < NUM_SIMULATIONS).any()  # something was kept


def saved() -> dict[str, np.ndarray]:
    search, rng = make_search(kind="puct"), np.random.default_rng(3)
    model = TableModel.draw(rng, num_actions=NUM_ACTIONS)
    play(search, model, rng, np.arange(NUM_ROWS), kept=False)
    return search.kept_state()


@pytest.mark.parametrize(
    "damage",
    [
        {EDGE: 1000},
        {EDGE: -1},
        {EDGE: 8},
        {NUM_CHILDREN: 1000},
        {NUM_CHILDREN: -1},
        {PARENT: 1000},
        {PARENT: "itself"},
        {ACTION: NUM_ACTIONS},
        {ACTION: -1},
        {CHOICE: 1000},
        {CHOICE: "itself"},
        {CHOICE: NUM_ACTIONS << 32},
        {BEST_UNVISITED: NUM_ACTIONS},
        {DEPTH: 5},
    ],
)
def test_links_that_a_kernel_could_not_trust_are_refused(damage):
    arrays = saved()
    first = int(arrays["num_nodes"][0])  # row 0 started afresh
    node = first + 1
    assert arrays["links"][node, PARENT - FIRST_INT] >= 0
    [(field, value)] = damage.items()
    arrays["links"][node, field - FIRST_INT] = 1 if value == "itself" else value
    with pytest.raises(ValueError, match="damaged"):
        make_search(kind="puct").restore_kept(arrays)


def test_trees_of_other_settings_are_refused():
    arrays = saved()
    wider = Search(SearchSettings(kind="puct"), batch_size=NUM_ROWS, num_actions=NUM_ACTIONS + 1)
    smaller = Search(
        SearchSettings(kind="puct", num_simulations=1),
        batch_size=NUM_ROWS,
        num_actions=NUM_ACTIONS,
        dtype=np.float64,
    )
    fewer_rows = Search(
        SearchSettings(kind="puct", num_simulations=NUM_SIMULATIONS),
        batch_size=NUM_ROWS - 1,
        num_actions=NUM_ACTIONS,
        dtype=np.float64,
    )
    for search in (wider, smaller, fewer_rows):
        with pytest.raises(ValueError, match="do not fit this search"):
            search.restore_kept(arrays)
    with pytest.raises(ValueError, match="do not fit this search"):
        make_search(kind="puct").restore_kept(arrays | {"links": arrays["links"][:-1]})


def test_nothing_is_saved_of_trees_that_were_not_kept():
    with pytest.raises(RuntimeError, match=r"kept_state without Search\.keep_subtrees"):
        make_search(kind="puct").kept_state()
