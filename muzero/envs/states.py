"""Positions that can be copied and played on from: the rules of a game as a search needs them.

Letters: `n` states, `A` actions, `*F` shape of one frame.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from muzero.envs.base import BatchedEnv, BoolArray, EnvSpec, FloatArray

State = Any
"""A position as the rules of its game hold it, such as a `pyspiel.State`."""


@runtime_checkable
class StatesEnv(Protocol):
    """A `BatchedEnv` whose positions can be copied and played on from: what `search.dynamics=rules` needs."""

    def states(self, rows: Sequence[int]) -> list[State]:
        """States of `rows`, those to be played now; the environment goes on to change them, so copy what is kept."""
        ...


def states_of(env: BatchedEnv, rows: Sequence[int]) -> list[State] | None:
    """States of `rows` (see `StatesEnv`), or None if the environment has none to copy."""
    return env.states(rows) if isinstance(env, StatesEnv) else None


class Moves(NamedTuple):
    """What `n` moves led to."""

    states: list[State | None]
    """`[n]` new states; None where the game is over."""
    reward: FloatArray
    """`[n]` reward of the move, seen by its mover."""
    turn: npt.NDArray[np.int8]
    """`[n]` 1 if the mover is to move again, -1 if the other player is, 0 if the game is over."""


class GameRules(Protocol):
    """The rules of a game without chance, for states that the caller holds."""

    spec: EnvSpec

    def copy(self, state: State) -> State:
        """A state that goes its own way."""
        ...

    def is_over(self, state: State) -> bool:
        """Whether the game has ended at `state`; the other methods, `copy` apart, take states where it has not."""
        ...

    def play(self, states: Sequence[State], actions: Sequence[int]) -> Moves:
        """Play `actions[n]` (all legal) from `states[n]`, which stay as they are."""
        ...

    def legal(self, states: Sequence[State]) -> BoolArray:
        """`[n, A]` legal actions."""
        ...

    def frames(self, states: Sequence[State]) -> npt.NDArray[Any]:
        """`[n, *F]` frames, those that the environment shows."""
        ...

    def history(self, state: State) -> list[int]:
        """The actions that led to `state`, all at least 0."""
        ...

    def playout(self, state: State, rng: np.random.Generator, discount: float = 1.0) -> float:
        """Play uniformly random moves to the end: the sum of rewards, discounted per move, seen by who moves at `state`."""
        ...
