"""Layers packed for the compiled functions, and programs: the jobs of a network's call, made once.

Numbers are float32, or bfloat16 kept as uint16. Letters: `K` inputs, `W` columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from muzero.inference import amx, jobs, panels
from muzero.inference.precision import Unit, bfloat16_unit

FloatArray = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

VECTOR = 16
"""Numbers of a vector: rows of every array are whole vectors."""


def aligned(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros that begin at a multiple of 64 bytes, as torch allocates them."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = torch.zeros(max(count, 1), dtype=torch.uint8).numpy()[:count]
    return array.view(dtype).reshape(shape)


def address(array: npt.NDArray[Any]) -> int:
    """Where an array begins."""
    return int(array.ctypes.data)


def round_up(count: int, multiple: int) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Precision:
    """What multiplies, its type of number, and what layers are padded to."""

    unit: Unit

    @classmethod
    def of(cls, bfloat16: bool) -> "Precision":
        """The best on this processor.

        Raises RuntimeError if `bfloat16_unit()` is None and bfloat16 is asked for.
        """
        unit = bfloat16_unit() if bfloat16 else "float32"
        if unit is None:
            raise RuntimeError(
                "search.bfloat16=true: this processor has no unit for bfloat16 (AMX, AVX512_BF16) that compiled networks may use"
            )
        return cls(unit)

    @property
    def bfloat16(self) -> bool:
        """Whether numbers are bfloat16."""
        return self.unit != "float32"

    @property
    def dtype(self) -> type[np.generic]:
        """How numbers are kept."""
        return np.uint16 if self.bfloat16 else np.float32

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return 2 if self.bfloat16 else 4

    @property
    def depth_multiple(self) -> int:
        """Inputs of a layer are padded to a multiple of this, and so are outputs that are inputs of another."""
        return amx.STEP if self.unit == "amx" else VECTOR


_PACK: dict[Unit, Callable[[FloatArray], npt.NDArray[Any]]] = {
    "float32": panels.pack,
    "amx": amx.pack,
    "avx512_bf16": panels.pack_pairs,
}


class PackedLayer:
    """Weight and bias in the order of the compiled functions, padded with zeros; new ones are written in place.

    Args:
        depth, width: Inputs of a tap and outputs, padding included.
    """

    def __init__(
        self, num_taps: int, depth: int, width: int, *, relu: bool, precision: Precision
    ) -> None:
        self.num_taps, self.depth, self.width, self.relu = num_taps, depth, width, relu
        self._precision = precision
        self.weights = aligned(num_taps * depth * width, precision.dtype)
        self.bias: FloatArray = aligned(width, np.float32)

    def write(self, matrix: FloatArray, bias: FloatArray | None) -> None:
        """Matrix `[taps, K, W]` and bias `[W]`, not padded."""
        _, depth, width = matrix.shape
        whole = np.zeros((self.num_taps, self.depth, self.width), np.float32)
        whole[:, :depth, :width] = matrix
        flat = whole.reshape(-1, self.width)
        self.weights[:] = _PACK[self._precision.unit](flat)
        if bias is not None:
            self.bias[: len(bias)] = bias


class Workspace:
    """What the jobs of one evaluator share: scratch, and every array that an address points to.

    Args:
        num_rows: Most rows, or pixels with their borders, of a job.
    """

    def __init__(self, num_rows: int) -> None:
        self._kept: list[Any] = []
        self.zero_rows = self.keep(aligned(num_rows, np.int64))
        self.same_rows = self.keep(aligned(num_rows, np.int64))
        self.same_rows[:] = np.arange(num_rows)
        self._sums = self.keep(aligned((2, amx.BLOCK, amx.BLOCK), np.float32))
        self._shapes = self.keep(aligned((2, 64), np.uint8))
        self._shapes[0] = amx.tile_shapes()

    def keep(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Hold an array for as long as this lives."""
        self._kept.append(array)
        return array

    def job(self, layer: PackedLayer, x: int, out: int, **fields: int) -> list[int]:
        """A job of `layer` from address to address: a linear layer, unless `fields` say otherwise.

        Args:
            fields: By the names in `muzero.inference.jobs`, in lower case.
        """
        self._kept.append(layer)
        job = [0] * jobs.NUM_FIELDS
        given = {
            "x": x,
            "out": out,
            "weights": address(layer.weights),
            "bias": address(layer.bias),
            "bias_rows": address(self.zero_rows),
            "taps": address(self.zero_rows),
            "num_taps": layer.num_taps,
            "depth": layer.depth,
            "width": layer.width,
            "relu": int(layer.relu),
            "num_images": 1,
            "height": 1,
            "out_rows": address(self.same_rows),
            "zeros": address(self.keep(aligned(layer.width, np.float32))),
            "sums": address(self._sums),
            "shapes": address(self._shapes),
            **fields,
        }
        for name, value in given.items():
            job[getattr(jobs, name.upper())] = value
        return job


def make_program(all_jobs: Sequence[list[int]]) -> Indices:
    """`[jobs, 25]`."""
    program: Indices = aligned((len(all_jobs), jobs.NUM_FIELDS), np.int64)
    program[:] = all_jobs
    return program
