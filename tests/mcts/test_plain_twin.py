"""The compiled search against the naive one, whole trees, over random models and chains of moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import Search, SearchSettings, draw_noise
from mcts.export import to_dict
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
        "forced_playouts": st.sampled_from([0.0, 0.0, 2.0, 10.0]),
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
        "absent_fraction": st.sampled_from([0.0, 0.0, 0.3, 0.8]),
    }
)
NUM_ROWS = 3


class Duel:
    """The search and its naive twin, move by move on the same positions."""

    def __init__(self, options, model_options, seed):
        self.rng = np.random.default_rng(seed)
        self.settings = SearchSettings(**options)
        self.model = TableModel.draw(self.rng, **model_options)
        self.num_actions = self.model.num_actions
        self.search = Search(
            self.settings, batch_size=NUM_ROWS, num_actions=self.num_actions, dtype=np.float64
        )
        self.states = self.rng.integers(len(self.model.value), size=NUM_ROWS)
        self.model.root(self.states, self.settings.num_simulations + 1)
        self.kept = [None] * NUM_ROWS

    def step(self, state, action):
        model = self.model
        following = model.successor[state, action]
        return (
            float(model.reward[state, action]),
            float(model.discount[state, action]),
            model.logits[following].tolist(),
            float(model.value[following]),
            following,
        )

    def search_both(self, *, with_noise, with_caps):
        rng, search = self.rng, self.search
        shape = (NUM_ROWS, self.num_actions)
        root = self.model.replant(self.states)
        exists = root.prior_logits > -np.inf
        legal = rng.random(shape) < 0.7
        for row in range(NUM_ROWS):
            legal[row, rng.choice(np.flatnonzero(exists[row]))] = True
        noise = draw_noise(self.settings, legal, rng, np.float64) if with_noise else None
        counts, explored = np.full(NUM_ROWS, self.settings.num_simulations), np.ones(NUM_ROWS, bool)
        if with_caps:
            counts = rng.integers(1, self.settings.num_simulations + 1, size=NUM_ROWS)
            explored = rng.random(NUM_ROWS) < 0.5
        search.begin(
            root,
            legal,
            noise,
            num_simulations=counts if with_caps else None,
            explored=explored if with_caps else None,
            kept=any(kept is not None for kept in self.kept),
        )
        while (selection := search.select()) is not None:
            search.update(self.model.recurrent(selection))
        self.output = search.result()
        self.twins = [
            PlainSearch(
                self.settings,
                self.step,
                self.states[row],
                root.prior_logits[row].tolist(),
                float(root.value[row]),
                legal[row].tolist(),
                None if noise is None else noise[row].tolist(),
                num_simulations=counts[row],
                is_explored=explored[row],
                kept=self.kept[row],
            ).run()
            for row in range(NUM_ROWS)
        ]
        for row in range(NUM_ROWS):
            self.check_tree(to_dict(search.tree, row), self.twins[row].root)
            self.check_output(row)

    def check_tree(self, record, node):
        assert record["visits"] == node.visits
        assert record["value"] == pytest.approx(node.value, abs=1e-9)
        assert record["network_value"] == node.network_value
        children = {child["action"]: child for child in record["children"]}
        assert children.keys() == node.edges.keys()
        for action, child in children.items():
            assert child["q"] == pytest.approx(node.q(action), abs=1e-9)
            self.check_tree(child, node.edges[action][2])

    def check_output(self, row):
        output, twin = self.output, self.twins[row]
        assert output.num_simulations[row] == twin.num_planned
        assert output.visits[row].tolist() == twin.visit_counts()
        assert output.value[row] == pytest.approx(twin.root.value, abs=1e-9)
        np.testing.assert_allclose(output.policy[row], twin.policy(), atol=1e-9)
        assert output.depth[row] == pytest.approx(np.mean(twin.depths))
        best = twin.best_action()
        assert output.best_action[row] == best
        assert output.best_value[row] == pytest.approx(twin.root.q(best), abs=1e-9)
        for action in range(self.num_actions):
            expected = twin.root.q(action) if action in twin.root.edges else twin.root.value
            assert output.qvalues[row, action] == pytest.approx(expected, abs=1e-9)

    def move_on(self):
        """Play a visited action in most rows; the others go to a position that has no tree."""
        actions = np.array([self.rng.choice(np.flatnonzero(row)) for row in self.output.visits])
        actions[self.rng.random(NUM_ROWS) < 0.2] = -1
        for row, action in enumerate(actions):
            self.kept[row] = None if action < 0 else self.twins[row].root.edges[action][2]
            fresh = self.rng.integers(len(self.model.value))
            self.states[row] = fresh if action < 0 else self.kept[row].state
        kept = self.search.keep_subtrees(actions)
        self.model.move_nodes(kept.source, kept.num_nodes)


def check_indices(duel):
    """A tree that began afresh names its nodes by the simulation that made them."""
    tree = duel.search.tree
    for row, twin in enumerate(duel.twins):
        twin_nodes = {node.index: (node, parent, action) for node, parent, action in twin.nodes()}
        for index in range(tree.num_nodes):
            if index not in twin_nodes:
                assert tree.visits[row, index] == 0
                assert tree.parents[row, index] == -1
                continue
            node, parent, action = twin_nodes[index]
            assert tree.parents[row, index] == parent
            assert tree.actions[row, index] == action
            children = [
                node.edges[a][2].index if a in node.edges else -1 for a in range(duel.num_actions)
            ]
            assert tree.child_index[row, index].tolist() == children


@settings(max_examples=120, deadline=None)
@given(PUCT, MODEL, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_puct_equals_its_plain_twin(options, model_options, with_noise, with_caps, seed):
    duel = Duel(options, model_options, seed)
    duel.search_both(with_noise=with_noise, with_caps=with_caps)
    check_indices(duel)


@settings(max_examples=120, deadline=None)
@given(GUMBEL, MODEL, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_gumbel_equals_its_plain_twin(options, model_options, with_noise, with_caps, seed):
    duel = Duel(options, model_options, seed)
    duel.search_both(with_noise=with_noise, with_caps=with_caps)
    check_indices(duel)


@settings(max_examples=60, deadline=None)
@given(st.one_of(PUCT, GUMBEL), MODEL, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_chain_of_moves_with_kept_trees_equals_its_plain_twin(
    options, model_options, with_noise, with_caps, seed
):
    duel = Duel(options, model_options, seed)
    for _ in range(4):
        duel.search_both(with_noise=with_noise, with_caps=with_caps)
        duel.move_on()
