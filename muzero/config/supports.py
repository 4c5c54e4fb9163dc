"""Supports of value and reward: what the settings say, and what fits the environment where they say nothing."""

import math
from typing import NamedTuple

from muzero.config.networks import NetworkConfig

LARGEST_PLAIN = 10.0
"""Returns of up to so much are not transformed unless asked for: one atom per unit is exact and small."""
_UNKNOWN_MAX = 300.0  # in transformed units; MuZero, appendix F
_MOST_ATOMS = 601
_EPSILON = 0.001


class SupportSettings(NamedTuple):
    """One support, all set."""

    max: float
    """Last atom, in transformed units if `transform` is on."""
    size: int
    """Atoms."""
    transform: bool
    """Whether values are squashed by `transform`."""

    @property
    def reach(self) -> float:
        """The largest number that the support can say."""
        return inverse_transform(self.max) if self.transform else self.max


def transform(value: float) -> float:
    """h(x) = sign(x)(sqrt(|x|+1)-1) + 0.001x."""
    return math.copysign(math.sqrt(abs(value) + 1) - 1, value) + _EPSILON * value


def inverse_transform(value: float) -> float:
    """The number that `transform` squashes to `value`."""
    root = (math.sqrt(1 + 4 * _EPSILON * (abs(value) + 1 + _EPSILON)) - 1) / (2 * _EPSILON)
    return math.copysign(root**2 - 1, value)


def fit_supports(
    network: NetworkConfig, return_bounds: tuple[float, float] | None = None
) -> tuple[SupportSettings, SupportSettings]:
    """The supports of value and reward; what the settings leave open fits `return_bounds` (in training units).

    Where the bounds are unknown MuZero's own supports are taken. A single reward is taken to be no larger than a return.
    """
    furthest = None
    if return_bounds is not None and all(map(math.isfinite, return_bounds)):
        furthest = max(map(abs, return_bounds))
    is_transformed = network.support_transform
    if is_transformed is None:
        is_transformed = furthest is None or furthest > LARGEST_PLAIN
    return (
        _fit(network.value_support_max, network.value_support_size, is_transformed, furthest),
        _fit(network.reward_support_max, network.reward_support_size, is_transformed, furthest),
    )


def _fit(
    top: float | None, size: int | None, is_transformed: bool, furthest: float | None
) -> SupportSettings:
    if top is None and furthest is None:
        top = _UNKNOWN_MAX
    elif top is None:
        assert furthest is not None
        top = float(max(1, math.ceil(transform(furthest)))) if is_transformed else furthest or 1.0
    if size is None:  # one atom per unit
        size = min(2 * math.ceil(top) + 1, _MOST_ATOMS) if math.isfinite(top) else _MOST_ATOMS
    return SupportSettings(top, size, is_transformed)
