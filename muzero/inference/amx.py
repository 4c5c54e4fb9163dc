"""Matrix products in bfloat16 by the tile unit of recent Intel processors (AMX), 16 times as many products per cycle.

Numbers are kept as uint16; sums are in float32. A block of at most 32 rows and 32 columns is summed in the unit's
registers, then a pass in vectors adds bias and what else is to be added, rounds to bfloat16 and writes it.

Inputs of a row as in `muzero.inference.tiles`; their number per tap is a multiple of 32.
"""

import ctypes
import itertools
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils

from muzero.inference.emit import (
    INT8,
    INT64,
    POINTER,
    call,
    compiles_for,
    inlined,
    intrinsic,
    load,
    load_numbers,
    number,
    splat,
    store_numbers,
    to_bfloat16,
)
from muzero.inference.jobs import (
    BIAS,
    BIAS_ROWS,
    DEPTH,
    EXTRA,
    IMAGE_STEP,
    NUM_FIELDS,
    NUM_IMAGES,
    NUM_TAPS,
    OUT,
    OUT_ROWS,
    RELU,
    SHAPES,
    SUMS,
    TAPS,
    TO_FLOAT,
    WEIGHTS,
    WIDTH,
    X,
)

STEP = 32
"""Inputs of one step of the unit."""

BLOCK = 32
"""Rows of a block, and columns of a full one."""

LANES = 16

REGISTER_BYTES = 1024
SUMS_BYTES = 4 * BLOCK * BLOCK

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@cache
def has_amx() -> bool:
    """Whether this processor has the unit for bfloat16, numba may use it and the system lets this process."""
    if not compiles_for("amx-bf16", "amx-tile", "avx512f"):
        return False
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    # Linux saves the unit's registers of those processes only that have asked for them.
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def tile_shapes() -> npt.NDArray[np.uint8]:
    """`[64]` what configures the unit: eight registers of 16 rows and 64 bytes."""
    shapes = np.zeros(64, np.uint8)
    shapes[0] = 1
    shapes[16:32].view(np.uint16)[:] = 64
    shapes[48:56] = 16
    return shapes


def pack(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Weight `[K, W]`, `K` a multiple of 32 and `W` of 16 -> flat panels of up to 32 columns, in the unit's order."""
    bits = to_bfloat16(weight)
    panels = []
    for first in range(0, weight.shape[1], BLOCK):
        panel = bits[:, first : first + BLOCK]
        # [steps, 16 pairs, pair, registers, 16 columns] -> a register holds 16 rows of 16 pairs.
        parts = panel.reshape(len(panel) // STEP, 16, 2, -1, 16)
        panels.append(parts.transpose(0, 3, 1, 4, 2).ravel())
    return np.concatenate(panels)


@intrinsic
def _exchange_shapes(typing: Any, new: Any, old: Any) -> Any:
    """Save the unit's configuration at the address `old`, 64 bytes, and load that at `new`."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        new, old = (builder.inttoptr(address, POINTER) for address in arguments)
        call(builder, "llvm.x86.sttilecfg", ir.VoidType(), old)
        call(builder, "llvm.x86.ldtilecfg", ir.VoidType(), new)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _restore_shapes(typing: Any, old: Any) -> Any:
    """Load the configuration at the address `old`: another library in this thread may count on it."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        call(
            builder,
            "llvm.x86.ldtilecfg",
            ir.VoidType(),
            builder.inttoptr(arguments[0], POINTER),
        )
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _over_shapes(build: Callable[..., None]) -> Callable[..., Any]:
    """Code that is emitted for one or two registers of rows and of columns, chosen by the last two arguments."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        *rest, rows, columns = arguments
        chosen = builder.add(builder.mul(rows, number(2)), columns)
        end = builder.append_basic_block("end")
        switch = builder.switch(chosen, end)
        for num_rows, num_columns in itertools.product((1, 2), repeat=2):
            block = builder.append_basic_block(f"registers_{num_rows}_{num_columns}")
            switch.add_case(number(2 * num_rows + num_columns), block)
            builder.position_at_end(block)
            build(builder, num_rows, num_columns, *rest)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return generate


def _tile(builder: Any, name: str, *arguments: Any) -> None:
    """Emit an instruction of the unit; plain integers are numbers of registers.

    Registers 0 to 3 hold sums (rows times 2 plus columns), 4 and 5 inputs, 6 and 7 weights.
    """
    values = [ir.Constant(INT8, each) if isinstance(each, int) else each for each in arguments]
    call(builder, f"llvm.x86.{name}", ir.VoidType(), *values)


def _pointer(builder: Any, address: Any, offset: Any) -> Any:
    offset = number(offset) if isinstance(offset, int) else offset
    return builder.inttoptr(builder.add(address, offset), POINTER)


def _emit_clear(builder: Any, num_rows: int, num_columns: int) -> None:
    for r, c in itertools.product(range(num_rows), range(num_columns)):
        _tile(builder, "tilezero", 2 * r + c)


def _emit_add(
    builder: Any, num_rows: int, num_columns: int, inputs: Any, byte_step: Any, weights: Any
) -> None:
    for r in range(num_rows):
        start = number(0) if r == 0 else builder.mul(byte_step, number(16))
        _tile(builder, "tileloadd64", 4 + r, _pointer(builder, inputs, start), byte_step)
        for c in range(num_columns):
            if r == 0:
                start = _pointer(builder, weights, REGISTER_BYTES * c)
                _tile(builder, "tileloadd64", 6 + c, start, number(64))
            _tile(builder, "tdpbf16ps", 2 * r + c, 4 + r, 6 + c)


def _emit_store(builder: Any, num_rows: int, num_columns: int, sums: Any) -> None:
    for r, c in itertools.product(range(num_rows), range(num_columns)):
        start = _pointer(builder, sums, 64 * (2 * 16 * r + c))
        _tile(builder, "tilestored64", 2 * r + c, start, number(4 * BLOCK))


@intrinsic
def _clear(typing: Any, rows: Any, columns: Any) -> Any:
    """Set the sums to zero."""
    return types.void(types.int64, types.int64), _over_shapes(_emit_clear)


@intrinsic
def _add(typing: Any, inputs: Any, byte_step: Any, weights: Any, rows: Any, columns: Any) -> Any:
    """Add the products of 16 or 32 rows of 32 numbers, so many bytes apart, with 16 or 32 columns."""
    return types.void(*[types.int64] * 5), _over_shapes(_emit_add)


@intrinsic
def _store(typing: Any, sums: Any, rows: Any, columns: Any) -> Any:
    """Write the sums to `[32, 32]` float32."""
    return types.void(*[types.int64] * 3), _over_shapes(_emit_store)


@intrinsic
def _read_int64(typing: Any, address: Any) -> Any:
    """What stands at an address."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return load(builder, arguments[0], INT64, 8)

    return types.int64(types.int64), generate


def _finish(has_extra: bool, to_float: bool) -> Any:
    @intrinsic
    def finish(
        typing: Any, sums: Any, bias: Any, extra: Any, out: Any, relu: Any, vectors: Any
    ) -> Any:
        """Some times 16 columns of a row: add bias (float) and extra (bfloat16), write to `out`."""

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            sums, bias, extra, out, relu, vectors = arguments
            with cgutils.for_range(builder, vectors) as loop:
                place = builder.mul(loop.index, number(LANES))
                total = builder.fadd(
                    load_numbers(builder, sums, place, LANES, is_float=True),
                    load_numbers(builder, bias, place, LANES, is_float=True),
                )
                if has_extra:
                    added = load_numbers(builder, extra, place, LANES, is_float=False)
                    total = builder.fadd(total, added)
                zero = splat(total.type, 0.0)
                positive = builder.select(builder.fcmp_unordered(">", total, zero), total, zero)
                total = builder.select(relu, positive, total)
                store_numbers(builder, total, out, place, to_float)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4, types.boolean, types.int64), generate

    return finish


_finish_plain = _finish(has_extra=False, to_float=False)
_finish_extra = _finish(has_extra=True, to_float=False)
_finish_float = _finish(has_extra=False, to_float=True)


@inlined
def _finish_row(
    job: npt.NDArray[np.int64], row: int, sums: int, bias: int, first: int, num_vectors: int
) -> None:
    """From the sums of a row at an address to its outputs from column `first` on."""
    to = _read_int64(job[OUT_ROWS] + 8 * row)
    if to < 0:
        return
    width, relu = job[WIDTH], job[RELU] != 0
    own_bias = bias + 4 * width * _read_int64(job[BIAS_ROWS] + 8 * row)
    place = to * width + first
    if job[TO_FLOAT] != 0:
        _finish_float(sums, own_bias, 0, job[OUT] + 4 * place, relu, num_vectors)
    elif job[EXTRA] != 0:
        extra = job[EXTRA] + 2 * place
        _finish_extra(sums, own_bias, extra, job[OUT] + 2 * place, relu, num_vectors)
    else:
        _finish_plain(sums, own_bias, 0, job[OUT] + 2 * place, relu, num_vectors)


@inlined
def _multiply_panel(
    job: npt.NDArray[np.int64], weight: int, bias: int, first: int, num_vectors: int
) -> None:
    """All rows, times one panel of `num_vectors` times 16 columns, 1 or 2.

    The unit multiplies beside the rest of the core: while it sums a block, the rows of the block before are finished.
    """
    depth, num_taps, num_rows = job[DEPTH], job[NUM_TAPS], job[IMAGE_STEP] * job[NUM_IMAGES]
    steps = depth // STEP
    rows_per_step = -(-BLOCK // (num_taps * steps))
    sums, sums_before = job[SUMS], job[SUMS] + SUMS_BYTES
    finished = num_before = begin_before = 0
    for begin in range(0, num_rows, BLOCK):
        rows = min(BLOCK, num_rows - begin)
        registers = 1 if rows <= LANES else 2
        _clear(registers, num_vectors)
        weights = weight
        for tap in range(num_taps):
            start = job[X] + 2 * (begin * depth + _read_int64(job[TAPS] + 8 * tap))
            for step in range(steps):
                inputs = start + 2 * STEP * step
                _add(inputs, 2 * depth, weights, registers, num_vectors)
                weights += REGISTER_BYTES * num_vectors
                for r in range(finished, min(finished + rows_per_step, num_before)):
                    place = sums_before + 4 * BLOCK * r
                    _finish_row(job, begin_before + r, place, bias, first, num_vectors)
                finished += rows_per_step
        _store(sums, registers, num_vectors)
        sums, sums_before = sums_before, sums
        finished, num_before, begin_before = 0, rows, begin
    for r in range(num_before):
        _finish_row(job, begin_before + r, sums_before + 4 * BLOCK * r, bias, first, num_vectors)


def run_layer(address: Any) -> None:
    """Do a job of `muzero.inference.jobs` in bfloat16. Up to 31 rows behind the last are read."""
    job = carray(address, NUM_FIELDS)
    _exchange_shapes(job[SHAPES], job[SHAPES] + 64)
    inputs, width = job[NUM_TAPS] * job[DEPTH], job[WIDTH]
    for first in range(0, width, BLOCK):
        vectors = min(BLOCK, width - first) // LANES
        weight = job[WEIGHTS] + 2 * inputs * first
        _multiply_panel(job, weight, job[BIAS] + 4 * first, first, vectors)
    _restore_shapes(job[SHAPES] + 64)
