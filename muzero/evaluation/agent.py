"""An agent: a model and a search that choose moves, without noise.

Letters: `B` positions, `A` actions, `*O` the shape of an observation.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mcts import Search, SearchSettings, run
from mcts.base import BoolArray, IntArray
from muzero.inference.local import LocalModel


class BatchedAgent(Protocol):
    """What a player or an evaluation needs of an agent, such as `Agent`."""

    def act(self, observation: npt.NDArray[Any], legal: BoolArray) -> IntArray:
        """Actions `[B]` for observations `[B, *O]` with legal actions `[B, A]`."""
        ...


class Agent:
    """Chooses the search's own best action.

    Holds the arrays of `batch_size` searches; the model must have room for as many rows. Deterministic: no noise is
    drawn, and nothing is kept from one call to the next.

    Args:
        settings: Of the search; None plays the network's most likely action without one.
    """

    def __init__(
        self,
        model: LocalModel,
        settings: SearchSettings | None,
        *,
        num_actions: int,
        batch_size: int,
        num_threads: int = 1,
    ) -> None:
        self.model = model
        self.settings = settings
        self.batch_size = batch_size
        self._search = (
            None
            if settings is None
            else Search(
                settings,
                batch_size=batch_size,
                num_actions=num_actions,
                num_threads=num_threads,
            )
        )

    def act(self, observation: npt.NDArray[Any], legal: BoolArray) -> IntArray:
        """Actions `[B]` for observations `[B, *O]` with legal actions `[B, A]`; any `B`."""
        actions = legal.argmax(axis=1).astype(np.int32)
        (open_rows,) = np.nonzero(legal.sum(axis=1) != 1)  # a forced move needs no search
        for start in range(0, len(open_rows), self.batch_size):
            rows = open_rows[start : start + self.batch_size]
            actions[rows] = self._act(observation[rows], legal[rows])
        return actions

    def _act(self, observation: npt.NDArray[Any], legal: BoolArray) -> IntArray:
        if not legal.any(axis=1).all():
            raise ValueError(
                "a position without a legal action cannot be played; the environment's `legal` is all False"
            )
        root = self.model.roots(observation)
        if self._search is None:
            return np.where(legal, root.prior_logits, -np.inf).argmax(axis=1).astype(np.int32)
        return run(self._search, self.model, root, legal).best_action
