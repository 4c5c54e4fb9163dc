"""The compiled search with chance nodes against the naive one, whole trees, over random models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import Search, SearchSettings, draw_noise, run
from mcts.chance import AlternatingModel
from mcts.export import to_dict
from mcts.layout import HIGH, LOW
from tests.oracles.chance_table import ChanceTable
from tests.oracles.plain_chance import PlainChanceSearch

COMMON = {
    "num_simulations": st.integers(1, 60),
    "max_depth": st.one_of(st.none(), st.integers(1, 6)),
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
        "root_exploration_fraction": st.sampled_from([0.0, 0.25, 1.0]),
        "forced_playouts": st.sampled_from([0.0, 2.0]),
        **COMMON,
    }
)
GUMBEL = st.fixed_dictionaries(
    {
        "kind": st.just("gumbel"),
        "max_num_considered_actions": st.integers(1, 10),
        "gumbel_scale": st.sampled_from([0.0, 1.0]),
        "value_scale": st.sampled_from([0.1, 1.0]),
        "use_mixed_value": st.booleans(),
        **COMMON,
    }
)
MODEL = st.fixed_dictionaries(
    {
        "num_states": st.sampled_from([2, 10, 200]),
        "num_actions": st.integers(1, 8),
        "num_outcomes": st.integers(1, 8),
        "discount": st.sampled_from([0.0, 0.9, 1.0]),
        "players": st.sampled_from([1, 2, "mixed"]),
        "zero_reward": st.booleans(),
        "terminal_fraction": st.sampled_from([0.0, 0.2]),
        "value_scale": st.sampled_from([1.0, 30.0]),
        "absent_actions": st.sampled_from([0.0, 0.3]),
        "absent_outcomes": st.sampled_from([0.0, 0.4]),
    }
)


NUM_ROWS = 3


class ChanceDuel:
    """The search and its naive twin, move by move on the same positions."""

    def __init__(self, options, model_options, seed):
        self.rng = np.random.default_rng(seed)
        self.model = ChanceTable.draw(self.rng, **model_options)
        self.settings = SearchSettings(**options, num_chance_outcomes=self.model.num_outcomes)
        self.search = Search(
            self.settings,
            batch_size=NUM_ROWS,
            num_actions=self.model.num_actions,
            dtype=np.float64,
        )
        self.driver = AlternatingModel(self.model, self.search)
        self.states = self.rng.integers(len(self.model.value), size=NUM_ROWS)
        self.model.root(self.states, self.settings.num_simulations + 1)
        self.kept = [None] * NUM_ROWS

    def search_both(self, *, with_noise, with_caps):
        rng, model = self.rng, self.model
        root = model.replant(self.states)
        legal = rng.random(root.prior_logits.shape) < 0.7
        for row in range(NUM_ROWS):
            legal[row, rng.choice(np.flatnonzero(root.prior_logits[row] > -np.inf))] = True
        noise = draw_noise(self.settings, legal, rng, np.float64) if with_noise else None
        counts = np.full(NUM_ROWS, self.settings.num_simulations)
        if with_caps:
            counts = rng.integers(1, self.settings.num_simulations + 1, size=NUM_ROWS)
        is_kept = any(kept is not None for kept in self.kept)
        self.output = run(
            self.search, self.driver, root, legal, noise, num_simulations=counts, kept=is_kept
        )
        self.twins = [
            PlainChanceSearch(
                self.settings,
                model.plain_afterstate,
                model.plain_outcome,
                self.states[row],
                root.prior_logits[row].tolist(),
                float(root.value[row]),
                legal[row].tolist(),
                None if noise is None else noise[row].tolist(),
                num_simulations=counts[row],
                kept=self.kept[row],
            ).run()
            for row in range(NUM_ROWS)
        ]
        for row, twin in enumerate(self.twins):
            self.check_tree(to_dict(self.search.tree, row), twin.root)
            self.check_output(row, twin)

    def check_tree(self, record, node, depth=0):
        assert node.state[0] == ("chance" if depth % 2 else "decision")
        assert record["visits"] == node.visits
        assert record["value"] == pytest.approx(node.value, abs=1e-9)
        assert record["network_value"] == node.network_value
        children = {child["action"]: child for child in record["children"]}
        assert children.keys() == node.edges.keys()
        for branch, child in children.items():
            assert child["q"] == pytest.approx(node.q(branch), abs=1e-9)
            self.check_tree(child, node.edges[branch][2], depth + 1)

    def check_output(self, row, twin):
        output = self.output
        assert output.num_simulations[row] == twin.num_planned
        bounds = self.search.tree.rows[row, [LOW, HIGH]]
        assert bounds == pytest.approx([min(twin.seen), max(twin.seen)], abs=1e-9)
        assert output.visits[row].tolist() == twin.visit_counts()
        np.testing.assert_allclose(output.policy[row], twin.policy(), atol=1e-9)
        assert output.value[row] == pytest.approx(twin.root.value, abs=1e-9)
        assert output.depth[row] == pytest.approx(np.mean(twin.depths))
        best = twin.best_action()
        assert output.best_action[row] == best
        assert output.best_value[row] == pytest.approx(twin.root.q(best), abs=1e-9)

    def move_on(self):
        """Play a visited action in most rows, and let one of its outcomes come; the others begin afresh elsewhere."""
        actions = np.array([self.rng.choice(np.flatnonzero(row)) for row in self.output.visits])
        actions[self.rng.random(NUM_ROWS) < 0.2] = -1
        outcomes = self.rng.integers(-1, self.model.num_outcomes, size=NUM_ROWS)
        for row, (action, outcome) in enumerate(zip(actions, outcomes, strict=True)):
            self.kept[row] = None
            self.states[row] = self.rng.integers(len(self.model.value))
            if action >= 0:
                afterstate = self.twins[row].root.edges[action][2]
                if outcome in afterstate.edges:
                    self.kept[row] = afterstate.edges[outcome][2]
                    self.states[row] = self.kept[row].state[1]
        kept = self.search.keep_subtrees(actions, outcomes)
        self.model.move_nodes(kept.source, kept.num_nodes)


def check_indices(duel):
    """A tree that began afresh names its nodes by the simulation that made them."""
    tree = duel.search.tree
    for row, twin in enumerate(duel.twins):
        twin_nodes = {node.index: (node, parent, branch) for node, parent, branch in twin.nodes()}
        assert np.flatnonzero(tree.visits[row]).tolist() == sorted(twin_nodes)
        for index, (_, parent, branch) in twin_nodes.items():
            assert tree.parents[row, index] == parent
            assert tree.actions[row, index] == branch


@settings(max_examples=120, deadline=None)
@given(PUCT, MODEL, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_puct_with_chance_equals_its_plain_twin(
    options, model_options, with_noise, with_caps, seed
):
    duel = ChanceDuel(options, model_options, seed)
    duel.search_both(with_noise=with_noise, with_caps=with_caps)
    check_indices(duel)


@settings(max_examples=120, deadline=None)
@given(GUMBEL, MODEL, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_gumbel_with_chance_equals_its_plain_twin(
    options, model_options, with_noise, with_caps, seed
):
    duel = ChanceDuel(options, model_options, seed)
    duel.search_both(with_noise=with_noise, with_caps=with_caps)
    check_indices(duel)


@settings(max_examples=60, deadline=None)
@given(st.one_of(PUCT, GUMBEL), MODEL, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_chain_of_moves_with_kept_trees_and_chance_equals_its_plain_twin(
    options, model_options, with_noise, with_caps, seed
):
    duel = ChanceDuel(options, model_options, seed)
    for _ in range(4):
        duel.search_both(with_noise=with_noise, with_caps=with_caps)
        duel.move_on()
