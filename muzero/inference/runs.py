"""Work on runs of numbers in memory, in vectors: copies with another scale, bounds, the mean of a distribution.

Addresses are int64, counts are in numbers, which are float32 or bfloat16. What only reads may look at up to 15 numbers
behind a run, which it ignores.
"""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from muzero.inference.emit import (
    FLOAT,
    INT32,
    INT64,
    POINTER,
    broadcast,
    intrinsic,
    load_numbers,
    number,
    splat,
    store_numbers,
)

LANES = 16
_FLOATS = ir.VectorType(FLOAT, LANES)
_INTEGERS = ir.VectorType(INT32, LANES)
_PLACES = ir.Constant(_INTEGERS, list(range(LANES)))

# exp(x) = 2**n exp(r) with n = round(x / ln 2), so that |r| is at most ln(2) / 2; ln 2 in two parts keeps r exact.
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_LOWEST = -87.0
# Added and taken away again, it rounds to an integer, which stands in the last bits in between.
_MAGIC = 12582912.0
# exp(r) = 1 + r + r**2 p(r); coefficients of Cephes' expf, highest power first.
_P = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)


def _scale_run(from_float: bool, to_float: bool) -> Any:
    @intrinsic
    def scale_run(typing: Any, run: Any, out: Any, count: Any, offset: Any, factor: Any) -> Any:
        """`out = (run - offset) * factor`."""

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            run, out, count, offset, factor = arguments

            def body(index: Any, lanes: int) -> None:
                value = load_numbers(builder, run, index, lanes, from_float)
                value = builder.fsub(value, broadcast(builder, offset, lanes))
                value = builder.fmul(value, broadcast(builder, factor, lanes))
                store_numbers(builder, value, out, index, to_float)

            whole = builder.and_(count, number(-LANES))
            for first, last, lanes in ((number(0), whole, LANES), (whole, count, 1)):
                step = number(lanes)
                with cgutils.for_range_slice(builder, first, last, step, INT64) as (index, _):
                    body(index, lanes)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3, types.float32, types.float32), generate

    return scale_run


scale_float_to_float = _scale_run(from_float=True, to_float=True)
scale_float_to_bfloat16 = _scale_run(from_float=True, to_float=False)
scale_bfloat16_to_bfloat16 = _scale_run(from_float=False, to_float=False)


@intrinsic
def fill_zeros(typing: Any, run: Any, num_bytes: Any) -> Any:
    """Zero so many bytes."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        run, num_bytes = arguments
        cgutils.memset(builder, builder.inttoptr(run, POINTER), num_bytes, 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy_bytes(typing: Any, to: Any, run: Any, num_bytes: Any) -> Any:
    """Copy so many bytes."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        to, run, num_bytes = arguments
        target, source = (builder.inttoptr(each, POINTER) for each in (to, run))
        cgutils.raw_memcpy(builder, target, source, num_bytes, 1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate


def _over_vectors(
    builder: Any,
    run: Any,
    count: Any,
    is_float: bool,
    states: list[Any],
    body: Callable[[Any, Any, Any, list[Any]], list[Any]],
) -> list[Any]:
    """Emit `states = body(index, values, is_inside, states)` over vectors of 16 numbers; the last may reach beyond."""
    places = [cgutils.alloca_once_value(builder, state) for state in states]
    with cgutils.for_range_slice(builder, number(0), count, number(LANES), INT64) as (index, _):
        values = load_numbers(builder, run, index, LANES, is_float)
        left = builder.trunc(builder.sub(count, index), INT32)
        is_inside = builder.icmp_signed("<", _PLACES, broadcast(builder, left, LANES))
        new = body(index, values, is_inside, [builder.load(place) for place in places])
        for value, place in zip(new, places, strict=True):
            builder.store(value, place)
    return [builder.load(place) for place in places]


def _reduce(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """All lanes into one, in a fixed order."""
    width = LANES
    while width > 1:
        width //= 2
        # Lane i takes what stands `width` lanes further.
        order = [(lane + width) % LANES for lane in range(LANES)]
        vector = combine(
            vector, builder.shuffle_vector(vector, vector, ir.Constant(_INTEGERS, order))
        )
    return builder.extract_element(vector, ir.Constant(INT32, 0))


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", b, a), b, a)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


def _bounds_of_run(is_float: bool) -> Any:
    @intrinsic
    def bounds_of_run(typing: Any, run: Any, count: Any) -> Any:
        """Smallest and largest number; NaN is passed over."""
        result = types.UniTuple(types.float32, 2)

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            run, count = arguments

            def body(_: Any, values: Any, is_inside: Any, states: list[Any]) -> list[Any]:
                low, high = states
                above = builder.select(is_inside, values, splat(_FLOATS, math.inf))
                below = builder.select(is_inside, values, splat(_FLOATS, -math.inf))
                return [_smaller(builder, low, above), _larger(builder, high, below)]

            start = [splat(_FLOATS, math.inf), splat(_FLOATS, -math.inf)]
            low, high = _over_vectors(builder, run, count, is_float, start, body)
            low = _reduce(builder, low, lambda a, b: _smaller(builder, a, b))
            high = _reduce(builder, high, lambda a, b: _larger(builder, a, b))
            return context.make_tuple(builder, result, [low, high])

        return result(types.int64, types.int64), generate

    return bounds_of_run


bounds_of_floats = _bounds_of_run(is_float=True)
bounds_of_bfloat16 = _bounds_of_run(is_float=False)


def _emit_exp(builder: Any, x: Any) -> Any:
    """Exponentials of a vector of numbers up to 0, to two units in the last place; below -87 as at -87."""
    floats, integers = x.type, ir.VectorType(INT32, x.type.count)

    def constant(value: float) -> Any:
        return splat(floats, value)

    # An unordered comparison is true for NaN, which so comes through.
    x = builder.select(builder.fcmp_unordered(">", x, constant(_LOWEST)), x, constant(_LOWEST))
    shifted = builder.fadd(builder.fmul(x, constant(_LOG2_E)), constant(_MAGIC))
    n = builder.fsub(shifted, constant(_MAGIC))
    r = builder.fsub(x, builder.fmul(n, constant(_LN2_HIGH)))
    r = builder.fsub(r, builder.fmul(n, constant(_LN2_LOW)))
    p = constant(_P[0])
    for coefficient in _P[1:]:
        p = builder.fadd(builder.fmul(p, r), constant(coefficient))
    y = builder.fmul(builder.fmul(p, r), r)
    y = builder.fadd(builder.fadd(y, r), constant(1.0))
    exponent = builder.shl(builder.bitcast(shifted, integers), splat(integers, 23))
    scale = builder.add(exponent, splat(integers, 127 << 23))
    return builder.fmul(y, builder.bitcast(scale, floats))


@intrinsic
def mean_place(typing: Any, logits: Any, count: Any) -> Any:
    """Mean place of `softmax(logits)`, float32, counted from the middle of an odd number; exactly 0 for equal logits."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        logits, count = arguments

        def highest(_: Any, values: Any, is_inside: Any, states: list[Any]) -> list[Any]:
            inside = builder.select(is_inside, values, splat(_FLOATS, -math.inf))
            return [_larger(builder, states[0], inside)]

        start = [splat(_FLOATS, -math.inf)]
        (high,) = _over_vectors(builder, logits, count, True, start, highest)
        high = broadcast(
            builder, _reduce(builder, high, lambda a, b: _larger(builder, a, b)), LANES
        )
        middle = builder.sdiv(count, number(2))

        def add(index: Any, values: Any, is_inside: Any, states: list[Any]) -> list[Any]:
            weighted, total = states
            weight = _emit_exp(builder, builder.fsub(values, high))
            weight = builder.select(is_inside, weight, splat(_FLOATS, 0.0))
            first = builder.trunc(builder.sub(index, middle), INT32)
            place = builder.sitofp(builder.add(_PLACES, broadcast(builder, first, LANES)), _FLOATS)
            return [
                builder.fadd(weighted, builder.fmul(weight, place)),
                builder.fadd(total, weight),
            ]

        nothing = [splat(_FLOATS, 0.0), splat(_FLOATS, 0.0)]
        sums = _over_vectors(builder, logits, count, True, nothing, add)
        weighted, total = (_reduce(builder, each, lambda a, b: builder.fadd(a, b)) for each in sums)
        return builder.fdiv(weighted, total)

    return types.float32(types.int64, types.int64), generate
