"""A network made ready for inference: batch norms folded, channels last, latents as a slab keeps them.

Letters: `n` rows of a call, `A` actions, `*O` observation shape, `*M` shape of a latent as the slab keeps it.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from muzero.network.base import MuZeroNetwork
from muzero.network.layers import ConvNorm


class Outputs(NamedTuple):
    """What a network says of `n` positions: scalars, read off its heads in float32."""

    latent: Tensor
    """`[n, *M]`."""
    policy_logits: Tensor
    """`[n, A]`."""
    value: Tensor
    """`[n]`."""
    reward: Tensor | None
    """`[n]` of the edge that led here; None at a root."""
    turn_logit: Tensor | None
    """`[n]` of the edge that led here; None without a turn head or edge."""


class Evaluator(Protocol):
    """An inference copy of a network, called inside `torch.inference_mode`; outputs live until the next call."""

    memory_shape: tuple[int, ...]
    dtype: torch.dtype

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the weights of a training network's state dict."""

    def initial(self, observation: Tensor) -> Outputs:
        """`[n, *O]` on the device."""

    def recurrent(self, latent: Tensor, action: Tensor) -> Outputs:
        """`[n, *M]` and int64 `[n]`, both on the device."""


class ModuleEvaluator:
    """Any network, as its own module in eval mode."""

    def __init__(self, network: MuZeroNetwork, device: torch.device, dtype: torch.dtype):
        self.dtype = dtype
        self._device = device
        self._is_image = len(network.latent_shape) == 3
        shape = network.latent_shape
        # A slab that ends with the channels is gathered and scattered without a change of layout.
        self.memory_shape = (*shape[1:], shape[0]) if self._is_image else tuple(shape)
        self._master = deepcopy(network).eval().requires_grad_(False).to("cpu")
        self._prepare()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        self._master.load_state_dict(state)
        self._prepare()

    def _prepare(self) -> None:
        network = deepcopy(self._master)
        for module in network.modules():
            if isinstance(module, ConvNorm):
                module.fold()
        network = network.to(device=self._device, dtype=self.dtype)
        self._network = (
            network.to(memory_format=torch.channels_last) if self._is_image else network
        )

    def initial(self, observation: Tensor) -> Outputs:
        """See `Evaluator.initial`."""
        network = self._network
        latent = network.represent(observation)
        policy_logits, value_logits = network.predict(latent)
        value = network.value_support.decode(value_logits)
        return Outputs(self._to_slab(latent), policy_logits.float(), value, None, None)

    def recurrent(self, latent: Tensor, action: Tensor) -> Outputs:
        """See `Evaluator.recurrent`."""
        network = self._network
        if self._is_image:
            latent = latent.permute(0, 3, 1, 2)
        output = network.recurrent_inference(latent, action)
        assert output.reward_logits is not None
        return Outputs(
            self._to_slab(output.latent),
            output.policy_logits.float(),
            network.value_support.decode(output.value_logits),
            network.reward_support.decode(output.reward_logits),
            None if output.turn_logit is None else output.turn_logit.float(),
        )

    def _to_slab(self, latent: Tensor) -> Tensor:
        return latent.permute(0, 2, 3, 1) if self._is_image else latent
