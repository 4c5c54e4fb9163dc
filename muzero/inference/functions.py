"""The compiled functions that kernels call by their addresses: one set for each way to multiply.

A kernel is so compiled once for all of them, and the functions once for all kernels.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import carray, cfunc, types

from muzero.inference import amx, panels, runs, tiles
from muzero.inference.emit import FLOAT, INT64, intrinsic
from muzero.inference.precision import Unit


class Functions(NamedTuple):
    """Addresses of compiled functions for one unit and its type of number."""

    run_layer: int
    """`(job)`, see `muzero.inference.jobs`."""
    round_run: int
    """`(run, out, count, offset, factor)`: `out = (run - offset) * factor`, from float32."""
    scale_run: int
    """The same within the type."""
    bounds: int
    """`(run, count, result)`: smallest and largest number, as two floats."""


def _scale_floats(run: int, out: int, count: int, offset: float, factor: float) -> None:
    runs.scale_float_to_float(run, out, count, offset, factor)


def _round_floats(run: int, out: int, count: int, offset: float, factor: float) -> None:
    runs.scale_float_to_bfloat16(run, out, count, offset, factor)


def _scale_bfloat16(run: int, out: int, count: int, offset: float, factor: float) -> None:
    runs.scale_bfloat16_to_bfloat16(run, out, count, offset, factor)


def _bounds_of_floats(run: int, count: int, result: Any) -> None:
    bounds = carray(result, 2)
    bounds[0], bounds[1] = runs.bounds_of_floats(run, count)


def _bounds_of_bfloat16(run: int, count: int, result: Any) -> None:
    bounds = carray(result, 2)
    bounds[0], bounds[1] = runs.bounds_of_bfloat16(run, count)


_JOB = types.void(types.CPointer(types.int64))
_SCALE = types.void(*[types.int64] * 3, types.float32, types.float32)
_BOUNDS = types.void(types.int64, types.int64, types.CPointer(types.float32))

_COMPILED: list[Any] = []
"""Keeps what the addresses point to."""


@cache
def functions(unit: Unit) -> Functions:
    """Compiled, or read from numba's cache, on first use.

    Raises RuntimeError if this processor does not have the unit.
    """
    if unit == "float32":
        return _compile(tiles.run_layer, _scale_floats, _scale_floats, _bounds_of_floats)
    if unit == "amx":
        if not amx.has_amx():
            raise RuntimeError(
                "this processor has no matrix unit for bfloat16 (AMX), or may not use it"
            )
        run_layer = amx.run_layer
    else:
        if not panels.has_avx512_bf16():
            raise RuntimeError(
                "this processor has no vector unit for bfloat16 (AVX512_BF16), or may not use it"
            )
        run_layer = tiles.run_layer_bfloat16
    return _compile(run_layer, _round_floats, _scale_bfloat16, _bounds_of_bfloat16)


def _compile(*sources: Callable[..., None]) -> Functions:
    addresses = []
    for source, signature in zip(sources, (_JOB, _SCALE, _SCALE, _BOUNDS), strict=True):
        compiled = cfunc(signature, cache=True, error_model="numpy")(source)
        _COMPILED.append(compiled)
        assert compiled.address is not None
        addresses.append(compiled.address)
    return Functions(*addresses)


def _caller(*kinds: Any) -> Any:
    """Signature and code of an intrinsic that calls the function at an address with arguments of these kinds."""
    written = {types.int64: INT64, types.float32: FLOAT}

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        address, *rest = arguments
        kind = ir.FunctionType(ir.VoidType(), [written[each] for each in kinds])
        builder.call(builder.inttoptr(address, kind.as_pointer()), rest)
        return context.get_dummy_value()

    return types.void(types.int64, *kinds), generate


@intrinsic
def call_with_job(typing: Any, function: Any, job: Any) -> Any:
    """Call `Functions.run_layer`."""
    return _caller(types.int64)


@intrinsic
def call_on_run(
    typing: Any, function: Any, run: Any, out: Any, count: Any, offset: Any, factor: Any
) -> Any:
    """Call `Functions.round_run` or `Functions.scale_run`."""
    return _caller(types.int64, types.int64, types.int64, types.float32, types.float32)


@intrinsic
def call_for_bounds(typing: Any, function: Any, run: Any, count: Any, result: Any) -> Any:
    """Call `Functions.bounds`."""
    return _caller(types.int64, types.int64, types.int64)


@intrinsic
def floats_at(typing: Any, address: Any) -> Any:
    """A pointer to float32."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], FLOAT.as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


@intrinsic
def integers_at(typing: Any, address: Any) -> Any:
    """A pointer to int64."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], INT64.as_pointer())

    return types.CPointer(types.int64)(types.int64), generate
