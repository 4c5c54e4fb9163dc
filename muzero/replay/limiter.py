"""The rate limiter: the only throttle between self-play and the learner, with Reverb's semantics.

It keeps `inserts * samples_per_insert - samples` within `error_buffer` of its value at the end of the filling stage,
`min_size * samples_per_insert`. Items are positions. The filling stage counts positions inserted, not positions held, so that a
ring whose context rows leave less than `min_size` of them still starts.
"""

import math
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any


def smallest_error_buffer(
    *, samples_per_insert: float, batch_size: int, insert_quantum: int
) -> float:
    """Least `error_buffer` with which inserts of a quantum and samples of a batch never refuse each other for ever.

    After filling, both are refused only if `quantum * samples_per_insert + batch_size` exceeds the band's width,
    `2 * error_buffer`; while filling, if the last quantum overshoots the upper bound. Reverb asks for a width of
    `2 * max(1, samples_per_insert)` besides.
    """
    ahead = insert_quantum * samples_per_insert
    half_width = (ahead + batch_size) / 2
    # Rounding is monotonic, so the limiter's comparisons never refuse both if the exact inequality holds: hence up.
    if 2 * Fraction(half_width) < Fraction(ahead) + batch_size:
        half_width = math.nextafter(half_width, math.inf)
    return max(1.0, samples_per_insert, half_width, ahead - samples_per_insert)


def default_error_buffer(
    *, samples_per_insert: float, batch_size: int, insert_quantum: int
) -> float:
    """Give an `error_buffer` that leaves room for one quantum inserted and one batch sampled in either direction."""
    return insert_quantum * samples_per_insert + batch_size


class _Waiting:
    """How often and how long one side has been refused."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None
        self._total_seconds = 0.0
        self.times = 0

    def update(self, allowed: bool) -> bool:
        if allowed and self._since is not None:
            self._total_seconds += self._clock() - self._since
            self._since = None
        elif not allowed and self._since is None:
            self._since = self._clock()
            self.times += 1
        return allowed

    @property
    def seconds(self) -> float:
        """Total, a wait that is going on included."""
        running = 0.0 if self._since is None else self._clock() - self._since
        return self._total_seconds + running

    def state(self) -> dict[str, Any]:
        return {"times": self.times, "seconds": self.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        self._since, self._total_seconds = None, float(state["seconds"])
        self.times = int(state["times"])


class RateLimiter:
    """Says whether positions may be inserted and sampled, and counts who waits and for how long.

    A side waits from the first refusal of its question until the next time it is allowed. The limiter only answers; who
    ignores the answer is counted all the same. It has no lock: its owner serialises the calls.
    """

    def __init__(
        self,
        *,
        samples_per_insert: float,
        min_size: int,
        batch_size: int,
        insert_quantum: int,
        error_buffer: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limit samples of `batch_size` and inserts of up to `insert_quantum` positions.

        `error_buffer` None takes `default_error_buffer`. `clock` measures waiting in seconds; no decision depends on it.
        Raises ValueError for settings that are out of range or could deadlock.
        """
        if not (math.isfinite(samples_per_insert) and samples_per_insert > 0):
            raise ValueError(
                f"replay.samples_per_insert is {samples_per_insert}; it must be a finite number above 0"
            )
        for name, number in (
            ("replay.min_size", min_size),
            ("batch_size", batch_size),
            ("insert_quantum", insert_quantum),
        ):
            if number < 1:
                raise ValueError(f"{name} is {number}; it must be at least 1")
        sizes: dict[str, Any] = {
            "samples_per_insert": samples_per_insert,
            "batch_size": batch_size,
            "insert_quantum": insert_quantum,
        }
        if error_buffer is None:
            error_buffer = default_error_buffer(**sizes)
        least = smallest_error_buffer(**sizes)
        if not error_buffer >= least:
            raise ValueError(
                f"replay.error_buffer is {error_buffer}, with which self-play and learner could wait for each other for "
                f"ever: samples of {batch_size}, inserts of up to {insert_quantum} and samples_per_insert "
                f"{samples_per_insert} need at least {least:g}; raise it, or set it to null for a fitting width"
            )
        self.samples_per_insert = samples_per_insert
        self.min_size = min_size
        self.error_buffer = error_buffer
        self.inserts = 0
        """Positions inserted."""
        self.samples = 0
        """Positions sampled."""
        self.starved = False
        """Whether nothing is left to sample, as the owner of the positions says: then they may come in at once, and nothing goes out."""
        self._unowed_inserts = 0  # those made while starved, for which no samples are due
        self._insert_waiting = _Waiting(clock)
        self._sample_waiting = _Waiting(clock)

    @property
    def error(self) -> float:
        """Samples that the learner is behind (positive) or ahead of (negative) the exact ratio."""
        owed = self.inserts - self._unowed_inserts - self.min_size
        return owed * self.samples_per_insert - self.samples

    @property
    def achieved_samples_per_insert(self) -> float:
        """Positions sampled per position inserted after the filling stage; 0 before its end."""
        return self.samples / max(1, self.inserts - self.min_size)

    @property
    def insert_wait_seconds(self) -> float:
        """Time that inserting has been refused, a wait that is going on included."""
        return self._insert_waiting.seconds

    @property
    def sample_wait_seconds(self) -> float:
        """Time that sampling has been refused, a wait that is going on included."""
        return self._sample_waiting.seconds

    @property
    def insert_waits(self) -> int:
        """Number of times that inserting had to wait."""
        return self._insert_waiting.times

    @property
    def sample_waits(self) -> int:
        """Number of times that sampling had to wait."""
        return self._sample_waiting.times

    def can_insert(self, count: int) -> bool:
        """Whether `count` more positions may be inserted now."""
        filling = self.inserts + count <= self.min_size
        ahead = self.error + count * self.samples_per_insert
        allowed = filling or self.starved or ahead <= self.error_buffer
        return self._insert_waiting.update(allowed)

    def can_sample(self, count: int) -> bool:
        """Whether `count` positions may be sampled now."""
        ready = self.inserts >= self.min_size and not self.starved
        return self._sample_waiting.update(ready and self.error - count >= -self.error_buffer)

    def record_insert(self, count: int) -> None:
        """Count `count` positions as inserted; those that end a starvation stand in for others whose samples are still due."""
        if self.starved and self.inserts >= self.min_size:
            self._unowed_inserts += count
        self.inserts += count

    def record_sample(self, count: int) -> None:
        """Count `count` positions as sampled."""
        self.samples += count

    def state(self) -> dict[str, Any]:
        """JSON-serialisable counters."""
        return {
            "inserts": self.inserts,
            "samples": self.samples,
            "unowed_inserts": self._unowed_inserts,
            "insert_waiting": self._insert_waiting.state(),
            "sample_waiting": self._sample_waiting.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`; the settings are those of this limiter."""
        self.inserts, self.samples = int(state["inserts"]), int(state["samples"])
        self._unowed_inserts = int(state.get("unowed_inserts", 0))  # older checkpoints have none
        self._insert_waiting.restore(state["insert_waiting"])
        self._sample_waiting.restore(state["sample_waiting"])
