"""The layers of a residual network, packed once, and its calls: a program per thread over buffers of its own.

Letters: `C` channels, `H` and `W` of the latent, `A` actions.
"""

import numpy as np
from torch import nn

from muzero.inference import jobs
from muzero.inference import resnet_kernels as plans
from muzero.inference.calls import CompiledCall, set_supports
from muzero.inference.functions import functions
from muzero.inference.images import HeadLayers, Images, bias_of, convolution_matrix
from muzero.inference.layers import (
    Indices,
    PackedLayer,
    Precision,
    Workspace,
    address,
    aligned,
    make_program,
    round_up,
)
from muzero.network.layers import ConvNorm, ResidualBlock
from muzero.network.resnet import ResNetNetwork

MIN_ROWS_PER_THREAD = 8
"""Handing rows to another thread takes about as long as computing so many."""

CHUNK_BYTES = 2**18
"""Of a buffer of images, of which there are three."""

MAX_CHUNK = 32
"""Rows of a chunk: a full block of the matrix unit in the heads."""


class Tower:
    """The layers of residual blocks."""

    def __init__(self, num_blocks: int, depth: int, precision: Precision) -> None:
        self._layers = [
            PackedLayer(9, depth, depth, relu=True, precision=precision)
            for _ in range(2 * num_blocks)
        ]

    def jobs(self, images: Images, state: int, branch: int) -> list[list[int]]:
        """Over a buffer of images, in place; `branch` is another, for what lies between."""
        made = []
        for first, second in zip(self._layers[::2], self._layers[1::2], strict=True):
            made.append(images.convolution(first, state, branch))
            made.append(images.convolution(second, branch, state, extra=state))
        return made

    def write(self, blocks: list[ResidualBlock]) -> None:
        """Take the weights of blocks whose norms are folded."""
        convolutions = [part.conv for block in blocks for part in (block.first, block.second)]
        for layer, conv in zip(self._layers, convolutions, strict=True):
            layer.write(convolution_matrix(conv.weight), bias_of(conv))


class ResNetLayers:
    """All layers of a network. A step goes by way of one convolution and the tower to the heads, whose input is scaled."""

    def __init__(self, network: ResNetNetwork, precision: Precision) -> None:
        channels, *shape = network.latent_shape
        self._height, self._width = shape
        self._precision = precision
        self._spaces: list[Workspace] = []
        self._depth = depth = round_up(channels, precision.depth_multiple)
        planes = network.spec.observation_shape[0]
        self._plane_depth = round_up(planes, precision.depth_multiple)
        # On boards the representation begins with a convolution and its ReLU; those that shrink images have more.
        self.reads_planes = len(list(network.representation[0].children())) == 2
        num_blocks = len(residual_blocks(network.representation)) if self.reads_planes else 0

        def convolution(inputs: int) -> PackedLayer:
            return PackedLayer(9, inputs, depth, relu=True, precision=precision)

        self._entry, self._planes = convolution(depth), convolution(self._plane_depth)
        self._dynamics = Tower(len(network.dynamics_blocks), depth, precision)
        self._representation = Tower(num_blocks, depth, precision)
        num_actions = network.spec.num_actions
        self._table = aligned((num_actions * self._height * self._width, depth), np.float32)
        rewards, predictions = [network.reward_head], [network.policy_head, network.value_head]
        size = (self._height, self._width)
        self._reward = HeadLayers(rewards, size, depth, precision)
        self._prediction = HeadLayers(predictions, size, depth, precision)

    def write(self, network: ResNetNetwork) -> None:
        """Take the weights of a network that `prepare_inference` has folded."""
        table = network.action_table
        assert table is not None
        self._table[:, : table.shape[-1]] = table.flatten(0, 1).numpy()
        self._entry.write(convolution_matrix(network.dynamics_input.conv.weight), None)
        self._dynamics.write(residual_blocks(network.dynamics_blocks))
        self._reward.write([network.reward_head])
        self._prediction.write([network.policy_head, network.value_head])
        if self.reads_planes:
            modules = network.representation.modules()
            first = next(module for module in modules if isinstance(module, ConvNorm)).conv
            self._planes.write(convolution_matrix(first.weight), bias_of(first))
            self._representation.write(residual_blocks(network.representation))

    def calls(self, network: ResNetNetwork, num_threads: int) -> tuple[CompiledCall, CompiledCall]:
        """Root and step."""
        workers = [self._worker(network) for _ in range(num_threads)]
        root, step = (
            CompiledCall(
                plans.resnet_call,
                plans,
                [worker[is_step] for worker in workers],
                num_actions=network.spec.num_actions,
                min_rows=MIN_ROWS_PER_THREAD,
                is_step=is_step,
            )
            for is_step in (False, True)
        )
        return root, step

    def _worker(
        self, network: ResNetNetwork
    ) -> tuple[tuple[Indices, Indices], tuple[Indices, Indices]]:
        """Program and plan of root and step, over buffers that no other worker uses."""
        precision, spec = self._precision, network.spec
        num_pixels = (self._height + 1) * (self._width + 1)
        chunk = CHUNK_BYTES // (num_pixels * self._depth * precision.size)
        chunk = min(max(chunk, 1), MAX_CHUNK)
        space = Workspace(chunk * num_pixels)
        self._spaces.append(space)
        images = Images(self._height, self._width, chunk, space, precision)
        stream, state, branch = (images.buffer(self._depth) for _ in range(3))
        planes = images.buffer(self._plane_depth) if self.reads_planes else 0
        bias_rows = space.keep(aligned(chunk * num_pixels, np.int64))
        entry = images.convolution(self._entry, stream, state, extra=stream)
        entry[jobs.BIAS], entry[jobs.BIAS_ROWS] = address(self._table), address(bias_rows)
        reward, prediction = self._reward.jobs(images, state), self._prediction.jobs(images, state)
        to_state = [entry, *self._dynamics.jobs(images, state, branch)]
        root_to_state: list[list[int]] = []
        if self.reads_planes:
            root_to_state = [
                images.convolution(self._planes, planes, state),
                *self._representation.jobs(images, state, branch),
            ]

        compiled = functions(precision.unit)
        plan: Indices = aligned(plans.NUM_PLAN_FIELDS, np.int64)
        for name, value in {
            "chunk": chunk,
            "height": self._height,
            "width": self._width,
            "channels": network.latent_shape[0],
            "whole_channels": self._depth,
            "num_planes": spec.observation_shape[0],
            "whole_planes": self._plane_depth,
            "pixel": address(space.keep(aligned(spec.observation_shape[0], np.float32))),
            "entry_bias_rows": address(bias_rows),
            "bounds": address(space.keep(aligned(2, np.float32))),
            "num_actions": spec.num_actions,
            "value_first": spec.num_actions,
            "run_layer": compiled.run_layer,
            "round_run": compiled.round_run,
            "scale_run": compiled.scale_run,
            "bounds_of_run": compiled.bounds,
            "size": precision.size,
        }.items():
            plan[getattr(plans, name.upper())] = value
        set_supports(plan, plans, network, space)
        root, step = plan.copy(), plan
        root[plans.NUM_ENTRY], root[plans.TURN] = len(root_to_state), -1
        # Latents that torch made go straight to where the heads read them.
        root[plans.PLANES_AT], root[plans.STREAM] = planes, state
        step[plans.STREAM] = stream
        step[plans.NUM_ENTRY], step[plans.NUM_REWARD] = len(to_state), len(reward)
        step[plans.TURN] = network.reward_support.size if spec.has_turn_head else -1
        return (
            (make_program([*root_to_state, *prediction]), root),
            (make_program([*to_state, *reward, *prediction]), step),
        )


def residual_blocks(module: nn.Module) -> list[ResidualBlock]:
    """All in a module, in their order."""
    return [block for block in module.modules() if isinstance(block, ResidualBlock)]
