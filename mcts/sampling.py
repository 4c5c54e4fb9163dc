"""Sampling the actions of a node: what all samplers share.

Letters: `B` rows, `b` rows that are drawn for, `N` simulations, `K` samples and slots of a node, `D` factors or dimensions of
an action, `P` policy parameters, `*S` shape of one action.

A sampler knows what the policy head's `P` numbers mean. It draws `K` actions from a distribution beta and gives the distinct
ones the prior `beta_hat / beta * pi` (Hubert et al., 2021, section 5). With `m` draws of the action `a` among the `K`, of
which a share `w` comes from a flattened policy `phi` and the rest from the policy `pi`:

    beta = (1 - w) pi + w phi          logits(a) = ln(m / K) - ln beta(a) + ln pi(a)         unused slots: minus infinity

For `beta = pi` that is the multiplicity alone. With `pi` in its place, the policy would count twice: it already is in how
often an action comes up. The share is a whole number of the draws, not a coin per draw, which leaves the mean of
`beta_hat / beta` at 1 and lowers its variance.
"""

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mcts.base import BoolArray, FloatArray, IntArray
from mcts.counter_random import Keys
from mcts.jit import inlined
from mcts.threads import RowThreads

ActionArray = npt.NDArray[Any]


class ActionSampler(Protocol):
    """Draws actions from policies that are given by `P` numbers each."""

    num_samples: int
    """`K`."""
    num_parameters: int
    """`P`."""
    num_dims: int
    """`D`."""
    action_shape: tuple[int, ...]
    """`S`: `()` or `(D,)`."""
    action_dtype: np.dtype[Any]
    """How actions are stored."""

    scratch_size: int
    """Numbers that a thread needs to draw."""

    def check_legal(self, legal: BoolArray) -> None:
        """Raise ValueError where a row of `legal` `[B, P]` leaves no action."""
        ...

    def allows(self, legal: BoolArray, actions: ActionArray) -> BoolArray:
        """`[B, K]`: which of `actions` `[B, K, *S]` the mask `legal` `[B, P]` leaves."""
        ...

    def draw(
        self,
        threads: RowThreads,
        samples: "Samples",
        rows: IntArray,
        nodes: IntArray,
        parameters: FloatArray,
        legal: BoolArray | None,
        logits: FloatArray,
    ) -> None:
        """Draw for the nodes `[b]` of `rows` `[b]`: fill their samples, and `logits` `[b, K]` as the search wants them.

        `legal` `[b, P]` masks categories, None allows all. A policy that is no distribution gives NaN.
        """
        ...

    def log_density(
        self, parameters: FloatArray, actions: ActionArray, legal: BoolArray | None = None
    ) -> FloatArray:
        """`ln pi(a)` `[B, K]` of `actions` `[B, K, *S]` under `parameters` `[B, P]`, illegal categories masked out."""
        ...


class Samples:
    """The samples of every node of `B` trees of `num_nodes` (`N + 1`) nodes, and what they were drawn with."""

    def __init__(
        self, sampler: ActionSampler, *, batch_size: int, num_nodes: int, dtype: npt.DTypeLike
    ) -> None:
        slots = (batch_size, num_nodes, sampler.num_samples)
        self.keys: Keys = np.zeros(batch_size, np.uint64)
        """`[B]` key of each row's random numbers."""
        self.actions: ActionArray = np.zeros((*slots, sampler.num_dims), sampler.action_dtype)
        """`[B, N + 1, K, D]` distinct actions; a slot without one repeats slot 0."""
        self.log_weights: FloatArray = np.full(slots, -np.inf, dtype)
        """`[B, N + 1, K]` `ln(beta_hat / beta)`; minus infinity at a slot without an action."""
        # A thread uses the first row of its range, so that most pages of it are never touched.
        self.scratch: FloatArray = np.empty((batch_size, sampler.scratch_size))
        """`[B, scratch_size]`."""


def count_share(name: str, share: float, num_samples: int) -> int:
    """Draws that a share of the samples comes to."""
    if num_samples < 1:
        raise ValueError(f"num_samples={num_samples}: must be at least 1")
    if not 0 <= share <= 1:
        raise ValueError(f"{name}={share!r}: must be between 0 and 1")
    return round(share * num_samples)


@inlined
def add_logs(first: float, second: float) -> float:
    """`ln(e^first + e^second)`."""
    larger = max(first, second)
    if larger == -math.inf:
        return larger
    return larger + math.log(math.exp(first - larger) + math.exp(second - larger))


@inlined
def log_mixture(log_policy: float, log_flat: float, share: float) -> float:
    """The ln of the mixture of two densities, `share` of the second."""
    if share <= 0.0:
        return log_policy
    if share >= 1.0:
        return log_flat
    return add_logs(math.log1p(-share) + log_policy, math.log(share) + log_flat)
