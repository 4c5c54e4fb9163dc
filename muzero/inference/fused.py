"""An MLP network as a flat list of matrix products over buffers that are allocated once.

Small networks on a CPU spend their time between the products: in modules, dispatch and allocation. Here every
product writes to its own buffer and carries its bias, and compiled loops do the rest.

Letters: `n` rows of a call, `A` actions, `L` latent size, `S` atoms, `W` columns of a layer.
"""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from muzero.inference.evaluators import Answer, FloatArray, Rows
from muzero.network.kernels import read_scalars, scale_rows
from muzero.network.mlp import MLPNetwork, Trunk
from muzero.network.support import Support

COLUMNS = 16
"""Weights are padded to a multiple of so many columns: a product with 67 columns takes longer than one with 80."""

MAX_KERNEL_ATOMS = 48
"""Supports up to this size are read by the kernel, larger ones by torch, whose exponential is vectorised."""

NO_ROWS = np.zeros(0, np.int64)


class FusedLayer:
    """A linear layer as `x @ weight + bias` of `num_inputs` columns, padded with zeros on both sides."""

    def __init__(self, layer: nn.Linear, num_inputs: int, dtype: torch.dtype):
        self.source = layer
        columns = -(-layer.out_features // COLUMNS) * COLUMNS
        self.weight = torch.zeros(num_inputs, columns, dtype=dtype)
        self.bias = torch.zeros(columns, dtype=dtype)

    def load(self) -> None:
        """Copy the weights of the layer that this was made from."""
        num_outputs, num_inputs = self.source.weight.shape
        self.weight[:num_inputs, :num_outputs] = self.source.weight.t()
        self.bias[:num_outputs] = self.source.bias


class FusedTrunk:
    """A trunk with its output layer."""

    def __init__(self, trunk: Trunk, output: nn.Linear, dtype: torch.dtype):
        self.layers: list[FusedLayer] = []
        num_inputs = trunk.num_inputs
        for layer in (*trunk.layers, output):
            assert isinstance(layer, nn.Linear)
            self.layers.append(FusedLayer(layer, num_inputs, dtype))
            num_inputs = self.layers[-1].bias.numel()

    def load(self) -> None:
        """Copy the weights of the trunk and output that this was made from."""
        for layer in self.layers:
            layer.load()


class TrunkBuffers:
    """What a fused trunk writes to in a call with `n` rows."""

    def __init__(self, trunk: FusedTrunk, num_rows: int):
        self._layers = trunk.layers
        self.buffers = [
            torch.empty(num_rows, layer.bias.numel(), dtype=layer.bias.dtype)
            for layer in trunk.layers
        ]
        last = self.buffers[-1]
        self._outputs = torch.empty(last.shape) if last.dtype != torch.float32 else last
        self.outputs: FloatArray = self._outputs.numpy()
        """`[n, W]` of the output layer in float32, padding included."""

    def run(self, x: Tensor, *, with_offset: bool = False) -> None:
        """From `[n, inputs]` to `outputs`.

        With `with_offset` the first buffer holds what is added to the first product, its bias included.
        """
        last = self.buffers[-1]
        for layer, buffer in zip(self._layers, self.buffers, strict=True):
            if with_offset:
                buffer.addmm_(x, layer.weight)
                with_offset = False
            else:
                torch.addmm(layer.bias, x, layer.weight, out=buffer)
            if buffer is not last:
                buffer.relu_()
            x = buffer
        if self._outputs is not last:
            self._outputs.copy_(last)


class FusedMLP:
    """An `MLPNetwork` on the CPU."""

    def __init__(self, network: MLPNetwork, dtype: torch.dtype):
        self.memory_shape = network.latent_shape
        self.memory_dtype = torch.float32
        self.dtype = dtype
        self.network = deepcopy(network).eval().requires_grad_(False).to("cpu")
        own = self.network
        self.representation = FusedTrunk(own.representation, own.representation_output, dtype)
        self.dynamics = FusedTrunk(own.dynamics, own.dynamics_output, dtype)
        self.prediction = FusedTrunk(own.prediction, own.prediction_output, dtype)
        first = self.dynamics.layers[0]
        self.offsets = torch.zeros(own.spec.num_actions, first.bias.numel(), dtype=dtype)
        self._workspaces: dict[int, Workspace] = {}
        self._copy_weights()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        self.network.load_state_dict(state)
        self._copy_weights()

    @torch.no_grad()
    def _copy_weights(self) -> None:
        for trunk in (self.representation, self.dynamics, self.prediction):
            trunk.load()
        # The bias of the first layer rides with the action.
        action = self.network.action.weight
        self.offsets[:, : action.shape[1]] = action + self.dynamics.layers[0].source.bias

    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """See `Evaluator.initial`."""
        x = observation.flatten(1).float()
        if self.network.spec.observation_scale != 1.0:
            x = x * self.network.spec.observation_scale
        return self._workspace(len(observation)).initial(x.to(self.dtype), slab, rows)

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        return self._workspace(len(rows.action)).recurrent(slab, rows)

    def _workspace(self, num_rows: int) -> "Workspace":
        space = self._workspaces.get(num_rows)
        if space is None:
            # A search keeps its number of rows; one spare for roots that are fewer than the batch.
            if len(self._workspaces) > 1:
                self._workspaces.clear()
            space = self._workspaces[num_rows] = Workspace(self, num_rows)
        return space


class Workspace:
    """The buffers of calls with `n` rows, and the calls."""

    def __init__(self, owner: FusedMLP, num_rows: int):
        network = owner.network
        size, num_actions = network.latent_shape[0], network.spec.num_actions
        self._owner = owner
        self._representation = TrunkBuffers(owner.representation, num_rows)
        self._dynamics = TrunkBuffers(owner.dynamics, num_rows)
        self._prediction = TrunkBuffers(owner.prediction, num_rows)
        self._latent = torch.empty(num_rows, size)
        self._latent_array: FloatArray = self._latent.numpy()
        self._spread = np.zeros(num_rows, np.float32)
        # The input of a product, in its type; shares the latent's memory in float32.
        self._input = self._latent.to(owner.dtype)
        support = network.reward_support
        self._reward = ScalarReader(support, self._dynamics.outputs, size)
        self._value = ScalarReader(network.value_support, self._prediction.outputs, num_actions)
        self._policy_logits = self._prediction.outputs[:, :num_actions]
        self._turn_logit = (
            self._dynamics.outputs[:, size + support.size] if network.spec.has_turn_head else None
        )

    def initial(self, x: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """Flat observations `[n, O]`; see `Evaluator.initial`."""
        self._representation.run(x)
        target = NO_ROWS if rows is None else rows.target
        self._predict(self._representation.outputs, slab, target)
        return Answer(self._policy_logits, self._value.read(), None, None)

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        source, _, action = rows.on_device()
        dynamics = self._dynamics
        torch.index_select(slab, 0, source, out=self._latent)
        torch.index_select(self._owner.offsets, 0, action, out=dynamics.buffers[0])
        dynamics.run(self._to_input(), with_offset=True)
        if self._owner.network.residual_dynamics:
            dynamics.outputs[:, : self._latent.shape[1]] += self._latent_array
        self._predict(dynamics.outputs, slab, rows.target)
        return Answer(
            self._policy_logits, self._value.read(), self._reward.read(), self._turn_logit
        )

    def _predict(self, outputs: FloatArray, slab: Tensor, target: npt.NDArray[np.int64]) -> None:
        scale_rows(outputs, self._latent_array, self._spread, slab.numpy(), target)
        self._prediction.run(self._to_input())

    def _to_input(self) -> Tensor:
        return self._latent if self._input is self._latent else self._input.copy_(self._latent)


class ScalarReader:
    """Reads a head off `S` columns of an output layer, again and again."""

    def __init__(self, support: Support, outputs: FloatArray, first: int):
        self._support = support
        self._outputs = outputs
        self._first = first
        self._scalar = np.zeros(len(outputs), np.float32)
        self._logits = torch.from_numpy(outputs)[:, first : first + support.size]

    def read(self) -> FloatArray:
        """Scalars `[n]`."""
        support = self._support
        if support.size > MAX_KERNEL_ATOMS:
            array: FloatArray = support.decode(self._logits).numpy()
            return array
        read_scalars(
            self._outputs,
            self._first,
            support.size,
            support.atom_width,
            support.transform,
            self._scalar,
        )
        return self._scalar
