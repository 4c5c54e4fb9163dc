"""Two copies of a network, one per half of a batch: models for a pipelined search.

Letters: `B` rows, the first half having `ceil(B / 2)`, `N` nodes of a tree, `*O` observation shape.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from mcts.base import FloatArray, IntArray, RootOutput
from mcts.pipeline import call_both, split_rows
from muzero.inference.local import LocalModel


class ModelPair:
    """Stands where a `LocalModel` stands in self-play whose search is pipelined; `halves` answer for their rows.

    Args:
        first, second: Of one network, with room for `ceil(B / 2)` and `floor(B / 2)` rows.
    """

    def __init__(self, first: LocalModel, second: LocalModel) -> None:
        self.halves = (first, second)
        self.spec, self.device, self.discount = first.spec, first.device, first.discount
        self.num_nodes = first.num_nodes
        self.batch_size = first.batch_size + second.batch_size

    @property
    def version(self) -> int:
        """Version of the weights."""
        return self.halves[0].version

    def load(self, state: Mapping[str, Tensor], version: int) -> None:
        """See `LocalModel.load`."""
        for half in self.halves:
            half.load(state, version)

    def roots(self, observation: npt.NDArray[Any]) -> RootOutput:
        """See `LocalModel.roots`; both halves at once."""
        first = split_rows(len(observation))
        if first == len(observation):
            return self.halves[0].roots(observation)
        a, b = call_both(
            lambda stop: self.halves[0].roots(observation[:first]),
            lambda stop: self.halves[1].roots(observation[first:]),
        )
        return RootOutput(
            np.concatenate([a.prior_logits, b.prior_logits]), np.concatenate([a.value, b.value])
        )

    def values(self, observation: npt.NDArray[Any]) -> FloatArray:
        """See `LocalModel.values`."""
        return self.halves[0].values(observation)

    def predict(self, observation: npt.NDArray[Any]) -> RootOutput:
        """See `LocalModel.predict`."""
        return self.halves[0].predict(observation)

    @property
    def latent_format(self) -> str:
        """See `LocalModel.latent_format`."""
        return self.halves[0].latent_format

    def move_nodes(self, source: IntArray, num_nodes: IntArray) -> None:
        """See `LocalModel.move_nodes`; of all rows."""
        first = split_rows(len(num_nodes))
        for half, rows in zip(self.halves, (slice(first), slice(first, None)), strict=True):
            if len(num_nodes[rows]) > 0:
                half.move_nodes(source[rows], num_nodes[rows])

    def latents(self, num_nodes: IntArray) -> npt.NDArray[Any]:
        """See `LocalModel.latents`; of all rows."""
        first = split_rows(len(num_nodes))
        parts = (num_nodes[:first], num_nodes[first:])
        return np.concatenate(
            [half.latents(part) for half, part in zip(self.halves, parts, strict=True)]
        )

    def restore_latents(self, num_nodes: IntArray, latents: npt.NDArray[Any]) -> None:
        """See `LocalModel.restore_latents`; of all rows."""
        first = split_rows(len(num_nodes))
        first_nodes = int(num_nodes[:first].sum())
        self.halves[0].restore_latents(num_nodes[:first], latents[:first_nodes])
        self.halves[1].restore_latents(num_nodes[first:], latents[first_nodes:])
