"""SIGTERM and Ctrl-C: once finishes the step and saves, twice stops now."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


class GracefulStop:
    """A context in which the first SIGTERM or SIGINT sets `requested` and the second one interrupts.

    Outside the main thread (a test, a notebook's worker) signals cannot be caught; `requested` then
    stays settable by `request`.
    """

    def __init__(self, on_request: Callable[[str], None]) -> None:
        self._on_request = on_request
        self._requested = False
        self._previous: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        """Whether the run should save and end."""
        return self._requested

    def request(self, reason: str) -> None:
        """Ask for the end, as the signal does."""
        self._requested = True
        self._on_request(reason)

    def __enter__(self) -> "GracefulStop":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            raise KeyboardInterrupt(f"second {signal.Signals(number).name}: stopped at once")
        self.request(f"{signal.Signals(number).name}: finishing the step and saving")
