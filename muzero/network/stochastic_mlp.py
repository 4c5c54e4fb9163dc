"""Fully connected networks with chance codes. Letters: `B` positions, `M` codes, `L` latent size, `S` atoms, `*O` observation shape."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from muzero.network.auxiliary import SimSiam, refuse_projection
from muzero.network.base import NetworkSpec
from muzero.network.factored import action_outputs, action_rows, init_rows
from muzero.network.layers import scale_latent, zero_init
from muzero.network.mlp import ACTION_SCALE, Trunk
from muzero.network.stochastic import StochasticNetwork, num_encoder_channels
from muzero.network.support import Support


class StochasticMLP(StochasticNetwork):
    """One trunk and one output layer for each of h, f, phi, psi, g and e."""

    def __init__(
        self,
        spec: NetworkSpec,
        *,
        num_chance_codes: int,
        value_support: Support,
        reward_support: Support,
        latent_size: int,
        hidden_sizes: Sequence[int],
        residual_dynamics: bool = False,
        projection_size: int = 0,
    ):
        super().__init__()
        self.spec = spec
        self.num_chance_codes = num_chance_codes
        self.value_support = value_support
        self.reward_support = reward_support
        self.latent_shape = (latent_size,)
        self.residual_dynamics = residual_dynamics
        num_turns = 1 if spec.has_turn_head else 0
        num_heads = reward_support.size + num_turns
        num_inputs, width = prod(spec.observation_shape), hidden_sizes[-1]

        self.representation = Trunk(num_inputs, hidden_sizes)
        self.representation_output = nn.Linear(width, latent_size)

        # A row per action or code, added to the first layer, as in `MLPNetwork`.
        factors = spec.action_factors
        self.action = action_rows(spec.num_actions, hidden_sizes[0], factors)
        self.code = nn.Linear(num_chance_codes, hidden_sizes[0], bias=False)
        for rows in (self.action, self.code):
            init_rows(rows, ACTION_SCALE)
        self.afterstate_dynamics = Trunk(latent_size, hidden_sizes)
        self.afterstate_dynamics_output = nn.Linear(width, latent_size)
        self.afterstate_prediction = Trunk(latent_size, hidden_sizes)
        self.afterstate_splits = [num_chance_codes, value_support.size]
        self.afterstate_prediction_output = zero_init(nn.Linear(width, sum(self.afterstate_splits)))

        self.dynamics = Trunk(latent_size, hidden_sizes)
        self.dynamics_output = zero_init(nn.Linear(width, latent_size + num_heads), num_heads)
        self.dynamics_splits = [latent_size, reward_support.size, num_turns]

        self.prediction = Trunk(latent_size, hidden_sizes)
        self.prediction_splits = [spec.num_actions, value_support.size]
        self.prediction_output = zero_init(
            action_outputs(width, sum(self.prediction_splits), spec.num_actions, factors)
        )

        num_seen = num_encoder_channels(spec) * prod(spec.observation_shape[1:])
        self.encoder = Trunk(num_seen, hidden_sizes)
        # Without a bias, which would be the same for all.
        self.encoder_output = nn.Linear(width, num_chance_codes, bias=False)

        self.simsiam = (
            SimSiam(latent_size, projection_size, norm="layer") if projection_size > 0 else None
        )

    def represent(self, observation: Tensor) -> Tensor:
        """`[B, *O]` of any dtype -> latent `[B, L]`."""
        return scale_latent(
            self.representation_output(self.representation(self._flat(observation)))
        )

    def afterstate(self, latent: Tensor, action: Tensor) -> Tensor:
        """See `StochasticNetwork.afterstate`."""
        outputs = self.afterstate_dynamics_output(
            self.afterstate_dynamics(latent, self.action(action))
        )
        return scale_latent(outputs + latent if self.residual_dynamics else outputs)

    def predict_afterstate(self, afterstate: Tensor) -> tuple[Tensor, Tensor]:
        """See `StochasticNetwork.predict_afterstate`."""
        outputs = self.afterstate_prediction_output(self.afterstate_prediction(afterstate))
        chance_logits, value_logits = torch.split(outputs, self.afterstate_splits, dim=1)
        return chance_logits, value_logits

    def outcome(self, afterstate: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `StochasticNetwork.outcome`."""
        outputs = self.dynamics_output(self.dynamics(afterstate, self.code(code)))
        following, reward_logits, turn_logit = torch.split(outputs, self.dynamics_splits, dim=1)
        if self.residual_dynamics:
            following = following + afterstate
        turn = turn_logit.squeeze(1) if self.spec.has_turn_head else None
        return scale_latent(following), reward_logits, turn

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """See `MuZeroNetwork.predict`."""
        outputs = self.prediction_output(self.prediction(latent))
        policy_logits, value_logits = torch.split(outputs, self.prediction_splits, dim=1)
        return policy_logits, value_logits

    def embed(self, seen: Tensor) -> Tensor:
        """See `StochasticNetwork.embed`."""
        return self.encoder_output(self.encoder(self._flat(seen)))

    def _flat(self, observation: Tensor) -> Tensor:
        x = observation.flatten(1).to(self.code.weight.dtype)
        return x if self.spec.observation_scale == 1.0 else x * self.spec.observation_scale

    def project(self, latent: Tensor, with_predictor: bool) -> Tensor:
        """See `MuZeroNetwork.project`."""
        return refuse_projection() if self.simsiam is None else self.simsiam(latent, with_predictor)
