"""Which positions are no longer sampled although the ring still holds them: those used often enough, and those too old.

Letters: `C` rows of the ring, `B` samples, `n` rows found.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from muzero.config.schema import ReplayConfig

IndexArray = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[Any]]

_ANY_VERSION = np.iinfo(np.int64).min


@njit(cache=True, nogil=True)
def _older_rows(version, sampleable, oldest_kept, rows):  # type: ignore[no-untyped-def]
    """Write the sampleable rows below version `oldest_kept` to `rows[C]`; returns their number and the lowest other version."""
    found, lowest = 0, np.int64(1) << 62
    for row in range(version.shape[0]):
        if not sampleable[row]:
            continue
        if version[row] < oldest_kept:
            rows[found] = row
            found += 1
        elif version[row] < lowest:
            lowest = np.int64(version[row])
    return found, lowest


class Retirement:
    """Finds the positions that `replay.max_times_sampled` and `replay.max_behaviour_age` take out of sampling.

    Both are dials of OpenAI Five: how often a position is used, and how stale it may be.
    """

    def __init__(self, config: ReplayConfig) -> None:
        self._max_times, self._max_age = config.max_times_sampled, config.max_behaviour_age
        self._lowest_version = _ANY_VERSION  # no sampleable row has a lower one

    def used_up(self, columns: Columns, slot: IndexArray) -> IndexArray:
        """`[n]` rows among the samples `slot[B]` that have now been sampled as often as they may be, each once."""
        if self._max_times is None:
            return slot[:0]
        often: IndexArray = np.unique(slot[columns["times_sampled"][slot] >= self._max_times])
        return often

    def outdated(self, columns: Columns, newest_version: int) -> IndexArray:
        """`[n]` sampleable rows whose behaviour version is more than `max_behaviour_age` below `newest_version`, ascending.

        Looks at the ring only if there may be some.
        """
        if self._max_age is None or newest_version - self._max_age <= self._lowest_version:
            return np.zeros(0, np.int64)
        version = columns["behaviour_version"]
        rows = np.empty(len(version), np.int64)
        oldest_kept = newest_version - self._max_age
        found, self._lowest_version = _older_rows(version, columns["sampleable"], oldest_kept, rows)
        return rows[:found]

    def note_new(self, version: npt.NDArray[np.integer]) -> None:
        """Say that positions of these behaviour versions have been added."""
        self._lowest_version = min(self._lowest_version, int(version.min()))

    def forget(self) -> None:
        """Say that the ring holds other positions than before."""
        self._lowest_version = _ANY_VERSION
