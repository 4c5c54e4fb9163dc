"""Sampling in a box: a squashed diagonal Gaussian, for continuous actions. Letters as in `mcts.sampling`."""

import math

import numpy as np
import numpy.typing as npt

from mcts.base import BoolArray, FloatArray, IntArray
from mcts.counter_random import Keys, stream_of, uniform
from mcts.jit import inlined, kernel
from mcts.sampling import ActionArray, Samples, add_logs, count_share, log_mixture
from mcts.threads import RowThreads

SATURATION = 1e-6
"""A squashed action keeps this distance from -1 and 1, where its density has no end."""
_LARGEST_SQUASHED = 1.0 - SATURATION
_LOG_2PI = math.log(2.0 * math.pi)
_TAU = 2.0 * math.pi


class SquashedGaussianSampler:
    """Actions in a box: `low + (high - low) (1 + tanh u) / 2` with `u` from a diagonal Gaussian.

    The `P = 2 D` parameters are the mean of `u` and the ln of its standard deviation; `low` and `high` are `[D]`. Of the `K`
    samples, `wide_share` come from the Gaussian with `std_factor` times the standard deviation (EfficientZeroV2: half of
    them, factor 3), the others from the policy; beta is the mixture that this makes, so that the correction also serves
    actions that are far from the mean. Saturated actions keep `SATURATION` (of half the width) away from the bounds.
    """

    action_dtype = np.dtype(np.float32)

    def __init__(
        self,
        low: npt.ArrayLike,
        high: npt.ArrayLike,
        num_samples: int,
        *,
        wide_share: float = 0.0,
        std_factor: float = 3.0,
    ) -> None:
        lowest, highest = np.atleast_1d(np.asarray(low, np.float64), np.asarray(high, np.float64))
        if lowest.ndim != 1 or lowest.shape != highest.shape or len(lowest) == 0:
            raise ValueError(
                f"low has shape {lowest.shape} and high {highest.shape}: both must be one number per dimension"
            )
        if not (np.isfinite(lowest) & np.isfinite(highest) & (lowest < highest)).all():
            raise ValueError(
                f"low={lowest.tolist()}, high={highest.tolist()}: every dimension needs finite bounds with low below "
                "high; scale or clip an action space without bounds in its environment"
            )
        if not (math.isfinite(std_factor) and std_factor > 0):
            raise ValueError(f"std_factor={std_factor!r}: must be a finite number above 0")
        self.num_samples = num_samples
        self.num_dims = len(lowest)
        self.num_parameters = 2 * self.num_dims
        self.action_shape = (self.num_dims,)
        self.scratch_size = 0
        self.std_factor = std_factor
        self.num_wide = count_share("wide_share", wide_share, num_samples)
        self._centre = (lowest + highest) / 2
        self._half_width = (highest - lowest) / 2

    def check_legal(self, legal: BoolArray) -> None:
        """All of the box is legal; raises ValueError for any other mask."""
        if not legal.all():
            raise ValueError("legal: a box has no illegal actions; give no mask")

    def allows(self, legal: BoolArray, actions: ActionArray) -> BoolArray:
        """All of them."""
        return np.ones(actions.shape[:2], np.bool_)

    def draw(
        self,
        threads: RowThreads,
        samples: Samples,
        rows: IntArray,
        nodes: IntArray,
        parameters: FloatArray,
        legal: BoolArray | None,
        logits: FloatArray,
    ) -> None:
        """See `ActionSampler.draw`."""
        threads.call(
            draw_squashed,
            len(rows),
            self.num_wide,
            self.std_factor,
            self._centre,
            self._half_width,
            rows,
            nodes,
            samples.keys,
            parameters,
            samples.actions,
            samples.log_weights,
            logits,
        )

    def log_density(
        self, parameters: FloatArray, actions: ActionArray, legal: BoolArray | None = None
    ) -> FloatArray:
        """See `ActionSampler.log_density`: density in the units of the box, tanh and scale accounted for."""
        mean, log_std = np.split(np.asarray(parameters, np.float64)[:, None], 2, axis=-1)
        squashed = (np.asarray(actions, np.float64) - self._centre) / self._half_width
        squashed = np.clip(squashed, SATURATION - 1, 1 - SATURATION)
        scaled = (np.arctanh(squashed) - mean) * np.exp(-log_std)
        normal = -0.5 * (scaled**2 + math.log(2 * math.pi)) - log_std
        slope = np.log((1 - squashed) * (1 + squashed)) + np.log(self._half_width)
        return (normal - slope).sum(axis=-1)


@kernel
def draw_squashed(
    low: int,
    high: int,
    num_wide: int,
    std_factor: float,
    centre: FloatArray,
    half_width: FloatArray,
    rows: IntArray,
    nodes: IntArray,
    keys: Keys,
    parameters: FloatArray,
    actions: FloatArray,
    log_weights: FloatArray,
    logits: FloatArray,
) -> int:
    """Draw `centre + half_width * tanh(u)` with `u` from a diagonal Gaussian; draws keep their order.

    `parameters` `[b, 2 D]` are mean and ln of the standard deviation of `u`. The last `num_wide` of the `K` draws have
    the standard deviation times `std_factor`. Fills `actions` `[B, N + 1, K, D]` and `log_weights` `[B, N + 1, K]` at the
    nodes, and `logits` `[b, K]`: NaN where a parameter or a deviation is not finite, or a deviation is 0. Returns -1.

    The two densities of a draw differ in `u` alone, the slope of tanh cancels; where tanh saturates, equal actions have
    different `u`, and their weights add up.
    """
    num_samples = logits.shape[1]
    num_dims = len(centre)
    share = num_wide / num_samples
    log_factor = num_dims * math.log(std_factor)
    for position in range(low, high):
        row = rows[position]
        node = nodes[position]
        slots = actions[row, node]
        weights = log_weights[row, node]
        given = parameters[position]
        is_sound = True
        for dim in range(num_dims):
            std = math.exp(float(given[num_dims + dim]))
            is_sound &= math.isfinite(given[dim]) and math.isfinite(std) and std > 0.0
        if not is_sound:
            slots[:] = 0
            weights[:] = math.nan
            logits[position] = math.nan
            continue

        stream = stream_of(keys[row], node)
        num_distinct = 0
        for sample in range(num_samples):
            factor = std_factor if sample >= num_samples - num_wide else 1.0
            square = 0.0  # of the draw in standard deviations of the policy
            for dim in range(num_dims):
                index = 2 * (sample * num_dims + dim)
                radius = math.sqrt(-2.0 * math.log(1.0 - uniform(stream, index)))  # Box and Muller
                scaled = factor * radius * math.cos(_TAU * uniform(stream, index + 1))
                square += scaled * scaled
                squashed = math.tanh(given[dim] + math.exp(float(given[num_dims + dim])) * scaled)
                squashed = min(max(squashed, -_LARGEST_SQUASHED), _LARGEST_SQUASHED)
                slots[num_distinct, dim] = centre[dim] + half_width[dim] * squashed
            wide_above_policy = 0.5 * square * (1.0 - 1.0 / (std_factor * std_factor)) - log_factor
            ratio = -math.log(num_samples) - log_mixture(0.0, wide_above_policy, share)
            for slot in range(num_distinct):
                is_equal = True
                for dim in range(num_dims):
                    is_equal &= slots[slot, dim] == slots[num_distinct, dim]
                if is_equal:
                    logits[position, slot] = add_logs(logits[position, slot], ratio)
                    break
            else:
                logits[position, num_distinct] = ratio
                num_distinct += 1

        for slot in range(num_distinct):
            weights[slot] = logits[position, slot] - _log_squashed_density(
                given, slots[slot], centre, half_width
            )
        for slot in range(num_distinct, num_samples):
            for dim in range(num_dims):  # by elements: numba would copy what might overlap
                slots[slot, dim] = slots[0, dim]
            weights[slot] = -math.inf
            logits[position, slot] = -math.inf
    return -1


@inlined
def _log_squashed_density(
    given: FloatArray, action: FloatArray, centre: FloatArray, half_width: FloatArray
) -> float:
    """`sum_d ln Normal(atanh t_d) - ln(1 - t_d^2) - ln half_width_d` with `t = (action - centre) / half_width`."""
    num_dims = len(action)
    total = 0.0
    for dim in range(num_dims):
        squashed = (action[dim] - centre[dim]) / half_width[dim]
        squashed = min(max(squashed, -_LARGEST_SQUASHED), _LARGEST_SQUASHED)
        log_std = float(given[num_dims + dim])
        scaled = (math.atanh(squashed) - given[dim]) / math.exp(log_std)
        total -= 0.5 * (scaled * scaled + _LOG_2PI) + log_std
        total -= math.log((1.0 - squashed) * (1.0 + squashed)) + math.log(half_width[dim])
    return total
