"""The unrolled loss (MuZero, equation 1; EfficientZero's consistency).

Letters: `B` samples, `K` unrolled steps, `A` actions, `S` atoms, `P` width of the projection.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from muzero.learner.inputs import Inputs
from muzero.network.auxiliary import negative_cosine
from muzero.network.base import MuZeroNetwork
from muzero.network.layers import halve_gradient
from muzero.network.support import Support


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Weights of the parts of the loss."""

    value: float = 0.25
    reward: float = 1.0
    policy: float = 1.0
    consistency: float = 0.0
    turn: float = 1.0


class Unrolled(NamedTuple):
    """The network's answer along the unrolled steps."""

    latents: Tensor
    """`[K+1, B, *L]`."""
    policy_logits: Tensor
    """`[K+1, B, A]`."""
    value_logits: Tensor
    """`[K+1, B, S_v]`."""
    reward_logits: Tensor
    """`[K, B, S_r]` of the edges from step k to k+1."""
    turn_logits: Tensor | None
    """`[K, B]` of the same edges."""


class Loss(NamedTuple):
    """The loss, and its parts before masks and weights (detached, for metrics)."""

    total: Tensor
    """Scalar to minimise."""
    policy: Tensor
    """`[K+1, B]` cross-entropies."""
    value: Tensor
    """`[K+1, B]`."""
    reward: Tensor
    """`[K, B]`."""
    turn: Tensor | None
    """`[K, B]`."""
    consistency: Tensor | None
    """`[K, B]` negative cosines."""
    unrolled: Unrolled
    """Detached."""


def unroll(network: MuZeroNetwork, observation: Tensor, action: Tensor) -> Unrolled:
    """Observation `[B, *O]` and actions `[K, B]` -> the network's answer.

    f runs once over all steps, so that its products are K+1 times taller. Gradients are halved on the way from a
    dynamics call into the latent before it, and only there.
    """
    latent = network.represent(observation)
    latents, rewards, turns = [latent], [], []
    for step_action in action:
        latent, reward_logits, turn_logit = network.step(halve_gradient(latent), step_action)
        latents.append(latent)
        rewards.append(reward_logits)
        if turn_logit is not None:
            turns.append(turn_logit)
    stacked = torch.stack(latents)
    policy_logits, value_logits = network.predict(stacked.flatten(0, 1))
    steps = stacked.shape[:2]
    return Unrolled(
        stacked,
        policy_logits.unflatten(0, steps).float(),
        value_logits.unflatten(0, steps).float(),
        torch.stack(rewards).float(),
        torch.stack(turns).float() if turns else None,
    )


def two_hot_cross_entropy(logits: Tensor, target: Tensor, support: Support) -> Tensor:
    """Logits `[..., S]` and scalars `[...]` -> cross-entropy `[...]` with the two-hot target."""
    index, share = support.locate(target)
    log_probability = F.log_softmax(logits, -1)
    lower = log_probability.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    upper = log_probability.gather(-1, index.unsqueeze(-1) + 1).squeeze(-1)
    return -torch.lerp(lower, upper, share)


def step_weights(num_unroll_steps: int, device: torch.device) -> Tensor:
    """`[K+1, 1]`: 1 at the root, 1/K at each unrolled step."""
    weights = torch.full((num_unroll_steps + 1, 1), 1.0 / num_unroll_steps, device=device)
    weights[0] = 1.0
    return weights


def compute_loss(network: MuZeroNetwork, inputs: Inputs, weights: LossWeights) -> Loss:
    """The loss of a batch: mean over samples of importance weight times the sample's unrolled sum."""
    unrolled = unroll(network, inputs.observation, inputs.action)
    policy = -(inputs.policy * F.log_softmax(unrolled.policy_logits, -1)).sum(-1)
    value = two_hot_cross_entropy(unrolled.value_logits, inputs.value, network.value_support)
    reward = two_hot_cross_entropy(unrolled.reward_logits, inputs.reward, network.reward_support)

    num_steps, batch_size = inputs.action.shape
    scale = step_weights(num_steps, policy.device) * (inputs.weight / batch_size)
    edge_scale = scale[1:]
    total = weights.policy * (scale * inputs.policy_mask * policy).sum()
    total = total + weights.value * (scale * inputs.value_mask * value).sum()
    total = total + weights.reward * (edge_scale * inputs.reward_mask * reward).sum()
    turn = consistency = None
    if unrolled.turn_logits is not None:
        turn = F.binary_cross_entropy_with_logits(
            unrolled.turn_logits, inputs.turn, reduction="none"
        )
        total = total + weights.turn * (edge_scale * inputs.turn_mask * turn).sum()
    if inputs.next_observation is not None:
        consistency = _consistency(network, unrolled.latents, inputs.next_observation)
        mask = inputs.observation_mask
        total = total + weights.consistency * (edge_scale * mask * consistency).sum()
    return Loss(
        total,
        policy.detach(),
        value.detach(),
        reward.detach(),
        None if turn is None else turn.detach(),
        None if consistency is None else consistency.detach(),
        Unrolled(*(None if part is None else part.detach() for part in unrolled)),  # type: ignore[arg-type]
    )


def _consistency(network: MuZeroNetwork, latents: Tensor, next_observation: Tensor) -> Tensor:
    """`[K, B]` negative cosines between unrolled latents and those of the observations that really came."""
    with torch.no_grad():
        target = network.project(network.represent(next_observation), with_predictor=False)
    prediction = network.project(latents[1:].flatten(0, 1), with_predictor=True)
    steps = (latents.shape[0] - 1, latents.shape[1])
    return negative_cosine(prediction, target).unflatten(0, steps)
