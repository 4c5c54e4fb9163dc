"""Batches turned by symmetries of the board.

Letters: `B` samples, `K` unrolled steps, `A` actions, `G` symmetries, `*O` observation shape.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.envs.symmetry import Symmetries
from muzero.replay.batch import Batch


class SymmetryAugmenter:
    """Turns each sample of a batch by a symmetry drawn for it: observations, actions and policies together.

    Values, rewards and masks of positions do not depend on how the board lies.
    """

    def __init__(self, symmetries: Symmetries, generator: np.random.Generator) -> None:
        self._symmetries, self._generator = symmetries, generator
        # Policy targets are gathered: entry a of the turned policy is entry inverse[a] of the policy.
        self._inverse = np.argsort(symmetries.actions, axis=1)

    def __call__(self, batch: Batch) -> Batch:
        """The batch, turned; the given one stays as it is."""
        which = self._generator.integers(len(self._symmetries), size=len(batch.slot))
        return self.turn(batch, which)

    def turn(self, batch: Batch, which: npt.NDArray[np.integer]) -> Batch:
        """The batch with sample `b` turned by symmetry `which[b]`."""
        cells, actions = self._symmetries.cells[which], self._symmetries.actions[which]
        inverse = np.broadcast_to(self._inverse[which][:, None], batch.policy.shape)

        def turned(observation: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
            return None if observation is None else _turn_boards(observation, cells)

        return replace(
            batch,
            observation=_turn_boards(batch.observation, cells),
            next_observation=turned(batch.next_observation),
            bootstrap_observation=turned(batch.bootstrap_observation),
            action=np.take_along_axis(actions, batch.action, axis=1),
            policy=np.take_along_axis(batch.policy, inverse, axis=2),
        )

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        return {"generator": self._generator.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._generator.bit_generator.state = state["generator"]


def _turn_boards(observation: npt.NDArray[Any], cells: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """`[B, ..., H, W]` with the cells of sample `b` in the order `cells[b]`."""
    flat = observation.reshape(len(observation), -1, cells.shape[1])
    index = np.broadcast_to(cells[:, None], flat.shape)
    return np.take_along_axis(flat, index, axis=2).reshape(observation.shape)
