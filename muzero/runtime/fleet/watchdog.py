"""Notices that a fleet stands still, and says why."""

from collections.abc import Callable


class FleetStalled(RuntimeError):
    """Nothing has moved for too long. The message says who waits for what."""


class Watchdog:
    """Ends a run in which no counter moves.

    Args:
        seconds: How long everything may stand still.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: tuple[int, ...] | None = None
        self._since = 0.0

    def check(
        self,
        now: float,
        counters: Callable[[], tuple[int, ...]] | None,
        explain: Callable[[], str],
    ) -> None:
        """Look at the counters at `now`, in seconds; None while nothing can be expected to move.

        Raises:
            FleetStalled: They are the same as `seconds` ago.
        """
        current = None if counters is None else counters()
        if current is None or current != self._last:
            self._last, self._since = current, now
        elif now - self._since > self._seconds:
            raise FleetStalled(
                f"nothing has moved for {now - self._since:.0f} s (runtime.watchdog_seconds={self._seconds:g}): {explain()}"
            )
