"""Copies that go past the caches, for what is written now and read much later.

A plain store reads the line that it is about to overwrite, and throws something else out of the cache for it. A streaming
(non-temporal) store does neither: a segment of images enters the ring in two thirds of the time.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic as _intrinsic

intrinsic: Any = _intrinsic  # which takes the typing context off the arguments, unseen by mypy

LINE = 64
"""Bytes of a cache line."""
SMALLEST = 1 << 16
"""Bytes below which a copy takes numpy's way: it fits the cache, and so does what it throws out."""


@intrinsic
def _stream_line(typing: Any, target: Any, source: Any) -> Any:
    """Copy a line from address `source` to `target`, a multiple of `LINE`, past the caches."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = ir.VectorType(ir.IntType(32), LINE // 4).as_pointer()
        to, of = (builder.inttoptr(address, line) for address in arguments)
        value = builder.load(of)
        value.align = 1
        store = builder.store(value, to)
        store.align = LINE
        one = ir.Constant(ir.IntType(32), 1)
        store.set_metadata("nontemporal", builder.module.add_metadata([one]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _copy_byte(typing: Any, target: Any, source: Any) -> Any:
    """Copy a byte from address `source` to `target`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(address, byte) for address in arguments)
        builder.store(builder.load(of), to)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _fence(typing: Any) -> Any:
    """Let other threads see what was streamed before they see anything that is written from here on."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@njit(cache=True, nogil=True)
def _stream(target, source, size):  # type: ignore[no-untyped-def]
    """Copy `size` bytes between addresses; the two areas must not overlap."""
    done = 0
    while done < size and (target + done) % LINE != 0:
        _copy_byte(target + done, source + done)
        done += 1
    while done + LINE <= size:
        _stream_line(target + done, source + done)
        done += LINE
    while done < size:
        _copy_byte(target + done, source + done)
        done += 1
    _fence()


def copy_past_caches(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Like `target[:] = source` for arrays of one shape that share no memory; large ones are streamed."""
    streams = (
        target.nbytes >= SMALLEST
        and target.dtype == source.dtype
        and target.shape == source.shape
        and target.flags.c_contiguous
        and source.flags.c_contiguous
    )
    if streams:
        _stream(target.ctypes.data, source.ctypes.data, target.nbytes)
    else:
        np.copyto(target, source, casting="same_kind")
