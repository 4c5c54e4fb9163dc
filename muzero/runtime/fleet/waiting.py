"""What a learner waits for, measured where it waits."""

import threading
import time
from collections.abc import Callable

LIMITER, ASSEMBLY, TRANSFER = "limiter", "assembly", "transfer"
CAUSES = (LIMITER, ASSEMBLY, TRANSFER)


class WaitAccount:
    """Splits the time in which the learner is blocked by what its loaders are doing then.

    The loaders say what they are at by `enter` and `leave`. A wait counts for the transfer to the device if a batch is on its
    way there, else for the assembly of a batch if one is being made, else for the limiter, which allows none.
    Safe between threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._active = dict.fromkeys(CAUSES, 0)
        self._seconds = dict.fromkeys(CAUSES, 0.0)
        self._since: float | None = None

    def enter(self, stage: str) -> None:
        """A loader begins a stage."""
        self._change(stage, 1)

    def leave(self, stage: str) -> None:
        """A loader ends a stage."""
        self._change(stage, -1)

    def begin(self) -> None:
        """The learner begins to wait."""
        with self._lock:
            self._since = self._clock()

    def end(self) -> None:
        """The learner has what it waited for."""
        with self._lock:
            self._charge()
            self._since = None

    def take(self) -> dict[str, float]:
        """Seconds by cause since the last call, a wait that is going on included."""
        with self._lock:
            self._charge()
            seconds, self._seconds = self._seconds, dict.fromkeys(CAUSES, 0.0)
            return seconds

    def _change(self, stage: str, by: int) -> None:
        with self._lock:
            self._charge()
            self._active[stage] += by

    def _charge(self) -> None:
        if self._since is None:
            return
        now = self._clock()
        cause = next((c for c in (TRANSFER, ASSEMBLY) if self._active[c]), LIMITER)
        self._seconds[cause] += now - self._since
        self._since = now
