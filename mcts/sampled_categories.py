"""Sampling of categories: one of a huge number of actions, or joint actions of several factors.

Letters as in `mcts.sampling`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mcts.base import BoolArray, FloatArray, IntArray
from mcts.sampled_category_kernels import draw_categories
from mcts.sampling import ActionArray, Samples, count_share
from mcts.threads import RowThreads


class FactoredSampler:
    """Joint actions of independent categories: action `[D]`, factor `d` one of `num_bins[d]`; parameters are their logits.

    The parameters are the factors' logits one after the other, `P = sum(num_bins)`; `legal` masks the same categories.
    Drawing costs `O(P + K D ln P)`. Of the `K` samples, `flat_share` come from `phi = pi^(1 / temperature)`, the others from
    `pi`, and beta is the mixture that this makes. `flat_share=1` is the paper's `beta = pi^(1 / tau)`; a temperature of
    infinity draws evenly from all categories that have any probability.
    """

    action_dtype = np.dtype(np.int32)

    def __init__(
        self,
        num_bins: Sequence[int],
        num_samples: int,
        *,
        temperature: float = 1.0,
        flat_share: float = 1.0,
    ) -> None:
        if not num_bins or min(num_bins) < 1:
            raise ValueError(f"num_bins={num_bins!r}: every factor must have at least 1 category")
        if not temperature > 0:
            raise ValueError(f"temperature={temperature!r}: must be above 0")
        self.num_samples = num_samples
        self.num_parameters = sum(num_bins)
        self.num_dims = len(num_bins)
        self.scratch_size = 2 * self.num_parameters + 3 * self.num_dims
        self.action_shape: tuple[int, ...] = (self.num_dims,)
        self.temperature = temperature
        self.num_flat = count_share("flat_share", flat_share, num_samples)
        if temperature == 1:
            self.num_flat = 0
        self._offsets = np.cumsum([0, *num_bins], dtype=np.int64)
        self._all_legal = np.ones((1, self.num_parameters), np.bool_)

    def check_legal(self, legal: BoolArray) -> None:
        """See `ActionSampler.check_legal`."""
        has_legal = np.logical_or.reduceat(legal, self._offsets[:-1], axis=1)
        if not has_legal.all():
            row, factor = np.argwhere(~has_legal)[0]
            where = f", factor {factor}" if self.num_dims > 1 else ""
            raise ValueError(
                f"row {row}{where}: no legal action; a position to search must have at least one"
            )

    def allows(self, legal: BoolArray, actions: ActionArray) -> BoolArray:
        """See `ActionSampler.allows`."""
        choices = actions.reshape(*actions.shape[:2], self.num_dims) + self._offsets[:-1]
        is_legal = legal[np.arange(len(legal))[:, None, None], choices]
        is_allowed: BoolArray = np.logical_and.reduce(is_legal, axis=2)
        return is_allowed

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
            draw_categories,
            len(rows),
            self.num_flat,
            self.temperature,
            self._offsets,
            rows,
            nodes,
            samples.keys,
            parameters,
            self._all_legal if legal is None else np.ascontiguousarray(legal, np.bool_),
            samples.scratch,
            samples.actions,
            samples.log_weights,
            logits,
        )

    def log_density(
        self, parameters: FloatArray, actions: ActionArray, legal: BoolArray | None = None
    ) -> FloatArray:
        """See `ActionSampler.log_density`."""
        choices = actions.reshape(*actions.shape[:2], self.num_dims)
        total = np.zeros(choices.shape[:2])
        for factor, (begin, end) in enumerate(zip(self._offsets, self._offsets[1:], strict=False)):
            logits = np.asarray(parameters[:, begin:end], np.float64)
            if legal is not None:
                logits = np.where(legal[:, begin:end], logits, -np.inf)
            logits = logits - logits.max(axis=1, keepdims=True)
            log_policy = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            total += np.take_along_axis(log_policy, choices[:, :, factor], axis=1)
        return total


class CategoricalSampler(FactoredSampler):
    """One of `num_actions` actions, an int; the parameters are `A` policy logits: huge discrete action spaces.

    Any `mcts.Model` over `A` actions serves as the model. See `FactoredSampler` for beta and cost.
    """

    def __init__(
        self,
        num_actions: int,
        num_samples: int,
        *,
        temperature: float = 1.0,
        flat_share: float = 1.0,
    ) -> None:
        if num_actions < 1:
            raise ValueError(f"num_actions={num_actions}: must be at least 1")
        super().__init__([num_actions], num_samples, temperature=temperature, flat_share=flat_share)
        self.action_shape = ()


def bin_values(
    actions: ActionArray, num_bins: Sequence[int], low: npt.ArrayLike, high: npt.ArrayLike
) -> FloatArray:
    """The point of a box that each joint action `[..., D]` of `num_bins` stands for: bins lie evenly from `low` to `high`.

    A dimension with a single bin has the middle.
    """
    last = np.asarray(num_bins, np.float64) - 1
    position = np.where(last > 0, actions / np.maximum(last, 1), 0.5)
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    return (low + position * (high - low)).astype(np.float32)
