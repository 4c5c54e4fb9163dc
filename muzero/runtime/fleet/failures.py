"""When a role that has failed is tried again, and when the run gives up on it."""

import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 600.0
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0


class RoleFailed(RuntimeError):
    """A role has failed too often: the run cannot go on. The message carries the role's own last error."""


class Failures:
    """Counts the failures of one role: back-off that doubles, and a breaker.

    Args:
        name: Of the role, for the error.
        limit: Failures within ten minutes that end the run.
        clock: In seconds.
    """

    def __init__(self, name: str, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._limit, self._clock = name, limit, clock
        self._times: deque[float] = deque()
        self.total = 0

    def note(self, reason: str) -> float:
        """Count a failure; returns the seconds to wait before the role is made anew: 1, 2, 4, at most 60.

        Raises:
            RoleFailed: This was one too many.
        """
        now = self._clock()
        self._times.append(now)
        while now - self._times[0] > WINDOW_SECONDS:
            self._times.popleft()
        self.total += 1
        recent = len(self._times)
        if recent >= self._limit:
            raise RoleFailed(
                f"{self._name} failed {recent} times within {WINDOW_SECONDS / 60:.0f} minutes, which ends the run "
                f"(runtime.max_failures={self._limit}); its last error:\n{reason}"
            )
        return float(min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (recent - 1)))
