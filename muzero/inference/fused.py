"""An MLP network as a flat list of matrix products over buffers that are allocated once.

Small networks on a CPU spend their time between the products: in modules, dispatch and allocation. Here every
product writes to its own buffer and carries its bias, and both heads are read off together.

Letters: `n` rows of a call, `A` actions, `L` latent size, `S` atoms, `H` width of a layer.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from muzero.inference.evaluators import Outputs
from muzero.network.layers import MIN_LATENT_RANGE
from muzero.network.mlp import MLPNetwork, Trunk
from muzero.network.support import Support

COLUMNS = 16
"""Weights are padded to a multiple of so many columns: a product with 67 columns takes longer than with 80."""


class FusedLayer:
    """A linear layer as `x @ weight + bias`, padded with columns of zeros."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype):
        self.width = layer.out_features
        columns = -(-layer.out_features // COLUMNS) * COLUMNS
        self.weight = torch.zeros(layer.in_features, columns, dtype=dtype)
        self.bias = torch.zeros(columns, dtype=dtype)

    def load(self, layer: nn.Linear) -> None:
        """Copy the weights of a layer of the same shape."""
        self.weight[:, : self.width] = layer.weight.t()
        self.bias[: self.width] = layer.bias


class FusedTrunk:
    """A trunk with its output layer."""

    def __init__(self, trunk: Trunk, output: nn.Linear, dtype: torch.dtype):
        self._sources = [layer for layer in trunk.layers if isinstance(layer, nn.Linear)]
        self._sources.append(output)
        self.layers = [FusedLayer(layer, dtype) for layer in self._sources]

    def load(self) -> None:
        """Copy the weights of the trunk and output that this was made from."""
        for layer, source in zip(self.layers, self._sources, strict=True):
            layer.load(source)

    def buffers(self, num_rows: int) -> list[Tensor]:
        """One output `[n, H]` per layer."""
        return [
            torch.empty(num_rows, layer.bias.numel(), dtype=layer.bias.dtype)
            for layer in self.layers
        ]

    def run(self, x: Tensor, buffers: list[Tensor], *, starts_with_offset: bool = False) -> Tensor:
        """`[n, inputs]` -> `[n, H]` of the output layer, padding included, in the last of `buffers`.

        With `starts_with_offset` the first buffer holds what is added to the first product, its bias included.
        """
        last = buffers[-1]
        for layer, buffer in zip(self.layers, buffers, strict=True):
            if starts_with_offset:
                buffer.addmm_(x, layer.weight)
                starts_with_offset = False
            else:
                torch.addmm(layer.bias, x, layer.weight, out=buffer)
            if buffer is not last:
                buffer.relu_()
            x = buffer
        return last


@dataclass(slots=True)
class Workspace:
    """The buffers of a call with `n` rows."""

    representation: list[Tensor]
    dynamics: list[Tensor]
    prediction: list[Tensor]
    latent: Tensor
    """`[n, L]`."""
    range: Tensor
    """`[n, 1]`."""


class FusedMLP:
    """An `MLPNetwork` on the CPU."""

    def __init__(self, network: MLPNetwork, dtype: torch.dtype):
        self.dtype = dtype
        self.memory_shape = network.latent_shape
        self._network = deepcopy(network).eval().requires_grad_(False).to("cpu")
        own = self._network
        self._representation = FusedTrunk(own.representation, own.representation_output, dtype)
        self._dynamics = FusedTrunk(own.dynamics, own.dynamics_output, dtype)
        self._prediction = FusedTrunk(own.prediction, own.prediction_output, dtype)
        first = self._dynamics.layers[0]
        self._offsets = torch.zeros(own.spec.num_actions, first.bias.numel(), dtype=dtype)
        self._latent_size = own.latent_shape[0]
        self._num_actions = own.spec.num_actions
        self._value_reader = Reader(own.value_support)
        self._reward_reader = Reader(own.reward_support)
        self._workspaces: dict[int, Workspace] = {}
        self._copy_weights()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        self._network.load_state_dict(state)
        self._copy_weights()

    @torch.no_grad()
    def _copy_weights(self) -> None:
        for trunk in (self._representation, self._dynamics, self._prediction):
            trunk.load()
        # The bias of the first layer rides with the action.
        first, action = self._dynamics.layers[0], self._network.action.weight
        self._offsets[:, : first.width] = action + self._network.dynamics.layers[0].bias

    def initial(self, observation: Tensor) -> Outputs:
        """See `Evaluator.initial`."""
        space = self._workspace(len(observation))
        x = observation.flatten(1).to(self.dtype)
        if self._network.spec.observation_scale != 1.0:
            x = x * self._network.spec.observation_scale
        outputs = self._representation.run(x, space.representation)
        latent = self._scale(outputs[:, : self._latent_size], space)
        return self._predict(latent, space, None, None)

    def recurrent(self, latent: Tensor, action: Tensor) -> Outputs:
        """See `Evaluator.recurrent`."""
        space = self._workspace(len(action))
        torch.index_select(self._offsets, 0, action, out=space.dynamics[0])
        outputs = self._dynamics.run(latent, space.dynamics, starts_with_offset=True)
        size, num_atoms = self._latent_size, self._reward_reader.size
        following = outputs[:, :size]
        if self._network.residual_dynamics:
            following += latent
        reward = self._reward_reader.read(outputs[:, size : size + num_atoms])
        turn = outputs[:, size + num_atoms].float() if self._network.spec.has_turn_head else None
        return self._predict(self._scale(following, space), space, reward, turn)

    def _predict(
        self, latent: Tensor, space: Workspace, reward: Tensor | None, turn: Tensor | None
    ) -> Outputs:
        outputs = self._prediction.run(latent, space.prediction)
        first = self._num_actions
        value = self._value_reader.read(outputs[:, first : first + self._value_reader.size])
        return Outputs(latent, outputs[:, :first].float(), value, reward, turn)

    def _scale(self, latent: Tensor, space: Workspace) -> Tensor:
        """`scale_latent` into the workspace."""
        low, high = torch.aminmax(latent, dim=1, keepdim=True)
        torch.sub(high, low, out=space.range).clamp_(min=MIN_LATENT_RANGE)
        return torch.sub(latent, low, out=space.latent).div_(space.range)

    def _workspace(self, num_rows: int) -> Workspace:
        space = self._workspaces.get(num_rows)
        if space is None:
            space = Workspace(
                self._representation.buffers(num_rows),
                self._dynamics.buffers(num_rows),
                self._prediction.buffers(num_rows),
                torch.empty(num_rows, self._latent_size, dtype=self.dtype),
                torch.empty(num_rows, 1, dtype=self.dtype),
            )
            self._workspaces = {num_rows: space}
        return space


class Reader:
    """`Support.decode` with its constants at hand."""

    def __init__(self, support: Support):
        self.size = support.size
        self._support = support
        atoms = torch.arange(-support.half, support.half + 1, dtype=torch.float32)
        self._moments = torch.stack((atoms, torch.ones_like(atoms)), 1)

    def read(self, logits: Tensor) -> Tensor:
        """Logits `[n, S]` -> scalars `[n]` in float32."""
        logits = logits.float()
        weights = (logits - logits.amax(1, keepdim=True)).exp_()
        position, total = torch.mm(weights, self._moments).unbind(1)
        return self._support.from_atoms(position / total)
