"""Many segments as one block of arrays: what travels between processes, and what a log holds.

Letters: `n` segments, `L` positions of all of them together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.replay.episode import Segment

_SCALARS = ("first", "count", "starts_episode")
_COLUMNS = tuple(field.name for field in fields(Segment) if field.name not in _SCALARS)


@dataclass(frozen=True, slots=True)
class SegmentBlock:
    """`n` segments, their positions one behind the other."""

    arrays: dict[str, npt.NDArray[Any]]
    """Columns of `Segment`, `[L, ...]`, and `length`, `first`, `count`, `starts_episode`, `[n]`."""

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "SegmentBlock":
        """Copy segments, at least one, into a block."""
        arrays = {
            name: np.concatenate([getattr(segment, name) for segment in segments])
            for name in _COLUMNS
        }
        arrays["length"] = np.array([len(segment) for segment in segments], np.int64)
        for name in ("first", "count"):
            arrays[name] = np.array([getattr(segment, name) for segment in segments], np.int64)
        starts = [segment.starts_episode for segment in segments]
        arrays["starts_episode"] = np.array(starts, np.bool_)
        return cls(arrays)

    @property
    def num_sampled(self) -> int:
        """Positions that will be sampled."""
        return int(self.arrays["count"].sum())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def segments(self) -> list[Segment]:
        """The segments as views into the block.

        Raises:
            ValueError: The block is damaged.
        """
        missing = {*_COLUMNS, *_SCALARS, "length"} - set(self.arrays)
        if missing:
            raise ValueError(f"a block of segments lacks {', '.join(sorted(missing))}")
        length = np.atleast_1d(self.arrays["length"]).ravel()
        ends = np.cumsum(length)
        total = int(ends[-1]) if len(ends) else 0
        counts = dict.fromkeys(_COLUMNS, total) | dict.fromkeys(_SCALARS, len(length))
        fits = all(self.arrays[name].shape[:1] == (count,) for name, count in counts.items())
        if not fits or (length < 1).any():
            raise ValueError("a block of segments is damaged: its columns differ in length")
        found = []
        for index, end in enumerate(ends.tolist()):
            rows = slice(end - int(length[index]), end)
            columns = {name: self.arrays[name][rows] for name in _COLUMNS}
            found.append(
                Segment(
                    **columns,
                    first=int(self.arrays["first"][index]),
                    count=int(self.arrays["count"][index]),
                    starts_episode=bool(self.arrays["starts_episode"][index]),
                )
            )
        return found
