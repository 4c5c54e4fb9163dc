"""The rules valued by a network: one call for all leaves of a simulation, on what the game would show."""

import numpy as np
import torch

from mcts import Search, SearchSettings, run
from muzero.config.networks import MLPConfig
from muzero.envs.open_spiel import OpenSpielFrames, load_game
from muzero.envs.registry import make_rules
from muzero.evaluation.players import recent_positions
from muzero.inference import LocalModel, NetworkRulesModel
from muzero.network import NetworkSpec, make_network
from tests.inference.test_rules import GAMMA, config, openings


def network_model(settings, batch_size, num_nodes, seed=0):
    rules = make_rules(settings)
    spec = NetworkSpec(
        observation_shape=rules.spec.observation_shape,
        num_actions=rules.spec.num_actions,
        num_players=2,
    )
    small = MLPConfig(latent_size=12, hidden_sizes=[16], value_support_size=5)
    network = make_network(small, spec, seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():  # heads begin at 0
        parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    local = LocalModel(network, batch_size=batch_size, num_nodes=1, discount=GAMMA)
    return NetworkRulesModel(rules, local, num_nodes=num_nodes), network


def test_a_network_values_all_leaves_of_a_simulation_in_one_call():
    settings = config("tic_tac_toe", num_stacked_frames=2)
    model, network = network_model(settings, 8, 41)
    calls, shown = [], []
    predict = model.network.predict

    def counted(observation):
        calls.append(len(observation))
        shown.append(observation.copy())
        return predict(observation)

    model.network.predict = counted
    search = Search(SearchSettings(num_simulations=40), batch_size=8, num_actions=9)
    states = [*openings(settings, 4, 1), *openings(settings, 4, 5)]  # ends in some rows only
    frames = OpenSpielFrames(load_game(settings), settings)
    past = np.stack([np.concatenate(frames.frames(recent_positions(s, 2))) for s in states])
    root = model.roots(states, past)
    output = run(search, model, root, model.rules.legal(states))
    assert calls == [8] * 41
    assert (output.visits.sum(axis=1) == 40).all()
    # The tree holds what the network says of the observations that it was shown, step by step.
    twin, ended = LocalModel(network, batch_size=8, num_nodes=1, discount=GAMMA), 0
    for node in range(41):
        values = twin.roots(shown[node]).value
        is_open = shown[node].any(axis=tuple(range(1, shown[node].ndim)))
        np.testing.assert_array_equal(search.tree.raw_values[is_open, node], values[is_open])
        assert (search.tree.raw_values[~is_open, node] == 0).all()
        ended += int((~is_open).sum())
    assert ended > 0


def test_weights_and_their_version_go_to_the_network():
    model, network = network_model(config("tic_tac_toe"), 4, 5)
    other, _ = network_model(config("tic_tac_toe"), 4, 5, seed=1)
    observation = (np.random.default_rng(0).random((9, 4, 3, 3)) < 0.5).astype(np.float32)
    assert not np.array_equal(model.values(observation), other.values(observation))
    other.load(network.state_dict(), 12)
    assert (model.version, other.version) == (0, 12)
    assert np.array_equal(model.values(observation), other.values(observation))
