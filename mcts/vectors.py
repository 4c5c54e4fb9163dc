"""Eight numbers at a time in compiled code: what numba's own loops are not turned into.

A compiler that keeps the order of floating-point operations may not vectorise a sum or a maximum, and calls the C library
for every exponential. These functions state the order, so that the result is the same on every processor, and
compile to the vector instructions that it has. `Lanes` are values of `LANES` equal types, a mask has one truth value each.

An index counts the elements of a contiguous array of any shape. It is neither checked nor counted from the end if it is
negative, which costs numba's own indexing two instructions more per access.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import models, register_model

# The type checker need not know: what this makes lacks the first argument of the function that it is given.
intrinsic: Any = extending.intrinsic

LANES = 8
"""Rows that are read in lanes are padded to a multiple of this."""


class Lanes(types.Type):
    """`LANES` numbers of one type."""

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        is_mask = lanes.dtype == types.boolean
        element = ir.IntType(1) if is_mask else manager.lookup(lanes.dtype).get_data_type()
        super().__init__(manager, lanes, ir.VectorType(element, LANES))


MASK = Lanes(types.boolean)
LANE_INT = ir.IntType(32)
LANE_INTS = ir.VectorType(LANE_INT, LANES)


def _spread(builder: Any, scalar: Any) -> Any:
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(LANE_INT, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(LANE_INTS, [0] * LANES))


def _is_below(builder: Any, count: Any) -> Any:
    places = ir.Constant(LANE_INTS, list(range(LANES)))
    return builder.icmp_signed("<", places, _spread(builder, count))


def _address(context: Any, builder: Any, signature: Any, arguments: Any, lanes: Any) -> Any:
    """Where an array's element at an index is, as a pointer to `lanes`."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    index = context.cast(builder, arguments[1], signature.args[1], types.intp)
    return builder.bitcast(builder.gep(array.data, [index]), lanes.as_pointer())


@intrinsic
def read(typing_context: Any, array: Any, index: Any) -> Any:
    """One element of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_data_type(array.dtype)
        return builder.load(_address(context, builder, signature, arguments, number))

    return array.dtype(array, index), generate


@intrinsic
def write(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Set one element of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_data_type(array.dtype)
        cast = context.cast(builder, arguments[2], value, array.dtype)
        builder.store(cast, _address(context, builder, signature, arguments, number))
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@intrinsic
def bits_per_number(typing_context: Any, array: Any) -> Any:
    """Width of an array's numbers, a constant to the compiler, which `itemsize` is not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(ir.IntType(64), array.dtype.bitwidth)

    return types.int64(array), generate


@intrinsic
def next_lanes(typing_context: Any, first: Any) -> Any:
    """`first + LANES`, in a way that the compiler cannot see through.

    Loops over lanes mostly have one to three turns. A compiler that can tell how many there are unrolls them for long rows, and
    finding the way through such a loop takes longer than the turns: a third of the time of a simulation, as measured together
    with a power that was computed in it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        start = context.cast(builder, arguments[0], first, types.int64)
        following = builder.add(start, ir.Constant(number, LANES))
        return builder.asm(ir.FunctionType(number, [number]), "", "=r,0", [following], False)

    return types.int64(first), generate


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Lanes of a contiguous array from `index` on."""
    result = Lanes(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = context.get_value_type(result)
        read = builder.load(_address(context, builder, signature, arguments, lanes))
        read.align = array.dtype.bitwidth // 8
        return read

    return result(array, index), generate


@intrinsic
def load_first(typing_context: Any, array: Any, index: Any, count: Any, otherwise: Any) -> Any:
    """The first `count` lanes from `index` on, any number; `otherwise` in the others, whose memory is left alone."""
    result = Lanes(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = context.get_value_type(result)
        address = _address(context, builder, signature, arguments, lanes)
        mask_type = ir.VectorType(ir.IntType(1), LANES)
        masked_load = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(lanes, [address.type, LANE_INT, mask_type, lanes]),
            f"llvm.masked.load.v{LANES}f{array.dtype.bitwidth}.p0",
        )
        align = ir.Constant(LANE_INT, array.dtype.bitwidth // 8)
        mask = _is_below(builder, context.cast(builder, arguments[2], count, types.int32))
        fill = context.cast(builder, arguments[3], otherwise, array.dtype)
        return builder.call(masked_load, [address, align, mask, _spread(builder, fill)])

    return result(array, index, count, otherwise), generate


@intrinsic
def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Write lanes to a contiguous array from `index` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = context.get_value_type(value)
        address = _address(context, builder, signature, arguments, lanes)
        builder.store(arguments[2], address).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@intrinsic
def spread(typing_context: Any, scalar: Any) -> Any:
    """The same number in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0])

    return Lanes(scalar)(scalar), generate


@intrinsic
def count_from(typing_context: Any, first: Any) -> Any:
    """`first`, `first + 1`, ... as 32-bit integers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.cast(builder, arguments[0], first, types.int32)
        return builder.add(_spread(builder, start), ir.Constant(LANE_INTS, list(range(LANES))))

    return Lanes(types.int32)(first), generate


@intrinsic
def spread_minus_infinity(typing_context: Any, lanes: Any) -> Any:
    """Minus infinity in every lane of other lanes' type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = arguments[0].type
        return ir.Constant(number, [ir.Constant(number.element, float("-inf"))] * LANES)

    return lanes(lanes), generate


@intrinsic
def spread_place(typing_context: Any, place: Any) -> Any:
    """The same place in every lane, as a 32-bit integer like those of `count_from`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, context.cast(builder, arguments[0], place, types.int32))

    return Lanes(types.int32)(place), generate


@intrinsic
def below(typing_context: Any, count: Any) -> Any:
    """Mask of the first `count` lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _is_below(builder, context.cast(builder, arguments[0], count, types.int32))

    return MASK(count), generate


@intrinsic
def choose(typing_context: Any, mask: Any, value: Any, other: Any) -> Any:
    """`value` where the mask holds, else `other`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return value(mask, value, other), generate


def require_same_lanes(left: Any, right: Any) -> None:
    """Refuse to compile what mixes lanes of different types."""
    if left != right:
        raise TypingError(f"lanes of different types: {left} and {right}")


def _arithmetic(instruction: str, document: str) -> Any:
    def operation(typing_context: Any, left: Any, right: Any) -> Any:
        require_same_lanes(left, right)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments)

        return left(left, right), generate

    operation.__doc__ = document
    return intrinsic(operation)


add = _arithmetic("fadd", "`left + right`.")
subtract = _arithmetic("fsub", "`left - right`.")
multiply = _arithmetic("fmul", "`left * right`.")
divide = _arithmetic("fdiv", "`left / right`.")


def compare_lanes(builder: Any, sign: str, dtype: types.Type, left: Any, right: Any) -> Any:
    """The instruction that compares lanes of numbers of a type."""
    is_integer = isinstance(dtype, types.Integer)
    compare: Callable[..., Any] = builder.icmp_signed if is_integer else builder.fcmp_ordered
    return compare(sign, left, right)


def _comparison(sign: str, document: str) -> Any:
    def operation(typing_context: Any, left: Any, right: Any) -> Any:
        require_same_lanes(left, right)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return compare_lanes(builder, sign, left.dtype, *arguments)

        return MASK(left, right), generate

    operation.__doc__ = document
    return intrinsic(operation)


equal = _comparison("==", "Mask of `left == right`.")
less = _comparison("<", "Mask of `left < right`, False where one is NaN.")
greater = _comparison(">", "Mask of `left > right`, False where one is NaN.")


@intrinsic
def both(typing_context: Any, left: Any, right: Any) -> Any:
    """Mask of the lanes where both masks hold."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.and_(*arguments)

    return MASK(left, right), generate


@intrinsic
def bits_of(typing_context: Any, mask: Any) -> Any:
    """A number whose lowest bits are the mask, the first lane's lowest: 0 if it holds nowhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.bitcast(arguments[0], ir.IntType(LANES)), ir.IntType(64))

    return types.int64(mask), generate


@intrinsic
def count_bits(typing_context: Any, bits: Any) -> Any:
    """How many bits of a 64-bit number are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count = builder.module.declare_intrinsic("llvm.ctpop", [ir.IntType(64)])
        return builder.call(count, arguments)

    return types.int64(bits), generate


@intrinsic
def lowest_bit(typing_context: Any, bits: Any) -> Any:
    """Place of the lowest bit of a 64-bit number that is set; 0 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # With 64 in place of 0 where no bit is set: 64 & 63 is 0.
        place = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))
        return builder.and_(place, ir.Constant(ir.IntType(64), 63))

    return types.int64(bits), generate
