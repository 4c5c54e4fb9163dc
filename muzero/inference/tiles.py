"""Matrix products in float32 by register tiles: some rows times a panel of columns, summed in vector registers.

A product of a few rows with a small weight is over before a library has looked at it. Here a tile is compiled for every
number of rows; each entry of the result is summed in one fixed order, so that it depends neither on the rows beside it nor
on where arrays begin in memory.

The inputs of a row are `taps` runs of `depth` numbers each: one run for a linear layer, nine for a 3x3 convolution over an
image that lies in memory as rows of channels.

Letters: `K` inputs (taps times depth), `W` columns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import carray, types

from muzero.inference.emit import (
    FLOAT,
    INT64,
    broadcast,
    call,
    inlined,
    intrinsic,
    load,
    loop,
    number,
    splat,
    store,
)
from muzero.inference.jobs import (
    BIAS,
    BIAS_ROWS,
    DEPTH,
    EXTRA,
    FIRST,
    HEIGHT,
    IMAGE_STEP,
    NUM_FIELDS,
    NUM_IMAGES,
    NUM_TAPS,
    OUT,
    OUT_FIRST,
    OUT_IMAGE_STEP,
    OUT_ROW_STEP,
    RELU,
    ROW_LENGTH,
    ROW_STEP,
    TAPS,
    WEIGHTS,
    WIDTH,
    ZEROS,
    X,
)


def _host_shape() -> tuple[int, int, int]:
    """Lanes of a vector, vectors of a panel and most rows of a tile that fill the registers of this processor."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 2, 12  # 24 sums of 32 registers
    if features.get("avx2"):
        return 8, 2, 6  # 12 sums of 16 registers
    return 4, 4, 6  # 24 sums of 32 registers (NEON)


LANES, PANEL_VECTORS, MAX_TILE_ROWS = _host_shape()
PANEL = LANES * PANEL_VECTORS
"""Columns of a full panel; a last one may have fewer vectors."""


def padded(number_of_columns: int, multiple: int = LANES) -> int:
    """The next multiple."""
    return -(-number_of_columns // multiple) * multiple


def pack(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Weight `[K, W]`, `W` a multiple of the lanes -> flat panels of columns, each `[K, columns]`."""
    width = weight.shape[1]
    panels = [weight[:, first : first + PANEL].ravel() for first in range(0, width, PANEL)]
    return np.concatenate(panels)


# x, x_step, taps, num_taps, depth, weight, bias, bias_rows, bias_step, extra, extra_step, out, out_step, rows, vectors
_NUM_INTEGERS = 15


@intrinsic
def _tile(
    typing: Any,
    x: Any,
    x_step: Any,
    taps: Any,
    num_taps: Any,
    depth: Any,
    weight: Any,
    bias: Any,
    bias_rows: Any,
    bias_step: Any,
    extra: Any,
    extra_step: Any,
    out: Any,
    out_step: Any,
    rows: Any,
    vectors: Any,
    relu: Any,
) -> Any:
    """One tile: `out[r] = bias[bias_rows[r]] + extra[r] + x[r] @ weight`, for `rows` rows and a panel of `vectors`.

    All are addresses and counts; steps between rows are in floats.
    """
    signature = types.void(*[types.int64] * _NUM_INTEGERS, types.boolean)

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        *integers, num_rows, num_vectors, relu = arguments
        shapes = [(r, v) for v in range(1, PANEL_VECTORS + 1) for r in range(1, MAX_TILE_ROWS + 1)]
        chosen = builder.add(
            builder.mul(builder.sub(num_vectors, number(1)), number(MAX_TILE_ROWS)), num_rows
        )
        end = builder.append_basic_block("end")
        switch = builder.switch(chosen, end)
        for case, (rows, vectors) in enumerate(shapes, 1):
            block = builder.append_basic_block(f"tile_{rows}_{vectors}")
            switch.add_case(number(case), block)
            builder.position_at_end(block)
            _emit_tile(builder, rows, vectors, integers, relu)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return signature, generate


def _emit_tile(builder: Any, rows: int, vectors: int, arguments: Sequence[Any], relu: Any) -> None:
    """`arguments` are those of `_tile`, up to `out_step`."""
    (
        x,
        x_step,
        taps,
        num_taps,
        depth,
        weight,
        bias,
        bias_rows,
        bias_step,
        extra,
        extra_step,
        out,
        out_step,
    ) = arguments
    vector = ir.VectorType(FLOAT, LANES)
    places = [(r, v) for r in range(rows) for v in range(vectors)]

    def floats(address: Any, count: Any) -> Any:
        return builder.add(address, builder.mul(count, number(4)))

    def at(address: Any, v: int) -> Any:
        return builder.add(address, number(4 * LANES * v))

    sums = []
    for r in range(rows):
        row = load(builder, builder.add(bias_rows, number(8 * r)), INT64, 8)
        own_bias = floats(bias, builder.mul(row, bias_step))
        own_extra = floats(extra, builder.mul(number(r), extra_step))
        for v in range(vectors):
            first = load(builder, at(own_bias, v), vector)
            sums.append(builder.fadd(first, load(builder, at(own_extra, v), vector)))
    starts = [floats(x, builder.mul(number(r), x_step)) for r in range(rows)]

    def over_taps(tap: Any, carried: list[Any]) -> list[Any]:
        offset = load(builder, builder.add(taps, builder.mul(tap, number(8))), INT64, 8)
        inputs = [floats(start, offset) for start in starts]
        panel = floats(weight, builder.mul(builder.mul(tap, depth), number(LANES * vectors)))

        def over_depth(k: Any, carried: list[Any]) -> list[Any]:
            row = floats(panel, builder.mul(k, number(LANES * vectors)))
            columns = [load(builder, at(row, v), vector) for v in range(vectors)]
            scalars = [
                broadcast(builder, load(builder, floats(start, k), FLOAT), LANES)
                for start in inputs
            ]
            return [
                call(builder, f"llvm.fmuladd.v{LANES}f32", vector, scalars[r], columns[v], total)
                for (r, v), total in zip(places, carried, strict=True)
            ]

        return loop(builder, depth, carried, over_depth)

    sums = loop(builder, num_taps, sums, over_taps)
    zero = splat(vector, 0.0)
    for (r, v), total in zip(places, sums, strict=True):
        # A NaN passes: it compares as unordered.
        positive = builder.select(builder.fcmp_unordered(">", total, zero), total, zero)
        address = floats(out, builder.mul(number(r), out_step))
        store(builder, builder.select(relu, positive, total), at(address, v))


@inlined
def _multiply_panel(
    job: npt.NDArray[np.int64],
    weight: int,
    bias: int,
    bias_rows: int,
    x: int,
    extra: int,
    extra_step: int,
    out: int,
    num_vectors: int,
) -> None:
    """Rows that follow each other, times one panel."""
    depth, width, num_rows = job[DEPTH], job[WIDTH], job[ROW_LENGTH]
    num_tiles = -(-num_rows // MAX_TILE_ROWS)
    done = 0
    for tile in range(num_tiles):
        rows = (num_rows - done) // (num_tiles - tile)
        _tile(
            x + 4 * done * depth,
            depth,
            job[TAPS],
            job[NUM_TAPS],
            depth,
            weight,
            bias,
            bias_rows + 8 * done,
            width,
            extra + 4 * done * extra_step,
            extra_step,
            out + 4 * done * width,
            width,
            rows,
            num_vectors,
            job[RELU] != 0,
        )
        done += rows


def run_layer(address: Any) -> None:
    """Do a job of `muzero.inference.jobs` in float32."""
    job = carray(address, NUM_FIELDS)
    inputs, width = job[NUM_TAPS] * job[DEPTH], job[WIDTH]
    has_extra = job[EXTRA] != 0
    extra_step = width if has_extra else 0
    for first in range(0, width, PANEL):
        vectors = min(PANEL, width - first) // LANES
        for image in range(job[NUM_IMAGES]):
            for row in range(job[HEIGHT]):
                place = job[FIRST] + image * job[IMAGE_STEP] + row * job[ROW_STEP]
                to = job[OUT_FIRST] + image * job[OUT_IMAGE_STEP] + row * job[OUT_ROW_STEP]
                shift = 4 * (to * width + first)
                _multiply_panel(
                    job,
                    job[WEIGHTS] + 4 * inputs * first,
                    job[BIAS] + 4 * first,
                    job[BIAS_ROWS] + 8 * place,
                    job[X] + 4 * place * job[DEPTH],
                    job[EXTRA] + shift if has_extra else job[ZEROS],
                    extra_step,
                    job[OUT] + shift,
                    vectors,
                )
