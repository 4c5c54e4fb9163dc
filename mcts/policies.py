"""Settings of a search, its root noise, and the action to play from its output."""

import math
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from mcts.base import BoolArray, FloatArray, IntArray, SearchOutput

KINDS = ("puct", "gumbel")
NORMALIZATIONS = ("tree", "siblings", "bounds", "none")
URGENCIES = ("minimum", "parent", "mean")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSettings:
    """What one search does; the values are checked on creation."""

    kind: str = "gumbel"
    """`puct` or `gumbel`."""
    num_simulations: int = 32
    """Simulations per search."""
    max_depth: int | None = None
    """Deepest node in edges; None is no limit. A leaf at the limit is evaluated again."""
    num_chance_outcomes: int = 0
    """Outcomes of a chance node (Stochastic MuZero's codes), which then stands behind every action; 0 is no chance nodes."""
    normalization: str = "tree"
    """How q is scaled to [0, 1]: `tree` (lowest and highest of the tree), `siblings` (of one node), `bounds`, `none`."""
    value_min: float = -1.0
    """Lowest value, for `bounds`."""
    value_max: float = 1.0
    """Highest value, for `bounds`."""
    min_value_range: float = 0.01
    """Smallest range that `tree` and `siblings` stretch to [0, 1]."""
    pb_c_init: float = 1.25
    """PUCT's c1."""
    pb_c_base: float = 19652.0
    """PUCT's c2."""
    first_play_urgency: str = "minimum"
    """q of an unvisited action under PUCT: `minimum` (the lowest known value: 0 after normalisation; with `none` the lowest
    of the node and its visited actions), `parent` (the node's value), `mean` (of the visited, else the node's value)."""
    forced_playouts: float = 0.0
    """PUCT, for exploration: k of KataGo's forced playouts, which takes 2. A visited root action with fewer than
    `sqrt(k * prior * visits of the root's actions)` visits goes first, and the policy target is pruned of it; 0 is off."""
    root_dirichlet_alpha: float = 0.3
    """Concentration of the Dirichlet noise at PUCT's root."""
    root_exploration_fraction: float = 0.25
    """Share of that noise in the root prior."""
    max_num_considered_actions: int = 16
    """Gumbel: actions that sequential halving starts with."""
    gumbel_scale: float = 1.0
    """Gumbel: factor of the root noise."""
    value_scale: float = 0.1
    """Gumbel: c_scale of `sigma(q) = (maxvisit_init + max visits) * value_scale * q`."""
    maxvisit_init: float = 50.0
    """Gumbel: c_visit of sigma."""
    use_mixed_value: bool = True
    """Gumbel: complete unvisited q with the mixed value instead of the node's network value."""
    stop_early: bool = False
    """End the search of a row when no remaining simulation can change `best_action`; its other results are those of fewer
    simulations, so this is for play, not for targets."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ValueError("invalid search settings:\n  " + "\n  ".join(problems))

    def _problems(self) -> list[str]:
        found = []

        def demand(is_fine: bool, name: str, allowed: str) -> None:
            if not is_fine:
                found.append(f"{name}={getattr(self, name)!r}: must be {allowed}")

        for setting in fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, float):
                demand(math.isfinite(value), setting.name, "a finite number")
        demand(self.kind in KINDS, "kind", f"one of {', '.join(KINDS)}")
        demand(
            self.normalization in NORMALIZATIONS,
            "normalization",
            f"one of {', '.join(NORMALIZATIONS)}",
        )
        demand(
            self.first_play_urgency in URGENCIES,
            "first_play_urgency",
            f"one of {', '.join(URGENCIES)}",
        )
        demand(self.num_simulations >= 1, "num_simulations", "at least 1")
        demand(
            self.max_depth is None or self.max_depth >= 1,
            "max_depth",
            "at least 1, or null for no limit",
        )
        demand(self.num_chance_outcomes >= 0, "num_chance_outcomes", "at least 0")
        demand(self.value_min < self.value_max, "value_min", f"below value_max={self.value_max!r}")
        demand(self.min_value_range >= 0, "min_value_range", "at least 0")
        demand(self.pb_c_init >= 0, "pb_c_init", "at least 0")
        demand(self.pb_c_base > 0, "pb_c_base", "above 0")
        demand(self.forced_playouts >= 0, "forced_playouts", "at least 0")
        demand(
            self.forced_playouts == 0 or self.kind == "puct",
            "forced_playouts",
            f"0 with kind={self.kind!r}: sequential halving decides how often a root action is visited",
        )
        demand(self.root_dirichlet_alpha > 0, "root_dirichlet_alpha", "above 0")
        demand(
            0 <= self.root_exploration_fraction <= 1,
            "root_exploration_fraction",
            "between 0 and 1",
        )
        demand(self.max_num_considered_actions >= 1, "max_num_considered_actions", "at least 1")
        demand(self.gumbel_scale >= 0, "gumbel_scale", "at least 0")
        demand(self.value_scale >= 0, "value_scale", "at least 0")
        demand(self.maxvisit_init >= 0, "maxvisit_init", "at least 0")
        return found


def draw_noise(
    settings: SearchSettings,
    legal: BoolArray,
    rng: np.random.Generator,
    dtype: npt.DTypeLike = np.float32,
) -> FloatArray:
    """Draw the root noise of one search of `legal` `[B, A]`: `[B, A]`, to be passed to `Search.begin`.

    PUCT gets a Dirichlet sample over each row's legal actions, 0 elsewhere; Gumbel gets standard Gumbel draws, which the
    search scales. Every action takes its own draws, so a row's noise depends on no other row's mask.
    """
    if settings.kind == "gumbel":
        return rng.gumbel(size=legal.shape).astype(dtype)
    # A Dirichlet sample is a vector of independent gamma draws, divided by their sum.
    draws = rng.standard_gamma(settings.root_dirichlet_alpha, size=legal.shape)
    draws[~legal] = 0.0
    total = draws.sum(axis=1, keepdims=True)
    if not total.all():
        # A tiny alpha can underflow every draw of a row with few actions.
        draws = np.where(total > 0, draws, legal)
        total = draws.sum(axis=1, keepdims=True)
    return (draws / np.maximum(total, np.finfo(np.float64).tiny)).astype(dtype)


def select_actions(
    output: SearchOutput,
    legal: BoolArray,
    temperature: FloatArray | float,
    rng: np.random.Generator,
    *,
    weights: FloatArray | None = None,
) -> IntArray:
    """Choose `[B]` actions to play, with probability proportional to `visits ** (1 / temperature)`.

    `temperature` is one number or `[B]`; 0 takes `output.best_action`. `weights` `[B, A]` take the place of the visits:
    `output.policy` leaves out what was visited because it was forced to be. Takes one draw per row, whatever the
    temperatures. Raises ValueError for a negative or undefined temperature, or negative or undefined weights.
    """
    temperatures = np.broadcast_to(np.asarray(temperature, np.float64), output.best_action.shape)
    if not (temperatures >= 0).all():
        raise ValueError(f"temperature={temperature!r}: must be at least 0 in every row")
    uniform = rng.random(temperatures.shape)
    if weights is not None and not (weights >= 0).all():
        raise ValueError("weights must be at least 0 everywhere")
    counts = np.where(legal, output.visits if weights is None else weights, 0).astype(np.float64)
    most = counts.max(axis=1, keepdims=True)
    # In logarithms: visits ** 100 has no float.
    with np.errstate(divide="ignore"):
        logits = np.log(counts) - np.log(np.where(most > 0, most, 1))
    divisor = np.clip(temperatures, 1e-12, 1e12)[:, None]
    cumulative = np.cumsum(np.exp(logits / divisor), axis=1)
    total = cumulative[:, -1]
    # Rounding must not carry the draw past the last action with a share.
    threshold = np.minimum(uniform * total, np.nextafter(total, 0.0))
    sampled = np.argmax(cumulative > threshold[:, None], axis=1)
    is_sampled = (temperatures > 0) & (most[:, 0] > 0)
    return np.where(is_sampled, sampled, output.best_action).astype(np.int32)
