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

    def __init__(self, num_rows: int, device: torch.device):
        self._device = device
        self._host = torch.zeros(3, num_rows, dtype=torch.int64)
        if device.type == "cuda":
            self._host = self._host.pin_memory()
        self.source, self.target, self.action = self._host.numpy()
        self._views = self._host.unbind()

    def on_device(self) -> tuple[Tensor, ...]:
        """`source`, `target`, `action` as tensors; shared with the arrays on the CPU."""
        if self._device.type == "cpu":
            return self._views
        return self._host.to(self._device, non_blocking=True).unbind()


class Evaluator(Protocol):
    """An inference copy of a network; its methods run inside `torch.inference_mode`."""

    memory_shape: tuple[int, ...]
    """`*M`."""
    memory_dtype: torch.dtype

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the weights of a training network's state dict."""

    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """Observations `[n, *O]` on the device; latents go to `rows.target`, or nowhere without `rows`."""

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """From the latents of `rows.source` by `rows.action` to those of `rows.target`."""


class ModuleEvaluator:
    """Any network, as its own module in eval mode: batch norms folded, images with channels last."""

    def __init__(self, network: MuZeroNetwork, device: torch.device, dtype: torch.dtype):
        self.memory_dtype = dtype
        self._device = device
        shape = network.latent_shape
        self._is_image = len(shape) == 3
        # With the channels last a row of the slab is gathered and scattered without a change of layout.
        self.memory_shape = (*shape[1:], shape[0]) if self._is_image else tuple(shape)
        self._unfolded = deepcopy(network).eval().requires_grad_(False).to("cpu")
        self._network = self._folded()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        self._unfolded.load_state_dict(state)
        self._network = self._folded()

    def _folded(self) -> MuZeroNetwork:
        network = deepcopy(self._unfolded)
        network.prepare_inference()
        network = network.to(device=self._device, dtype=self.memory_dtype)
        if self._is_image:
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """See `Evaluator.initial`."""
        network = self._network
        latent = network.represent(observation)
        policy_logits, value_logits = network.predict(latent)
        if rows is not None:
            slab.index_copy_(0, rows.on_device()[1], self._to_memory(latent))
        value = network.value_support.decode(value_logits)
        return Answer(_to_array(policy_logits), _to_array(value), None, None)

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        network = self._network
        source, target, action = rows.on_device()
        memory = slab.index_select(0, source)
        latent = memory.permute(0, 3, 1, 2) if self._is_image else memory
        output = network.recurrent_inference(latent, action)
        assert output.reward_logits is not None
        slab.index_copy_(0, target, self._to_memory(output.latent))
        return Answer(
            _to_array(output.policy_logits),
            _to_array(network.value_support.decode(output.value_logits)),
            _to_array(network.reward_support.decode(output.reward_logits)),
            None if output.turn_logit is None else _to_array(output.turn_logit),
        )

    def _to_memory(self, latent: Tensor) -> Tensor:
        return latent.permute(0, 2, 3, 1) if self._is_image else latent


def _to_array(tensor: Tensor) -> FloatArray:
    array: FloatArray = tensor.float().cpu().numpy()
    return array
