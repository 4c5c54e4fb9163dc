"""Batches turned by symmetries of the board.

Letters: `B` samples, `K` unrolled steps, `A` actions, `G` symmetries, `P` entries of a picture.
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
        self._places = _places(symmetries)

    def __call__(self, batch: Batch) -> Batch:
        """The batch, turned; the given one stays as it is."""
        which = self._generator.integers(len(self._symmetries), size=len(batch.slot))
        return self.turn(batch, which)

    def turn(self, batch: Batch, which: npt.NDArray[np.integer]) -> Batch:
        """The batch with sample `b` turned by symmetry `which[b]`."""
        actions = self._symmetries.actions[which]
        places = self._places[which]
        inverse = np.broadcast_to(self._inverse[which][:, None], batch.policy.shape)

        def turned(observation: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
            return None if observation is None else _turn_boards(observation, places)

        return replace(
            batch,
            observation=_turn_boards(batch.observation, places),
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


def _places(symmetries: Symmetries) -> npt.NDArray[np.int64]:
    """`[G, P]` entry `i` of a turned picture is entry `places[g, i]` of the picture.

    A picture is one channel, or a whole frame where symmetries exchange channels.
    """
    cells, channels = symmetries.cells, symmetries.channels
    if channels is None:
        return cells
    return (channels[:, :, None] * cells.shape[1] + cells[:, None]).reshape(len(cells), -1)


def _turn_boards(observation: npt.NDArray[Any], places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """`[B, ..., H, W]` with the pictures of sample `b` in the order `places[b]`."""
    flat = observation.reshape(len(observation), -1, places.shape[1])
    index = np.broadcast_to(places[:, None], flat.shape)
    return np.take_along_axis(flat, index, axis=2).reshape(observation.shape)
