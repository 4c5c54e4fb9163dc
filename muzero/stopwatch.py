"""Where the time of a thread goes, and what the learner waits for."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Splits the wall time of one thread over labels.

    A label that is measured inside another is taken off the outer one, so that the fractions never sum to more
    than 1. Not to be shared between threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._window_start = self._last = clock()
        self._labels: list[str] = []
        self._window: dict[str, float] = defaultdict(float)
        self.total_seconds: dict[str, float] = defaultdict(float)
        """Seconds per label since the start."""

    @contextmanager
    def measure(self, label: str) -> Iterator[None]:
        """Count the time inside the `with` block for `label`."""
        self._charge()
        self._labels.append(label)
        try:
            yield
        finally:
            self._charge()
            self._labels.pop()

    def fractions(self) -> dict[str, float]:
        """Return the share of wall time per label since the last call, and begin a new window."""
        self._charge()
        elapsed = self._last - self._window_start
        fractions = {
            label: seconds / elapsed if elapsed else 0.0 for label, seconds in self._window.items()
        }
        # A label once seen is reported from then on, so that columns do not come and go.
        self._window.update(dict.fromkeys(self._window, 0.0))
        self._window_start = self._last
        return fractions

    def _charge(self) -> None:
        now = self._clock()
        if self._labels:
            self._window[self._labels[-1]] += now - self._last
            self.total_seconds[self._labels[-1]] += now - self._last
        self._last = now


def time_metrics(fractions: dict[str, float]) -> dict[str, float]:
    """Name the shares of the roles: `{"selfplay": 0.6}` gives `time/selfplay_fraction`."""
    return {f"time/{role}_fraction": fraction for role, fraction in fractions.items()}


def wait_metrics(fractions: dict[str, float]) -> dict[str, float]:
    """Name the shares of what the learner waits for: `learner/wait_<cause>_fraction`, and their sum."""
    metrics = {f"learner/wait_{cause}_fraction": fraction for cause, fraction in fractions.items()}
    return {"learner/wait_fraction": sum(fractions.values()), **metrics}
