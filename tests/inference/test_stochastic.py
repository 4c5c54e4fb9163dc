"""A network with chance codes in searches: the model alone against the library's own alternation of two networks."""

import numpy as np
import pytest
import torch

from mcts import Search, SearchSettings, run
from mcts.base import Selection
from mcts.chance import AlternatingModel
from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.inference import StochasticLocalModel
from muzero.network import NetworkSpec, make_network

NUM_CODES, NUM_ACTIONS, NUM_SIMULATIONS = 7, 3, 24
CONFIGS = {
    "mlp": MLPConfig(latent_size=10, hidden_sizes=[16], num_chance_codes=NUM_CODES),
    "resnet": ResNetConfig(num_channels=8, num_blocks=1, num_chance_codes=NUM_CODES),
}


def network_of(name: str, *, num_players: int = 2, has_turn_head: bool = True, seed: int = 0):
    spec = NetworkSpec(
        observation_shape=(2, 3, 3),
        num_actions=NUM_ACTIONS,
        num_players=num_players,
        has_turn_head=has_turn_head,
        return_bounds=(-1.0, 1.0),
    )
    network = make_network(CONFIGS[name], spec, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return network.eval()


def model_of(network, batch_size: int = 5, **options) -> StochasticLocalModel:
    return StochasticLocalModel(
        network, batch_size=batch_size, num_nodes=NUM_SIMULATIONS + 1, discount=0.9, **options
    )


def observations(count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, 2, 3, 3)).astype(np.float32)


def search_of(kind: str, batch_size: int = 5) -> Search:
    settings = SearchSettings(
        kind=kind, num_simulations=NUM_SIMULATIONS, num_chance_outcomes=NUM_CODES
    )
    return Search(settings, batch_size=batch_size, num_actions=NUM_ACTIONS)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_search_is_that_of_the_librarys_alternation(name: str, kind: str) -> None:
    network, legal = network_of(name), np.ones((5, NUM_ACTIONS), bool)
    outputs = []
    for alternates_itself in (True, False):
        model, search = model_of(network), search_of(kind)
        root = model.roots(observations(5))
        asked = model if alternates_itself else AlternatingModel(model, search)
        outputs.append((run(search, asked, root, legal), search))
    (ours, own), (theirs, other) = outputs
    for field in ("visits", "policy", "value", "qvalues", "best_action", "depth"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), err_msg=field)
    for mine, other_array in zip(own.tree.arrays, other.tree.arrays, strict=True):
        np.testing.assert_array_equal(mine, other_array)
    assert ours.depth.max() > 2.5  # behind afterstates and states


@pytest.mark.parametrize("name", CONFIGS)
def test_edges_are_what_the_networks_say(name: str) -> None:
    network, model = network_of(name), model_of(network_of(name))
    seen = observations(5)
    root = model.roots(seen)
    rows, first, second = (np.full(5, number, np.int32) for number in (0, 1, 2))
    rows = np.arange(5, dtype=np.int32)
    action = np.array([0, 1, 2, 1, 0], np.int32)
    code = np.array([6, 0, 3, 3, 5], np.int32)
    to_afterstate = model.recurrent(Selection(rows, 0 * first, action, first))
    with torch.no_grad():
        latent = network.represent(torch.tensor(seen))
        afterstate = network.afterstate(latent, torch.tensor(action.astype(np.int64)))
        chance_logits, value_logits = network.predict_afterstate(afterstate)
        codes = torch.eye(NUM_CODES)[torch.tensor(code.astype(np.int64))]
        following, reward_logits, turn_logit = network.outcome(afterstate, codes)
        policy_logits, next_value_logits = network.predict(following)
    close = {"rtol": 1e-4, "atol": 1e-5}
    assert root.prior_logits.shape == (5, NUM_ACTIONS)
    np.testing.assert_allclose(to_afterstate.prior_logits, chance_logits, **close)
    value = network.value_support.decode(value_logits)
    np.testing.assert_allclose(to_afterstate.value, value, **close)
    assert (to_afterstate.reward == 0).all() and (to_afterstate.discount == 1).all()

    to_state = model.recurrent(Selection(rows, first, code, second))
    np.testing.assert_allclose(to_state.prior_logits[:, :NUM_ACTIONS], policy_logits, **close)
    assert np.isneginf(to_state.prior_logits[:, NUM_ACTIONS:]).all()
    value = network.value_support.decode(next_value_logits)
    np.testing.assert_allclose(to_state.value, value, **close)
    reward = network.reward_support.decode(reward_logits)
    np.testing.assert_allclose(to_state.reward, reward, **close)
    expected = np.where(turn_logit.numpy() > 0, np.float32(0.9), np.float32(-0.9))
    np.testing.assert_array_equal(to_state.discount, expected)


@pytest.mark.parametrize(("num_players", "discount"), [(1, 0.9), (2, -0.9)])
def test_without_a_turn_head_discounts_follow_the_players(
    num_players: int, discount: float
) -> None:
    model = model_of(network_of("mlp", num_players=num_players, has_turn_head=False))
    model.roots(observations(5))
    one = np.array([2], np.int32)
    assert model.recurrent(Selection(one, 0 * one, one, one - 1)).discount.tolist() == [1.0]
    output = model.recurrent(Selection(one, one - 1, one, one))
    assert output.discount.tolist() == pytest.approx([discount])


def test_rows_do_not_influence_each_other() -> None:
    network, seen = network_of("mlp"), observations(5)
    legal = np.ones((5, NUM_ACTIONS), bool)
    model = model_of(network)
    together = run(search_of("puct"), model, model.roots(seen), legal)
    for row in range(5):
        model = model_of(network, batch_size=1)
        alone = run(search_of("puct", 1), model, model.roots(seen[row : row + 1]), legal[:1])
        np.testing.assert_array_equal(alone.visits[0], together.visits[row])
        np.testing.assert_allclose(alone.value[0], together.value[row], rtol=1e-3, atol=1e-4)


def test_new_roots_forget_the_trees_before() -> None:
    network, legal = network_of("mlp"), np.ones((5, NUM_ACTIONS), bool)
    model, search = model_of(network), search_of("gumbel")
    run(search, model, model.roots(observations(5)), legal)
    again = run(search, model, model.roots(observations(4)), legal[:4])
    fresh = model_of(network)
    expected = run(search_of("gumbel"), fresh, fresh.roots(observations(4)), legal[:4])
    np.testing.assert_array_equal(again.visits, expected.visits)


def test_moved_nodes_stay_what_they_were() -> None:
    model = model_of(network_of("mlp"))
    model.roots(observations(5))
    row = np.zeros(1, np.int32)
    for parent, node in ((0, 1), (1, 2), (2, 3)):
        model.recurrent(Selection(row, row + parent, row, row + node))
    model.move_nodes(np.array([[2, 3]], np.int32), np.array([2], np.int32))
    output = model.recurrent(Selection(row, row + 1, row, row + 2))  # from an afterstate
    assert np.isneginf(output.prior_logits[0, NUM_ACTIONS:]).all()


def test_new_weights_are_those_of_another_network() -> None:
    first, second = network_of("resnet"), network_of("resnet", seed=1)
    model = model_of(first)
    model.load(second.state_dict(), 9)
    legal, expected = np.ones((5, NUM_ACTIONS), bool), model_of(second)
    left = run(search_of("puct"), model, model.roots(observations(5)), legal)
    right = run(search_of("puct"), expected, expected.roots(observations(5)), legal)
    np.testing.assert_array_equal(left.visits, right.visits)
    assert model.version == 9


def test_bfloat16_is_near_float32() -> None:
    network, legal = network_of("mlp"), np.ones((5, NUM_ACTIONS), bool)
    values = []
    for bfloat16 in (False, True):
        model = model_of(network, bfloat16=bfloat16)
        values.append(run(search_of("puct"), model, model.roots(observations(5)), legal).value)
    np.testing.assert_allclose(values[0], values[1], atol=0.1)
    assert not np.array_equal(*values)
