"""An agent: a model and a search that choose moves, without noise.

Letters: `B` positions, `A` actions, `*O` the shape of an observation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mcts import Search, SearchSettings, run
from mcts.base import BoolArray, FloatArray, IntArray
from muzero.envs.states import State
from muzero.inference.rules import SearchModel, plant_roots


class BatchedAgent(Protocol):
    """What a player or an evaluation needs of an agent, such as `Agent`."""

    def act(
        self,
        observation: npt.NDArray[Any],
        legal: BoolArray,
        states: Sequence[State] | None = None,
    ) -> IntArray:
        """Actions `[B]` for observations `[B, *O]` with legal actions `[B, A]`, and states `[B]` where there are any."""
        ...


@dataclass(slots=True)
class Effort:
    """What an agent has searched since it was made."""

    searches: int = 0
    """Positions searched; a forced move needs no search."""
    simulations: int = 0
    """Simulations made there."""


class Agent:
    """Chooses the search's own best action.

    Holds the arrays of `batch_size` searches; the model must have room for as many rows. Deterministic: no noise is
    drawn, and nothing is kept from one call to the next.

    Args:
        settings: Of the search; None plays the network's most likely action without one.
    """

    def __init__(
        self,
        model: SearchModel,
        settings: SearchSettings | None,
        *,
        num_actions: int,
        batch_size: int,
        num_threads: int = 1,
    ) -> None:
        self.model = model
        self.settings = settings
        self.batch_size = batch_size
        self.effort = Effort()
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

    def act(
        self,
        observation: npt.NDArray[Any],
        legal: BoolArray,
        states: Sequence[State] | None = None,
    ) -> IntArray:
        """Actions `[B]` for observations `[B, *O]` with legal actions `[B, A]`; any `B`.

        `states[B]`, such as `pyspiel.State`s, are needed by an agent that searches with the rules (`search.dynamics=rules`).
        """
        actions = legal.argmax(axis=1).astype(np.int32)
        (open_rows,) = np.nonzero(legal.sum(axis=1) != 1)  # a forced move needs no search
        for start in range(0, len(open_rows), self.batch_size):
            rows = open_rows[start : start + self.batch_size]
            searched = None if states is None else [states[row] for row in rows.tolist()]
            actions[rows], _ = self._judge(observation[rows], legal[rows], searched)
        return actions

    def judge(
        self, observation: npt.NDArray[Any], legal: BoolArray, states: Sequence[State] | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Actions `[B]` as `act` gives them, and values `[B]` of the positions, seen by the player to move.

        A value is the search's, or the network's where there is no search; forced moves are searched too.
        """
        actions, values = np.zeros(len(legal), np.int32), np.zeros(len(legal), np.float32)
        for start in range(0, len(legal), self.batch_size):
            rows = slice(start, start + self.batch_size)
            searched = None if states is None else states[rows]
            actions[rows], values[rows] = self._judge(observation[rows], legal[rows], searched)
        return actions, values

    def policies(
        self, observation: npt.NDArray[Any], legal: BoolArray, states: Sequence[State] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Policies `[B, A]` of the network and of its search, `B` up to `batch_size`; both are 0 where not legal.

        The search's is what self-play would make a target of, were there no noise. Raises ValueError if the agent does not
        search.
        """
        if self._search is None:
            raise ValueError("an agent that plays by its network alone has no policy of a search")
        root = plant_roots(self.model, observation, states)
        logits = np.where(legal, root.prior_logits, -np.inf)
        network = np.exp(logits - logits.max(axis=1, keepdims=True))
        network /= network.sum(axis=1, keepdims=True)
        return network, run(self._search, self.model, root, legal).policy

    def _judge(
        self, observation: npt.NDArray[Any], legal: BoolArray, states: Sequence[State] | None
    ) -> tuple[IntArray, FloatArray]:
        if not legal.any(axis=1).all():
            raise ValueError(
                "a position without a legal action cannot be played; the environment's `legal` is all False"
            )
        root = plant_roots(self.model, observation, states)
        if self._search is None:
            actions = np.where(legal, root.prior_logits, -np.inf).argmax(axis=1).astype(np.int32)
            return actions, root.value
        output = run(self._search, self.model, root, legal)
        self.effort.searches += len(legal)
        self.effort.simulations += int(output.num_simulations.sum())
        return output.best_action, output.value
