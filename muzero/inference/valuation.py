"""What a position is worth to a search that plays the rules: a network's answer, or that of random games.

Letters: `n` positions, `A` actions, `*O` observation shape.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mcts.base import RootOutput
from muzero.envs.states import GameRules, State
from muzero.inference.local import LocalModel


class Valuation(Protocol):
    """Gives logits and a value to positions at which somebody is to move."""

    needs_observations: bool
    """Whether `observation` is given."""

    def evaluate(
        self, states: Sequence[State | None], observation: npt.NDArray[Any] | None
    ) -> RootOutput:
        """Logits `[n, A]`, illegal actions not yet masked, and values `[n]`, seen by the player to move.

        Where the state is None the game is over: the answer is not read, and the observation `[n, *O]` is all zeros. So
        the number of rows stays the same from one simulation to the next. A row's answer must not depend on other rows.
        """
        ...


class NetworkValuation:
    """The prediction of a network for the observation: AlphaZero's way. One call for all positions.

    Args:
        network: Its dynamics and its trees are not used, `num_nodes` 1 is enough.
    """

    needs_observations = True

    def __init__(self, network: LocalModel) -> None:
        self.network = network

    def evaluate(
        self, states: Sequence[State | None], observation: npt.NDArray[Any] | None
    ) -> RootOutput:
        """See `Valuation`."""
        assert observation is not None
        return self.network.predict(observation)


class RolloutValuation:
    """The mean return of games that go on with uniformly random moves; all actions alike as prior.

    The draws of a position hang on `seed` and on the moves that led to it alone, so its value depends neither on the rows
    beside it nor on what was valued before.
    """

    needs_observations = False

    def __init__(
        self, rules: GameRules, *, num_rollouts: int, seed: int, discount: float = 1.0
    ) -> None:
        if num_rollouts < 1:
            raise ValueError(f"num_rollouts={num_rollouts}: must be at least 1")
        if not 0.0 < discount <= 1.0:
            raise ValueError(f"discount={discount}: must be above 0 and at most 1")
        self._rules, self._discount = rules, discount
        self._num_rollouts, self._seed = num_rollouts, seed

    def evaluate(
        self, states: Sequence[State | None], observation: npt.NDArray[Any] | None
    ) -> RootOutput:
        """See `Valuation`."""
        value = [0.0 if state is None else self._value(state) for state in states]
        logits = np.zeros((len(states), self._rules.spec.num_actions), np.float32)
        return RootOutput(logits, np.array(value, np.float32))

    def _value(self, state: State) -> float:
        history = self._rules.history(state)
        # The length goes first: a seed sequence ignores zeros at its end.
        rng = np.random.default_rng([self._seed, len(history), *history])
        returns = [
            self._rules.playout(state, rng, self._discount) for _ in range(self._num_rollouts)
        ]
        return float(np.mean(returns))
