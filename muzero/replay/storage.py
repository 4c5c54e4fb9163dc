"""Flat storage of segments: columns over one ring of rows, oldest segment overwritten first.

Letters: `C` rows of the ring, `n` rows asked for, `A` actions, `*F` shape of a frame, `S` stacked frames, `*O` shape of a
stacked observation. A row holds one position; a segment takes consecutive rows (behind row `C - 1` comes row 0).
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from muzero.envs.base import EnvSpec
from muzero.replay.episode import Segment, with_policy_flags
from muzero.replay.streaming import copy_past_caches
from muzero.targets import Positions

IndexArray = npt.NDArray[np.int64]

Span = tuple[slice, slice]  # rows of the ring, and which of the rows asked for these are

NO_GENERATION = -1


class StoredSegment(NamedTuple):
    """Where a segment lies: its first row, rows, first sampled position and number of sampled positions."""

    row: int
    length: int
    first: int
    num_sampled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RootPositions:
    """Stored positions as roots of a new search; see `ReplayBuffer.roots`."""

    observation: npt.NDArray[Any]
    """`[n, *O]` stacked observation."""
    legal: npt.NDArray[np.bool_]
    """`[n, A]` legal actions."""
    to_play: npt.NDArray[np.int8]
    """`[n]` player to move."""
    generation: IndexArray
    """`[n]` generation of each position, to be given back with the result."""
    target_version: npt.NDArray[np.int32]
    """`[n]` weights version that searched the stored target."""
    policy: npt.NDArray[np.float32]
    """`[n, A]` stored policy target; 0 where there is none."""
    has_policy: npt.NDArray[np.bool_]
    """`[n]` whether the stored policy is a target."""
    root_value: npt.NDArray[np.float32]
    """`[n]` stored search value, seen by the player to move."""


@njit(cache=True, nogil=True)
def stack_rows(rows, num_frames, starts_episode):  # type: ignore[no-untyped-def]
    """Rows `[n, S]` of the frames that make the observations of `rows[n]`, oldest first.

    Before an episode's first position its first frame is repeated.
    """
    num_rows = starts_episode.shape[0]
    stacked = np.empty((rows.shape[0], num_frames), np.int64)
    for i in range(rows.shape[0]):
        at = rows[i]
        for frame in range(num_frames - 1, -1, -1):
            stacked[i, frame] = at
            if not starts_episode[at]:
                at = (at - 1) % num_rows
    return stacked


def _rows_of(spans: list[Span]) -> IndexArray:
    """All rows of the ring that the spans cover, in order."""
    rows = [np.arange(ring.start, ring.stop) for ring, _ in spans]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def _packed(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """`flags[n, A]` as `[n, ceil(A / 8)]`, like `np.packbits(flags, axis=1)`, which takes several times as long for small `A`."""
    length, width = flags.shape
    if width % 8 != 0:
        padded = np.zeros((length, width + -width % 8), np.bool_)
        padded[:, :width] = flags
        flags = padded
    return np.packbits(flags.reshape(-1)).reshape(length, -1)


def _smallest_dtype(num_values: int) -> np.dtype[Any]:
    return np.min_scalar_type(max(0, num_values - 1))


def column_types(spec: EnvSpec) -> dict[str, tuple[tuple[int, ...], npt.DTypeLike]]:
    """Shape and dtype of a row's entry in each column."""
    return {
        "frame": (spec.frame_shape, spec.frame_dtype),
        "action": ((), _smallest_dtype(spec.num_actions)),
        "reward": ((), np.float32),
        "turn": ((), np.int8),
        "to_play": ((), np.int8),
        "legal": (((spec.num_actions + 7) // 8,), np.uint8),
        "policy": ((spec.num_actions,), np.float32),
        "has_policy": ((), np.bool_),
        "root_value": ((), np.float32),
        "has_action": ((), np.bool_),
        "starts_episode": ((), np.bool_),
        "sampleable": ((), np.bool_),
        "behaviour_version": ((), np.int32),
        "target_version": ((), np.int32),
        "generation": ((), np.int64),
        "times_sampled": ((), np.uint32),
    }


def bytes_per_row(spec: EnvSpec) -> int:
    """Bytes that a position takes in the ring."""
    return sum(
        math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in column_types(spec).values()
    )


class Storage:
    """The ring. Rows are addressed by slot (their index) and generation (which changes when a slot is reused)."""

    def __init__(self, spec: EnvSpec, capacity: int) -> None:
        """Allocate `capacity` rows, all memory at once."""
        self.capacity = capacity
        self.num_stacked_frames = spec.num_stacked_frames
        self.num_actions = spec.num_actions
        self._observation_shape = spec.observation_shape
        self.columns: dict[str, npt.NDArray[Any]] = {}
        for name, (shape, dtype) in column_types(spec).items():
            column = np.empty((capacity, *shape), dtype)
            # Writing touches the pages now: a run that needs too much memory fails at its start.
            column.fill(NO_GENERATION if name == "generation" else 0)
            self.columns[name] = column
        columns = self.columns
        self.targets = Positions(*(columns[name] for name in Positions._fields))
        self.segments: deque[StoredSegment] = deque()
        self.num_used = 0
        """Rows held by segments, context included."""
        self._next_row = 0
        self._next_generation = 0
        self._high_water = 0

    @property
    def bytes(self) -> int:
        """Memory of all columns."""
        return sum(column.nbytes for column in self.columns.values())

    def append(self, segment: Segment) -> IndexArray:
        """Store a segment in free rows and return the rows of its sampled positions, `[count]`."""
        length = len(segment)
        if length > self.capacity - self.num_used:
            raise AssertionError("rows must be freed by evict_oldest() first")
        start, stop = self._next_row, self._next_row + length
        rows: dict[str, npt.NDArray[Any]] = {
            "action": segment.action,
            "reward": segment.reward,
            "turn": segment.turn,
            "to_play": segment.to_play,
            "legal": _packed(segment.legal),
            "policy": segment.policy,
            "has_policy": segment.has_policy,
            "root_value": segment.root_value,
            "has_action": segment.has_action,
            "behaviour_version": segment.version,
            "target_version": segment.version,
        }
        constants = {
            "starts_episode": False,
            "sampleable": False,
            "generation": self._next_generation,
            "times_sampled": 0,
        }
        for ring, part in self._spans(start, length):
            copy_past_caches(self.columns["frame"][ring], segment.frame[part])
            for name, values in rows.items():
                self.columns[name][ring] = values[part]
            for name, value in constants.items():
                self.columns[name][ring] = value
        self.columns["starts_episode"][start] = segment.starts_episode
        sampled = self._spans(start + segment.first, segment.count)
        for ring, _ in sampled:
            self.columns["sampleable"][ring] = True
        self.segments.append(StoredSegment(start, length, segment.first, segment.count))
        self.num_used += length
        self._next_row = stop % self.capacity
        self._next_generation += 1
        self._high_water = max(self._high_water, min(stop, self.capacity))
        return _rows_of(sampled)

    def evict_oldest(self) -> tuple[IndexArray, int]:
        """Free the rows of the oldest segment; returns those of its sampled positions, `[count]`, and how many still were sampleable."""
        oldest, num_sampleable = self.segments.popleft(), 0
        for ring, _ in self._spans(oldest.row, oldest.length):
            sampleable = self.columns["sampleable"][ring]
            num_sampleable += int(np.count_nonzero(sampleable))
            sampleable[:] = False
            self.columns["generation"][ring] = NO_GENERATION
        self.num_used -= oldest.length
        sampled = self._spans(oldest.row + oldest.first, oldest.num_sampled)
        return _rows_of(sampled), num_sampleable

    def _spans(self, row: int, length: int) -> list[Span]:
        """Where `length` rows from `row` on lie, in one piece or, round the end of the ring, in two; and which of them these are."""
        row %= self.capacity
        before = min(length, self.capacity - row)
        spans = [(slice(row, row + before), slice(0, before))]
        if before < length:
            spans.append((slice(0, length - before), slice(before, length)))
        return spans

    def observations(self, rows: IndexArray) -> npt.NDArray[Any]:
        """Stacked observations `[n, *O]` of `rows[n]`."""
        frames = self.columns["frame"]
        if self.num_stacked_frames == 1:
            return frames[rows]
        stacked = stack_rows(rows, self.num_stacked_frames, self.columns["starts_episode"])
        return frames[stacked].reshape(len(rows), *self._observation_shape)

    def roots(self, rows: IndexArray) -> RootPositions:
        """`rows[n]` as roots of a new search."""
        columns = self.columns
        packed = columns["legal"][rows]
        return RootPositions(
            observation=self.observations(rows),
            legal=np.unpackbits(packed, axis=1, count=self.num_actions).view(np.bool_),
            to_play=columns["to_play"][rows],
            generation=columns["generation"][rows],
            target_version=columns["target_version"][rows],
            policy=columns["policy"][rows],
            has_policy=columns["has_policy"][rows],
            root_value=columns["root_value"][rows],
        )

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Arrays (views of the rows ever used, not copies) and JSON that `restore` continues from."""
        arrays = {name: column[: self._high_water] for name, column in self.columns.items()}
        table = np.array(self.segments, np.int64).reshape(-1, len(StoredSegment._fields))
        arrays["segments"] = table
        return arrays, {
            "capacity": self.capacity,
            "next_row": self._next_row,
            "next_generation": self._next_generation,
        }

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Hold what `state` described; raises ValueError if it does not fit this storage."""
        if meta["capacity"] != self.capacity:
            raise ValueError(
                f"replay.capacity is {self.capacity}, but the saved replay has {meta['capacity']} positions; "
                f"set replay.capacity={meta['capacity']} or resume without the saved replay"
            )
        arrays = with_policy_flags(arrays)
        high_water = len(arrays["generation"]) if "generation" in arrays else 0
        for name, column in self.columns.items():
            saved = arrays.get(name)
            expected = (high_water, *column.shape[1:])
            if saved is None or saved.shape != expected or saved.dtype != column.dtype:
                found = "missing" if saved is None else f"{saved.dtype}{list(saved.shape)}"
                raise ValueError(
                    f"the saved replay does not fit this run: column {name} is {found}, expected "
                    f"{column.dtype}{list(expected)}; was it saved with another environment?"
                )
        segments = [StoredSegment(*map(int, row)) for row in arrays["segments"]]
        self._check_table(segments, high_water, meta["next_row"])
        for name, column in self.columns.items():
            column[:high_water] = arrays[name]
            column[high_water:] = NO_GENERATION if name == "generation" else 0
        self.segments = deque(segments)
        self.num_used = sum(segment.length for segment in segments)
        self._high_water = high_water
        self._next_row = int(meta["next_row"])
        self._next_generation = int(meta["next_generation"])

    def _check_table(self, segments: list[StoredSegment], high_water: int, next_row: int) -> None:
        """Segments must lie one behind the other, up to `next_row`, within the saved rows."""
        ends = [(s.row + s.length) % self.capacity for s in segments]
        follows = [s.row for s in segments[1:]] + [next_row]
        fits = all(
            0 <= s.row < self.capacity
            and s.length > 0
            and 0 <= s.first < s.first + s.num_sampled <= s.length
            and (s.row + s.length <= high_water or high_water == self.capacity)
            for s in segments
        )
        used = sum(s.length for s in segments)
        if not fits or used > self.capacity or (segments and ends != follows):
            raise ValueError("the saved replay is damaged: its table of segments is inconsistent")
