"""Lanes brought down to one number, and the exponential of lanes: see `mcts.vectors`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mcts.vectors import LANE_INT, LANE_INTS, LANES, compare_lanes, intrinsic, require_same_lanes


def _half(builder: Any, lanes: Any, start: int, count: int) -> Any:
    places = ir.Constant(ir.VectorType(LANE_INT, count), list(range(start, start + count)))
    return builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), places)


def _reduction(combine: Callable[..., Any], document: str) -> Any:
    def operation(typing_context: Any, lanes: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value, count = arguments[0], LANES
            while count > 1:  # the upper half with the lower: the order never changes
                count //= 2
                low, high = (_half(builder, value, start, count) for start in (0, count))
                value = combine(builder, lanes.dtype, low, high)
            return builder.extract_element(value, ir.Constant(LANE_INT, 0))

        return lanes.dtype(lanes), generate

    operation.__doc__ = document
    return intrinsic(operation)


def _smaller_of(builder: Any, dtype: types.Type, left: Any, right: Any) -> Any:
    return builder.select(compare_lanes(builder, "<", dtype, left, right), left, right)


def _larger_of(builder: Any, dtype: types.Type, left: Any, right: Any) -> Any:
    return builder.select(compare_lanes(builder, ">", dtype, left, right), left, right)


def _sum_of(builder: Any, dtype: types.Type, left: Any, right: Any) -> Any:
    return builder.fadd(left, right)


def _lane_by_lane(combine: Callable[..., Any], document: str) -> Any:
    def operation(typing_context: Any, left: Any, right: Any) -> Any:
        require_same_lanes(left, right)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return combine(builder, left.dtype, *arguments)

        return left(left, right), generate

    operation.__doc__ = document
    return intrinsic(operation)


def _spread_reduction(combine: Callable[..., Any], document: str) -> Any:
    def operation(typing_context: Any, lanes: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value, distance = arguments[0], LANES
            while distance > 1:
                distance //= 2
                places = ir.Constant(LANE_INTS, [lane ^ distance for lane in range(LANES)])
                undefined = ir.Constant(value.type, ir.Undefined)
                other = builder.shuffle_vector(value, undefined, places)
                value = combine(builder, lanes.dtype, value, other)
            return value

        return lanes(lanes), generate

    operation.__doc__ = document
    return intrinsic(operation)


@intrinsic
def first_lane(typing_context: Any, lanes: Any) -> Any:
    """The number in the first lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(arguments[0], ir.Constant(LANE_INT, 0))

    return lanes.dtype(lanes), generate


smaller = _lane_by_lane(_smaller_of, "`left` where it is below `right`, else `right`.")
larger = _lane_by_lane(_larger_of, "`left` where it is above `right`, else `right`.")
lowest = _reduction(_smaller_of, "The lowest lane.")
highest = _reduction(_larger_of, "The highest lane.")
# In every lane: three exchanges of lanes, no more than for one number, and none to spread it again.
spread_lowest = _spread_reduction(_smaller_of, "The lowest lane, in every lane.")
spread_highest = _spread_reduction(_larger_of, "The highest lane, in every lane.")
total = _reduction(_sum_of, "The sum of the lanes, halves added until one number is left.")


@intrinsic
def exponential(typing_context: Any, lanes: Any) -> Any:
    """`e ** x` within 2 units in the last place, for lanes up to 88; below -87 it stays at `e ** -87`.

    float32 is computed in the lanes (Cephes' polynomial after the power of two is split off), float64 by the C library.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x = arguments[0]
        if lanes.dtype != types.float32:
            library = builder.module.declare_intrinsic("llvm.exp", [x.type.element])
            for place in (ir.Constant(LANE_INT, lane) for lane in range(LANES)):
                power = builder.call(library, [builder.extract_element(x, place)])
                x = builder.insert_element(x, power, place)
            return x

        def constant(number: float) -> Any:
            return ir.Constant(x.type, [ir.Constant(x.type.element, number)] * LANES)

        x = _larger_of(builder, lanes.dtype, x, constant(-87.0))
        # Adding and taking off 1.5 * 2**23 rounds to a whole number.
        scaled = builder.fmul(x, constant(_f32(1.4426950408889634)))
        rounder = constant(12582912.0)
        power = builder.fsub(builder.fadd(scaled, rounder), rounder)
        for part in (
            0.693359375,
            -2.12194440e-4,
        ):  # ln 2 in two parts, so that the product is exact
            x = builder.fsub(x, builder.fmul(power, constant(_f32(part))))
        series = constant(_f32(_COEFFICIENTS[0]))
        for coefficient in _COEFFICIENTS[1:]:
            series = builder.fadd(builder.fmul(series, x), constant(_f32(coefficient)))
        series = builder.fadd(builder.fmul(builder.fmul(series, x), x), x)
        fraction = builder.fadd(series, constant(1.0))
        exponent = builder.add(
            builder.fptosi(power, LANE_INTS), ir.Constant(LANE_INTS, [127] * LANES)
        )
        bits = builder.shl(exponent, ir.Constant(LANE_INTS, [23] * LANES))
        return builder.fmul(fraction, builder.bitcast(bits, x.type))

    return lanes(lanes), generate


_COEFFICIENTS = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip


def _f32(number: float) -> float:
    return float(np.float32(number))
