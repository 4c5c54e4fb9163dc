"""Compiled networks with chance codes against torch's modules: edge by edge, and in whole searches."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from mcts import Search, SearchSettings, run
from mcts.base import Selection
from mcts.chance import AlternatingModel
from mcts.layout import DEPTH, FIRST_INT
from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.inference import LocalModel, StochasticLocalModel
from muzero.inference.fused import FusedStochasticMLP
from muzero.inference.local import make_evaluator
from muzero.inference.precision import bfloat16_unit
from muzero.inference.stochastic_evaluator import StochasticEvaluator
from muzero.network import NetworkSpec
from muzero.network.stochastic_mlp import StochasticMLP
from tests.inference.test_bfloat16 import ULP, rounding
from tests.inference.test_local import (
    BOARD,
    DISCOUNT,
    FLAT,
    RESNET,
    SMALL,
    TURNS,
    observations,
    trained,
)

NUM_CODES = 7
SIZES = {"latent_size": 20, "hidden_sizes": [16], "num_chance_codes": NUM_CODES, **SMALL}
CASES = [
    pytest.param(MLPConfig(**SIZES), FLAT, id="one player"),
    pytest.param(MLPConfig(**SIZES), BOARD, id="two players"),
    pytest.param(
        MLPConfig(**{**SIZES, "hidden_sizes": [24, 16, 12], "num_chance_codes": 33}),
        TURNS,
        id="turns",
    ),
    pytest.param(
        MLPConfig(**{**SIZES, "hidden_sizes": [33, 70]}, residual_dynamics=True),
        TURNS,
        id="residual",
    ),
    pytest.param(
        MLPConfig(**{**SIZES, "value_support_size": 601, "latent_size": 66}),
        dataclasses.replace(FLAT, observation_scale=0.1),
        id="601 atoms",
    ),
    pytest.param(
        MLPConfig(**SIZES), dataclasses.replace(TURNS, action_factors=(2, 3, 2)), id="factored"
    ),
]
NUM_NODES = 9
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def stochastic(config: MLPConfig, spec: NetworkSpec, seed: int = 0) -> StochasticMLP:
    network = trained(config, spec, seed)
    assert isinstance(network, StochasticMLP)
    return network


def model_of(network: StochasticMLP, batch_size: int = 6, **options) -> StochasticLocalModel:
    options = {"num_nodes": NUM_NODES, "discount": DISCOUNT, **options}
    return StochasticLocalModel(network, batch_size=batch_size, **options)


def edges(network: StochasticMLP, num_rows: int) -> list[tuple[Selection, np.ndarray]]:
    """Steps whose parents are drawn among the nodes made before, and which of these are afterstates."""
    rng = np.random.default_rng(num_rows)
    rows, is_afterstate = np.arange(num_rows), np.zeros((num_rows, NUM_NODES), bool)
    steps = []
    for node in range(1, NUM_NODES):
        parent = rng.integers(0, node, num_rows)
        from_afterstate = is_afterstate[rows, parent]
        is_afterstate[:, node] = ~from_afterstate
        most = np.where(from_afterstate, NUM_CODES, network.spec.num_actions)
        selection = (rows, parent, rng.integers(0, most), rows * 0 + node)
        steps.append((Selection(*(each.astype(np.int32) for each in selection)), from_afterstate))
    return steps


def follow(network: StochasticMLP, parents: Tensor, selection: Selection, outcome: np.ndarray):
    """What torch's modules say of edges, each row by the network that it needs: latents, and the fields of a `ModelOutput`."""
    choice = torch.from_numpy(selection.action).long()
    states, num_rows = torch.from_numpy(outcome), len(choice)
    width = max(network.spec.num_actions, network.num_chance_codes)
    logits = torch.full((num_rows, width), -torch.inf)
    reward, discount, value = torch.zeros(num_rows), torch.ones(num_rows), torch.zeros(num_rows)
    latents = torch.zeros_like(parents)
    acts = ~states
    with torch.no_grad():
        latents[acts] = network.afterstate(parents[acts], choice[acts])
        chance_logits, value_logits = network.predict_afterstate(latents[acts])
        logits[acts, : network.num_chance_codes] = chance_logits
        value[acts] = network.value_support.decode(value_logits)
        codes = torch.eye(network.num_chance_codes)[choice[states]]
        latents[states], reward_logits, turn = network.outcome(parents[states], codes)
        policy_logits, value_logits = network.predict(latents[states])
        logits[states, : network.spec.num_actions] = policy_logits
        value[states] = network.value_support.decode(value_logits)
        reward[states] = network.reward_support.decode(reward_logits)
    other_sign = -1.0 if network.spec.num_players == 2 else 1.0
    discount[states] = DISCOUNT * other_sign
    if turn is not None:
        discount[states] = torch.where(turn > 0, DISCOUNT, -DISCOUNT)
    return latents, (reward, discount, logits, value)


def walk(model: StochasticLocalModel, network: StochasticMLP, num_rows: int, **close) -> None:
    """Roots and steps of `model`, each against the modules of `network` from the same parents."""
    observation = observations(network.spec, num_rows)
    root = model.roots(observation)
    with torch.no_grad():
        expected = network.initial_inference(torch.from_numpy(observation))
    np.testing.assert_allclose(root.prior_logits, expected.policy_logits, **CLOSE)
    value = network.value_support.decode(expected.value_logits)
    np.testing.assert_allclose(root.value, value, **CLOSE)
    latents = [expected.latent]
    for selection, outcome in edges(network, num_rows):
        output = model.recurrent(selection)
        parents = torch.stack([latents[node][row] for row, node in enumerate(selection.parent)])
        latent, expected_output = follow(network, parents, selection, outcome)
        latents.append(latent)
        for name, wanted in zip(
            ("reward", "discount", "prior_logits", "value"), expected_output, strict=True
        ):
            np.testing.assert_allclose(getattr(output, name), wanted, **close, err_msg=name)
        found = model.read_nodes(selection.row, selection.node)
        np.testing.assert_allclose(found, latent, **close)


@pytest.mark.parametrize("num_rows", [1, 2, 7, 64, 65, 200])
@pytest.mark.parametrize(("config", "spec"), CASES)
def test_every_edge_is_what_torchs_modules_say(config, spec, num_rows) -> None:
    network = stochastic(config, spec)
    model = model_of(network, num_rows)
    assert type(model._evaluator) is FusedStochasticMLP
    walk(model, network, num_rows, **CLOSE)


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_new_weights_replace_all_of_the_old(config, spec) -> None:
    first, second = stochastic(config, spec), stochastic(config, spec, seed=1)
    model = model_of(first, 5)
    walk(model, first, 5, **CLOSE)
    model.load(second.state_dict(), 3)
    walk(model, second, 5, **CLOSE)
    with torch.no_grad():
        second.code.weight.zero_()  # the model has a copy of its own
    with pytest.raises(AssertionError):
        walk(model, second, 5, **CLOSE)


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize(("config", "spec"), CASES)
def test_neither_threads_nor_rows_beside_change_a_bit(config, spec, bfloat16) -> None:
    if bfloat16 and bfloat16_unit() is None:
        pytest.skip("this processor has neither AMX nor AVX512_BF16")
    network, num_rows = stochastic(config, spec), 200
    one, three, alone = (
        model_of(network, num_rows, num_threads=count, bfloat16=bfloat16) for count in (1, 3, 1)
    )
    observation = observations(spec, num_rows)
    for model in (one, three, alone):
        model.roots(observation)
    some = np.arange(0, num_rows, 19)
    for selection, _ in edges(network, num_rows):
        output, threaded = one.recurrent(selection), three.recurrent(selection)
        fewer = alone.recurrent(Selection(*(array[some] for array in selection)))
        for field in ("reward", "discount", "prior_logits", "value"):
            whole = getattr(output, field)
            np.testing.assert_array_equal(getattr(threaded, field), whole)
            np.testing.assert_array_equal(getattr(fewer, field), whole[some])
        latents = one.read_nodes(selection.row, selection.node)
        np.testing.assert_array_equal(three.read_nodes(selection.row, selection.node), latents)


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_a_model_without_chance_nodes_follows_the_most_likely_code(config, spec) -> None:
    network = stochastic(config, spec)
    model = LocalModel(network, batch_size=6, num_nodes=2, discount=DISCOUNT)
    assert type(model._evaluator) is FusedStochasticMLP
    observation = observations(spec, 6)
    model.roots(observation)
    rows = np.arange(6, dtype=np.int32)
    action = (rows % spec.num_actions).astype(np.int32)
    output = model.recurrent(Selection(rows, rows * 0, action, rows * 0 + 1))
    with torch.no_grad():
        latent = network.represent(torch.from_numpy(observation))
        expected = network.recurrent_inference(latent, torch.from_numpy(action).long())
    np.testing.assert_allclose(output.prior_logits, expected.policy_logits, **CLOSE)
    value = network.value_support.decode(expected.value_logits)
    np.testing.assert_allclose(output.value, value, **CLOSE)
    reward = network.reward_support.decode(expected.reward_logits)
    np.testing.assert_allclose(output.reward, reward, **CLOSE)
    np.testing.assert_allclose(model.read_nodes(rows, rows * 0 + 1), expected.latent, **CLOSE)


@pytest.mark.skipif(
    bfloat16_unit() is None, reason="this processor has neither AMX nor AVX512_BF16"
)
@pytest.mark.parametrize("num_rows", [1, 7, 33, 70])
@pytest.mark.parametrize(("config", "spec"), CASES)
def test_bfloat16_rounds_what_is_multiplied_and_nothing_else(config, spec, num_rows) -> None:
    """Sums in another order may round the other way: seldom, and by a unit or two."""
    network = stochastic(config, spec)
    model = model_of(network, num_rows, bfloat16=True)
    assert type(model._evaluator) is FusedStochasticMLP
    codes = network.code.weight.clone()
    exact, rounds = stochastic(config, spec), rounding(network)
    assert isinstance(rounds, StochasticMLP)
    rounds.code.weight.data = codes  # rows of a table, added in float32
    model.roots(observations(spec, num_rows))
    for selection, outcome in edges(network, num_rows):
        parents = torch.from_numpy(model.read_nodes(selection.row, selection.parent))
        output = model.recurrent(selection)
        latents = torch.from_numpy(model.read_nodes(selection.row, selection.node))
        expected, (reward, _, logits, value) = follow(rounds, parents, selection, outcome)
        unrounded, _ = follow(exact, parents, selection, outcome)
        error = (latents - expected).abs()
        assert error.max() <= 2 * ULP
        # Far below what the roundings themselves do.
        assert 10 * error.mean() < (latents - unrounded).abs().mean()
        near = {"atol": 0.02, "rtol": 0.02}
        np.testing.assert_allclose(output.prior_logits, logits, **near)
        np.testing.assert_allclose(output.reward, reward, **near)
        np.testing.assert_allclose(output.value, value, **near)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
@pytest.mark.parametrize(("config", "spec"), CASES)
def test_trees_are_those_of_torchs_modules_in_the_librarys_alternation(config, spec, kind) -> None:
    network, legal = stochastic(config, spec), np.ones((6, spec.num_actions), bool)
    settings = SearchSettings(
        kind=kind, num_simulations=80, num_chance_outcomes=network.num_chance_codes
    )
    outputs = []
    for is_compiled in (True, False):
        model = model_of(network, num_nodes=81)
        search = Search(settings, batch_size=6, num_actions=spec.num_actions)
        if not is_compiled:
            model._evaluator = StochasticEvaluator(network, torch.device("cpu"), torch.float32)
        root = model.roots(observations(spec, 6))
        asked = model if is_compiled else AlternatingModel(model, search)
        outputs.append((run(search, asked, root, legal), search))
    (ours, own), (theirs, other) = outputs
    for field in ("visits", "best_action", "depth"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), err_msg=field)
    for field in ("policy", "value", "qvalues"):
        np.testing.assert_allclose(
            getattr(ours, field), getattr(theirs, field), rtol=1e-3, atol=1e-4, err_msg=field
        )
    np.testing.assert_array_equal(own.tree.links, other.tree.links)
    depths = own.tree.links[..., DEPTH - FIRST_INT]
    assert depths.max() > 2  # behind afterstates and states


@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_log_says_whether_networks_run_compiled(caplog, is_compiled) -> None:
    config = MLPConfig(**SIZES) if is_compiled else ResNetConfig(**RESNET, num_chance_codes=7)
    with caplog.at_level("INFO"):
        evaluator = make_evaluator(
            trained(config, BOARD),
            torch.device("cpu"),
            4,
            bfloat16=False,
            cuda_graph=True,
            num_threads=1,
        )
    assert type(evaluator) is (FusedStochasticMLP if is_compiled else StochasticEvaluator)
    way = "compiled" if is_compiled else "as torch's modules"
    assert f"network.num_chance_codes: the networks of searches run {way}" in caplog.text
