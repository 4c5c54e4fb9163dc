"""Kernels of target refreshing: which targets are oldest, how fresh a sample is, and writing new ones.

Letters: `C` rows of the ring, `n` results, `A` actions.
"""

import numpy as np
from numba import njit

TARGET_COLUMNS = ("policy", "has_policy", "root_value", "target_version")
"""What `write_targets` writes, in its order."""

_VERSION_SHIFT = 32
_ROW_MASK = (1 << _VERSION_SHIFT) - 1


@njit(cache=True, nogil=True)
def _sift_down(heap, at):  # type: ignore[no-untyped-def]
    """Restore the heap property (largest key on top) below `at`."""
    size = heap.shape[0]
    key = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key


@njit(cache=True, nogil=True)
def oldest_targets(target_version, sampleable, in_flight, count, newest_version):  # type: ignore[no-untyped-def]
    """Up to `count` sampleable rows, not in flight, with the lowest versions below `newest_version`; ties by row.

    One pass over the ring; a heap keeps the best rows so far, each as one number, version before row.
    """
    heap = np.empty(count, np.int64)
    size = 0
    limit = np.int64(newest_version) << _VERSION_SHIFT if count > 0 else np.int64(-(1 << 62))
    for row in range(target_version.shape[0]):
        key = (np.int64(target_version[row]) << _VERSION_SHIFT) | row
        if key >= limit or not sampleable[row] or in_flight[row]:
            continue
        if size < count:
            heap[size] = key
            size += 1
            if size < count:
                continue
            for at in range(count // 2 - 1, -1, -1):
                _sift_down(heap, at)
        else:
            heap[0] = key
            _sift_down(heap, 0)
        limit = heap[0]
    return np.sort(heap[:size]) & _ROW_MASK


@njit(cache=True, nogil=True)
def fresh_mass(weights, target_version, oldest_fresh_version):  # type: ignore[no-untyped-def]
    """Sum of the sampling weights of the rows whose target is at least of version `oldest_fresh_version`."""
    mass = 0.0
    for row in range(weights.shape[0]):
        mass += weights[row] * (target_version[row] >= oldest_fresh_version)
    return mass


@njit(cache=True, nogil=True)
def write_targets(columns, generations, in_flight, rows, generation, result):  # type: ignore[no-untyped-def]
    """Write `result` (policy `[n, A]`, root value `[n]`, version) to `rows[n]` of `columns`; returns how many were written.

    `columns` are `TARGET_COLUMNS`; every row written has a policy target from now on.
    A row of another generation is left alone. A row of an equal or newer version keeps its target, but is no longer in
    flight.
    """
    policy, has_policy, root_value, target_version = columns
    new_policy, new_root_value, version = result
    num_written = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if generations[row] != generation[i]:
            continue
        in_flight[row] = False
        if version > target_version[row]:
            policy[row] = new_policy[i]
            has_policy[row] = True
            root_value[row] = new_root_value[i]
            target_version[row] = version
            num_written += 1
    return num_written
