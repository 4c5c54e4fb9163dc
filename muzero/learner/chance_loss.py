"""What a network with chance codes adds to the loss (Stochastic MuZero, Antonoglou et al., ICLR 2022, section 4).

    L_chance = sum_{k<K}  l_v(z_{t+k}, Q^k)  +  CE(c_{t+k+1}, sigma^k)  +  beta * ||c_{t+k+1} - e_{t+k+1}||^2

Letters: `B` samples, `K` unrolled steps, `M` codes, `*O` observation shape.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from muzero.learner.cross_entropy import cross_entropy, two_hot_cross_entropy
from muzero.learner.inputs import Inputs
from muzero.network.base import ChanceUnrolled
from muzero.network.support import Support


class ChanceLoss(NamedTuple):
    """The three parts: scaled sums to minimise, and each term before masks and weights (detached, for metrics)."""

    afterstate_value_total: Tensor
    chance_total: Tensor
    commitment_total: Tensor
    afterstate_value: Tensor
    """`[K, B]` cross-entropies of Q with the value target of the position before the action."""
    chance: Tensor
    """`[K, B]` cross-entropies of sigma with the code that came."""
    commitment: Tensor
    """`[K, B]` squared distances between embedding and code."""
    mask: Tensor
    """`[K, B]` 1.0 where the step was really made, be it into the end of the game."""


def following_observations(inputs: Inputs) -> Tensor:
    """`[K, B, *O]` observations of steps 1 to K in floating point, zero behind an end: there nothing is to be seen.

    Raises ValueError if the batch has none.
    """
    if inputs.next_observation is None:
        raise ValueError(
            "the network has chance codes, whose encoder needs the observations of the unrolled steps: build the replay "
            "buffer with with_next_observation=True"
        )
    mask = inputs.observation_mask
    following = inputs.next_observation.to(mask.dtype).unflatten(0, mask.shape)
    return following * mask.reshape(*mask.shape, *[1] * (following.dim() - 2))


def edge_mask(inputs: Inputs) -> Tensor:
    """`[K, B]` 1.0 where a move was really made from step k: not behind an end, nor behind a cut."""
    is_position = torch.cat(
        (torch.ones_like(inputs.observation_mask[:1]), inputs.observation_mask[:-1])
    )
    return is_position * inputs.reward_mask


def chance_loss(
    unrolled: ChanceUnrolled, inputs: Inputs, scale: Tensor, value_support: Support
) -> ChanceLoss:
    """The three parts of a batch, summed with weights `scale` `[K, B]`.

    The afterstate's value is a q: its target is that of the position before the action, at which the same player was to
    move. sigma learns the code, and the code learns nothing of sigma; the commitment moves the embedding, not its code.
    """
    mask = edge_mask(inputs)
    scale = scale * mask
    value_total, value = two_hot_cross_entropy(
        unrolled.afterstate_value_logits,
        inputs.value[:-1],
        scale * inputs.value_mask[:-1],
        value_support,
    )
    chance_total, chance = cross_entropy(unrolled.chance_logits, unrolled.code, scale)
    commitment = (unrolled.code - unrolled.embedding).square().sum(-1)
    return ChanceLoss(
        value_total,
        chance_total,
        (scale * commitment).sum(),
        value,
        chance,
        commitment.detach(),
        mask,
    )
