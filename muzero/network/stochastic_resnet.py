"""Convolutional residual networks with chance codes. Letters: `B` positions, `M` codes, `C, H, W` latent, `S` atoms."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from muzero.network.auxiliary import SimSiam, refuse_projection
from muzero.network.base import NetworkSpec
from muzero.network.layers import ConvNorm, scale_latent
from muzero.network.resnet import (
    Downsample,
    Head,
    action_planes,
    residual_blocks,
    resnet_latent,
    split_turn,
)
from muzero.network.stochastic import StochasticNetwork, num_encoder_channels
from muzero.network.support import Support


class StochasticResNet(StochasticNetwork):
    """Residual towers for h, phi and g as in `ResNetNetwork`; a code is a constant plane for each of its entries."""

    latent_shape: tuple[int, int, int]

    def __init__(
        self,
        spec: NetworkSpec,
        *,
        num_chance_codes: int,
        value_support: Support,
        reward_support: Support,
        num_channels: int,
        num_blocks: int,
        num_dynamics_blocks: int,
        downsample: int,
        head_channels: int,
        head_hidden_size: int,
        norm: str,
        projection_size: int = 0,
    ):
        super().__init__()
        self.spec = spec
        self.num_chance_codes = num_chance_codes
        self.value_support = value_support
        self.reward_support = reward_support
        num_planes = spec.observation_shape[0]
        self.latent_shape = resnet_latent(spec, num_channels, downsample)

        blocks = partial(residual_blocks, num_channels=num_channels, norm=norm)
        head = partial(
            Head,
            self.latent_shape,
            head_channels=head_channels,
            head_hidden_size=head_hidden_size,
            norm=norm,
        )

        self.representation = nn.Sequential(
            Downsample(num_planes, num_channels, downsample, norm), blocks(num_blocks)
        )
        self.action_planes = action_planes(spec, self.latent_shape, downsample)
        self.afterstate_input = ConvNorm(
            num_channels + self.action_planes.num_planes, num_channels, 3, norm
        )
        self.afterstate_blocks = blocks(num_dynamics_blocks)
        self.chance_head = head(num_chance_codes)
        self.afterstate_value_head = head(value_support.size)
        self.dynamics_input = ConvNorm(num_channels + num_chance_codes, num_channels, 3, norm)
        self.dynamics_blocks = blocks(num_dynamics_blocks)
        self.reward_head = head(reward_support.size + (1 if spec.has_turn_head else 0))
        self.policy_head = head(spec.num_actions)
        self.value_head = head(value_support.size)
        self.encoder = nn.Sequential(
            Downsample(num_encoder_channels(spec), num_channels, downsample, norm),
            blocks(num_dynamics_blocks),
        )
        self.encoder_head = head(num_chance_codes)
        # Embeddings that were all 0 would all have one code; a bias would be the same for all.
        self.encoder_head.output = nn.Linear(head_hidden_size, num_chance_codes, bias=False)
        self.simsiam = (
            SimSiam(math.prod(self.latent_shape), projection_size, norm)
            if projection_size > 0
            else None
        )

    def represent(self, observation: Tensor) -> Tensor:
        """`[B, *O]` of any dtype -> latent `[B, C, H, W]`."""
        return scale_latent(self.representation(self._scaled(observation)))

    def afterstate(self, latent: Tensor, action: Tensor) -> Tensor:
        """See `StochasticNetwork.afterstate`."""
        x = self.afterstate_input(self.action_planes.append_to(latent, action))
        return scale_latent(self.afterstate_blocks(F.relu(x + latent)))

    def predict_afterstate(self, afterstate: Tensor) -> tuple[Tensor, Tensor]:
        """See `StochasticNetwork.predict_afterstate`."""
        return self.chance_head(afterstate), self.afterstate_value_head(afterstate)

    def outcome(self, afterstate: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `StochasticNetwork.outcome`."""
        planes = code.to(afterstate.dtype)[:, :, None, None].expand(-1, -1, *self.latent_shape[1:])
        x = self.dynamics_input(torch.cat((afterstate, planes), 1))
        x = self.dynamics_blocks(F.relu(x + afterstate))
        reward_logits, turn_logit = split_turn(self.reward_head(x), self.spec)
        return scale_latent(x), reward_logits, turn_logit

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """See `MuZeroNetwork.predict`."""
        return self.policy_head(latent), self.value_head(latent)

    def embed(self, seen: Tensor) -> Tensor:
        """See `StochasticNetwork.embed`."""
        return self.encoder_head(self.encoder(self._scaled(seen)))

    def _scaled(self, observation: Tensor) -> Tensor:
        x = observation.to(self.dynamics_input.conv.weight.dtype)
        return x if self.spec.observation_scale == 1.0 else x * self.spec.observation_scale

    def project(self, latent: Tensor, with_predictor: bool) -> Tensor:
        """See `MuZeroNetwork.project`."""
        return refuse_projection() if self.simsiam is None else self.simsiam(latent, with_predictor)
