"""A residual network on the CPU as compiled kernels: one call for a whole step.

Images pass all layers in small groups that stay in the cache, channels last, with norms folded into the convolutions;
policy and value head are computed together.

Letters: `n` rows of a call, `m` of a chunk, `A` actions, `C` channels, `H` and `W` of the latent.
"""

import math
from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from muzero.inference import resnet_kernels as plans
from muzero.inference.evaluators import Answer, Rows
from muzero.inference.layers import Precision
from muzero.inference.resnet_layers import ResNetLayers
from muzero.network.resnet import MAX_TABLE_SIZE, ResNetNetwork


def is_fusable(network: ResNetNetwork) -> bool:
    """Whether `FusedResNet` can serve a network: one whose norms fold and whose actions fit a table."""
    return (
        not isinstance(network.dynamics_input.norm, nn.GroupNorm)
        and network.spec.num_actions * math.prod(network.latent_shape) <= MAX_TABLE_SIZE
    )


class FusedResNet:
    """A `ResNetNetwork` on the CPU that `is_fusable`.

    A row's answer is the same bit for bit whatever rows are beside it; but where the representation shrinks images, torch
    computes that, for all rows at once. With bfloat16, layers multiply and latents are kept in bfloat16; sums and what the
    heads say are float32.

    Args:
        bfloat16: Needs a `bfloat16_unit()`.
        num_threads: Threads that share the rows of a call.
    """

    num_spare_rows = 0

    def __init__(self, network: ResNetNetwork, *, bfloat16: bool, num_threads: int = 1) -> None:
        channels, height, width = network.latent_shape
        self.memory_shape: tuple[int, ...] = (height, width, channels)
        self.memory_dtype = torch.bfloat16 if bfloat16 else torch.float32
        self._unfolded = deepcopy(network).eval().requires_grad_(False).to("cpu")
        self._layers = ResNetLayers(network, Precision.of(bfloat16))
        self._root, self._step = self._layers.calls(network, num_threads)
        self._pack()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        self._unfolded.load_state_dict(state)
        self._pack()

    def _pack(self) -> None:
        network = deepcopy(self._unfolded)
        network.prepare_inference()
        self._layers.write(network)
        if not self._layers.reads_planes:
            self._torch = network.to(  # type: ignore[call-overload]
                dtype=self.memory_dtype, memory_format=torch.channels_last
            )

    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """See `Evaluator.initial`."""
        parts, answer = self._root.of(len(observation))
        if self._layers.reads_planes:
            inputs = observation.float()
            scale = self._unfolded.spec.observation_scale
            inputs = (inputs if scale == 1.0 else inputs * scale).contiguous()
            for part in parts:
                first = inputs.data_ptr() + 4 * inputs.stride(0) * part.first
                part.plan[plans.PLANES] = first
                part.plan[plans.SLAB] = slab.data_ptr()
                part.plan[plans.TARGET] = 0 if rows is None else rows.addresses[1] + part.shift
        else:
            with torch.inference_mode():
                inputs = self._torch.represent(observation).permute(0, 2, 3, 1).contiguous()
                if rows is not None:
                    slab.index_copy_(0, rows.on_device()[1], inputs)
            for part in parts:
                part.plan[plans.SLAB] = inputs.data_ptr()
        self._root.run(parts)
        return answer

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        parts, answer = self._step.of(len(rows.action))
        source, target, action = rows.addresses
        memory = slab.data_ptr()
        for part in parts:
            plan, shift = part.plan, part.shift
            plan[plans.SLAB] = memory
            plan[plans.SOURCE] = source + shift
            plan[plans.TARGET] = target + shift
            plan[plans.ACTION] = action + shift
        self._step.run(parts)
        return answer
