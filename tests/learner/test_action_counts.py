"""Any number of actions is searched and learned (peers, row 33)."""

import numpy as np
import pytest
import torch

from mcts import Search, SearchSettings, draw_noise, run
from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.config.schema import LearnerConfig
from muzero.inference.local import LocalModel
from muzero.learner import Learner
from muzero.learner.inputs import to_inputs
from muzero.learner.loss import LossWeights, compute_loss
from muzero.network import NetworkSpec, make_network

FLAT, BOARD = (
    MLPConfig(latent_size=8, hidden_sizes=[12]),
    ResNetConfig(num_channels=4, num_blocks=1),
)
CASES = [(FLAT, (6,)), (BOARD, (2, 3, 3))]


@pytest.mark.parametrize("num_actions", [1, 2, 18, 1_000])
@pytest.mark.parametrize(("config", "shape"), CASES, ids=["mlp", "resnet"])
def test_policy_is_learned(make_batch, config, shape, num_actions):
    spec = NetworkSpec(observation_shape=shape, num_actions=num_actions)
    network, batch = make_network(config, spec, 0), make_batch(spec)
    inputs = to_inputs(batch, None, torch.device("cpu"), with_next_observation=False)
    compute_loss(network, inputs, LossWeights(value=0.0, reward=0.0)).total.backward()
    moved = [p for p in network.parameters() if p.grad is not None and bool(p.grad.any())]
    # With one action there is nothing to choose: its probability is 1 whatever the logit.
    assert bool(moved) == (num_actions > 1)
    report = Learner(network, LearnerConfig(num_unroll_steps=3)).step(batch)
    assert not report.skipped and np.isfinite(report.metrics["loss"])


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
@pytest.mark.parametrize("num_actions", [1, 2, 18, 1_000])
def test_search_keeps_to_action_ids(kind, num_actions):
    """Only the last action and the first are legal; nothing is ever given to another id."""
    spec = NetworkSpec(observation_shape=(6,), num_actions=num_actions)
    settings = SearchSettings(kind=kind, num_simulations=8)
    model = LocalModel(
        make_network(FLAT, spec, 0),
        batch_size=3,
        num_nodes=9,
        discount=0.99,
        device=torch.device("cpu"),
    )
    search = Search(settings, batch_size=3, num_actions=num_actions)
    legal = np.zeros((3, num_actions), bool)
    legal[:, [0, -1]] = True
    legal[2, 0] = num_actions == 1
    noise = draw_noise(settings, legal, np.random.default_rng(0))
    observation = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    output = run(search, model, model.roots(observation), legal, noise)
    assert output.policy.shape == (3, num_actions)
    assert not output.policy[~legal].any() and not output.visits[~legal].any()
    assert output.best_action[2] == num_actions - 1
    assert np.isfinite(output.qvalues[legal]).all()
