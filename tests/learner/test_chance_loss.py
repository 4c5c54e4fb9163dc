"""The chance loss against a naive transcription of the paper in float64, and what its parts may move."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from muzero.config.networks import MLPConfig
from muzero.config.schema import LearnerConfig
from muzero.learner import Learner
from muzero.learner.chance_loss import edge_mask, following_observations
from muzero.learner.inputs import to_inputs
from muzero.learner.loss import LossWeights, compute_loss
from muzero.network import NetworkSpec, make_network
from tests.learner.test_loss import naive_cross_entropy, naive_two_hot

CPU = torch.device("cpu")
NUM_CODES = 5
SPEC = NetworkSpec(observation_shape=(6,), num_actions=4, num_players=2, has_turn_head=True)
CONFIG = MLPConfig(
    latent_size=8,
    hidden_sizes=[12],
    num_chance_codes=NUM_CODES,
    value_support_max=2.0,
    value_support_size=9,
    reward_support_max=10.0,
    reward_support_size=21,
    support_transform=False,
    projection_size=4,
)
WEIGHTS = LossWeights(
    value=0.25,
    reward=0.7,
    policy=1.5,
    turn=0.3,
    afterstate_value=0.6,
    chance=1.3,
    commitment=0.4,
)
NOTHING = {name.name: 0.0 for name in dataclasses.fields(LossWeights)}


def make(seed: int = 0):
    """A network with random heads."""
    network = make_network(CONFIG, SPEC, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network


def inputs_of(batch):
    return to_inputs(batch, None, CPU, with_next_observation=True)


def naive_loss(network, batch, weights: LossWeights) -> float:
    """Sample by sample and step by step: MuZero's equation 1, and what Stochastic MuZero adds to it."""
    inputs = inputs_of(batch)
    out = network.unroll_codes(inputs.observation, inputs.action, following_observations(inputs))
    part = {
        name: value.detach().numpy()
        for name, value in (out._asdict() | out.chance._asdict()).items()
        if isinstance(value, torch.Tensor)
    }
    value_support, reward_support = network.value_support, network.reward_support
    batch_size, num_steps = batch.action.shape
    total = 0.0
    for b in range(batch_size):
        for k in range(num_steps + 1):
            loss = weights.policy * batch.policy_mask[b, k]
            loss *= naive_cross_entropy(part["policy_logits"][k, b], batch.policy[b, k])
            z = naive_two_hot(float(batch.value[b, k]), value_support)
            value_loss = naive_cross_entropy(part["value_logits"][k, b], z)
            loss += weights.value * batch.value_mask[b, k] * value_loss
            if k > 0:
                e = k - 1
                u = naive_two_hot(float(batch.reward[b, e]), reward_support)
                reward_loss = naive_cross_entropy(part["reward_logits"][e, b], u)
                loss += weights.reward * batch.reward_mask[b, e] * reward_loss
                p = 1.0 / (1.0 + math.exp(-part["turn_logits"][e, b]))
                turn_loss = -math.log(p if batch.turn[b, e] else 1.0 - p)
                loss += weights.turn * batch.turn_mask[b, e] * turn_loss
                # Of the step from e to k, if it was made from a real position and not behind a cut.
                is_real = e == 0 or batch.observation_mask[b, e - 1]
                if is_real and batch.reward_mask[b, e]:
                    z = naive_two_hot(float(batch.value[b, e]), value_support)
                    q_loss = naive_cross_entropy(part["afterstate_value_logits"][e, b], z)
                    loss += weights.afterstate_value * batch.value_mask[b, e] * q_loss
                    embedding = part["embedding"][e, b]
                    code = np.eye(NUM_CODES)[embedding.argmax()]
                    sigma_loss = naive_cross_entropy(part["chance_logits"][e, b], code)
                    loss += weights.chance * sigma_loss
                    loss += weights.commitment * ((code - embedding) ** 2).sum()
            total += batch.weight[b] * (loss if k == 0 else loss / num_steps)
    return total / batch_size


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_the_papers(make_batch, seed: int) -> None:
    batch = make_batch(SPEC, seed=seed, with_next_observation=True)
    network = make(seed)
    loss = compute_loss(network, inputs_of(batch), WEIGHTS)
    assert loss.total.item() == pytest.approx(naive_loss(network, batch, WEIGHTS), rel=1e-5)
    assert loss.chance is not None and loss.consistency is None
    without = dataclasses.replace(WEIGHTS, afterstate_value=0.0, chance=0.0, commitment=0.0)
    assert naive_loss(network, batch, without) < 0.8 * loss.total.item()  # the parts are no trifle


def test_nothing_is_seen_behind_an_end(make_batch) -> None:
    batch = make_batch(SPEC, with_next_observation=True)
    inputs = inputs_of(batch)
    following = following_observations(inputs)
    for k in range(3):
        for b in range(8):
            expected = batch.next_observation[b, k] * batch.observation_mask[b, k]
            np.testing.assert_array_equal(following[k, b].numpy(), expected)
    assert 0 < (batch.observation_mask == 0).sum() < batch.observation_mask.size
    images = dataclasses.replace(batch, next_observation=np.full((8, 3, 2, 3, 3), 200, np.uint8))
    following = following_observations(inputs_of(images))
    assert following.dtype == torch.float32 and following.shape == (3, 8, 2, 3, 3)


def test_the_move_that_ends_a_game_counts_and_those_behind_it_do_not(make_batch) -> None:
    """Rows: goes on; ends with move 1 (reward masks go on behind an end); cut at position 2, of which no move is known."""
    batch = make_batch(SPEC, batch_size=3, with_next_observation=True)
    batch = dataclasses.replace(
        batch,
        observation_mask=np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0]], np.float32),
        reward_mask=np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0]], np.float32),
    )
    assert edge_mask(inputs_of(batch)).T.tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize(
    ("weight", "moved"),
    [
        # sigma's loss may not make codes easy to foretell, the commitment is the encoder's alone.
        ("chance", {"representation", "action", "afterstate", "dynamics", "code"}),
        ("commitment", {"encoder"}),
        (
            "afterstate_value",
            {"representation", "action", "afterstate", "dynamics", "code", "encoder"},
        ),
        ("reward", {"representation", "action", "afterstate", "dynamics", "code", "encoder"}),
    ],
)
def test_what_a_part_of_the_loss_moves(make_batch, weight: str, moved: set[str]) -> None:
    """Codes of earlier steps stand in the way of everything behind them, but sigma's own are given."""
    batch = make_batch(SPEC, with_next_observation=True, num_steps=1 if weight == "chance" else 3)
    network = make()
    compute_loss(
        network, inputs_of(batch), LossWeights(**{**NOTHING, weight: 1.0})
    ).total.backward()
    found = {
        name.partition(".")[0].partition("_")[0]
        for name, parameter in network.named_parameters()
        if parameter.grad is not None and bool(parameter.grad.abs().max() > 0)
    }
    if weight == "chance":
        moved = moved - {"dynamics", "code"}  # of one step: nothing lies behind the code
    assert found == moved


def test_a_batch_without_following_observations_is_refused(make_batch) -> None:
    learner = Learner(make(), LearnerConfig(num_unroll_steps=3))
    with pytest.raises(ValueError, match=r"chance codes.*with_next_observation=True"):
        learner.step(make_batch(SPEC))
    inputs = to_inputs(make_batch(SPEC), None, CPU, with_next_observation=False)
    with pytest.raises(ValueError, match="whose encoder needs the observations"):
        compute_loss(make(), inputs, WEIGHTS)


def test_the_learner_takes_the_weights_of_its_settings_and_tells_of_the_parts(make_batch) -> None:
    batch = make_batch(SPEC, with_next_observation=True)
    config = LearnerConfig(
        num_unroll_steps=3,
        value_loss_weight=0.25,
        reward_loss_weight=0.7,
        policy_loss_weight=1.5,
        turn_loss_weight=0.3,
        afterstate_value_loss_weight=0.6,
        chance_loss_weight=1.3,
        commitment_loss_weight=0.4,
    )
    network = make()
    expected = naive_loss(network, batch, WEIGHTS)
    metrics = Learner(network, config).step(batch).metrics
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    names = ("afterstate_value_loss", "chance_loss", "commitment_loss")
    assert all(metrics[name] > 0 for name in names)
    assert 0 <= metrics["code_entropy"] <= math.log(NUM_CODES) + 1e-6
    assert 0 < metrics["chance_entropy"] <= math.log(NUM_CODES) + 1e-6


def test_consistency_and_chance_codes_go_together(make_batch) -> None:
    batch = make_batch(SPEC, with_next_observation=True)
    both = dataclasses.replace(WEIGHTS, consistency=2.0)
    loss = compute_loss(make(), inputs_of(batch), both)
    plain = compute_loss(make(), inputs_of(batch), WEIGHTS)
    assert loss.consistency is not None
    mask, weight = batch.observation_mask, batch.weight[:, None]
    added = 2.0 * (mask * weight * loss.consistency.numpy().T).sum() / 3 / 8
    assert loss.total.item() - plain.total.item() == pytest.approx(added, rel=1e-4)
