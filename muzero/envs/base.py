"""The one environment type: `B` games side by side, stepped with one call.

Letters: `B` rows (games), `A` actions. `*F` is the shape of one frame, `EnvSpec.frame_shape`.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from muzero.envs.symmetry import Symmetries

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """What the rest of the trainer has to know of an environment."""

    name: str
    """Names run folders and messages."""
    frame_shape: tuple[int, ...]
    """Shape of one frame: `(features,)` or `(channels, height, width)`."""
    frame_dtype: np.dtype[Any]
    """dtype of a frame: uint8 (images, 0 to 255), bool or float32."""
    num_stacked_frames: int = 1
    """Newest frames that make one observation; see `observation_shape`."""
    num_actions: int
    """Size of the action axis, illegal actions included."""
    action_factors: tuple[int, ...] = ()
    """Where an action is a tuple of choices: how many there are for each, so that networks can share what is learned of a
    choice. The number of an action is read in mixed radix, the first factor most significant. Empty where it is not one."""
    chance_channels: tuple[int, ...] = ()
    """Where a frame shows apart from all else what chance did last: those places of its first axis. Encoders of chance codes
    then look at nothing else. Empty where no part of a frame is chance's alone."""
    num_players: int = 1
    """1 or 2; two players are zero-sum."""
    turn_order: str = "single"
    """`single` (one player), `alternating` (strictly), `repeated` (a player may move twice in a row)."""
    return_bounds: tuple[float, float] | None = None
    """Lowest and highest undiscounted return of an episode, seen by one player; None where unknown."""
    max_episode_steps: int | None = None
    """Steps after which an episode is truncated or surely over; None where unknown."""
    symmetries: Symmetries | None = field(default=None, compare=False)
    """Turns of the board under which the game is the same; None where none is known."""

    def __post_init__(self) -> None:
        """Raises ValueError if the factors do not make the actions, or chance's channels are not a frame's."""
        if self.action_factors and prod(self.action_factors) != self.num_actions:
            raise ValueError(
                f"{self.name}: action_factors={self.action_factors} make {prod(self.action_factors)} actions, and "
                f"num_actions is {self.num_actions}; their product must be that, or leave them empty"
            )
        chance = self.chance_channels
        if len(set(chance)) < len(chance) or not set(chance) <= set(range(self.frame_shape[0])):
            raise ValueError(
                f"{self.name}: chance_channels={chance} must be different places of a frame's first axis, 0 to "
                f"{self.frame_shape[0] - 1}"
            )

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of a stacked observation: frames are joined along the first axis, oldest first."""
        return (self.frame_shape[0] * self.num_stacked_frames, *self.frame_shape[1:])

    @property
    def newest_chance_channels(self) -> tuple[int, ...]:
        """`chance_channels` of the newest frame of a stacked observation."""
        oldest = self.frame_shape[0] * (self.num_stacked_frames - 1)
        return tuple(oldest + channel for channel in self.chance_channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStep:
    """`B` rows after a step (or a reset). Rows whose episode has ended have been reset already.

    `frame`, `legal` and `to_play` belong to the position that is to be played now; `reward`, `terminated`,
    `truncated`, `score` and `final_*` belong to the move just made. The arrays are the caller's to keep: an
    environment never writes to one that it has returned.
    """

    frame: npt.NDArray[Any]
    """`[B, *F]` newest frame."""
    legal: BoolArray
    """`[B, A]` legal actions; at least one per row."""
    to_play: IntArray
    """`[B]` player to move, 0 or 1."""
    reward: FloatArray
    """`[B]` reward of the move just made, seen by its mover; 0 after a reset."""
    score: FloatArray
    """`[B]` the environment's own reward of the move, neither scaled nor clipped, seen by its mover."""
    terminated: BoolArray
    """`[B]` the move ended the episode; the state behind it has value 0."""
    truncated: BoolArray
    """`[B]` the episode was cut after the move; the state behind it is bootstrapped. Never with `terminated`."""
    final_frame: npt.NDArray[Any] | None = None
    """`[B, *F]` frame of the state behind a cut; only rows with `truncated` are meaningful. None if no row is."""
    final_to_play: IntArray | None = None
    """`[B]` player to move behind a cut; like `final_frame`."""


class BatchedEnv(Protocol):
    """`B` games in lock step.

    Row `i`'s randomness derives from `reset`'s seed and `i` alone, so rows never influence each other and the same
    seed and actions give the same games.
    """

    spec: EnvSpec
    batch_size: int

    def reset(self, seed: int) -> TimeStep:
        """Start a new episode in every row."""
        ...

    def step(self, actions: npt.NDArray[np.integer]) -> TimeStep:
        """Play `actions[B]` (all legal) and reset the rows whose episode ended."""
        ...

    def state(self) -> dict[str, Any]:
        """JSON-serialisable state that `restore` continues from, bit for bit (rows' moves and seeds)."""
        ...

    def restore(self, state: dict[str, Any]) -> TimeStep:
        """Go back to `state`; returns the time step (reward 0, no end flags) of the positions to be played now."""
        ...

    def close(self) -> None:
        """Free what the environment holds."""
        ...
