"""The tree below the action that was played becomes the tree of the next search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import RootOutput, Search, SearchSettings, draw_noise, run
from mcts.export import to_dict
from tests.oracles.table_game import (
    NUM_ACTIONS,
    NUM_ROWS,
    NUM_SIMULATIONS,
    draw_game,
    draw_legal,
    play,
    search_on,
)
from tests.oracles.table_model import TableModel

KINDS = ["puct", "gumbel"]


def without_names(record):
    """A subtree as it looks from its top: node indices and the edge that led there left out."""
    below = [
        {name: child[name] for name in ("action", "prior", "reward", "discount", "q")}
        | without_names(child)
        for child in record["children"]
    ]
    own = {name: record[name] for name in ("visits", "value", "network_value")}
    return own | {"children": sorted(below, key=lambda child: child["action"])}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_depth", [None, 3])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_kept_tree_is_the_subtree_of_the_export(kind, max_depth, num_threads):
    rng, search, model, states = draw_game(0, kind, max_depth=max_depth)
    search = Search(
        search.settings,
        batch_size=NUM_ROWS,
        num_actions=NUM_ACTIONS,
        num_threads=num_threads,
        min_rows_per_thread=1,
    )
    legal = draw_legal(rng, model, states)
    legal[2] &= np.arange(NUM_ACTIONS) == np.argmax(legal[2] & (model.logits[states[2]] > -np.inf))
    output = search_on(search, model, states, legal)
    actions = output.best_action.copy()
    actions[1] = -1
    actions[2] = np.argmin(legal[2])  # unvisited
    before = [to_dict(search.tree, row) for row in range(NUM_ROWS)]
    kept = search.keep_subtrees(actions)
    assert kept.source.shape == (NUM_ROWS, NUM_SIMULATIONS + 1)
    assert kept.source.dtype == kept.num_nodes.dtype == np.int32
    assert kept.num_nodes[[1, 2]].tolist() == [0, 0]
    assert (kept.source[[1, 2]] == -1).all()
    assert (search.tree.visits[[1, 2]] == 0).all()
    assert (search.tree.parents[[1, 2]] == -1).all()
    for row in (0, 3, 4, 5):
        (top,) = [child for child in before[row]["children"] if child["action"] == actions[row]]
        after = to_dict(search.tree, row)
        assert without_names(after) == without_names(top)
        num_nodes = kept.num_nodes[row]
        assert num_nodes > 1
        assert (kept.source[row, num_nodes:] == -1).all()
        sources = kept.source[row, :num_nodes]
        assert (sources[1:] >= np.arange(1, num_nodes)).all()
        assert len(set(sources.tolist())) == num_nodes
        assert sources[0] == top["node"]
        check_names(after, top, sources)
    depths = search.tree.depths
    assert depths[:, 0].max() == 0
    assert depths[0, 1] == 1


def check_names(after, before, sources):
    """A node's source is the node that it was."""
    assert sources[after["node"]] == before["node"]
    by_action = {child["action"]: child for child in before["children"]}
    for child in after["children"]:
        check_names(child, by_action[child["action"]], sources)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([None, 2, 4]),
    st.booleans(),
    st.sampled_from([0.0, 0.2]),
    st.integers(0, 2**32 - 1),
)
def test_chain_of_moves_keeps_the_numbers_of_visits(kind, max_depth, with_caps, fresh, seed):
    rng, search, model, states = draw_game(seed, kind, max_depth=max_depth)
    inherited = np.zeros(NUM_ROWS, int)
    for move in range(8):
        legal = draw_legal(rng, model, states)
        noise = draw_noise(search.settings, legal, rng)
        asked = np.full(NUM_ROWS, NUM_SIMULATIONS)
        if with_caps:
            asked = rng.integers(1, NUM_SIMULATIONS + 1, size=NUM_ROWS)
        kept_visits = search.tree.child_visits[:, 0] if move else np.zeros_like(legal, dtype=int)
        output = search_on(
            search, model, states, legal, noise, kept=move > 0, num_simulations=asked
        )
        stays = legal & (model.logits[states] > -np.inf)
        inherited = np.where(stays, kept_visits, 0).sum(axis=1)
        np.testing.assert_array_equal(output.num_simulations, np.maximum(1, asked - inherited))
        total = np.maximum(asked, inherited + 1)
        np.testing.assert_array_equal(output.visits.sum(axis=1), total)
        assert (output.visits[~stays] == 0).all()
        assert (output.policy[~stays] == 0).all()
        np.testing.assert_allclose(output.policy.sum(axis=1), 1, atol=1e-5)
        tree = search.tree
        np.testing.assert_array_equal(tree.visits[:, 0], total + 1)
        np.testing.assert_array_equal(tree.child_visits[:, 0], output.visits)
        assert tree.num_slots.max() <= NUM_SIMULATIONS + 1
        check_sound(tree, max_depth)
        np.testing.assert_allclose(
            output.value,
            (model.value[states] + (output.visits * tree.child_q[:, 0]).sum(axis=1)) / (total + 1),
            atol=1e-5,
        )
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in output.visits])
        actions[rng.random(NUM_ROWS) < fresh] = -1
        following = model.successor[states, np.maximum(actions, 0)]
        states = np.where(actions < 0, rng.integers(64, size=NUM_ROWS), following)
        kept = search.keep_subtrees(actions)
        model.move_nodes(kept.source, kept.num_nodes)


def check_sound(tree, max_depth):
    """Parents, depths and visits of every node fit together."""
    for row in range(tree.num_rows):
        visits, parents, depths = tree.visits[row], tree.parents[row], tree.depths[row]
        used = np.flatnonzero(visits)
        assert (parents[visits == 0] == -1).all()
        for node in used[1:]:
            assert visits[parents[node]] > 0
            assert depths[node] == depths[parents[node]] + 1
            assert tree.child_index[row, parents[node], tree.actions[row, node]] == node
        if max_depth is None:
            np.testing.assert_array_equal(
                visits[used], 1 + tree.child_visits[row, used].sum(axis=-1)
            )
        else:
            assert depths[used].max() <= max_depth
        q = tree.child_q[row][tree.child_visits[row] > 0]
        assert tree.rows[row, 0] <= q.min() + 1e-6
        assert tree.rows[row, 1] >= q.max() - 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_illegal_children_are_cut_off_and_their_slots_used_again(kind):
    settings = SearchSettings(kind=kind, num_simulations=30, max_num_considered_actions=2)
    search = Search(settings, batch_size=1, num_actions=3, dtype=np.float64)
    model = TableModel.draw(np.random.default_rng(2), num_actions=3)
    everything = np.ones((1, 3), bool)
    states = np.array([5])
    output = run(search, model, model.root(states, 31), everything)
    action = output.best_action
    states = play(search, model, states, action)
    children = to_dict(search.tree)["children"]
    assert len(children) >= 2
    cut, spared = children[0], children[1:]
    legal = everything.copy()
    legal[0, cut["action"]] = False
    search.begin(model.replant(states), legal, kept=True)
    tree = search.tree
    left = {child["action"]: without_names(child) for child in to_dict(tree)["children"]}
    assert left == {child["action"]: without_names(child) for child in spared}
    gone = []

    def collect(record):
        gone.append(record["node"])
        for child in record["children"]:
            collect(child)

    collect(cut)
    assert (tree.visits[0, gone] == 0).all()
    assert (tree.parents[0, gone] == -1).all()
    inherited = sum(child["visits"] for child in spared)
    new = []
    while (selection := search.select()) is not None:
        new.append(int(selection.node[0]))
        search.update(model.recurrent(selection))
    assert len(new) == 30 - inherited
    assert set(gone) < set(new)
    assert len(set(new)) == len(new)
    assert tree.num_nodes <= 31
    output = search.result()
    assert output.visits[0].sum() == 30
    assert output.visits[0, cut["action"]] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_absent_children_are_cut_off(kind):
    _, search, model, states = draw_game(4, kind)
    output = search_on(search, model, states, np.ones((NUM_ROWS, NUM_ACTIONS), bool))
    actions = output.best_action
    following = play(search, model, states, actions)
    most = np.argmax(search.tree.child_visits[:, 0], axis=1)
    root = model.replant(following)
    logits = root.prior_logits.copy()
    logits[np.arange(NUM_ROWS), most] = -np.inf
    # Row 0 has another action for sure.
    logits[0, (most[0] + 1) % NUM_ACTIONS] = 0.0
    legal = np.ones((NUM_ROWS, NUM_ACTIONS), bool)
    output = run(search, model, RootOutput(logits, root.value), legal, kept=True)
    assert (output.visits[np.arange(NUM_ROWS), most] == 0).all()
    assert (output.policy[np.arange(NUM_ROWS), most] == 0).all()
    assert (output.visits.sum(axis=1) == NUM_SIMULATIONS).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_start_afresh_and_searches_without_kept_are_plain_searches(kind):
    rng, search, model, states = draw_game(5, kind)
    legal = draw_legal(rng, model, states)
    search_on(search, model, states, legal)
    search.keep_subtrees(np.full(NUM_ROWS, -1))
    afresh = search_on(search, model, states, legal, kept=True)
    search.keep_subtrees(afresh.best_action)
    dropped = search_on(search, model, states, legal)
    fresh_search = Search(search.settings, batch_size=NUM_ROWS, num_actions=NUM_ACTIONS)
    fresh = search_on(fresh_search, model, states, legal)
    for output, tree in ((afresh, None), (dropped, search.tree)):
        for name in ("visits", "policy", "value", "qvalues", "best_action", "depth"):
            np.testing.assert_array_equal(getattr(output, name), getattr(fresh, name))
        assert (output.num_simulations == NUM_SIMULATIONS).all()
        if tree is not None:
            np.testing.assert_array_equal(tree.child_index, fresh_search.tree.child_index)


def test_calls_out_of_order_and_wrong_actions_are_refused():
    _, search, model, states = draw_game(10, "puct")
    legal = np.ones((NUM_ROWS, NUM_ACTIONS), bool)
    root = model.replant(states)
    with pytest.raises(RuntimeError, match="without a search that has begun"):
        search.keep_subtrees(np.zeros(NUM_ROWS, int))
    with pytest.raises(RuntimeError, match=r"begin\(kept=True\) without Search.keep_subtrees"):
        search.begin(root, legal, kept=True)
    output = run(search, model, root, legal)
    for actions, problem in (
        ([0] * (NUM_ROWS - 1), r"actions has shape \(5,\), expected \(6,\)"),
        ([0.0] * NUM_ROWS, "actions has dtype float64"),
        ([0, 0, 5, 0, 0, 0], r"actions of row 2 is 5: it must be -1 to 4, where -1 starts afresh"),
        ([0, 0, 0, -2, 0, 0], "actions of row 3 is -2"),
    ):
        with pytest.raises(ValueError, match=problem):
            search.keep_subtrees(np.array(actions))
    np.testing.assert_array_equal(search.result().visits, output.visits)
    search.keep_subtrees(output.best_action)
    for call in (search.select, search.result):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(RuntimeError, match="without a search that has begun"):
        search.keep_subtrees(output.best_action)
    few = RootOutput(root.prior_logits[:3], root.value[:3])
    with pytest.raises(ValueError, match="3 rows; subtrees were kept of 6"):
        search.begin(few, legal[:3], kept=True)
    bad = legal.copy()
    bad[2] = False
    with pytest.raises(ValueError, match="row 2: no legal action"):
        search.begin(root, bad, kept=True)
    # The trees may be half planted now, so they cannot be searched on.
    with pytest.raises(RuntimeError, match=r"without Search\.keep_subtrees"):
        search.begin(root, legal, kept=True)
    again = run(search, model, root, legal)
    np.testing.assert_array_equal(again.visits, output.visits)
