"""Threads that share the rows of a batch."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# Handing rows to another thread costs tens of microseconds, about the tree work of this many rows.
MIN_ROWS_PER_THREAD = 32


class RowThreads:
    """Calls a kernel on ranges of rows, one range per thread; the caller's thread takes the first.

    Rows are independent, so that the split never changes a result.
    """

    def __init__(self, num_threads: int, min_rows_per_thread: int = MIN_ROWS_PER_THREAD) -> None:
        if num_threads < 1:
            raise ValueError(f"num_threads={num_threads}: must be at least 1")
        self._num_threads = num_threads
        self._min_rows = min_rows_per_thread
        self._fewest_to_share = 2 * min_rows_per_thread if num_threads > 1 else sys.maxsize
        self._pool = (
            ThreadPoolExecutor(num_threads - 1, thread_name_prefix="mcts")
            if num_threads > 1
            else None
        )

    def call(self, kernel: Callable[..., Any], num_rows: int, *arguments: Any) -> Any:
        """Run `kernel(low, high, *arguments)` over `num_rows` rows or places; return the first result that is no -1."""
        if self._pool is None or num_rows < self._fewest_to_share:
            return kernel(0, num_rows, *arguments)
        num_parts = min(self._num_threads, num_rows // self._min_rows)
        bounds = [num_rows * part // num_parts for part in range(num_parts + 1)]
        pending = [
            self._pool.submit(kernel, bounds[part], bounds[part + 1], *arguments)
            for part in range(1, num_parts)
        ]
        results = [kernel(bounds[0], bounds[1], *arguments)]
        results.extend(future.result() for future in pending)
        return next((result for result in results if result != -1), -1)
