"""Stacks of the newest frames, one per row.

Letters: `B` rows (games), `*F` shape of one frame, `*O` shape of an observation.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.envs.base import BoolArray, EnvSpec


class FrameStack:
    """The newest `num_stacked_frames` frames of `B` episodes, joined along the first axis, oldest first.

    Frames before an episode's first are that first frame repeated.
    """

    def __init__(self, spec: EnvSpec, batch_size: int):
        """Zeros until the first `reset_rows`."""
        self._shape = (batch_size, *spec.observation_shape)
        self._frames = np.zeros(
            (batch_size, spec.num_stacked_frames, *spec.frame_shape), spec.frame_dtype
        )

    @property
    def observation(self) -> npt.NDArray[Any]:
        """`[B, *O]`, a fresh copy."""
        return self._frames.reshape(self._shape).copy()

    def reset_rows(self, mask: BoolArray, frame: npt.NDArray[Any]) -> None:
        """Begins episodes with `frame[B, *F]` in the rows of `mask[B]`."""
        self._frames[mask] = frame[mask, None]

    def push(self, frame: npt.NDArray[Any]) -> None:
        """Adds `frame[B, *F]` to all rows; rows that have been reset by it need `reset_rows` afterwards."""
        self._frames[:, :-1] = self._frames[:, 1:]
        self._frames[:, -1] = frame

    def state(self) -> npt.NDArray[Any]:
        """`[B, *O]`, a fresh copy of `observation`."""
        return self.observation

    def restore(self, state: npt.NDArray[Any]) -> None:
        """Goes back to what `state` returned; raises ValueError if it has another shape."""
        if state.shape != self._shape:
            raise ValueError(
                f"stacked frames of the shape {state.shape} cannot be restored into {self._shape}"
            )
        self._frames[...] = state.reshape(self._frames.shape)
