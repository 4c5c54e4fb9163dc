"""Searches over sampled actions on problems whose answer is known."""

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, SearchSettings
from mcts.counter_random import draw_keys
from mcts.sampled_box import SquashedGaussianSampler
from mcts.sampled_categories import CategoricalSampler
from tests.oracles.sampled_cases import Indifferent, search_sampled

KINDS = ["puct", "gumbel"]


@pytest.mark.parametrize(("temperature", "num_samples"), [(1.0, 20), (2.0, 40), (np.inf, 200)])
def test_target_is_on_average_the_policy_when_all_actions_are_equal(temperature, num_samples):
    """The fixed point of training. A prior that counts the policy twice makes the policy sharper at every search."""
    pi = np.array([0.4, 0.2, 0.2, 0.1, 0.05, 0.05])
    num_rows = 400
    search_settings = SearchSettings(kind="puct", num_simulations=120)
    sampler = CategoricalSampler(6, num_samples, temperature=temperature)
    root = RootOutput(np.tile(np.log(pi), (num_rows, 1)), np.zeros(num_rows))
    keys = draw_keys(np.random.default_rng(1), num_rows)
    sampled, _, output = search_sampled(
        search_settings, Indifferent(np.log(pi)), sampler, root, keys
    )
    target = sampled.target(output)
    mean = np.zeros(6)
    np.add.at(mean, target.actions, target.policy / num_rows)
    np.testing.assert_allclose(mean, pi, atol=0.015)
    twice = pi**2 / (pi**2).sum()
    assert np.abs(twice - pi).max() > 0.2


class Box:
    """A box to act in, once: pays minus the squared distance from the target. The prior is wide, the value 0."""

    def __init__(self, target, log_std=0.0):
        self.target = np.asarray(target)
        self.policy = np.concatenate([np.zeros(len(target)), np.full(len(target), log_std)])

    def root(self, num_rows):
        return RootOutput(np.tile(self.policy, (num_rows, 1)), np.zeros(num_rows))

    def recurrent(self, selection):
        assert selection.action.dtype == np.float32
        assert selection.action.shape == (len(selection.row), len(self.target))
        reward = -((selection.action - self.target) ** 2).sum(axis=1)
        zeros = np.zeros(len(reward))
        return ModelOutput(reward, zeros, np.tile(self.policy, (len(reward), 1)), zeros)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [[0.3], [0.3, -0.6]])
def test_best_action_approaches_the_optimum_of_a_box(kind, target):
    num_rows = 64
    box = Box(target)
    distances = []
    for num_samples, num_simulations in ((2, 8), (8, 64), (32, 256)):
        # An action that has not been tried is as good as the position: all of these even priors get their trial.
        search_settings = SearchSettings(
            kind=kind,
            num_simulations=num_simulations,
            max_num_considered_actions=num_samples,
            first_play_urgency="parent",
            value_scale=1.0,
        )
        sampler = SquashedGaussianSampler([-1.0] * len(target), [1.0] * len(target), num_samples)
        keys = draw_keys(np.random.default_rng(2), num_rows)
        sampled, _, output = search_sampled(search_settings, box, sampler, box.root(num_rows), keys)
        best = sampled.actions_of(output.best_action)
        distance = np.linalg.norm(best - box.target, axis=1)
        # The search finds the best of its samples.
        errors = np.linalg.norm(sampled.actions[:, 0] - box.target, axis=2)
        np.testing.assert_array_equal(distance, errors.min(axis=1))
        distances.append(distance.mean())
    assert distances[0] > 1.5 * distances[1] > 3 * distances[2]
    assert distances[2] < (0.05 if len(target) == 1 else 0.2)


class Walk:
    """Two steps of at most 1 each; the second pays minus the squared distance of their sum from 1.5."""

    def __init__(self, num_rows, num_nodes):
        self.places = np.zeros((num_rows, num_nodes))
        self.depths = np.zeros((num_rows, num_nodes), int)

    def recurrent(self, selection):
        row, parent, action, node = selection
        self.places[row, node] = self.places[row, parent] + action[:, 0]
        depth = self.depths[row, node] = self.depths[row, parent] + 1
        reward = np.where(depth == 2, -((self.places[row, node] - 1.5) ** 2), 0.0)
        discount = np.where(depth >= 2, 0.0, 1.0)
        return ModelOutput(reward, discount, np.zeros((len(row), 2)), np.full(len(row), -1.5))


def test_search_plans_a_first_step_that_only_pays_with_the_second():
    num_rows, num_simulations = 32, 400
    search_settings = SearchSettings(
        kind="puct", num_simulations=num_simulations, first_play_urgency="parent"
    )
    sampler = SquashedGaussianSampler([-1.0], [1.0], 20)
    walk = Walk(num_rows, num_simulations + 1)
    root = RootOutput(np.zeros((num_rows, 2)), np.full(num_rows, -1.5))
    keys = draw_keys(np.random.default_rng(3), num_rows)
    sampled, _, output = search_sampled(search_settings, walk, sampler, root, keys)
    first = sampled.actions_of(output.best_action)[:, 0]
    # From below 0.5, 1.5 is out of reach; two thirds of the samples are there.
    assert (sampled.actions[:, 0] > 0.5).mean() < 0.4
    assert (first > 0.5).mean() > 0.95
