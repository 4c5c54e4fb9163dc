"""What lies between the matrix products of a small network on a CPU, compiled: scaling, heads, cross-entropies.

Letters: `n` rows, `L` latent size, `S` atoms or actions, `W` columns of an output layer, `R` rows of a slab of latents.
"""

import math

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

MIN_LATENT_RANGE = 1e-5
"""Smallest range of a latent that scaling divides by."""

EPSILON = 0.001
"""The linear part of `h`, which makes it invertible."""

ZERO, ONE, TWO, FOUR = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(4.0)
MIN_RANGE = np.float32(MIN_LATENT_RANGE)
LINEAR = np.float32(EPSILON)


# Minima in vectors need nnan. A NaN still comes out: the scaling below divides it without fast-math.
@njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz"})
def bounds(row: Array) -> tuple[np.float32, np.float32]:
    """Smallest and largest entry."""
    low = row[0]
    high = row[0]
    for j in range(len(row)):
        x = row[j]
        low = min(low, x)
        high = max(high, x)
    return low, high


@njit(cache=True, nogil=True, error_model="numpy")
def scale_rows(outputs: Array, latent: Array, spread: Array, slab: Array, target: Indices) -> None:
    """`scale_latent` of the first `L` columns of `outputs` `[n, W]`, into `latent` `[n, L]` and `slab` `[R, L]`.

    `spread` `[n]` becomes what was divided by. `target` `[n]` names the rows of the slab; an empty one leaves it alone.
    """
    size = latent.shape[1]
    stores = len(target) > 0
    for i in range(len(latent)):
        row = outputs[i, :size]
        scaled = latent[i]
        low, high = bounds(row)
        divisor = max(high - low, MIN_RANGE)
        spread[i] = divisor
        for j in range(size):
            scaled[j] = (row[j] - low) / divisor
        if stores:
            memory = slab[target[i]]
            for j in range(size):
                memory[j] = scaled[j]


# Sums in vectors need another order of the terms.
@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def moments(gradient: Array, y: Array) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Sum of the gradient, sum of gradient times y, and how many entries of y are 0 and 1."""
    total, weighted, num_low, num_high = ZERO, ZERO, ZERO, ZERO
    for j in range(len(y)):
        total += gradient[j]
        weighted += gradient[j] * y[j]
        num_low += ONE if y[j] == ZERO else ZERO
        num_high += ONE if y[j] == ONE else ZERO
    return total, weighted, num_low, num_high


@njit(cache=True, nogil=True, error_model="numpy")
def scale_rows_backward(gradient: Array, latent: Array, spread: Array, result: Array) -> None:
    """Gradient `[n, L]` of what `scale_rows` made -> gradient of its input, the first `L` columns of `result` `[n, W]`.

    Minimum and maximum carry gradient too, shared by the entries that tie.
    """
    size = latent.shape[1]
    for i in range(len(latent)):
        y = latent[i]
        g = gradient[i]
        total, weighted, num_low, num_high = moments(g, y)
        if spread[i] == MIN_RANGE:  # the divisor was the guard, a constant
            at_low = -total / num_low
            at_high = ZERO
        else:
            at_low = (weighted - total) / num_low
            at_high = -weighted / num_high
        to = result[i, :size]
        for j in range(size):
            extra = at_low if y[j] == ZERO else (at_high if y[j] == ONE else ZERO)
            to[j] = (g[j] + extra) / spread[i]


@njit(cache=True, nogil=True, error_model="numpy")
def unsquash_one(y: np.float32) -> np.float32:
    """`muzero.network.support.unsquash` of one number."""
    size = abs(y)
    root = math.sqrt(ONE + FOUR * LINEAR * (size + (ONE + LINEAR)))
    d = TWO * size / (root + (ONE + TWO * LINEAR))
    x = d * (d + TWO)
    return x if y >= ZERO else -x


@njit(cache=True, nogil=True, error_model="numpy")
def squash_one(x: np.float32) -> np.float32:
    """`muzero.network.support.squash` of one number."""
    size = abs(x)
    y = size / (math.sqrt(size + ONE) + ONE) + LINEAR * size
    return y if x >= ZERO else -y


@njit(cache=True, nogil=True, error_model="numpy")
def cross_entropy_rows(
    logits: Array, target: Array, scale: Array, loss: Array, gradient: Array
) -> float:
    """Cross-entropies `[n]` of softmax(logits) `[n, S]` with targets `[n, S]`; returns their sum, scaled by `[n]`.

    `gradient` `[n, S]` becomes that of the sum.
    """
    size = logits.shape[1]
    sum_of_losses = 0.0
    for i in range(len(loss)):
        largest = logits[i, 0]
        for j in range(1, size):
            largest = max(largest, logits[i, j])
        total = ZERO
        mass = ZERO
        product = ZERO
        for j in range(size):
            x = logits[i, j] - largest
            weight = math.exp(x)
            gradient[i, j] = weight
            total += weight
            mass += target[i, j]
            product += target[i, j] * x
        loss[i] = mass * math.log(total) - product
        sum_of_losses += scale[i] * loss[i]
        factor = scale[i] * mass / total
        for j in range(size):
            gradient[i, j] = gradient[i, j] * factor - scale[i] * target[i, j]
    return sum_of_losses


@njit(cache=True, nogil=True, error_model="numpy")
def two_hot_cross_entropy_rows(
    logits: Array,
    scalar: Array,
    scale: Array,
    atom_width: float,
    transform: bool,
    loss: Array,
    gradient: Array,
) -> float:
    """`cross_entropy_rows` with the two-hot distributions of scalars `[n]`, as `Support.locate` makes them.

    A scalar that is NaN gives a NaN.
    """
    size = logits.shape[1]
    half = size // 2
    last = np.float32(half)
    sum_of_losses = 0.0
    for i in range(len(loss)):
        largest = logits[i, 0]
        for j in range(1, size):
            largest = max(largest, logits[i, j])
        total = ZERO
        for j in range(size):
            weight = math.exp(logits[i, j] - largest)
            gradient[i, j] = weight
            total += weight
        x = squash_one(scalar[i]) if transform else scalar[i]
        position = min(max(x / np.float32(atom_width), -last), last)
        lower = min(np.float32(math.floor(position)), last - ONE)
        share = position - lower
        k = half if math.isnan(share) else half + np.int64(lower)
        rest = ONE - share
        loss[i] = math.log(total) - (
            rest * (logits[i, k] - largest) + share * (logits[i, k + 1] - largest)
        )
        sum_of_losses += scale[i] * loss[i]
        factor = scale[i] / total
        for j in range(size):
            gradient[i, j] *= factor
        gradient[i, k] -= rest * scale[i]
        gradient[i, k + 1] -= share * scale[i]
    return sum_of_losses
