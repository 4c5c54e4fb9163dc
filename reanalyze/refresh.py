"""Searches stored positions again.

Letters: `n` positions, `A` actions.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mcts import Search, run
from muzero.inference.local import LocalModel
from muzero.inference.remote import RemoteModel
from muzero.replay.storage import RootPositions


@dataclass(frozen=True, slots=True)
class Refreshed:
    """New targets of `n` positions."""

    policy: npt.NDArray[np.floating]
    """`[n, A]` policy target."""
    root_value: npt.NDArray[np.floating]
    """`[n]` search value, seen by the player to move."""
    version: int
    """Weights version that searched."""


class Refresher:
    """Re-searches positions with the model's present weights, without noise.

    With the weights that made a stored noise-free target it makes the same target again: bit for bit in batches of
    the same size, up to rounding in others (matrix products of another height sum in another order).

    Args:
        search: Has room for as many rows as positions are passed at once.
        root_value: `mean` or `best`, as in self-play.
    """

    def __init__(self, model: LocalModel | RemoteModel, search: Search, *, root_value: str) -> None:
        self.model, self._search, self._root_value = model, search, root_value

    def refresh(self, positions: RootPositions) -> Refreshed:
        """New targets of the positions."""
        root = self.model.roots(positions.observation)
        output = run(self._search, self.model, root, positions.legal, None)
        value = output.value if self._root_value == "mean" else output.best_value
        return Refreshed(output.policy, value, self.model.version)
