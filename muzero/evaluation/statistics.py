"""Figures of samples of scores and results, with intervals."""

from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")


def first_of_each(items: Sequence[Item], keys: Sequence[Hashable]) -> list[Item]:
    """The items whose key no earlier item has, in order; `keys[i]` is that of `items[i]`."""
    first: dict[Hashable, Item] = {}
    for item, key in zip(items, keys, strict=True):
        first.setdefault(key, item)
    return list(first.values())


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a success rate; (0, 1) without trials.

    Unlike mean plus and minus the standard error it stays inside [0, 1] and says something at 0 and at `trials` successes.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes={successes} must lie between 0 and trials={trials}")
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    margin = (
        z * np.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2) / (1 + z * z / trials)
    )
    low = 0.0 if successes == 0 else float(centre - margin)
    high = 1.0 if successes == trials else float(centre + margin)
    return low, high


def interquartile_mean(scores: npt.ArrayLike) -> float:
    """Mean of the middle half: a quarter of the scores, rounded down, is dropped at each end (Agarwal et al. 2021)."""
    ordered = np.sort(np.asarray(scores, np.float64))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap_interval(
    scores: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    num_resamples: int = 2_000,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the interquartile mean."""
    sample = np.asarray(scores, np.float64)
    drawn = np.sort(sample[rng.integers(len(sample), size=(num_resamples, len(sample)))], axis=1)
    cut = len(sample) // 4
    means = drawn[:, cut : len(sample) - cut].mean(axis=1)
    low, high = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(low), float(high)


def tally(scores: Sequence[float]) -> dict[str, Any]:
    """Games won (score above 0), drawn and lost, and the share of each with its 95 % Wilson interval."""
    games, wins = len(scores), sum(score > 0 for score in scores)
    losses = sum(score < 0 for score in scores)
    counts = {"wins": wins, "draws": games - wins - losses, "losses": losses}
    report: dict[str, Any] = {"games": games, **counts}
    for name, count in zip(("win", "draw", "loss"), counts.values(), strict=True):
        report[f"{name}_rate"] = count / games if games else None
        report[f"{name}_rate_interval"] = list(wilson_interval(count, games))
    return report
