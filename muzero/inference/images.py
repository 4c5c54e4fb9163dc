"""Images in memory and the layers of a residual network over them, as jobs.

Letters: `m` images, `C` channels, `H` and `W` of an image, `P` pixels of one with its border.
"""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from muzero.inference.layers import (
    FloatArray,
    Indices,
    PackedLayer,
    Precision,
    Workspace,
    address,
    aligned,
    round_up,
)
from muzero.network.resnet import Head


class Images:
    """Buffers of `m` images with a border, and jobs over them; see `muzero.inference.resnet_kernels`."""

    def __init__(
        self, height: int, width: int, num_images: int, space: Workspace, precision: Precision
    ) -> None:
        self.height, self.width, self.num_images = height, width, num_images
        self.precision, self.space = precision, space
        self.num_pixels = (self.height + 1) * (self.width + 1)
        # Neighbours of the first and the last pixel, and those behind the last that the matrix unit reads.
        self._before = self.width + 2
        self._behind = self.width + 2 + 32
        self._fields = {
            "height": self.height,
            "row_length": self.width,
            "first": self.width + 1,
            "image_step": self.num_pixels,
            "row_step": self.width + 1,
        }

    def buffer(self, channels: int) -> int:
        """Address of pixel 0 of zeros `[m, P, C]`."""
        pixels = self._before + self.num_images * self.num_pixels + self._behind
        array = self.space.keep(aligned(pixels * channels, self.precision.dtype))
        return address(array) + self._before * channels * self.precision.size

    def convolution(self, layer: PackedLayer, x: int, out: int, extra: int = 0) -> list[int]:
        """A job of a 3x3 convolution from buffer to buffer; `extra` is another buffer, or `out` itself."""
        around = (-1, 0, 1)
        steps = [dy * (self.width + 1) + dx for dy in around for dx in around]
        taps = self.space.keep(np.array(steps, np.int64) * layer.depth)
        return self.space.job(
            layer,
            x,
            out,
            extra=extra,
            taps=address(taps),
            **self._fields,
            out_first=self.width + 1,
            out_image_step=self.num_pixels,
            out_row_step=self.width + 1,
            out_rows=address(self.space.keep(self._places(None))),
        )

    def pixelwise(self, layer: PackedLayer, x: int, out: int, image_step: int) -> list[int]:
        """A job of a layer of every pixel, to an array without borders with so many pixels from image to image."""
        return self.space.job(
            layer,
            x,
            out,
            **self._fields,
            out_image_step=image_step,
            out_row_step=self.width,
            out_rows=address(self.space.keep(self._places(image_step))),
        )

    def _places(self, image_step: int | None) -> Indices:
        """`[m P]` where each pixel goes: to itself, or to an array without borders; -1 for those of the border."""
        grid: Indices = np.full((self.num_images, self.height + 1, self.width + 1), -1)
        if image_step is None:
            grid[:, 1:, :-1] = np.arange(grid.size).reshape(grid.shape)[:, 1:, :-1]
        else:
            squares = np.arange(self.height * self.width).reshape(self.height, self.width)
            grid[:, 1:, :-1] = np.arange(self.num_images)[:, None, None] * image_step + squares
        return grid.ravel()


def convolution_matrix(weight: Tensor) -> FloatArray:
    """`[C_out, C_in, k, k]` -> `[k k, C_in, C_out]`."""
    matrix: FloatArray = weight.permute(2, 3, 1, 0).flatten(0, 1).contiguous().numpy()
    return matrix


class HeadLayers:
    """The layers of some heads that read the same images, computed together; their outputs stand side by side.

    Args:
        shape: `(H, W)` of the images.
        depth: Their channels, padding included.
    """

    def __init__(
        self, heads: Sequence[Head], shape: tuple[int, int], depth: int, precision: Precision
    ) -> None:
        multiple = precision.depth_multiple
        self._num_squares = math.prod(shape)
        channels = sum(head.conv.conv.out_channels for head in heads)
        hidden = sum(head.hidden.out_features for head in heads)
        outputs = sum(head.output.out_features for head in heads)
        self._step = round_up(channels, 16)
        # Pixels from image to image, so that the inputs of the next layer are whole steps.
        self._image_step = self._num_squares
        while self._image_step * self._step % multiple:
            self._image_step += 1
        inputs, hidden = self._image_step * self._step, round_up(hidden, multiple)
        self._layers = [
            PackedLayer(1, depth, self._step, relu=True, precision=precision),
            PackedLayer(1, inputs, hidden, relu=True, precision=precision),
            PackedLayer(1, hidden, round_up(outputs, 16), relu=False, precision=precision),
        ]

    def jobs(self, images: Images, x: int) -> list[list[int]]:
        """From the buffer of images at an address to float32 outputs, in buffers of their own."""
        conv, inner, last = self._layers
        space, dtype = images.space, images.precision.dtype
        # The matrix unit reads whole blocks of rows, a vector may look behind the last number.
        rows = round_up(images.num_images, 32)
        squares = address(space.keep(aligned(rows * inner.depth, dtype)))
        units = address(space.keep(aligned(rows * last.depth, dtype)))
        result = space.keep(aligned((images.num_images + 1) * last.width, np.float32))
        return [
            images.pixelwise(conv, x, squares, self._image_step),
            space.job(inner, squares, units),
            space.job(last, units, address(result), to_float=1),
        ]

    def write(self, heads: Sequence[Head]) -> None:
        """Take the weights of heads as those that this was made for, with their norms folded."""
        conv, inner, last = self._layers
        conv_matrix, conv_bias = np.zeros((1, conv.depth, conv.width), np.float32), []
        inner_matrix = np.zeros((1, inner.depth, inner.width), np.float32)
        last_matrix = np.zeros((1, last.depth, last.width), np.float32)
        squares = inner_matrix[0, : self._num_squares * self._step].reshape(
            self._num_squares, self._step, inner.width
        )
        channel = unit = output = 0
        for head in heads:
            weight = convolution_matrix(head.conv.conv.weight)[0]
            channels = slice(channel, channel + weight.shape[1])
            units = slice(unit, unit + head.hidden.out_features)
            outputs = slice(output, output + head.output.out_features)
            conv_matrix[0, : len(weight), channels] = weight
            conv_bias.append(bias_of(head.conv.conv))
            by_channel = (
                head.hidden.weight.t().numpy().reshape(weight.shape[1], -1, units.stop - unit)
            )
            squares[:, channels, units] = by_channel.transpose(1, 0, 2)
            last_matrix[0, units, outputs] = head.output.weight.t().numpy()
            channel, unit, output = channels.stop, units.stop, outputs.stop
        conv.write(conv_matrix, np.concatenate(conv_bias))
        inner.write(inner_matrix, np.concatenate([bias_of(head.hidden) for head in heads]))
        last.write(last_matrix, np.concatenate([bias_of(head.output) for head in heads]))


def bias_of(layer: nn.Conv2d | nn.Linear) -> FloatArray:
    """Its bias as an array; it has one, as every layer whose norm is folded."""
    assert layer.bias is not None
    bias: FloatArray = layer.bias.detach().numpy()
    return bias
