"""Fully connected networks. Letters: `B` positions, `A` actions, `L` latent size, `S` atoms, `*O` observation shape."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from muzero.network.auxiliary import SimSiam, refuse_projection
from muzero.network.base import MuZeroNetwork, NetworkSpec, Unrolled
from muzero.network.factored import action_outputs, action_rows, init_rows
from muzero.network.fused_unroll import FusedUnroll
from muzero.network.layers import scale_latent, zero_init
from muzero.network.support import Support

ACTION_SCALE = 0.5
"""Deviation of an action's initial row: as loud as a latent of 64 units in [0, 1]."""


class Trunk(nn.Module):
    """Hidden layers with ReLU, whose first takes an offset per position."""

    def __init__(self, num_inputs: int, hidden_sizes: Sequence[int]):
        super().__init__()
        self.num_inputs = num_inputs
        self.layers = nn.ModuleList(
            nn.Linear(*pair) for pair in pairwise([num_inputs, *hidden_sizes])
        )

    def forward(self, x: Tensor, offset: Tensor | None = None) -> Tensor:
        """`[B, num_inputs]` and offset `[B, hidden_sizes[0]]` -> `[B, hidden_sizes[-1]]`."""
        for layer in self.layers:
            x = layer(x)
            if offset is not None:
                x, offset = x + offset, None
            x = F.relu(x)
        return x


class MLPNetwork(MuZeroNetwork):
    """One trunk and one output layer for each of h, g and f.

    The output layer of g gives the next latent, the reward and, where there is one, the turn; that of f policy and
    value: one matrix product for all heads of a function.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        *,
        value_support: Support,
        reward_support: Support,
        latent_size: int,
        hidden_sizes: Sequence[int],
        residual_dynamics: bool = False,
        projection_size: int = 0,
    ):
        super().__init__()
        self.spec = spec
        self.value_support = value_support
        self.reward_support = reward_support
        self.latent_shape = (latent_size,)
        self.residual_dynamics = residual_dynamics
        num_turns = 1 if spec.has_turn_head else 0
        num_heads = reward_support.size + num_turns
        width = hidden_sizes[-1]

        self.representation = Trunk(prod(spec.observation_shape), hidden_sizes)
        self.representation_output = nn.Linear(width, latent_size)

        # A row per action, added to the first layer: its product with a one-hot action, without the zeros.
        factors = spec.action_factors
        self.action = action_rows(spec.num_actions, hidden_sizes[0], factors)
        init_rows(self.action, ACTION_SCALE)
        self.dynamics = Trunk(latent_size, hidden_sizes)
        self.dynamics_output = zero_init(nn.Linear(width, latent_size + num_heads), num_heads)
        self.dynamics_splits = [latent_size, reward_support.size, num_turns]

        self.prediction = Trunk(latent_size, hidden_sizes)
        self.prediction_splits = [spec.num_actions, value_support.size]
        self.prediction_output = zero_init(
            action_outputs(width, sum(self.prediction_splits), spec.num_actions, factors)
        )

        self.simsiam = (
            SimSiam(latent_size, projection_size, norm="layer") if projection_size > 0 else None
        )

    def represent(self, observation: Tensor) -> Tensor:
        """`[B, *O]` of any dtype -> latent `[B, L]`."""
        x = self._flat(observation)
        return scale_latent(self.representation_output(self.representation(x)))

    def step(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `MuZeroNetwork.step`."""
        outputs = self.dynamics_output(self.dynamics(latent, self.action(action)))
        following, reward_logits, turn_logit = torch.split(outputs, self.dynamics_splits, dim=1)
        if self.residual_dynamics:
            following = following + latent
        turn = turn_logit.squeeze(1) if self.spec.has_turn_head else None
        return scale_latent(following), reward_logits, turn

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """See `MuZeroNetwork.predict`."""
        outputs = self.prediction_output(self.prediction(latent))
        policy_logits, value_logits = torch.split(outputs, self.prediction_splits, dim=1)
        return policy_logits, value_logits

    def unroll(self, observation: Tensor, action: Tensor) -> Unrolled:
        """See `MuZeroNetwork.unroll`; the same numbers, faster where everything is float32 on the CPU."""
        weight = self.dynamics_output.weight
        plain = weight.is_cpu and weight.dtype == torch.float32 and not self.spec.action_factors
        if not plain or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
            return super().unroll(observation, action)
        functions = (
            (self.representation, self.representation_output),
            (self.dynamics, self.dynamics_output),
            (self.prediction, self.prediction_output),
        )
        parameters = [p for pair in functions for module in pair for p in module.parameters()]
        num_layers = len(self.dynamics.layers) + 1
        rows = self.action.weight
        latents, predictions, outputs = FusedUnroll.apply(
            self._flat(observation), action, self.residual_dynamics, num_layers, rows, *parameters
        )
        policy_logits, value_logits = torch.split(predictions, self.prediction_splits, dim=2)
        _, reward_logits, turn_logits = torch.split(outputs, self.dynamics_splits, dim=2)
        turn = turn_logits.squeeze(2) if self.spec.has_turn_head else None
        return Unrolled(latents, policy_logits, value_logits, reward_logits, turn)

    def _flat(self, observation: Tensor) -> Tensor:
        x = observation.flatten(1).to(self.dynamics_output.weight.dtype)
        return x if self.spec.observation_scale == 1.0 else x * self.spec.observation_scale

    def project(self, latent: Tensor, with_predictor: bool) -> Tensor:
        """See `MuZeroNetwork.project`."""
        return refuse_projection() if self.simsiam is None else self.simsiam(latent, with_predictor)
