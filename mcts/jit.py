"""How kernels are compiled, those of this package and, with `compile_kernel`, those of others.

They run without numba's memory management: it would count references to every array at every call between kernels,
several times the work of the call. So nothing can be allocated in them, which numba refuses when it compiles.
"""

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}

inlined = njit(forceinline=True, **_OPTIONS)
"""Decorates what kernels call: becomes part of each of them."""


def kernel(function: _F) -> _F:
    """Decorate what Python calls, in this package: see `compile_kernel`."""
    return compile_kernel(function, _sources())


def compile_kernel(function: _F, sources: str) -> _F:
    """Compile what Python calls: once, kept on disk, run without the interpreter's lock.

    Numba's cache watches only the file that a kernel stands in, and does not see when another's constants or functions,
    which are part of the kernel, have changed. Here it also watches `sources`, a digest of all files that it is made of.
    """
    compiled = njit(cache=True, nogil=True, **_OPTIONS)(function)
    # Missing where numba finds no place for a cache.
    cache_file = getattr(compiled._cache, "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = (cache_file._source_stamp, sources)
    return cast(_F, compiled)


def digest_of(paths: Iterable[Path]) -> str:
    """A digest of what the files hold, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def files_with(folder: Path, *marks: bytes) -> list[Path]:
    """The Python files of a folder that hold one of `marks`."""
    files = folder.glob("*.py")
    return [path for path in files if any(mark in path.read_bytes() for mark in marks)]


@cache
def _sources() -> str:
    """A digest of the files that this package's kernels are made of."""
    # This file holds its own mark, and so is one of them.
    return digest_of(files_with(Path(__file__).parent, b"mcts.jit", b"llvmlite"))
