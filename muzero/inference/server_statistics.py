"""How well a server's batches are filled, and how long its clients wait."""

import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

_NUM_LATENCIES = 8192


class ServerStatistics:
    """Collected by the serving thread, reported to any.

    Args:
        max_rows: Most rows of a batch.
        clock: In seconds.
    """

    def __init__(self, max_rows: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_rows, self._clock = max_rows, clock
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._since = self._clock()
        self._rows = self._batches = self._timed_out = 0
        self._latencies: deque[float] = deque(maxlen=_NUM_LATENCIES)

    def note_batch(self, num_rows: int, timed_out: bool, latencies: list[float]) -> None:
        """Count a batch of the network; `latencies` in seconds, of its requests."""
        with self._lock:
            self._rows += num_rows
            self._batches += 1
            self._timed_out += timed_out
            self._latencies.extend(latencies)

    def report(self) -> dict[str, float]:
        """Since the last report, under the names of the metrics reference; without batches, only the rate."""
        with self._lock:
            seconds = self._clock() - self._since
            report = {"inference/rows_per_second": self._rows / seconds if seconds > 0.0 else 0.0}
            if self._batches:
                middle, late = np.percentile(self._latencies, (50, 99))
                report |= {
                    "inference/occupancy": self._rows / (self._batches * self._max_rows),
                    "inference/latency_p50_seconds": float(middle),
                    "inference/latency_p99_seconds": float(late),
                    "inference/timeout_fraction": self._timed_out / self._batches,
                }
            self._begin()
        return report
