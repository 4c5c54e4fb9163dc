"""A network over a large action space, searched by samples: no code of its own is needed."""

import numpy as np

from mcts import (
    CategoricalSampler,
    SampledModel,
    Search,
    SearchSettings,
    Selection,
    draw_keys,
    run,
)
from muzero.config.networks import MLPConfig
from muzero.inference import LocalModel
from muzero.network import NetworkSpec, make_network


def test_a_local_model_over_many_actions_is_searched_by_samples():
    config = MLPConfig(
        latent_size=20,
        hidden_sizes=[16],
        value_support_size=5,
        value_support_max=4.0,
        reward_support_size=3,
        reward_support_max=1.0,
    )
    spec = NetworkSpec(observation_shape=(5,), num_actions=700)
    model = LocalModel(make_network(config, spec, 0), batch_size=6, num_nodes=31, discount=0.9)
    sampled = SampledModel(model, CategoricalSampler(700, 12), batch_size=6, num_nodes=31)
    search = Search(SearchSettings(num_simulations=30), batch_size=6, num_actions=12)
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(6, 5)).astype(np.float32)
    legal = rng.random((6, 700)) < 0.2
    root = model.roots(observation)
    roots, slots = sampled.roots(root, draw_keys(rng, 6), legal)
    output = run(search, sampled, roots, slots)
    assert (output.visits.sum(axis=1) == 30).all()
    assert legal[np.arange(6), sampled.actions_of(output.best_action)].all()
    # One step by hand: the latent of the root, the action of the slot, the prediction of the node.
    first = search.tree.actions[:, 1]
    reward = search.tree.rewards[:, 1]
    expected = by_hand(model, observation, sampled.actions_of(first))
    np.testing.assert_allclose(reward, expected, atol=1e-6)


def by_hand(model, observation, actions):
    model.roots(observation)
    rows = np.arange(len(actions), dtype=np.int32)
    zeros = np.zeros_like(rows)
    return model.recurrent(Selection(rows, zeros, actions, zeros + 1)).reward
