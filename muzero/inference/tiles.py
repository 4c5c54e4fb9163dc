"""Matrix products by register tiles: some rows times a panel of columns, summed in float32 in vector registers.

Numbers are float32, or bfloat16 where the processor multiplies pairs of those (AVX512_BF16): one instruction then adds two
products to every sum, in the time of one in float32. A *word* is what is multiplied at once, four bytes: one float32, or two
bfloat16 that follow each other among a row's inputs.

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
from llvmlite import ir
from numba import carray, types

from muzero.inference.emit import (
    BFLOAT16,
    FLOAT,
    INT32,
    INT64,
    broadcast,
    call,
    inlined,
    intrinsic,
    load,
    load_numbers,
    loop,
    number,
    splat,
    store_numbers,
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
    TO_FLOAT,
    WEIGHTS,
    WIDTH,
    ZEROS,
    X,
)
from muzero.inference.panels import LANES, MAX_TILE_ROWS, PANEL, PANEL_VECTORS

# x, x_step, taps, num_taps, depth, weight, bias, bias_rows, bias_step, extra, extra_step, out, out_step, rows, vectors
_NUM_INTEGERS = 15

_FLOAT32, _BFLOAT16 = np.float32(0.0), np.uint16(0)
"""Any number of a type: numba compiles what takes one for the type that it is."""


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
    to_float: Any,
    example: Any,
) -> Any:
    """One tile: `out[r] = bias[bias_rows[r]] + extra[r] + x[r] @ weight`, for `rows` rows and a panel of `vectors`.

    All are addresses and counts; steps between rows are in numbers. `x`, `weight`, `extra`, and `out` unless `to_float`, hold
    numbers of the type of `example`; `bias` is float32.
    """
    flags = types.boolean, types.boolean
    signature = types.void(*[types.int64] * _NUM_INTEGERS, *flags, example)
    is_float = example == types.float32

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        *integers, num_rows, num_vectors, relu, to_float, _ = arguments
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
            _emit_tile(builder, rows, vectors, integers, relu, to_float, is_float)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return signature, generate


def _emit_tile(
    builder: Any,
    rows: int,
    vectors: int,
    arguments: Sequence[Any],
    relu: Any,
    to_float: Any,
    is_float: bool,
) -> None:
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
    size = 4 if is_float else 2
    word = FLOAT if is_float else INT32
    words = ir.VectorType(word, LANES)
    num_words = depth if is_float else builder.lshr(depth, number(1))
    places = [(r, v) for r in range(rows) for v in range(vectors)]

    def after(address: Any, count: Any, num_bytes: int) -> Any:
        return builder.add(address, builder.mul(count, number(num_bytes)))

    sums = []
    for r in range(rows):
        row = load(builder, builder.add(bias_rows, number(8 * r)), INT64, 8)
        own_bias = after(bias, builder.mul(row, bias_step), 4)
        own_extra = after(extra, builder.mul(number(r), extra_step), size)
        for v in range(vectors):
            column = number(LANES * v)
            first = load_numbers(builder, own_bias, column, LANES, is_float=True)
            added = load_numbers(builder, own_extra, column, LANES, is_float)
            sums.append(builder.fadd(first, added))
    starts = [after(x, builder.mul(number(r), x_step), size) for r in range(rows)]

    def over_taps(tap: Any, carried: list[Any]) -> list[Any]:
        offset = load(builder, builder.add(taps, builder.mul(tap, number(8))), INT64, 8)
        inputs = [after(start, offset, size) for start in starts]
        panel = after(weight, builder.mul(builder.mul(tap, num_words), number(LANES * vectors)), 4)

        def over_depth(k: Any, carried: list[Any]) -> list[Any]:
            row = after(panel, builder.mul(k, number(LANES * vectors)), 4)
            columns = [
                load(builder, builder.add(row, number(4 * LANES * v)), words)
                for v in range(vectors)
            ]
            scalars = [
                broadcast(builder, load(builder, after(start, k, 4), word), LANES)
                for start in inputs
            ]
            return [
                _multiply_add(builder, scalars[r], columns[v], total)
                for (r, v), total in zip(places, carried, strict=True)
            ]

        return loop(builder, num_words, carried, over_depth)

    sums = loop(builder, num_taps, sums, over_taps)
    zero = splat(vector, 0.0)
    # A NaN passes: it compares as unordered.
    positive = [
        builder.select(builder.fcmp_unordered(">", total, zero), total, zero) for total in sums
    ]
    sums = [builder.select(relu, *each) for each in zip(positive, sums, strict=True)]

    def write(is_float: bool) -> None:
        for (r, v), total in zip(places, sums, strict=True):
            row = after(out, builder.mul(number(r), out_step), 4 if is_float else 2)
            store_numbers(builder, total, row, number(LANES * v), is_float)

    if is_float:
        write(is_float=True)
        return
    with builder.if_else(to_float) as (then, otherwise):
        with then:
            write(is_float=True)
        with otherwise:
            write(is_float=False)


def _multiply_add(builder: Any, words: Any, others: Any, total: Any) -> Any:
    """`total` plus the products of two vectors of words."""
    if words.type.element == FLOAT:
        name = f"llvm.fmuladd.v{LANES}f32"
        return call(builder, name, total.type, words, others, total)
    pairs = ir.VectorType(BFLOAT16, 2 * LANES)
    words, others = (builder.bitcast(each, pairs) for each in (words, others))
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}"
    return call(builder, name, total.type, total, words, others)


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
    size: int,
    out_size: int,
    example: Any,
) -> None:
    """Rows that follow each other, times one panel."""
    depth, width, num_rows = job[DEPTH], job[WIDTH], job[ROW_LENGTH]
    num_tiles = -(-num_rows // MAX_TILE_ROWS)
    done = 0
    for tile in range(num_tiles):
        rows = (num_rows - done) // (num_tiles - tile)
        _tile(
            x + size * done * depth,
            depth,
            job[TAPS],
            job[NUM_TAPS],
            depth,
            weight,
            bias,
            bias_rows + 8 * done,
            width,
            extra + size * done * extra_step,
            extra_step,
            out + out_size * done * width,
            width,
            rows,
            num_vectors,
            job[RELU] != 0,
            job[TO_FLOAT] != 0,
            example,
        )
        done += rows


@inlined
def _multiply(job: npt.NDArray[np.int64], size: int, example: Any) -> None:
    """Do a job whose numbers have the type of `example`, so many bytes each."""
    inputs, width = job[NUM_TAPS] * job[DEPTH], job[WIDTH]
    has_extra = job[EXTRA] != 0
    extra_step = width if has_extra else 0
    out_size = 4 if job[TO_FLOAT] != 0 else size
    for first in range(0, width, PANEL):
        vectors = min(PANEL, width - first) // LANES
        for image in range(job[NUM_IMAGES]):
            for row in range(job[HEIGHT]):
                place = job[FIRST] + image * job[IMAGE_STEP] + row * job[ROW_STEP]
                to = job[OUT_FIRST] + image * job[OUT_IMAGE_STEP] + row * job[OUT_ROW_STEP]
                column = to * width + first
                _multiply_panel(
                    job,
                    job[WEIGHTS] + size * inputs * first,
                    job[BIAS] + 4 * first,
                    job[BIAS_ROWS] + 8 * place,
                    job[X] + size * place * job[DEPTH],
                    job[EXTRA] + size * column if has_extra else job[ZEROS],
                    extra_step,
                    job[OUT] + out_size * column,
                    vectors,
                    size,
                    out_size,
                    example,
                )


def run_layer(address: Any) -> None:
    """Do a job of `muzero.inference.jobs` in float32."""
    _multiply(carray(address, NUM_FIELDS), 4, _FLOAT32)


def run_layer_bfloat16(address: Any) -> None:
    """The same in bfloat16; needs `has_avx512_bf16()`."""
    _multiply(carray(address, NUM_FIELDS), 2, _BFLOAT16)
