"""Convolutional residual networks. Letters: `B` positions, `A` actions, `C, H, W` latent, `S` atoms."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from muzero.network.auxiliary import SimSiam, refuse_projection
from muzero.network.base import MuZeroNetwork, NetworkSpec
from muzero.network.layers import ActionPlanes, ConvNorm, ResidualBlock, scale_latent, zero_init
from muzero.network.support import Support

MAX_TABLE_SIZE = 2**22
"""Largest number of floats in a table of actions for inference."""


class Head(nn.Module):
    """1x1 convolution, hidden layer, outputs that start at 0."""

    def __init__(
        self,
        latent_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        head_channels: int,
        head_hidden_size: int,
        norm: str,
    ):
        super().__init__()
        num_channels, height, width = latent_shape
        self.conv = ConvNorm(num_channels, head_channels, 1, norm)
        self.hidden = nn.Linear(head_channels * height * width, head_hidden_size)
        self.output = zero_init(nn.Linear(head_hidden_size, num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, H, W]` -> `[B, num_outputs]`."""
        x = F.relu(self.conv(x), inplace=True).flatten(1)
        return self.output(F.relu(self.hidden(x), inplace=True))


class Downsample(nn.Sequential):
    """Halves an image `log2(factor)` times: two strided convolutions, then average pooling (MuZero, appendix F).

    The first works at half the channels. Odd sizes are rounded up.
    """

    def __init__(self, num_inputs: int, num_channels: int, factor: int, norm: str):
        layers: list[nn.Module] = []
        for level in range(int(math.log2(factor))):
            if level < 2:
                width = max(num_channels // 2, 1) if level == 0 and factor > 2 else num_channels
                layers += [ConvNorm(num_inputs, width, 3, norm, stride=2), nn.ReLU()]
                num_inputs = width
            else:
                layers.append(nn.AvgPool2d(3, stride=2, padding=1))
            layers.append(ResidualBlock(num_inputs, norm))
        if factor == 1:
            layers += [ConvNorm(num_inputs, num_channels, 3, norm), nn.ReLU()]
        super().__init__(*layers)


def residual_blocks(number: int, *, num_channels: int, norm: str) -> nn.Sequential:
    """A tower of so many blocks."""
    return nn.Sequential(*(ResidualBlock(num_channels, norm) for _ in range(number)))


def resnet_latent(spec: NetworkSpec, num_channels: int, downsample: int) -> tuple[int, int, int]:
    """Shape `(C, H, W)` of the hidden state; odd sizes of the image are rounded up."""
    height, width = (-(-side // downsample) for side in spec.observation_shape[1:])
    return num_channels, height, width


def action_planes(
    spec: NetworkSpec, latent_shape: tuple[int, int, int], downsample: int
) -> ActionPlanes:
    """The planes of actions over a hidden state `(C, H, W)`; a board that keeps its size has its squares."""
    _, height, width = latent_shape
    return ActionPlanes(
        spec.num_actions, height, width, board=downsample == 1, factors=spec.action_factors
    )


def split_turn(outputs: Tensor, spec: NetworkSpec) -> tuple[Tensor, Tensor | None]:
    """What the reward head says: logits of the reward `[B, S]` and, last, the turn `[B]` if the network predicts it."""
    return (outputs[:, :-1], outputs[:, -1]) if spec.has_turn_head else (outputs, None)


class ResNetNetwork(MuZeroNetwork):
    """Residual towers for h and g, whose latent keeps the board's (or the shrunk image's) height and width."""

    latent_shape: tuple[int, int, int]
    action_table: Tensor | None
    """`[A, H W, C]` what the action planes add to the first convolution of g; None while training."""

    def __init__(
        self,
        spec: NetworkSpec,
        *,
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
        self.dynamics_input = ConvNorm(
            num_channels + self.action_planes.num_planes, num_channels, 3, norm
        )
        self.dynamics_blocks = blocks(num_dynamics_blocks)
        self.register_buffer("action_table", None, persistent=False)
        self.reward_head = head(reward_support.size + (1 if spec.has_turn_head else 0))
        self.policy_head = head(spec.num_actions)
        self.value_head = head(value_support.size)
        self.simsiam = (
            SimSiam(math.prod(self.latent_shape), projection_size, norm)
            if projection_size > 0
            else None
        )

    def represent(self, observation: Tensor) -> Tensor:
        """`[B, *O]` of any dtype -> latent `[B, C, H, W]`."""
        x = observation.to(self.dynamics_input.conv.weight.dtype)
        if self.spec.observation_scale != 1.0:
            x = x * self.spec.observation_scale
        return scale_latent(self.representation(x))

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `MuZeroNetwork.step`."""
        if self.action_table is None:
            x = self.dynamics_input(self.action_planes.append_to(latent, action))
        else:
            added = self.action_table[action].unflatten(1, self.latent_shape[1:])
            x = self.dynamics_input(latent).add_(added.permute(0, 3, 1, 2))
        x = self.dynamics_blocks(F.relu(x.add_(latent), inplace=True))
        reward_logits, turn_logit = split_turn(self.reward_head(x), self.spec)
        return scale_latent(x), reward_logits, turn_logit

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """See `MuZeroNetwork.predict`."""
        return self.policy_head(latent), self.value_head(latent)

    @torch.no_grad()
    def prepare_inference(self) -> None:
        """Fold norms, and tabulate what an action adds to the first convolution of g, which then reads the latent only."""
        super().prepare_inference()
        if isinstance(self.dynamics_input.norm, nn.GroupNorm):
            return
        if self.spec.num_actions * math.prod(self.latent_shape) > MAX_TABLE_SIZE:
            return
        conv = self.dynamics_input.conv
        latent_weight, action_weight = conv.weight.split(
            [self.latent_shape[0], self.action_planes.num_planes], 1
        )
        planes = self.action_planes(torch.arange(self.spec.num_actions, device=conv.weight.device))
        table = F.conv2d(planes.to(conv.weight.dtype), action_weight, conv.bias, padding=1)
        self.action_table = table.flatten(2).mT.contiguous()
        conv.weight = nn.Parameter(latent_weight.contiguous(), requires_grad=False)
        conv.bias = None

    def project(self, latent: Tensor, with_predictor: bool) -> Tensor:
        """See `MuZeroNetwork.project`."""
        return refuse_projection() if self.simsiam is None else self.simsiam(latent, with_predictor)
