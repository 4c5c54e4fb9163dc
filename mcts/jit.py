"""How the kernels of this package are compiled.

They run without numba's memory management: it would count references to every array at every call between kernels,
several times the work of the call. So nothing can be allocated in them, which numba refuses when it compiles.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}

inlined = njit(forceinline=True, **_OPTIONS)
"""Decorates what kernels call: becomes part of each of them."""


def kernel(function: _F) -> _F:
    """Decorate what Python calls: compiled once, kept on disk, run without the interpreter's lock.

    Numba's cache watches only the file that a kernel stands in, and does not see when another's constants or functions,
    which are part of the kernel, have changed. Here it watches all files that kernels are made of.
    """
    compiled = njit(cache=True, nogil=True, **_OPTIONS)(function)
    # Missing where numba finds no place for a cache.
    cache_file = getattr(compiled._cache, "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = (cache_file._source_stamp, _sources())
    return cast(_F, compiled)


@cache
def _sources() -> str:
    """A digest of the files that kernels are made of."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_bytes()
        if path.stem in ("jit", "layout") or b"mcts.jit" in source or b"llvmlite" in source:
            digest.update(source)
    return digest.hexdigest()
