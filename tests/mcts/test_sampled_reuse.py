"""Subtree reuse over sampled actions: what stands in a kept tree are the actions that led there."""

import numpy as np
import pytest

from mcts import RootOutput, Search, SearchSettings, draw_noise
from mcts.counter_random import draw_keys
from mcts.sampled import SampledModel
from mcts.sampled_box import SquashedGaussianSampler
from mcts.sampled_categories import CategoricalSampler
from tests.oracles.sampled_cases import Indifferent
from tests.oracles.table_model import TableModel

KINDS = ["puct", "gumbel"]
NUM_ACTIONS, NUM_SAMPLES, NUM_SIMULATIONS = 30, 8, 40


class Game:
    """Rows that move through a table of states, each with a search that keeps its tree."""

    def __init__(self, kind, num_rows, seed=0):
        self.rng = np.random.default_rng(seed)
        self.model = TableModel.draw(self.rng, num_states=200, num_actions=NUM_ACTIONS)
        self.settings = SearchSettings(kind=kind, num_simulations=NUM_SIMULATIONS)
        size = {"batch_size": num_rows, "dtype": np.float64}
        sampler = CategoricalSampler(NUM_ACTIONS, NUM_SAMPLES, temperature=1.5)
        self.sampled = SampledModel(self.model, sampler, num_nodes=NUM_SIMULATIONS + 1, **size)
        self.search = Search(self.settings, num_actions=NUM_SAMPLES, **size)
        self.states = np.arange(num_rows)
        self.model.root(self.states, NUM_SIMULATIONS + 1)

    def search_roots(self, legal, *, kept):
        root = RootOutput(self.model.logits[self.states], self.model.value[self.states])
        self.model.nodes[:, 0] = self.states
        keys = draw_keys(self.rng, len(self.states))
        roots, slots = self.sampled.roots(root, keys, legal, kept=kept)
        noise = draw_noise(self.settings, slots, self.rng, np.float64)
        self.search.begin(roots, slots, noise, kept=kept)
        while (selection := self.search.select()) is not None:
            self.search.update(self.sampled.recurrent(selection))
        return self.search.result()

    def play(self, slots, legal):
        actions = self.sampled.actions_of(slots)
        slots = self.sampled.keepable(self.search.tree, slots, legal)
        self.states = self.model.successor[self.states, actions]
        kept = self.search.keep_subtrees(slots)
        self.sampled.move_nodes(kept.source, kept.num_nodes)
        for row, count in enumerate(kept.num_nodes):
            self.model.nodes[row, :count] = self.model.nodes[row, kept.source[row, :count]]
        return kept

    def check_tree(self):
        """Every edge's action leads from its parent's state to its node's."""
        tree, sampled = self.search.tree, self.sampled
        rows, nodes = np.nonzero(tree.parents >= 0)
        parents, slots = tree.parents[rows, nodes], tree.actions[rows, nodes]
        assert sampled.is_sampled[rows, parents, slots].all()
        states = self.model.nodes[rows, parents]
        following = self.model.successor[states, sampled.actions[rows, parents, slots]]
        np.testing.assert_array_equal(following, self.model.nodes[rows, nodes])
        return len(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_kept_trees_stand_on_the_actions_that_built_them(kind):
    num_rows = 12
    game = Game(kind, num_rows)
    everything = np.ones((num_rows, NUM_ACTIONS), bool)
    output = game.search_roots(everything, kept=False)
    num_inherited = 0
    for _ in range(5):
        legal = game.rng.random((num_rows, NUM_ACTIONS)) < 0.5
        legal[:, 0] = True
        played = output.best_action
        children = game.search.tree.child_index[np.arange(num_rows), 0, played]
        before = game.sampled.actions.copy()
        kept = game.play(played, legal)
        output = game.search_roots(legal, kept=True)
        is_kept = kept.num_nodes > 1
        assert is_kept.any()
        for row in np.flatnonzero(is_kept):
            np.testing.assert_array_equal(game.sampled.actions[row, 0], before[row, children[row]])
        assert game.check_tree() > 0
        played = game.sampled.actions_of(output.best_action)
        assert legal[np.arange(num_rows), played].all()
        num_inherited += (output.visits.sum(axis=1) - output.num_simulations).sum()
    assert num_inherited > 0


def test_prior_of_a_kept_root_is_that_of_the_new_policy():
    game = Game("puct", 6)
    everything = np.ones((6, NUM_ACTIONS), bool)
    output = game.search_roots(everything, kept=False)
    kept = game.play(output.best_action, None)
    rows = np.flatnonzero(kept.num_nodes > 1)
    assert len(rows) > 2
    old = game.model.logits[game.states]
    keys = draw_keys(game.rng, 6)
    # The policy that the samples came from gives the prior that they had.
    roots, slots = game.sampled.roots(RootOutput(old, np.zeros(6)), keys, kept=True)
    actions = game.sampled.actions[:, 0]
    pi = np.exp(old - np.log(np.exp(old).sum(axis=1, keepdims=True)))
    beta = np.exp(old / 1.5)
    beta /= beta.sum(axis=1, keepdims=True)
    taken = np.take_along_axis(pi, actions, axis=1) / np.take_along_axis(beta, actions, axis=1)
    multiplicity = np.exp(roots.prior_logits) / taken * NUM_SAMPLES
    np.testing.assert_allclose(multiplicity[rows], np.round(multiplicity[rows]), atol=1e-9)
    np.testing.assert_allclose(multiplicity[rows].sum(axis=1), NUM_SAMPLES)
    # Another policy: its own probabilities in the place of the old ones.
    game.sampled.move_nodes(kept.source * 0 + np.arange(41), kept.num_nodes)
    new = old + game.rng.normal(size=old.shape)
    again, _ = game.sampled.roots(RootOutput(new, np.zeros(6)), keys, kept=True)
    shift = np.take_along_axis(new - old, actions, axis=1)
    shift += np.log(np.exp(old).sum(axis=1) / np.exp(new).sum(axis=1))[:, None]
    used = slots[rows]
    np.testing.assert_allclose(
        again.prior_logits[rows][used], (roots.prior_logits + shift)[rows][used]
    )
    assert (again.prior_logits[rows][~used] == -np.inf).all()


def test_rows_without_a_legal_kept_action_start_afresh():
    game = Game("puct", 4)
    everything = np.ones((4, NUM_ACTIONS), bool)
    output = game.search_roots(everything, kept=False)
    children = game.search.tree.child_index[np.arange(4), 0, output.best_action]
    legal = everything.copy()
    legal[2, game.sampled.actions[2, children[2]]] = False
    slots = game.sampled.keepable(game.search.tree, output.best_action, legal)
    assert slots[2] == -1
    others = [0, 1, 3]
    np.testing.assert_array_equal(slots[others], output.best_action[others])
    unplayed = np.where(np.arange(4) == 1, -1, output.best_action)
    assert game.sampled.keepable(game.search.tree, unplayed)[1] == -1
    kept = game.play(output.best_action, legal)
    assert kept.num_nodes[2] == 0
    output = game.search_roots(legal, kept=True)
    assert legal[2, game.sampled.actions_of(output.best_action)[2]]
    assert output.num_simulations[2] == NUM_SIMULATIONS
    game.check_tree()


def test_a_kept_root_without_a_legal_action_is_named():
    game = Game("puct", 3)
    output = game.search_roots(np.ones((3, NUM_ACTIONS), bool), kept=False)
    kept = game.play(output.best_action, None)
    row = int(np.argmax(kept.num_nodes > 1))
    legal = np.ones((3, NUM_ACTIONS), bool)
    legal[row, game.sampled.actions[row, 0]] = False
    root = RootOutput(game.model.logits[game.states], np.zeros(3))
    with pytest.raises(ValueError, match=f"row {row}: none of the kept actions is legal"):
        game.sampled.roots(root, draw_keys(game.rng, 3), legal, kept=True)


def test_kept_roots_need_moved_nodes():
    game = Game("puct", 3)
    output = game.search_roots(np.ones((3, NUM_ACTIONS), bool), kept=False)
    root = RootOutput(game.model.logits[:3], np.zeros(3))
    keys = draw_keys(game.rng, 3)
    with pytest.raises(RuntimeError, match="without move_nodes"):
        game.sampled.roots(root, keys, kept=True)
    game.play(output.best_action, None)
    two = RootOutput(root.prior_logits[:2], root.value[:2])
    with pytest.raises(ValueError, match="root has 2 rows; subtrees were kept of 3"):
        game.sampled.roots(two, keys[:2], kept=True)


def test_box_actions_are_kept_too():
    rng = np.random.default_rng(1)
    sampler = SquashedGaussianSampler([-1.0, 0.0], [1.0, 2.0], 6, wide_share=0.5)
    policy = rng.normal(size=4) * 0.3
    settings = SearchSettings(kind="puct", num_simulations=30)
    sampled = SampledModel(Indifferent(policy), sampler, batch_size=5, num_nodes=31)
    search = Search(settings, batch_size=5, num_actions=6)
    root = RootOutput(np.tile(policy, (5, 1)), np.zeros(5))
    roots, slots = sampled.roots(root, draw_keys(rng, 5))
    search.begin(roots, slots)
    while (selection := search.select()) is not None:
        search.update(sampled.recurrent(selection))
    played = search.result().best_action
    children = search.tree.child_index[np.arange(5), 0, played]
    before, priors = sampled.actions.copy(), search.tree.priors.copy()
    np.testing.assert_array_equal(sampled.keepable(search.tree, played), played)
    kept = search.keep_subtrees(played)
    sampled.move_nodes(kept.source, kept.num_nodes)
    roots, slots = sampled.roots(root, draw_keys(rng, 5), kept=True)
    search.begin(roots, slots, kept=True)
    for row in np.flatnonzero(kept.num_nodes > 1):
        np.testing.assert_array_equal(sampled.actions[row, 0], before[row, children[row]])
        # The policy is the same, so the prior is.
        np.testing.assert_allclose(
            search.tree.priors[row, 0], priors[row, children[row]], atol=1e-5
        )
