"""The unrolled loss (MuZero, equation 1; EfficientZero's consistency; Stochastic MuZero's chance loss).

Letters: `B` samples, `K` unrolled steps, `A` actions, `S` atoms, `P` width of the projection, `M` chance codes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from muzero.learner.chance_loss import ChanceLoss, chance_loss, following_observations
from muzero.learner.cross_entropy import cross_entropy, two_hot_cross_entropy
from muzero.learner.inputs import Inputs
from muzero.network.auxiliary import negative_cosine
from muzero.network.base import ChanceUnrolled, MuZeroNetwork, Unrolled
from muzero.network.stochastic import StochasticNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Weights of the parts of the loss."""

    value: float = 0.25
    reward: float = 1.0
    policy: float = 1.0
    consistency: float = 0.0
    turn: float = 1.0
    afterstate_value: float = 0.25
    chance: float = 1.0
    commitment: float = 0.25


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
    chance: ChanceLoss | None
    """Of a network with chance codes."""
    unrolled: Unrolled
    """Detached."""


def step_weights(num_unroll_steps: int, device: torch.device) -> Tensor:
    """`[K+1, 1]`: 1 at the root, 1/K at each unrolled step."""
    weights = torch.full((num_unroll_steps + 1, 1), 1.0 / num_unroll_steps, device=device)
    weights[0] = 1.0
    return weights


def compute_loss(network: MuZeroNetwork, inputs: Inputs, weights: LossWeights) -> Loss:
    """The loss of a batch: mean over samples of importance weight times the sample's unrolled sum.

    Masked entries add nothing; the mean is over all samples, whatever is masked in them.
    """
    unrolled = _to_float32(_unroll(network, inputs))
    num_steps, batch_size = inputs.action.shape
    scale = step_weights(num_steps, inputs.weight.device) * (inputs.weight / batch_size)
    edge_scale = scale[1:]

    policy_total, policy = cross_entropy(
        unrolled.policy_logits, inputs.policy, scale * inputs.policy_mask
    )
    value_total, value = two_hot_cross_entropy(
        unrolled.value_logits, inputs.value, scale * inputs.value_mask, network.value_support
    )
    reward_total, reward = two_hot_cross_entropy(
        unrolled.reward_logits,
        inputs.reward,
        edge_scale * inputs.reward_mask,
        network.reward_support,
    )
    total = (
        weights.policy * policy_total + weights.value * value_total + weights.reward * reward_total
    )
    turn = consistency = chance = None
    if unrolled.turn_logits is not None:
        turn = F.binary_cross_entropy_with_logits(
            unrolled.turn_logits, inputs.turn, reduction="none"
        )
        total = total + weights.turn * (edge_scale * inputs.turn_mask * turn).sum()
        turn = turn.detach()
    if inputs.next_observation is not None and weights.consistency > 0.0:
        consistency = _consistency(network, unrolled.latents, inputs.next_observation)
        mask = inputs.observation_mask
        total = total + weights.consistency * (edge_scale * mask * consistency).sum()
        consistency = consistency.detach()
    if unrolled.chance is not None:
        chance = chance_loss(unrolled.chance, inputs, edge_scale, network.value_support)
        total = (
            total
            + weights.afterstate_value * chance.afterstate_value_total
            + weights.chance * chance.chance_total
            + weights.commitment * chance.commitment_total
        )
    return Loss(total, policy, value, reward, turn, consistency, chance, _detached(unrolled))


def _unroll(network: MuZeroNetwork, inputs: Inputs) -> Unrolled:
    if not isinstance(network, StochasticNetwork):
        return network.unroll(inputs.observation, inputs.action)
    following = following_observations(inputs)
    return network.unroll_codes(inputs.observation, inputs.action, following)


def _to_float32(unrolled: Unrolled) -> Unrolled:
    *parts, chance = unrolled
    if chance is not None:
        chance = ChanceUnrolled(*(part.float() for part in chance))
    return Unrolled(*(None if part is None else part.float() for part in parts), chance)  # type: ignore[arg-type,call-arg]


def _detached(unrolled: Unrolled) -> Unrolled:
    *parts, chance = unrolled
    if chance is not None:
        chance = ChanceUnrolled(*(part.detach() for part in chance))
    return Unrolled(*(None if part is None else part.detach() for part in parts), chance)  # type: ignore[arg-type,call-arg]


def _consistency(network: MuZeroNetwork, latents: Tensor, next_observation: Tensor) -> Tensor:
    """`[K, B]` negative cosines between unrolled latents and those of the observations that really came."""
    with torch.no_grad():
        target = network.project(network.represent(next_observation), with_predictor=False)
    prediction = network.project(latents[1:].flatten(0, 1), with_predictor=True)
    steps = (latents.shape[0] - 1, latents.shape[1])
    return negative_cosine(prediction, target).unflatten(0, steps)
