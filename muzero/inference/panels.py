"""Weights as panels of columns, in the shapes and the order that `muzero.inference.tiles` multiplies them in.

Letters: `K` inputs, `W` columns.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
from llvmlite import binding

from muzero.inference.emit import compiles_for, to_bfloat16


def _host_shape() -> tuple[int, int, int]:
    """Lanes of a vector, vectors of a panel and most rows of a tile that fill the registers of this processor."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 2, 12  # 24 sums of 32 registers
    if features.get("avx2"):
        return 8, 2, 6  # 12 sums of 16 registers
    return 4, 4, 6  # 24 sums of 32 registers (NEON)


LANES, PANEL_VECTORS, MAX_TILE_ROWS = _host_shape()
PANEL = LANES * PANEL_VECTORS
"""Columns of a full panel; a last one may have fewer vectors."""


@cache
def has_avx512_bf16() -> bool:
    """Whether this processor multiplies pairs of bfloat16 in vectors of 16 sums, and numba may use it."""
    return compiles_for("avx512f", "avx512bf16")


def pack(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Weight `[K, W]`, `W` a multiple of the lanes -> flat panels of columns, each `[K, columns]`."""
    width = weight.shape[1]
    panels = [weight[:, first : first + PANEL].ravel() for first in range(0, width, PANEL)]
    return np.concatenate(panels)


def pack_pairs(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The same, `K` even, rounded to bfloat16: flat panels `[K / 2, columns, 2]`, a column's two inputs side by side."""
    bits = to_bfloat16(weight)
    panels = []
    for first in range(0, weight.shape[1], PANEL):
        panel = bits[:, first : first + PANEL]
        panels.append(panel.reshape(len(panel) // 2, 2, -1).transpose(0, 2, 1).ravel())
    return np.concatenate(panels)
