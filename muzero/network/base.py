"""The network's seam: three functions of the paper and the spec they are built from.

Letters: `B` positions, `A` actions, `S` atoms of a support, `*O` observation shape, `*L` latent shape, `K` unrolled steps.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from muzero.network.layers import ConvNorm, halve_gradient
from muzero.network.support import Support


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSpec:
    """What a network has to know of its environment."""

    observation_shape: tuple[int, ...]
    """`(features,)` or `(channels, height, width)` of a stacked observation."""
    observation_scale: float = 1.0
    """Observations are multiplied by this after the cast to float: 1/255 for uint8 images."""
    num_actions: int
    """`A`."""
    action_factors: tuple[int, ...] = ()
    """See `EnvSpec.action_factors`."""
    chance_channels: tuple[int, ...] = ()
    """Places of an observation's first axis that show what chance did last, and nothing else; see `EnvSpec.chance_channels`."""
    num_players: int = 1
    """1 or 2."""
    has_turn_head: bool = False
    """Whether a player may move twice in a row, so that the network predicts who moves next."""
    return_bounds: tuple[float, float] | None = None
    """Lowest and highest return in training units; supports that the settings leave open fit them."""


class NetworkOutput(NamedTuple):
    """Outputs for `B` positions; logits, as the loss needs them."""

    latent: Tensor
    """`[B, *L]` hidden state, scaled to [0, 1]."""
    reward_logits: Tensor | None
    """`[B, S_r]` reward of the edge that led here; None from `initial_inference`."""
    value_logits: Tensor
    """`[B, S_v]` value seen by the player to move."""
    policy_logits: Tensor
    """`[B, A]`."""
    turn_logit: Tensor | None
    """`[B]` logit that the mover of the edge that led here moves again; None without a turn head or edge."""


class ChanceUnrolled(NamedTuple):
    """What a network with chance codes says besides, along `K` unrolled steps; `M` codes."""

    chance_logits: Tensor
    """`[K, B, M]` logits of sigma at the afterstate behind the action of step k."""
    afterstate_value_logits: Tensor
    """`[K, B, S_v]` value of that afterstate, seen by who acted at step k."""
    embedding: Tensor
    """`[K, B, M]` the encoder's answer for the positions k and k+1."""
    code: Tensor
    """`[K, B, M]` the nearest code, one-hot, without gradient: what came."""


class Unrolled(NamedTuple):
    """A network's answer along `K` unrolled steps."""

    latents: Tensor
    """`[K+1, B, *L]`."""
    policy_logits: Tensor
    """`[K+1, B, A]`."""
    value_logits: Tensor
    """`[K+1, B, S_v]`."""
    reward_logits: Tensor
    """`[K, B, S_r]` of the edges from step k to k+1."""
    turn_logits: Tensor | None
    """`[K, B]` of the same edges; None without a turn head."""
    chance: ChanceUnrolled | None = None
    """Of a network with chance codes; None without."""


class MuZeroNetwork(nn.Module, ABC):
    """Representation h, dynamics g and prediction f (MuZero, section 3)."""

    spec: NetworkSpec
    value_support: Support
    reward_support: Support
    latent_shape: tuple[int, ...]

    @abstractmethod
    def represent(self, observation: Tensor) -> Tensor:
        """`[B, *O]` of any dtype -> latent `[B, *L]`."""

    @abstractmethod
    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Latent `[B, *L]` and action `[B]` (int64) -> next latent, reward logits `[B, S_r]`, turn logit `[B]` or None."""

    @abstractmethod
    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Latent `[B, *L]` -> policy logits `[B, A]`, value logits `[B, S_v]`."""

    @abstractmethod
    def project(self, latent: Tensor, with_predictor: bool) -> Tensor:
        """SimSiam's projection (and predictor) of a latent `[B, *L]` -> `[B, P]` (EfficientZero).

        Raises ValueError if the network was built without it.
        """

    def initial_inference(self, observation: Tensor) -> NetworkOutput:
        """h, then f."""
        latent = self.represent(observation)
        policy_logits, value_logits = self.predict(latent)
        return NetworkOutput(latent, None, value_logits, policy_logits, None)

    def recurrent_inference(self, latent: Tensor, action: Tensor) -> NetworkOutput:
        """g, then f."""
        latent, reward_logits, turn_logit = self.step(latent, action)
        policy_logits, value_logits = self.predict(latent)
        return NetworkOutput(latent, reward_logits, value_logits, policy_logits, turn_logit)

    def unroll(self, observation: Tensor, action: Tensor) -> Unrolled:
        """Observations `[B, *O]` and actions `[K, B]` -> the answer along the way, for training.

        f runs once over all steps. Gradients are halved on the way from a dynamics call into the latent before it, and
        only there.
        """
        latent = self.represent(observation)
        latents, rewards, turns = [latent], [], []
        for step_action in action:
            latent, reward_logits, turn_logit = self.step(halve_gradient(latent), step_action)
            latents.append(latent)
            rewards.append(reward_logits)
            if turn_logit is not None:
                turns.append(turn_logit)
        stacked = torch.stack(latents)
        policy_logits, value_logits = self.predict(stacked.flatten(0, 1))
        steps = stacked.shape[:2]
        return Unrolled(
            stacked,
            policy_logits.unflatten(0, steps),
            value_logits.unflatten(0, steps),
            torch.stack(rewards),
            torch.stack(turns) if turns else None,
        )

    def prepare_inference(self) -> None:
        """Fold what can be folded, for good: the network gives the same answers in eval mode and cannot be trained."""
        for module in self.modules():
            if isinstance(module, ConvNorm):
                module.fold()

    def num_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device
