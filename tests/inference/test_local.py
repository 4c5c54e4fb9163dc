"""The inference copy against the training network in eval mode, row by row."""

import dataclasses
import threading

import numpy as np
import pytest
import torch

from mcts.base import Selection
from muzero.config.networks import MLPConfig, NetworkConfig, ResNetConfig
from muzero.inference import LocalModel
from muzero.inference.evaluators import ModuleEvaluator
from muzero.inference.fused import FusedMLP
from muzero.inference.fused_resnet import FusedResNet
from muzero.network import MuZeroNetwork, NetworkSpec, make_network

FLAT = NetworkSpec(observation_shape=(5,), num_actions=3)
BOARD = NetworkSpec(observation_shape=(2, 3, 4), num_actions=12, num_players=2)
TURNS = dataclasses.replace(BOARD, has_turn_head=True)
SMALL = {
    "value_support_size": 5,
    "value_support_max": 4.0,
    "reward_support_size": 3,
    "reward_support_max": 1.0,
}
RESNET = {"num_channels": 8, "num_blocks": 1, "head_channels": 2, "head_hidden_size": 6, **SMALL}
MLP = {"latent_size": 20, "hidden_sizes": [16], **SMALL}
CASES = [
    (MLPConfig(**MLP), FLAT),
    (MLPConfig(**{**MLP, "hidden_sizes": [24, 16, 12]}, residual_dynamics=True), TURNS),
    (
        MLPConfig(**{**MLP, "value_support_size": 601}),
        dataclasses.replace(FLAT, observation_scale=0.1),
    ),
    (ResNetConfig(**RESNET), BOARD),
    (ResNetConfig(**RESNET, norm="group"), TURNS),
    (ResNetConfig(**RESNET, norm="none", downsample=2), TURNS),
    (MLPConfig(**MLP), dataclasses.replace(BOARD, action_factors=(2, 3, 2))),
]
DISCOUNT = 0.75


def trained(config: NetworkConfig, spec: NetworkSpec, seed: int = 0) -> MuZeroNetwork:
    network = make_network(config, spec, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in network.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    observation = torch.from_numpy(observations(spec, 32))
    for _ in range(3):
        network.unroll(observation, torch.arange(64).view(2, 32) % spec.num_actions)
    return network.eval()


def evaluator_of(config: NetworkConfig) -> type:
    """Who serves a network on the CPU in float32."""
    if isinstance(config, MLPConfig):
        return FusedMLP
    return ModuleEvaluator if config.norm == "group" else FusedResNet


def observations(spec: NetworkSpec, number: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, (number, *spec.observation_shape)).astype(np.float32)


def model_of(network: MuZeroNetwork, batch_size: int = 6, **settings) -> LocalModel:
    options = {"num_nodes": 5, "discount": DISCOUNT, **settings}
    return LocalModel(network, batch_size=batch_size, **options)


def selections(spec: NetworkSpec, num_rows: int, seed: int = 0) -> list[Selection]:
    """Four steps whose parents are drawn among the nodes made before."""
    rng = np.random.default_rng(seed)
    return [
        Selection(
            np.arange(num_rows, dtype=np.int32),
            rng.integers(0, node, num_rows).astype(np.int32),
            rng.integers(0, spec.num_actions, num_rows).astype(np.int32),
            np.full(num_rows, node, np.int32),
        )
        for node in range(1, 5)
    ]


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_every_step_equals_the_training_network(config, spec):
    network = trained(config, spec)
    model = model_of(network)
    assert type(model._evaluator) is evaluator_of(config)
    close = {"rtol": 2e-4, "atol": 2e-5}
    with torch.no_grad():
        observation = observations(spec, 6)
        root = model.roots(observation)
        expected = network.initial_inference(torch.from_numpy(observation))
        np.testing.assert_allclose(root.prior_logits, expected.policy_logits, **close)
        value = network.value_support.decode(expected.value_logits)
        np.testing.assert_allclose(root.value, value, **close)

        latents = [expected.latent]
        for selection in selections(spec, 6):
            output = model.recurrent(selection)
            parents = torch.stack([latents[p][row] for row, p in enumerate(selection.parent)])
            expected = network.recurrent_inference(
                parents, torch.from_numpy(selection.action).long()
            )
            latents.append(expected.latent)
            reward = network.reward_support.decode(expected.reward_logits)
            value = network.value_support.decode(expected.value_logits)
            np.testing.assert_allclose(output.prior_logits, expected.policy_logits, **close)
            np.testing.assert_allclose(output.reward, reward, **close)
            np.testing.assert_allclose(output.value, value, **close)
            if spec.num_players == 1:
                discount = np.full(6, DISCOUNT)
            elif expected.turn_logit is None:
                discount = np.full(6, -DISCOUNT)
            else:
                discount = np.where(expected.turn_logit > 0, DISCOUNT, -DISCOUNT)
            np.testing.assert_array_equal(output.discount, discount.astype(np.float32))


def test_the_turn_head_gives_both_signs():
    model = model_of(trained(MLPConfig(**MLP), TURNS), batch_size=64)
    model.roots(observations(TURNS, 64))
    output = model.recurrent(selections(TURNS, 64)[0])
    assert set(output.discount.tolist()) == {DISCOUNT, -DISCOUNT}


@pytest.mark.parametrize(("config", "spec"), CASES)
@pytest.mark.parametrize("bfloat16", [False, True])
def test_rows_are_independent_and_may_be_fewer(config, spec, bfloat16):
    """Compiled evaluators: bit for bit, however many rows there are; modules up to rounding."""
    num_rows = 70  # more than pass the layers together
    network = trained(config, spec)
    together = model_of(network, num_rows, bfloat16=bfloat16)
    alone = model_of(network, num_rows, bfloat16=bfloat16)
    is_exact = not isinstance(together._evaluator, ModuleEvaluator)
    tolerance = {"rtol": 0.1, "atol": 0.3} if bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    shrinks = config.kind == "resnet" and config.downsample > 1

    def compare(some, of_all, exactly=is_exact):
        if exactly:
            np.testing.assert_array_equal(some, of_all)
        else:
            np.testing.assert_allclose(some, of_all, **tolerance)

    observation = observations(spec, num_rows)
    root = together.roots(observation)
    rows = slice(33, 52)
    root_alone = alone.roots(observation[rows])
    compare(root_alone.value, root.value[rows], is_exact and not shrinks)
    if shrinks:  # torch's own representation sums in an order that depends on the batch
        latents = together.latents(np.ones(num_rows, np.int32))[rows]
        alone.restore_latents(np.ones(19, np.int32), latents)
    for selection in selections(spec, num_rows):
        all_rows = together.recurrent(selection)
        places, *edges = (part[rows] for part in selection)
        some_rows = alone.recurrent(Selection(places - rows.start, *edges))
        for name in ("reward", "discount", "prior_logits", "value"):
            compare(getattr(some_rows, name), getattr(all_rows, name)[rows])


@pytest.mark.parametrize(("config", "spec"), CASES[:4])
def test_threads_share_the_rows_and_change_nothing(config, spec):
    num_rows = 150
    network = trained(config, spec)
    one, three = model_of(network, num_rows), model_of(network, num_rows, num_threads=3)
    for count in (num_rows, 100, 5):
        observation = observations(spec, count)
        np.testing.assert_array_equal(three.roots(observation).value, one.roots(observation).value)
        for selection in selections(spec, count):
            outputs = [model.recurrent(selection) for model in (three, one)]
            for name in ("reward", "discount", "prior_logits", "value"):
                np.testing.assert_array_equal(*(getattr(output, name) for output in outputs))


def test_running_statistics_are_part_of_the_weights():
    """A state with other statistics and equal weights gives what the training network in eval mode gives."""
    config, spec = CASES[3]
    network = trained(config, spec)
    model = model_of(network)
    observation = observations(spec, 6)
    before = model.roots(observation).prior_logits
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean += 0.3
                module.running_var *= 1.7
        model.load(network.state_dict(), 1)
        expected = network.initial_inference(torch.from_numpy(observation))
    after = model.roots(observation).prior_logits
    np.testing.assert_allclose(after, expected.policy_logits, rtol=2e-4, atol=2e-5)
    assert not np.allclose(before, after, atol=1e-2)


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_new_weights_are_taken_with_their_version(config, spec):
    old, new = trained(config, spec, 0), trained(config, spec, 5)
    model, fresh = model_of(old), model_of(new)
    assert model.version == 0
    state = {name: value.clone() for name, value in new.state_dict().items()}
    model.load(state, 17)
    observation = observations(spec, 6)
    assert model.version == 17
    assert np.array_equal(model.roots(observation).value, fresh.roots(observation).value)
    for selection in selections(spec, 6):
        a, b = model.recurrent(selection), fresh.recurrent(selection)
        assert np.array_equal(a.prior_logits, b.prior_logits)
        assert np.array_equal(a.reward, b.reward)
    # The copy neither follows nor touches what it was made from.
    for value in state.values():
        value.zero_()
    assert np.array_equal(model.values(observation), fresh.values(observation))
    assert np.array_equal(
        model_of(old).values(observation), model_of(trained(config, spec, 0)).values(observation)
    )


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_values_take_any_number_of_positions_and_leave_the_trees_alone(config, spec):
    model = model_of(trained(config, spec))
    observation = observations(spec, 6)
    root = model.roots(observation)
    selection = selections(spec, 6)[0]
    before = model.recurrent(selection).value.copy()
    many = observations(spec, 15, seed=1)
    values = model.values(many)
    for i in range(15):
        np.testing.assert_allclose(
            values[i], model.values(many[i : i + 1])[0], rtol=1e-4, atol=1e-5
        )
    assert np.array_equal(model.recurrent(selection).value, before)
    np.testing.assert_allclose(model.values(observation), root.value, rtol=1e-6)


def test_a_root_answer_is_the_callers_to_keep():
    model = model_of(trained(MLPConfig(**MLP), FLAT))
    root = model.roots(observations(FLAT, 6))
    kept = root.value.copy()
    model.roots(observations(FLAT, 6, seed=9))
    assert np.array_equal(root.value, kept)


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float32, np.float64])
def test_any_type_of_observation_is_read_alike(dtype):
    for config, spec in (CASES[0], CASES[3]):
        model = model_of(trained(config, spec))
        observation = observations(spec, 4) > 1.0
        expected = model.values(observation.astype(np.float32))
        assert np.array_equal(model.values(observation.astype(dtype)), expected)
        view = np.repeat(observation.astype(dtype), 2, axis=0)[::2]
        view.setflags(write=False)
        assert np.array_equal(model.values(view), expected)


def test_a_network_of_repeated_turns_needs_no_head_to_be_wrong_about():
    single = model_of(trained(MLPConfig(**MLP), FLAT))
    single.roots(observations(FLAT, 3))
    output = single.recurrent(selections(FLAT, 3)[0])
    assert output.discount.tolist() == [DISCOUNT] * 3


@pytest.mark.parametrize(("config", "spec"), CASES)
def test_bfloat16_is_close(config, spec):
    network = trained(config, spec)
    exact, rough = model_of(network), model_of(network, bfloat16=True)
    observation = observations(spec, 6)
    values = exact.roots(observation).value
    np.testing.assert_allclose(rough.roots(observation).value, values, atol=0.3, rtol=0.1)
    for selection in selections(spec, 6):
        a, b = exact.recurrent(selection), rough.recurrent(selection)
        assert b.reward.dtype == b.prior_logits.dtype == b.value.dtype == np.float32
        np.testing.assert_allclose(b.prior_logits, a.prior_logits, atol=0.5)
        np.testing.assert_allclose(b.reward, a.reward, atol=0.3)


def test_two_models_in_two_threads_do_not_meet():
    network = trained(MLPConfig(**MLP), FLAT)
    observation = observations(FLAT, 6)
    expected = model_of(network).roots(observation).value
    failures = []

    def search() -> None:
        model = model_of(network)
        for _ in range(50):
            if not np.array_equal(model.roots(observation).value, expected):
                failures.append(1)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_wrong_sizes_are_named():
    network = trained(MLPConfig(**MLP), FLAT)
    with pytest.raises(ValueError, match="room for batch_size 6"):
        model_of(network).roots(observations(FLAT, 7))
    with pytest.raises(ValueError, match=r"shape \[4\]; the network expects \[5\]"):
        model_of(network).roots(np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"targets.discount is 0"):
        LocalModel(network, batch_size=1, num_nodes=2, discount=0.0)
    with pytest.raises(ValueError, match="num_nodes is 0"):
        LocalModel(network, batch_size=1, num_nodes=0, discount=1.0)
