"""Helpers for code that is emitted as LLVM vectors, because no loop in Python is compiled into it.

Addresses are int64 here: numba's kernels compute them from arrays that they hold.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba.core import cgutils, config
from numba.extending import intrinsic as _intrinsic

from mcts import jit
from muzero.network import kernels as network_kernels

_F = TypeVar("_F", bound=Callable[..., Any])

intrinsic: Any = _intrinsic
"""Numba's decorator, which takes the typing context off the arguments: to mypy, anything can be called with anything."""


def kernel(function: _F) -> _F:
    """Decorate what Python calls: see `mcts.jit.compile_kernel`."""
    return jit.compile_kernel(function, _sources())


inlined = jit.inlined
"""Decorates what kernels call: becomes part of each of them."""


@cache
def _sources() -> str:
    """A digest of the files that kernels are made of: those of this folder with code or numbers of theirs, and two elsewhere."""
    folder = Path(__file__).parent
    here = {*jit.files_with(folder, b"muzero.inference.emit", b"llvmlite")}
    numbers = {folder / "jobs.py", folder / "messages.py"}
    elsewhere = {Path(str(module.__file__)) for module in (jit, network_kernels)}
    return jit.digest_of(here | numbers | elsewhere)


@cache
def compiles_for(*features: str) -> bool:
    """Whether this processor has all of LLVM's `features` and numba, which keeps compiled code by processor, uses them."""
    if any(getattr(config, name) for name in ("CPU_NAME", "CPU_FEATURES")):
        return False  # it was told to compile for another processor
    host = binding.get_host_cpu_features()
    return all(host.get(feature) for feature in features)


INT64, INT32, INT16, INT8 = (ir.IntType(bits) for bits in (64, 32, 16, 8))
FLOAT = ir.FloatType()
POINTER = INT8.as_pointer()


class _BFloat16(ir.Type):
    """LLVM's type, which llvmlite does not have."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


BFLOAT16 = _BFloat16()
"""Only for the arguments of instructions: in memory and between them a bfloat16 is an `INT16`."""

Value = Any
"""An LLVM value; llvmlite has no types to check."""


def number(value: int) -> Value:
    """An int64 constant."""
    return ir.Constant(INT64, value)


def splat(vector: Any, value: float) -> Value:
    """A constant vector of equal entries."""
    return ir.Constant(vector, [value] * vector.count)


def broadcast(builder: Any, value: Value, lanes: int) -> Value:
    """A vector of `lanes` copies of a scalar."""
    vector = ir.VectorType(value.type, lanes)
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, nothing, splat(ir.VectorType(INT32, lanes), 0))


def load(builder: Any, address: Value, kind: Any, align: int = 4) -> Value:
    """What stands at an address."""
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = align
    return value


def store(builder: Any, value: Value, address: Value, align: int = 4) -> None:
    """Write a value to an address."""
    written = builder.store(value, builder.inttoptr(address, value.type.as_pointer()))
    written.align = align


def call(builder: Any, name: str, result: Any, *arguments: Value) -> Value:
    """Call an LLVM intrinsic by its mangled name."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, arguments)


def loop(
    builder: Any,
    count: Value,
    carried: Sequence[Value],
    body: Callable[[Value, list[Value]], list[Value]],
) -> list[Value]:
    """Emit `for index in range(count)`, `count` at least 1, which carries values from round to round.

    `body(index, values)` emits a round and returns the values of the next; the last ones are returned.
    """
    before = builder.block
    inside = builder.append_basic_block("loop")
    builder.branch(inside)
    builder.position_at_end(inside)
    index = builder.phi(INT64)
    values = [builder.phi(value.type) for value in carried]
    following = body(index, values)
    end = builder.block
    next_index = builder.add(index, number(1))
    for phi, first, later in zip(
        (index, *values), (number(0), *carried), (next_index, *following), strict=True
    ):
        phi.add_incoming(first, before)
        phi.add_incoming(later, end)
    after = builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed("<", next_index, count), inside, after)
    builder.position_at_end(after)
    return following


def to_bfloat16(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to the nearest, ties to even; the same shape."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded: npt.NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def rounded(builder: Any, value: Value) -> Value:
    """A float vector to bfloat16: to the nearest, ties to even."""
    wide = ir.VectorType(INT32, value.type.count)
    bits = builder.bitcast(value, wide)
    odd = builder.and_(builder.lshr(bits, splat(wide, 16)), splat(wide, 1))
    bits = builder.add(builder.add(bits, splat(wide, 0x7FFF)), odd)
    return builder.trunc(builder.lshr(bits, splat(wide, 16)), ir.VectorType(INT16, wide.count))


def widened(builder: Any, value: Value) -> Value:
    """A bfloat16 vector to float."""
    wide = ir.VectorType(INT32, value.type.count)
    bits = builder.shl(builder.zext(value, wide), splat(wide, 16))
    return builder.bitcast(bits, ir.VectorType(FLOAT, wide.count))


def load_numbers(builder: Any, run: Value, index: Value, lanes: int, is_float: bool) -> Value:
    """A float vector of the numbers at `run` from `index` on, which are float32 or else bfloat16."""
    if is_float:
        address = builder.add(run, builder.mul(index, number(4)))
        return load(builder, address, ir.VectorType(FLOAT, lanes), 4)
    address = builder.add(run, builder.mul(index, number(2)))
    return widened(builder, load(builder, address, ir.VectorType(INT16, lanes), 2))


def store_numbers(builder: Any, value: Value, run: Value, index: Value, is_float: bool) -> None:
    """Write a float vector as the numbers at `run` from `index` on."""
    if is_float:
        store(builder, value, builder.add(run, builder.mul(index, number(4))), 4)
    else:
        store(builder, rounded(builder, value), builder.add(run, builder.mul(index, number(2))), 2)
