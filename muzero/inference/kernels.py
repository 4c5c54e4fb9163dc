"""What remains of a small network's call between its matrix products, compiled: scaling, heads, the slab.

Letters: `n` rows of a call, `L` latent size, `S` atoms, `W` columns of an output layer, `R` rows of the slab.
"""

import math

import numpy as np
import numpy.typing as npt
from numba import njit

from muzero.network.layers import MIN_LATENT_RANGE
from muzero.network.support import EPSILON

Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

ONE = np.float32(1.0)
TWO = np.float32(2.0)
FOUR = np.float32(4.0)
MIN_RANGE = np.float32(MIN_LATENT_RANGE)
LINEAR = np.float32(EPSILON)


# Vectors of minima need nnan. A NaN still comes out: the scaling below divides it without fast-math.
@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def bounds(row: Array) -> tuple[np.float32, np.float32]:
    """Smallest and largest entry."""
    low = row[0]
    high = row[0]
    for j in range(len(row)):
        x = row[j]
        low = min(low, x)
        high = max(high, x)
    return low, high


@njit(cache=True, nogil=True)
def scale_rows(outputs: Array, latent: Array, slab: Array, target: Indices) -> None:
    """`scale_latent` of the first `L` columns of `outputs` `[n, W]`, into `latent` `[n, L]` and `slab` `[R, L]`.

    `target` `[n]` names the rows of the slab; an empty one leaves the slab alone.
    """
    size = latent.shape[1]
    stores = len(target) > 0
    for i in range(len(latent)):
        row = outputs[i, :size]
        scaled = latent[i]
        low, high = bounds(row)
        spread = max(high - low, MIN_RANGE)
        for j in range(size):
            scaled[j] = (row[j] - low) / spread
        if stores:
            memory = slab[target[i]]
            for j in range(size):
                memory[j] = scaled[j]


@njit(cache=True, nogil=True)
def read_scalars(
    outputs: Array, first: int, num_atoms: int, atom_width: float, transform: bool, scalar: Array
) -> None:
    """`Support.decode` of `S` columns from `first` on of `outputs` `[n, W]`, into `scalar` `[n]`."""
    half = num_atoms // 2
    for i in range(len(scalar)):
        logits = outputs[i, first : first + num_atoms]
        largest = logits[0]
        for j in range(1, num_atoms):
            largest = max(largest, logits[j])
        weighted = np.float32(0.0)
        total = np.float32(0.0)
        for j in range(num_atoms):
            weight = math.exp(logits[j] - largest)
            weighted += weight * np.float32(j - half)
            total += weight
        x = weighted / total * np.float32(atom_width)
        scalar[i] = unsquash_one(x) if transform else x


@njit(cache=True, nogil=True)
def unsquash_one(y: np.float32) -> np.float32:
    """`muzero.network.support.unsquash` of one number."""
    size = abs(y)
    root = math.sqrt(ONE + FOUR * LINEAR * (size + (ONE + LINEAR)))
    d = TWO * size / (root + (ONE + TWO * LINEAR))
    x = d * (d + TWO)
    return x if y >= 0 else -x
