"""Records `B` games in lock step and cuts them into segments for the replay buffer.

Letters: `B` rows (games), `A` actions, `*F` shape of one frame.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.replay.episode import (
    TURN_OTHER,
    TURN_SAME,
    TURN_TERMINAL,
    Segment,
    with_policy_flags,
)


class Recorder:
    """Row buffers that self-play fills, one position per row and move.

    Called in turn: `record` (the position and what was decided there), then `outcome` (what came of it), which hands
    out the segments that are complete: whole remainders of ended episodes, and `segment_length` positions
    of a running one as soon as the `tail` behind them is known.

    Args:
        head: Positions before the sampled ones that a segment carries (for stacked frames).
        tail: Positions behind the sampled ones that a segment carries (unrolled steps and bootstrap).
        max_skipped: Most positions at the start of an episode that are recorded without being sampled.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        frame_shape: tuple[int, ...],
        frame_dtype: np.dtype[Any],
        num_actions: int,
        segment_length: int,
        head: int,
        tail: int,
        max_skipped: int = 0,
    ) -> None:
        self.segment_length, self.head, self.tail = segment_length, head, tail
        shape = (batch_size, max(head, max_skipped) + segment_length + tail + 1)
        self._columns: dict[str, npt.NDArray[Any]] = {
            "frame": np.zeros((*shape, *frame_shape), frame_dtype),
            "action": np.zeros(shape, np.int32),
            "reward": np.zeros(shape, np.float32),
            "turn": np.zeros(shape, np.int8),
            "to_play": np.zeros(shape, np.int8),
            "legal": np.zeros((*shape, num_actions), np.bool_),
            "policy": np.zeros((*shape, num_actions), np.float32),
            "has_policy": np.zeros(shape, np.bool_),
            "root_value": np.zeros(shape, np.float32),
            "has_action": np.zeros(shape, np.bool_),
            "version": np.zeros(shape, np.int32),
        }
        self._rows = np.arange(batch_size)
        self._length = np.zeros(batch_size, np.int64)  # positions in the row's buffer
        self._start = np.zeros(batch_size, np.int64)  # first of them not yet handed out
        self._shifted = np.zeros(
            batch_size, np.bool_
        )  # the episode's first position has left the buffer

    def record(
        self,
        *,
        frame: npt.NDArray[Any],
        legal: npt.NDArray[np.bool_],
        to_play: npt.NDArray[np.integer],
        action: npt.NDArray[np.integer],
        policy: npt.NDArray[np.floating],
        has_policy: npt.NDArray[np.bool_],
        root_value: npt.NDArray[np.floating],
        version: int,
        sampled: npt.NDArray[np.bool_],
    ) -> None:
        """Note the position of every row; `sampled[B]` False keeps it as context only (random openings).

        `has_policy` `[B]` tells whether `policy` `[B, A]` is a target; it must be 0 where it is not.
        """
        at = (self._rows, self._length)
        columns = self._columns
        columns["frame"][at] = frame
        columns["legal"][at] = legal
        columns["to_play"][at] = to_play
        columns["action"][at] = action
        columns["policy"][at] = policy
        columns["has_policy"][at] = has_policy
        columns["root_value"][at] = root_value
        columns["version"][at] = version
        columns["has_action"][at] = True
        self._length += 1
        self._start[~sampled] = self._length[~sampled]

    def outcome(
        self,
        *,
        reward: npt.NDArray[np.floating],
        next_to_play: npt.NDArray[np.integer],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        final_frame: npt.NDArray[Any] | None,
        final_value: npt.NDArray[np.floating] | None,
    ) -> list[Segment]:
        """Note what the moves brought and hand out the segments that are complete, in the order of the rows.

        Args:
            reward: `[B]` seen by the mover.
            next_to_play: `[B]` who moves in the state behind the move (behind a cut: in the state cut off).
            final_frame: `[B, *F]`, needed where `truncated`.
            final_value: `[B]` value of the state behind a cut, seen by its player to move.
        """
        at = (self._rows, self._length - 1)
        columns = self._columns
        same = columns["to_play"][at] == next_to_play
        columns["reward"][at] = reward
        columns["turn"][at] = np.where(
            terminated, TURN_TERMINAL, np.where(same, TURN_SAME, TURN_OTHER)
        )
        segments = []
        ended = terminated | truncated
        ready = ended | (self._length - self._start >= self.segment_length + self.tail)
        for row in np.flatnonzero(ready).tolist():
            if not ended[row]:
                segments.append(self._cut(row, self.segment_length))
                self._shift(row)
                continue
            count = int(self._length[row] - self._start[row])
            if truncated[row]:
                if final_frame is None or final_value is None:
                    raise AssertionError("a cut row needs its final frame and value")
                self._append_cut_state(row, final_frame[row], next_to_play[row], final_value[row])
            if count > 0:
                segments.append(self._cut(row, count))
            self._length[row] = self._start[row] = 0
            self._shifted[row] = False
        return segments

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays that `restore` continues from."""
        used = int(self._length.max(initial=0))
        arrays = {name: column[:, :used].copy() for name, column in self._columns.items()}
        counters = {"length": self._length, "start": self._start, "shifted": self._shifted}
        return arrays | {f"recorder_{name}": array.copy() for name, array in counters.items()}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Continue from `state`."""
        arrays = with_policy_flags(arrays)
        for name, column in self._columns.items():
            column[:, : arrays[name].shape[1]] = arrays[name]
        self._length[:] = arrays["recorder_length"]
        self._start[:] = arrays["recorder_start"]
        self._shifted[:] = arrays["recorder_shifted"]

    def _append_cut_state(
        self, row: int, frame: npt.NDArray[Any], to_play: int, value: float
    ) -> None:
        at = (row, self._length[row])
        columns = self._columns
        columns["frame"][at] = frame
        columns["to_play"][at] = to_play
        columns["root_value"][at] = value
        columns["version"][at] = columns["version"][row, self._length[row] - 1]
        for name in ("action", "reward", "turn", "legal", "policy", "has_policy", "has_action"):
            columns[name][at] = 0
        self._length[row] += 1

    def _cut(self, row: int, count: int) -> Segment:
        start = int(self._start[row])
        low = max(start - self.head, 0)
        high = min(start + count + self.tail, int(self._length[row]))
        return Segment(
            **{name: column[row, low:high].copy() for name, column in self._columns.items()},
            first=start - low,
            count=count,
            starts_episode=low == 0 and not self._shifted[row],
        )

    def _shift(self, row: int) -> None:
        """Drop what the next segment of a running episode does not need."""
        start = int(self._start[row]) + self.segment_length
        low = max(start - self.head, 0)
        length = int(self._length[row])
        for column in self._columns.values():
            column[row, : length - low] = column[row, low:length].copy()
        self._length[row] = length - low
        self._start[row] = start - low
        self._shifted[row] |= low > 0
