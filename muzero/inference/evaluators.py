"""Networks made ready for inference. Letters: `n` rows of a call, `A` actions, `*O` observation shape.

An evaluator keeps latents in a slab `[R, *M]` that its owner allocates: one row per node of every tree.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mcts.base import IntArray, Selection
from muzero.inference.emit import kernel
from muzero.network.base import MuZeroNetwork

FloatArray = npt.NDArray[np.float32]


class Answer(NamedTuple):
    """What a network says of `n` positions, on the host; valid until the next call."""

    policy_logits: FloatArray
    """`[n, A]`."""
    value: FloatArray
    """`[n]`."""
    reward: FloatArray | None
    """`[n]` of the edge that led here; None at a root."""
    turn_logit: FloatArray | None
    """`[n]` of that edge; None without a turn head or edge."""


class Rows:
    """The slab rows that a call with `n` rows reads and writes, and its actions: filled on the host as int64 `[n]`."""

    def __init__(self, num_rows: int, device: torch.device, memory: Tensor | None = None):
        self._device = device
        if memory is None:
            memory = torch.zeros(3 * num_rows, dtype=torch.int64)
            if device.type == "cuda":
                memory = memory.pin_memory()
        self._memory = memory
        self._host = memory[: 3 * num_rows].view(3, num_rows)
        self._table = self._host.numpy()
        self.source, self.target, self.action = self._table
        self.addresses = tuple(view.data_ptr() for view in self._host)
        """Of `source`, `target` and `action`."""

    def first(self, num_rows: int) -> "Rows":
        """For calls with fewer rows, in the same memory."""
        return Rows(num_rows, self._device, self._memory)

    def fill(self, selection: Selection, num_nodes: int) -> None:
        """Set all three from a selection of the search; a tree has `num_nodes` slab rows."""
        _fill_rows(*selection, num_nodes, self._table)

    def on_device(self) -> tuple[Tensor, Tensor, Tensor]:
        """`source`, `target`, `action` as tensors; shared with the arrays on the CPU."""
        source, target, action = self._host.to(self._device, non_blocking=True)
        return source, target, action


@kernel
def _fill_rows(
    row: IntArray,
    parent: IntArray,
    action: IntArray,
    node: IntArray,
    num_nodes: int,
    table: npt.NDArray[np.int64],
) -> None:
    for i in range(len(row)):
        first_node = row[i] * num_nodes
        table[0, i] = first_node + parent[i]
        table[1, i] = first_node + node[i]
        table[2, i] = action[i]


class Evaluator(Protocol):
    """An inference copy of a network."""

    memory_shape: tuple[int, ...]
    """`*M`."""
    memory_dtype: torch.dtype
    num_spare_rows: int
    """Rows that the slab needs behind those of the trees."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the weights of a training network's state dict."""

    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """Observations `[n, *O]` on the device; latents go to `rows.target`, or nowhere without `rows`."""

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """From the latents of `rows.source` by `rows.action` to those of `rows.target`."""


class Outputs:
    """Where a step writes what it says of `n` rows, on the device and on the host: one copy brings all of it across."""

    def __init__(
        self,
        num_rows: int,
        num_actions: int,
        device: torch.device,
        memory: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self._num_actions, self._device = num_actions, device
        size = num_rows * (num_actions + 3)
        if memory is None:
            there = torch.zeros(size, device=device)
            here = torch.zeros(size).pin_memory() if device.type == "cuda" else there
            memory = there, here
        self._memory = memory
        self._flat, self._host = (each[:size] for each in memory)
        self.logits, self.value, self.reward, self.turn = self._views(self._flat)
        """`[n, A]`, and `[n]` three times, on the device."""
        self._arrays = [view.numpy() for view in self._views(self._host)]

    def first(self, num_rows: int) -> "Outputs":
        """For calls with fewer rows, in the same memory."""
        return Outputs(num_rows, self._num_actions, self._device, self._memory)

    def fetch(self) -> None:
        """Copy to the host; on CUDA that has been done when the stream has come so far."""
        if self._host is not self._flat:
            self._host.copy_(self._flat, non_blocking=True)

    def answer(self, num_rows: int, has_turn: bool) -> Answer:
        """What has been fetched of the first rows."""
        logits, value, reward, turn = (array[:num_rows] for array in self._arrays)
        return Answer(logits, value, reward, turn if has_turn else None)

    def _views(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        num_rows = len(flat) // (self._num_actions + 3)
        logits, *others = flat.split([num_rows * self._num_actions, *[num_rows] * 3])
        return logits.view(num_rows, self._num_actions), *others


class ModuleEvaluator:
    """Any network, as its own module in eval mode: batch norms folded, images with channels last."""

    num_spare_rows = 0

    def __init__(self, network: MuZeroNetwork, device: torch.device, dtype: torch.dtype):
        self.memory_dtype = dtype
        self._device = device
        shape = network.latent_shape
        self._is_image = len(shape) == 3
        # With the channels last a row of the slab is gathered and scattered without a change of layout.
        self.memory_shape = (*shape[1:], shape[0]) if self._is_image else tuple(shape)
        self._unfolded = deepcopy(network).eval().requires_grad_(False).to("cpu")
        self._network = self._folded().to(device=device, dtype=dtype)
        if self._is_image:
            self._network = self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._outputs: dict[int, Outputs] = {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`; the weights in use keep their places in memory, which a captured graph counts on."""
        self._unfolded.load_state_dict(state)
        with torch.no_grad():
            for old, new in zip(_tensors(self._network), _tensors(self._folded()), strict=True):
                old.copy_(new)

    def _folded(self) -> MuZeroNetwork:
        network = deepcopy(self._unfolded)
        network.prepare_inference()
        return network

    @torch.inference_mode()
    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """See `Evaluator.initial`."""
        network = self._network
        latent = network.represent(observation)
        policy_logits, value_logits = network.predict(latent)
        if rows is not None:
            slab.index_copy_(0, rows.on_device()[1], self._to_memory(latent))
        value = network.value_support.decode(value_logits)
        return Answer(_to_array(policy_logits), _to_array(value), None, None)

    @torch.inference_mode()
    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        num_rows = len(rows.action)
        outputs = self._outputs_of(num_rows)
        self.step(slab, *rows.on_device(), outputs)
        outputs.fetch()
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return outputs.answer(num_rows, self._network.spec.has_turn_head)

    def step(
        self, slab: Tensor, source: Tensor, target: Tensor, action: Tensor, outputs: Outputs
    ) -> None:
        """All that a step does on the device, from the slab to the slab and to `outputs`; waits for nothing."""
        network = self._network
        memory = slab.index_select(0, source)
        latent = memory.permute(0, 3, 1, 2) if self._is_image else memory
        output = network.recurrent_inference(latent, action)
        assert output.reward_logits is not None
        slab.index_copy_(0, target, self._to_memory(output.latent))
        outputs.logits.copy_(output.policy_logits)
        outputs.value.copy_(network.value_support.decode(output.value_logits))
        outputs.reward.copy_(network.reward_support.decode(output.reward_logits))
        if output.turn_logit is not None:
            outputs.turn.copy_(output.turn_logit)

    def _outputs_of(self, num_rows: int) -> Outputs:
        outputs = self._outputs.get(num_rows)
        if outputs is None:
            largest = max(self._outputs, default=0)
            if num_rows > largest:
                self._outputs.clear()
                outputs = Outputs(num_rows, self._network.spec.num_actions, self._device)
            else:
                outputs = self._outputs[largest].first(num_rows)
            self._outputs[num_rows] = outputs
        return outputs

    def _to_memory(self, latent: Tensor) -> Tensor:
        return latent.permute(0, 2, 3, 1) if self._is_image else latent


def _tensors(network: MuZeroNetwork) -> list[Tensor]:
    """Parameters and buffers, those included that a state dict leaves out."""
    return [*network.parameters(), *network.buffers()]


def _to_array(tensor: Tensor) -> FloatArray:
    array: FloatArray = tensor.float().cpu().numpy()
    return array
