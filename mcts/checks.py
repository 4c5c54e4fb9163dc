"""What callers of a search may get wrong, as errors that say so."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mcts import kernels
from mcts.base import BoolArray, FloatArray, RootOutput

_PLANT_FAULTS = {
    kernels.NO_LEGAL_ACTION: "no legal action; a position to search must have at least one",
    kernels.NOT_FINITE: "the model returned non-finite values for the root",
    kernels.BAD_NOISE: "the noise is not finite",
    kernels.ALL_ABSENT: (
        "the model returned a logit of minus infinity for every legal action: by that none exists"
    ),
}


def check_shape(name: str, array: npt.NDArray[Any], expected: tuple[int, ...]) -> None:
    """Raise ValueError if the array has another shape."""
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")


def check_roots(
    shape: tuple[int, int],
    root: RootOutput,
    legal: BoolArray,
    noise: FloatArray | None,
    explored: BoolArray | None,
    num_simulations: npt.NDArray[np.integer] | None,
    most_simulations: int,
) -> None:
    """Raise ValueError if what a search is to begin with does not have the shape `(B, A)`, or `(B,)`, or too many simulations."""
    check_shape("legal", legal, shape)
    check_shape("root.prior_logits", root.prior_logits, shape)
    check_shape("root.value", root.value, shape[:1])
    if noise is not None:
        check_shape("noise", noise, shape)
    if explored is not None:
        check_shape("explored", explored, shape[:1])
    if num_simulations is not None:
        check_shape("num_simulations", num_simulations, shape[:1])
        meaning = "for which the trees have room"
        check_integers("num_simulations", num_simulations, 1, most_simulations, meaning)


def check_integers(
    name: str, array: npt.NDArray[Any], lowest: int, highest: int, meaning: str
) -> None:
    """Raise ValueError if an array over rows holds anything but integers of the range that `meaning` explains."""
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} has dtype {array.dtype}; it must hold integers")
    is_fine = (array >= lowest) & (array <= highest)
    if not is_fine.all():
        row = int(np.argmin(is_fine))
        raise ValueError(
            f"{name} of row {row} is {array[row]}: it must be {lowest} to {highest}, {meaning}"
        )


def check_planted(fault: int) -> None:
    """Raise ValueError if `kernels.plant` has found a fault."""
    if fault != kernels.NO_FAULT:
        row, kind = divmod(fault, kernels.NUM_FAULTS)
        raise ValueError(f"row {row}: {_PLANT_FAULTS[kind]}")
