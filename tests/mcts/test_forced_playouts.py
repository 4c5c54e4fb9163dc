"""KataGo's forced playouts and policy target pruning (arXiv 1902.10565, section 3.2)."""

import math

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, draw_noise, run, select_actions
from tests.oracles.table_model import TableModel


class Bandit:
    """Each action pays its reward and ends the episode; uniform priors, value 0."""

    def __init__(self, rewards):
        self.rewards = np.asarray(rewards, np.float64)

    def recurrent(self, selection):
        zeros = np.zeros(len(selection.row))
        logits = np.zeros((len(zeros), len(self.rewards)))
        return ModelOutput(self.rewards[selection.action], zeros, logits, zeros)


def draw_case(seed, *, num_rows=16, num_actions=8, num_simulations=60, **options):
    rng = np.random.default_rng(seed)
    settings = SearchSettings(
        kind="puct", num_simulations=num_simulations, root_dirichlet_alpha=0.3, **options
    )
    model = TableModel.draw(rng, num_states=256, num_actions=num_actions, absent_fraction=0.1)
    legal = rng.random((num_rows, num_actions)) < 0.8
    states = rng.integers(256, size=num_rows)
    legal |= ~(legal & (model.logits[states] > -np.inf)).any(axis=1, keepdims=True)
    return settings, model, legal, draw_noise(settings, legal, rng, np.float64), states


@pytest.mark.parametrize(
    ("num_simulations", "visits"),
    # By hand: action 1 comes third, and then whenever its visits are below sqrt(2 * 0.5 * simulations so far).
    [(3, [2, 1]), (4, [2, 2]), (5, [3, 2]), (6, [3, 3]), (10, [7, 3]), (11, [7, 4]), (16, [12, 4])],
)
def test_bad_action_is_forced_and_then_pruned(num_simulations, visits):
    settings = SearchSettings(
        kind="puct",
        num_simulations=num_simulations,
        normalization="none",
        first_play_urgency="parent",
        forced_playouts=2.0,
    )
    search = Search(settings, batch_size=1, num_actions=2, dtype=np.float64)
    root = RootOutput(np.zeros((1, 2)), np.zeros(1))
    output = run(search, Bandit([1.0, -100.0]), root, np.ones((1, 2), bool))
    assert output.visits[0].tolist() == visits
    # 11 simulations: of 4 visits floor(sqrt(11)) = 3 are taken, and the one that is left is pruned with them.
    assert output.policy[0].tolist() == [1.0, 0.0]
    assert output.best_action[0] == 0


def test_playouts_that_puct_wants_stay_in_the_target():
    """Two actions alike: what is forced on one is what it would get anyway."""
    settings = SearchSettings(
        kind="puct", num_simulations=40, normalization="none", forced_playouts=2.0
    )
    search = Search(settings, batch_size=1, num_actions=2, dtype=np.float64)
    root = RootOutput(np.zeros((1, 2)), np.zeros(1))
    output = run(search, Bandit([0.5, 0.5]), root, np.ones((1, 2), bool))
    assert output.visits[0].tolist() == [20, 20]
    assert output.policy[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("factor", [0.5, 2.0, 8.0])
def test_visited_actions_below_their_number_come_first(factor):
    settings, model, legal, noise, states = draw_case(0, forced_playouts=factor)
    search = Search(settings, batch_size=16, num_actions=8, dtype=np.float64)
    search.begin(model.root(states, 61), legal, noise)
    priors = search.tree.priors[:, 0].copy()
    num_forced = 0
    for step in range(60):
        visits = search.tree.child_visits[:, 0]
        selection = search.select()
        wanting = (visits > 0) & (visits < np.sqrt(factor * priors * step))
        for row in np.flatnonzero(wanting.any(axis=1)):
            node, action = selection.parent[row], selection.action[row]
            while node != 0:
                action = search.tree.actions[row, node]
                node = search.tree.parents[row, node]
            assert action == np.argmax(wanting[row])
            num_forced += 1
        search.update(model.recurrent(selection))
    assert num_forced > 16 * 2
    if factor <= 2:  # above that more may be called for than there are simulations
        output = search.result()
        visited = output.visits > 0
        least = np.floor(np.sqrt(factor * priors * 60)) - 1
        assert (output.visits[visited] >= least[visited]).all()


@pytest.mark.parametrize("normalization", ["tree", "siblings", "bounds", "none"])
def test_target_is_pruned_by_the_papers_rule_and_visits_are_not(normalization):
    options = {"normalization": normalization, "value_min": -4.0, "value_max": 4.0}
    settings, model, legal, noise, states = draw_case(1, forced_playouts=2.0, **options)
    search = Search(settings, batch_size=16, num_actions=8, dtype=np.float64)
    output = run(search, model, model.root(states, 61), legal, noise)
    np.testing.assert_array_equal(output.visits, search.tree.child_visits[:, 0])
    np.testing.assert_array_equal(output.visits.sum(axis=1), 60)
    again = search.result()
    np.testing.assert_array_equal(again.policy, output.policy)
    np.testing.assert_array_equal(again.visits, output.visits)
    num_pruned = 0
    for row in range(16):
        q, priors = search.tree.child_q[row, 0], search.tree.priors[row, 0]
        counts = output.visits[row].copy()
        # The root's value is the mean over its network value and its visits; all normalisations but `none` scale it too.
        low, high = {
            "tree": (search.tree.rows[row, 0], search.tree.rows[row, 1]),
            "siblings": (
                min(output.value[row], q[counts > 0].min()),
                max(output.value[row], q[counts > 0].max()),
            ),
            "bounds": (-4.0, 4.0),
            "none": (0.0, 1.0),
        }[normalization]

        def puct(action, count, q=q, priors=priors, low=low, high=high):
            c = 1.25 + math.log((61 + 19652 + 1) / 19652)
            bonus = priors[action] * math.sqrt(61) / (1 + count) * c
            return (q[action] - low) / (high - low) + bonus

        best = output.best_action[row]
        assert counts[best] == counts.max()
        for action in np.flatnonzero(counts):
            if action == best:
                continue
            most = math.sqrt(2.0 * priors[action] * 60)
            taken = 0
            while (
                taken + 1 <= most
                and counts[action] > 0
                and puct(action, counts[action] - 1) < puct(best, counts[best])
            ):
                counts[action] -= 1
                taken += 1
            if taken > 0 and counts[action] == 1:
                counts[action] = 0
        np.testing.assert_allclose(output.policy[row], counts / counts.sum(), atol=1e-12)
        num_pruned += 60 - counts.sum()
    assert num_pruned > 16


def search_bandit_with_noise_on_the_last(forced_playouts):
    settings = SearchSettings(
        kind="puct",
        num_simulations=100,
        root_exploration_fraction=0.5,
        normalization="none",
        first_play_urgency="parent",
        forced_playouts=forced_playouts,
    )
    search = Search(settings, batch_size=1, num_actions=5, dtype=np.float64)
    root = RootOutput(np.log([[0.4, 0.3, 0.1, 0.1, 0.1]]), np.zeros(1))
    noise = np.array([[0.0, 0.0, 0.0, 0.0, 1.0]])
    return run(search, Bandit([0.9, 0.6, -1.0, -1.0, -3.0]), root, np.ones((1, 5), bool), noise)


def test_noise_on_a_bad_action_costs_simulations_and_leaves_no_trace_in_the_target():
    plain, forced = (search_bandit_with_noise_on_the_last(factor) for factor in (0.0, 2.0))
    assert forced.visits[0, 4] >= math.floor(math.sqrt(2.0 * 0.55 * 100)) - 1
    assert 1 <= plain.visits[0, 4] <= 2
    assert plain.policy[0, 4] > 0
    assert forced.policy[0, 4] == 0
    assert (forced.policy[0, :2] > 0).all()


def test_rows_that_are_not_explored_are_neither_forced_nor_pruned():
    settings, model, legal, noise, states = draw_case(3, forced_playouts=4.0)
    explored = np.arange(16) < 8
    search = Search(settings, batch_size=16, num_actions=8)
    mixed = run(search, model, model.root(states, 61), legal, noise, explored=explored)
    forced = run(search, model, model.root(states, 61), legal, noise)
    plain_settings = SearchSettings(kind="puct", num_simulations=60)
    plain_search = Search(plain_settings, batch_size=16, num_actions=8)
    plain = run(plain_search, model, model.root(states, 61), legal)
    for name in ("visits", "policy"):
        np.testing.assert_array_equal(getattr(mixed, name)[:8], getattr(forced, name)[:8])
        np.testing.assert_array_equal(getattr(mixed, name)[8:], getattr(plain, name)[8:])


def test_no_factor_is_the_plain_search():
    settings, model, legal, noise, states = draw_case(4, forced_playouts=0.0)
    tiny, *_ = draw_case(4, forced_playouts=1e-9)
    outputs = []
    for options in (settings, tiny):
        search = Search(options, batch_size=16, num_actions=8)
        outputs.append(run(search, model, model.root(states, 61), legal, noise))
    np.testing.assert_array_equal(outputs[0].visits, outputs[1].visits)
    np.testing.assert_allclose(outputs[0].policy, outputs[0].visits / 60, atol=1e-7)
    np.testing.assert_allclose(outputs[0].policy, outputs[1].policy, atol=1e-7)


def test_actions_are_drawn_from_the_pruned_target_if_asked_for():
    output = search_bandit_with_noise_on_the_last(2.0)
    legal = np.ones((1, 5), bool)
    pruned = (output.visits[0] > 0) & (output.policy[0] == 0)
    assert pruned.any()
    for temperature in (1.0, 0.5):
        drawn = np.zeros(5)
        for seed in range(4000):
            rng = np.random.default_rng(seed)
            action = select_actions(output, legal, temperature, rng, weights=output.policy)
            drawn[action[0]] += 1
        expected = output.policy[0] ** (1 / temperature)
        np.testing.assert_allclose(drawn / 4000, expected / expected.sum(), atol=0.03)
        assert (drawn[pruned] == 0).all()
    with pytest.raises(ValueError, match="weights must be at least 0"):
        select_actions(output, legal, 1.0, np.random.default_rng(0), weights=-output.policy)
