"""A segment: the piece of an episode that travels from self-play into the replay buffer.

Letters: `L` positions of a segment, `A` actions, `*F` shape of one frame.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

TURN_TERMINAL, TURN_SAME, TURN_OTHER = 0, 1, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive positions of one episode, self-contained: whatever a target of a sampled position needs is in it.

    Positions `[first, first + count)` are sampled; those before give context for stacked frames, those behind give
    the unrolled steps and the bootstrap. So cutting an episode into segments changes no target.
    The last position may be a state without action (`has_action` False there): the state behind a truncation,
    whose `root_value` bootstraps.
    """

    frame: npt.NDArray[Any]
    """`[L, *F]` newest frame of each position, stored once."""
    action: npt.NDArray[np.int32]
    """`[L]` action taken."""
    reward: npt.NDArray[np.float32]
    """`[L]` reward of that action, seen by its mover."""
    turn: npt.NDArray[np.int8]
    """`[L]` sign of the edge's discount: 0 into a terminal state, +1 if the mover moves next, -1 if the other does."""
    to_play: npt.NDArray[np.int8]
    """`[L]` player to move."""
    legal: npt.NDArray[np.bool_]
    """`[L, A]` legal actions."""
    policy: npt.NDArray[np.float32]
    """`[L, A]` policy target; 0 where there is none."""
    has_policy: npt.NDArray[np.bool_]
    """`[L]` whether the policy is a target; not behind a truncation, and not where the search was a fast one."""
    root_value: npt.NDArray[np.float32]
    """`[L]` search value (the network's value where no search was done), seen by the player to move."""
    has_action: npt.NDArray[np.bool_]
    """`[L]` False at the state behind a truncation only."""
    version: npt.NDArray[np.int32]
    """`[L]` weights version that acted."""
    first: int
    """First sampled position."""
    count: int
    """Number of sampled positions, at least 1."""
    starts_episode: bool
    """Whether position 0 is the first of its episode; frames before the first are the first frame repeated."""

    def __len__(self) -> int:
        return len(self.action)


def with_policy_flags(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Saved columns of positions; those of a run from before `has_policy` get it: there every policy was a target."""
    if "has_policy" in arrays or "policy" not in arrays:
        return arrays
    return {**arrays, "has_policy": np.asarray(arrays["policy"].any(axis=-1))}
