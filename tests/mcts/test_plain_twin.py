"""The compiled search against the naive one, whole trees, over random models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import Search, SearchSettings, draw_noise, run
from tests.oracles.plain_search import PlainSearch
from tests.oracles.table_model import TableModel

COMMON = {
    "num_simulations": st.integers(1, 40),
    "max_depth": st.one_of(st.none(), st.integers(1, 5)),
    "normalization": st.sampled_from(["tree", "siblings", "bounds", "none"]),
    "min_value_range": st.sampled_from([0.0, 0.01, 0.5]),
    "value_min": st.sampled_from([-3.0, -1.0]),
    "value_max": st.sampled_from([1.0, 2.5]),
}
PUCT = st.fixed_dictionaries(
    {
        "kind": st.just("puct"),
        "first_play_urgency": st.sampled_from(["minimum", "parent", "mean"]),
        "pb_c_init": st.sampled_from([0.5, 1.25, 3.0]),
        "pb_c_base": st.sampled_from([20.0, 19652.0]),
        "root_exploration_fraction": st.sampled_from([0.0, 0.25, 1.0]),
        **COMMON,
    }
)
GUMBEL = st.fixed_dictionaries(
    {
        "kind": st.just("gumbel"),
        "max_num_considered_actions": st.integers(1, 10),
        "gumbel_scale": st.sampled_from([0.0, 0.5, 1.0]),
        "value_scale": st.sampled_from([0.1, 1.0]),
        "maxvisit_init": st.sampled_from([20.0, 50.0]),
        "use_mixed_value": st.booleans(),
        **COMMON,
    }
)
MODEL = st.fixed_dictionaries(
    {
        "num_states": st.sampled_from([2, 10, 200]),
        "num_actions": st.integers(1, 8),
        "discount": st.sampled_from([0.0, 0.9, 1.0]),
        "players": st.sampled_from([1, 2, "mixed"]),
        "zero_reward": st.booleans(),
        "terminal_fraction": st.sampled_from([0.0, 0.2]),
        "value_scale": st.sampled_from([1.0, 30.0]),
    }
)


def check_against_twin(options, model_options, with_noise, seed):
    rng = np.random.default_rng(seed)
    search_settings = SearchSettings(**options)
    model = TableModel.draw(rng, **model_options)
    num_rows, num_actions = 3, model.num_actions
    legal = rng.random((num_rows, num_actions)) < 0.7
    legal[np.arange(num_rows), rng.integers(num_actions, size=num_rows)] = True
    noise = draw_noise(search_settings, legal, rng, np.float64) if with_noise else None
    states = rng.integers(len(model.value), size=num_rows)
    search = Search(search_settings, batch_size=num_rows, num_actions=num_actions, dtype=np.float64)
    root = model.root(states, search_settings.num_simulations + 1)
    output = run(search, model, root, legal, noise)

    def step(state, action):
        following = model.successor[state, action]
        return (
            float(model.reward[state, action]),
            float(model.discount[state, action]),
            model.logits[following].tolist(),
            float(model.value[following]),
            following,
        )

    tree = search.tree
    for row in range(num_rows):
        twin = PlainSearch(
            search_settings,
            step,
            states[row],
            root.prior_logits[row].tolist(),
            float(root.value[row]),
            legal[row].tolist(),
            None if noise is None else noise[row].tolist(),
        ).run()
        twin_nodes = {node.index: (node, parent, action) for node, parent, action in twin.nodes()}
        for index in range(tree.num_nodes):
            if index not in twin_nodes:
                assert tree.visits[row, index] == 0
                assert tree.parents[row, index] == -1
                continue
            node, parent, action = twin_nodes[index]
            assert tree.parents[row, index] == parent
            assert tree.actions[row, index] == action
            assert tree.visits[row, index] == node.visits
            assert tree.values[row, index] == pytest.approx(node.value, abs=1e-9)
            children = [
                node.edges[a][2].index if a in node.edges else -1 for a in range(num_actions)
            ]
            assert tree.child_index[row, index].tolist() == children
        assert output.visits[row].tolist() == twin.visit_counts()
        assert output.value[row] == pytest.approx(twin.root.value, abs=1e-9)
        np.testing.assert_allclose(output.policy[row], twin.policy(), atol=1e-9)
        assert output.depth[row] == pytest.approx(np.mean(twin.depths))
        best = twin.best_action()
        assert output.best_action[row] == best
        assert output.best_value[row] == pytest.approx(twin.root.q(best), abs=1e-9)
        for action in range(num_actions):
            expected = twin.root.q(action) if action in twin.root.edges else twin.root.value
            assert output.qvalues[row, action] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=120, deadline=None)
@given(PUCT, MODEL, st.booleans(), st.integers(0, 2**32 - 1))
def test_puct_equals_its_plain_twin(options, model_options, with_noise, seed):
    check_against_twin(options, model_options, with_noise, seed)


@settings(max_examples=120, deadline=None)
@given(GUMBEL, MODEL, st.booleans(), st.integers(0, 2**32 - 1))
def test_gumbel_equals_its_plain_twin(options, model_options, with_noise, seed):
    check_against_twin(options, model_options, with_noise, seed)
