"""Elo ratings of a set of players from all their games together, with intervals.

The model is Bradley and Terry's: a player who is `d` points stronger takes `1 / (1 + 10 ** (-d / 400))` of a game on average, a
drawn game being half a win for each side. The ratings are the most likely ones. As a prior, every pair that met has drawn
`prior_draws` games more; that keeps the rating of a player who won or lost all of its games finite, and is soon outweighed.
Intervals come from the inverse of the Fisher information. It counts a draw like a coin's toss, so where draws are common the
intervals are wider than need be.
Letters: `N` players.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

POINTS_PER_E = 400.0 / np.log(10.0)
"""Elo points of a factor e in the odds."""
_TOLERANCE = 1e-9
"""Length of the Newton step at which the ratings stand. Not of the gradient: where one side took all, a small one is far from the top."""
_ROUNDING = 1e-12
"""Of a log-likelihood, relative."""
_MAX_ROUNDS = 200

RealArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings of `N` players, one of which was given its own."""

    names: tuple[str, ...]
    elo: RealArray
    """`[N]` Elo points."""
    covariance: RealArray
    """`[N, N]` of the ratings, in points squared; zero in the row and the column of the anchor."""

    def intervals(self, confidence: float = 0.95) -> RealArray:
        """`[N, 2]` lowest and highest rating, as seen from the anchor, whose own is a point."""
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        margin = z * np.sqrt(np.diag(self.covariance))
        return np.stack([self.elo - margin, self.elo + margin], axis=1)

    def difference(
        self, first: str, second: str, confidence: float = 0.95
    ) -> tuple[float, float, float]:
        """How much stronger `first` is than `second`, and the interval of that: points, low, high."""
        i, j = self.names.index(first), self.names.index(second)
        covariance = self.covariance
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        margin = NormalDist().inv_cdf(0.5 + confidence / 2) * np.sqrt(max(float(variance), 0.0))
        points = float(self.elo[i] - self.elo[j])
        return points, points - float(margin), points + float(margin)


def fit(
    names: Sequence[str],
    points: npt.ArrayLike,
    *,
    anchor: str,
    anchor_elo: float = 0.0,
    prior_draws: float = 1.0,
) -> Ratings:
    """The most likely ratings.

    Example:
        >>> fit(["new", "old"], [[0, 75], [25, 0]], anchor="old", prior_draws=0.0).elo.round(1)
        array([190.8,   0. ])

    Args:
        names: Of the `N` players.
        points: `[N, N]`: what the row's player took off the column's, 1 for a win and 1/2 for a draw.
        anchor: Whose rating is given.
        anchor_elo: That rating.
        prior_draws: Games that every pair that met has drawn besides.

    Raises:
        ValueError: `points` is no such table, there is no such anchor, games do not link all players, or, without a prior,
            some players won all of their games against the others.
    """
    table = _checked(names, points)
    if anchor not in names:
        raise ValueError(f"anchor={anchor!r} is none of the players {', '.join(names)}")
    if prior_draws < 0.0:
        raise ValueError(f"prior_draws={prior_draws} must be at least 0")
    table = table + np.where(table + table.T > 0.0, prior_draws / 2, 0.0)
    root = list(names).index(anchor)
    _require_links(names, table + table.T, root)
    if prior_draws == 0.0:
        _require_finite(names, table, root)
    free = np.arange(len(names)) != root
    strength = np.zeros(len(names))
    gradient, information = _derivatives(table, strength)
    for _ in range(_MAX_ROUNDS):
        step = np.zeros(len(names))
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        strength = _climb(table, strength, step)
        gradient, information = _derivatives(table, strength)
        if np.abs(step).max(initial=0.0) < _TOLERANCE:
            break
    covariance = np.zeros_like(table)
    covariance[np.ix_(free, free)] = np.linalg.inv(information[np.ix_(free, free)])
    return Ratings(tuple(names), anchor_elo + POINTS_PER_E * strength, POINTS_PER_E**2 * covariance)


def expected_score(difference: float) -> float:
    """Share of a game that a player takes on average who is `difference` points stronger."""
    return float(1.0 / (1.0 + 10.0 ** (-difference / 400.0)))


def log_likelihood(table: RealArray, strength: RealArray) -> float:
    """Of points `[N, N]` under natural strengths `[N]` (Elo points over `POINTS_PER_E`)."""
    return -float((table * np.logaddexp(0.0, strength[None, :] - strength[:, None])).sum())


def _derivatives(table: RealArray, strength: RealArray) -> tuple[RealArray, RealArray]:
    """Gradient `[N]` of the log-likelihood, and its Fisher information `[N, N]`."""
    share = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
    games = table + table.T
    weight = games * share * share.T
    return (table - games * share).sum(axis=1), np.diag(weight.sum(axis=1)) - weight


def _climb(table: RealArray, strength: RealArray, step: RealArray) -> RealArray:
    """Along Newton's step, cut until the likelihood does not fall: far from the top a whole one overshoots."""
    here = log_likelihood(table, strength)
    here -= _ROUNDING * abs(here)
    step = step / max(1.0, float(np.abs(step).max()) / 4.0)
    for _ in range(60):
        if log_likelihood(table, strength + step) >= here:
            return strength + step
        step = step / 2
    return strength


def _checked(names: Sequence[str], points: npt.ArrayLike) -> RealArray:
    table = np.asarray(points, np.float64)
    if table.shape != (len(names), len(names)) or len(set(names)) < len(names):
        raise ValueError(
            f"points of shape {table.shape} need as many different names, and {list(names)} were given"
        )
    if not np.isfinite(table).all() or (table < 0.0).any() or np.diag(table).any():
        raise ValueError("points must be numbers of at least 0, and 0 against oneself")
    return table


def _require_links(names: Sequence[str], games: RealArray, root: int) -> None:
    far = [names[i] for i in np.flatnonzero(~_reached(games > 0.0, root)).tolist()]
    if far:
        raise ValueError(
            f"no games link {', '.join(far)} to the anchor {names[root]}, so they cannot be rated on one scale"
        )


def _require_finite(names: Sequence[str], table: RealArray, root: int) -> None:
    """Ratings are finite just where everybody has taken points off everybody, through others (Ford 1957)."""
    took = table > 0.0
    far = np.flatnonzero(~(_reached(took, root) & _reached(took.T, root)))
    if len(far):
        raise ValueError(
            f"{', '.join(names[i] for i in far.tolist())}: all games against the others were won, or all lost, so that no finite "
            "rating is the most likely; prior_draws=1 makes it finite"
        )


def _reached(links: npt.NDArray[np.bool_], root: int) -> npt.NDArray[np.bool_]:
    """`[N]` who can be reached from `root` along `links` `[N, N]`."""
    reached = np.arange(len(links)) == root
    while True:
        more = reached | links[reached].any(axis=0)
        if (more == reached).all():
            return reached
        reached = more
