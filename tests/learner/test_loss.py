"""The loss against a naive transcription in float64, and what must not reach it."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from muzero.config.networks import MLPConfig
from muzero.learner.cross_entropy import cross_entropy, two_hot_cross_entropy
from muzero.learner.inputs import check_targets, to_inputs
from muzero.learner.loss import LossWeights, compute_loss
from muzero.network import NetworkSpec, Support, make_network
from muzero.network.base import Unrolled

CPU = torch.device("cpu")
SPEC = NetworkSpec(observation_shape=(6,), num_actions=4, num_players=2, has_turn_head=True)
VALUE = Support(2.0, 9, transform=False)
REWARD = Support(10.0, 21)
WEIGHTS = LossWeights(value=0.25, reward=0.7, policy=1.5, consistency=2.0, turn=0.3)


class Answers(nn.Module):
    """Stands for a network: its answer to an unroll is made of parameters, so that gradients show at the logits."""

    def __init__(self, batch_size: int, num_steps: int, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator))

        self.value_support, self.reward_support = VALUE, REWARD
        self.latents = parameter(num_steps + 1, batch_size, 6)
        self.policy_logits = parameter(num_steps + 1, batch_size, 4)
        self.value_logits = parameter(num_steps + 1, batch_size, VALUE.size)
        self.reward_logits = parameter(num_steps, batch_size, REWARD.size)
        self.turn_logits = parameter(num_steps, batch_size)

    def unroll(self, observation, action):
        return Unrolled(
            self.latents,
            self.policy_logits,
            self.value_logits,
            self.reward_logits,
            self.turn_logits,
        )

    def represent(self, observation):
        return observation

    def project(self, latent, with_predictor):
        return 2.0 * latent if with_predictor else latent + 1.0


def inputs_of(batch, with_next_observation=True):
    return to_inputs(batch, None, CPU, with_next_observation=with_next_observation)


def naive_two_hot(x: float, support: Support) -> list[float]:
    if support.transform:
        x = math.copysign(math.sqrt(abs(x) + 1.0) - 1.0, x) + 0.001 * x
    atoms = np.linspace(-support.max, support.max, support.size)
    x = min(max(x, -support.max), support.max)
    return [max(0.0, 1.0 - abs(x - atom) / (atoms[1] - atoms[0])) for atom in atoms]


def naive_cross_entropy(logits, target) -> float:
    logits = np.asarray(logits, np.float64)
    log_total = math.log(sum(math.exp(x) for x in logits))
    return -sum(t * (x - log_total) for t, x in zip(target, logits, strict=True))


def naive_loss(answers: Answers, batch, weights: LossWeights) -> float:
    """Equation 1 of MuZero, sample by sample and step by step."""
    part = {name: p.detach().numpy() for name, p in answers.named_parameters()}
    batch_size, num_steps = batch.action.shape
    total = 0.0
    for b in range(batch_size):
        unrolled = 0.0
        for k in range(num_steps + 1):
            loss = (
                weights.policy
                * batch.policy_mask[b, k]
                * naive_cross_entropy(part["policy_logits"][k, b], batch.policy[b, k])
            )
            loss += (
                weights.value
                * batch.value_mask[b, k]
                * naive_cross_entropy(
                    part["value_logits"][k, b], naive_two_hot(float(batch.value[b, k]), VALUE)
                )
            )
            if k > 0:
                e = k - 1
                loss += (
                    weights.reward
                    * batch.reward_mask[b, e]
                    * naive_cross_entropy(
                        part["reward_logits"][e, b],
                        naive_two_hot(float(batch.reward[b, e]), REWARD),
                    )
                )
                p = 1.0 / (1.0 + math.exp(-part["turn_logits"][e, b]))
                turn = batch.turn[b, e]
                loss -= (
                    weights.turn
                    * batch.turn_mask[b, e]
                    * (turn * math.log(p) + (1.0 - turn) * math.log(1.0 - p))
                )
                seen, real = part["latents"][k, b] * 2.0, batch.next_observation[b, e] + 1.0
                cosine = seen @ real / (np.linalg.norm(seen) * np.linalg.norm(real))
                loss += weights.consistency * batch.observation_mask[b, e] * -cosine
            unrolled += loss if k == 0 else loss / num_steps
        total += batch.weight[b] * unrolled
    return total / batch_size


def test_the_loss_equals_its_transcription(make_batch):
    batch = make_batch(SPEC, 7, 3, with_next_observation=True)
    answers = Answers(7, 3)
    total = compute_loss(answers, inputs_of(batch), WEIGHTS).total
    assert total.item() == pytest.approx(naive_loss(answers, batch, WEIGHTS), rel=1e-5)


@pytest.mark.parametrize("num_steps", [1, 5])
def test_gradients_equal_differences_of_the_transcription(make_batch, num_steps):
    batch = make_batch(SPEC, 2, num_steps, seed=4, with_next_observation=True)
    answers = Answers(2, num_steps)
    compute_loss(answers, inputs_of(batch), WEIGHTS).total.backward()
    rng = np.random.default_rng(0)
    for _, parameter in answers.named_parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for i in rng.integers(0, len(flat), 6).tolist():
            before = flat[i].item()
            flat[i] = before + 0.01
            above = naive_loss(answers, batch, WEIGHTS)
            flat[i] = before - 0.01
            below = naive_loss(answers, batch, WEIGHTS)
            flat[i] = before
            assert gradient[i].item() == pytest.approx((above - below) / 0.02, rel=2e-3, abs=2e-5)


def test_unrolled_steps_weigh_one_over_k(make_batch):
    batch = make_batch(SPEC, 1, 4)
    ones = {name: np.ones_like(getattr(batch, name)) for name in ("policy_mask", "weight")}
    policy = np.broadcast_to(batch.policy[:, :1], batch.policy.shape).copy()
    batch = dataclasses.replace(batch, policy=policy, **ones)
    answers = Answers(1, 4)
    with torch.no_grad():
        answers.policy_logits[:] = answers.policy_logits[0]
    compute_loss(answers, inputs_of(batch, False), LossWeights()).total.backward()
    gradient = answers.policy_logits.grad
    for k in range(1, 5):
        torch.testing.assert_close(gradient[k] * 4.0, gradient[0])


MASKS = {
    "policy_logits": "policy_mask",
    "value_logits": "value_mask",
    "reward_logits": "reward_mask",
    "turn_logits": "turn_mask",
    "latents": "observation_mask",
}


@pytest.mark.parametrize(("part", "mask"), MASKS.items())
def test_what_is_masked_has_a_gradient_of_exactly_zero(make_batch, part, mask):
    batch = make_batch(SPEC, 16, 3, with_next_observation=True)
    answers = Answers(16, 3)
    compute_loss(answers, inputs_of(batch), WEIGHTS).total.backward()
    gradient = getattr(answers, part).grad[1 if part == "latents" else 0 :]
    seen = gradient.flatten(2).abs().sum(2) if gradient.dim() > 2 else gradient.abs()
    masked = torch.from_numpy(getattr(batch, mask).T) == 0.0
    assert 0 < int(masked.sum()) < masked.numel()
    assert bool((seen[masked] == 0.0).all())
    assert bool((seen[~masked] > 0.0).all())


def test_the_importance_weight_covers_the_whole_unrolled_sum(make_batch):
    batch = make_batch(SPEC, 3, 2, with_next_observation=True)
    gradients = []
    for weight in ([1.0, 1.0, 1.0], [1.0, 0.25, 0.0]):
        answers = Answers(3, 2)
        weighted = dataclasses.replace(batch, weight=np.array(weight, np.float32))
        compute_loss(answers, inputs_of(weighted), WEIGHTS).total.backward()
        gradients.append({name: p.grad for name, p in answers.named_parameters()})
    for name, plain in gradients[0].items():
        weighted = gradients[1][name]
        torch.testing.assert_close(weighted[:, 0], plain[:, 0])
        torch.testing.assert_close(weighted[:, 1], plain[:, 1] * 0.25)
        assert weighted[:, 2].count_nonzero() == 0


def test_no_gradient_flows_into_the_observed_side_of_the_consistency(make_batch):
    spec = dataclasses.replace(SPEC, has_turn_head=False)
    config = MLPConfig(latent_size=5, hidden_sizes=[8], projection_size=4)
    network = make_network(config, spec, 0)
    batch = make_batch(spec, 4, 2, with_next_observation=True)
    only = LossWeights(value=0.0, reward=0.0, policy=0.0, consistency=1.0)
    loss = compute_loss(network, inputs_of(batch), only)
    loss.total.backward()
    assert network.simsiam.predictor[0].weight.grad.any()
    # Were both sides trained, moving the observed side would move the loss; its gradient is that of the unrolled side.
    observed = network.project(
        network.represent(torch.from_numpy(batch.next_observation).transpose(0, 1).flatten(0, 1)),
        False,
    ).detach()
    predicted = network.project(loss.unrolled.latents[1:].flatten(0, 1), True).unflatten(0, (2, 4))
    cosine = F.cosine_similarity(predicted, observed.unflatten(0, (2, 4)), dim=-1)
    torch.testing.assert_close(loss.consistency, -cosine)
    assert bool((loss.consistency.abs() <= 1.0).all())


@pytest.mark.parametrize("size", [3, 64, 65])
def test_cross_entropy_equals_torch_and_has_its_gradient(size):
    generator = torch.Generator().manual_seed(size)
    logits = (torch.randn(2, 5, size + 3, generator=generator) * 5.0).requires_grad_()
    target = torch.rand(2, 5, size, generator=generator)
    target /= target.sum(-1, keepdim=True)
    target[0, 0] = 0.0  # an empty target has neither loss nor gradient
    scale = torch.rand(2, 5, generator=generator)
    view = logits[..., 2 : 2 + size]
    total, losses = cross_entropy(view, target, scale)
    (3.0 * total).backward()
    gradient, logits.grad = logits.grad, None

    expected = -(target * F.log_softmax(view, -1)).sum(-1)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(total, (expected * scale).sum())
    (3.0 * expected * scale).sum().backward()
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-4, atol=1e-6)
    assert gradient[0, 0].count_nonzero() == 0


@pytest.mark.parametrize(
    "support", [Support(2.0, 9, transform=False), Support(3.0, 33), Support(300.0, 601)]
)
def test_two_hot_cross_entropy_equals_the_dense_one(support):
    logits = torch.randn(11, support.size, requires_grad=True)
    scalar, scale = torch.linspace(-30.0, 30.0, 11), torch.rand(11)
    total, losses = two_hot_cross_entropy(logits, scalar, scale, support)
    total.backward()
    gradient, logits.grad = logits.grad, None
    expected = -(support.encode(scalar) * F.log_softmax(logits, -1)).sum(-1)
    (expected * scale).sum().backward()
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [3, 101])
def test_a_nan_in_logits_or_target_reaches_the_loss(size):
    scale = torch.ones(3)
    logits = torch.randn(3, size)
    logits[1, 2] = math.nan
    _, losses = cross_entropy(logits, torch.full((3, size), 1 / size), scale)
    assert losses.isnan().tolist() == [False, True, False]
    scalar = torch.tensor([0.0, 0.5, math.nan])
    _, losses = two_hot_cross_entropy(logits, scalar, scale, Support(1.0, size))
    assert losses.isnan().tolist() == [False, True, True]


@pytest.mark.parametrize("name", ["reward", "value", "policy", "weight"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_targets_that_are_not_finite_are_refused_by_name(make_batch, name, bad):
    batch = make_batch(SPEC)
    check_targets(batch)
    getattr(batch, name).flat[3] = bad
    with pytest.raises(ValueError, match=f"the {name} target of a batch has 1 entries"):
        check_targets(batch)
