"""The rate limiter of a fleet: one for all, with local credit on both sides.

The supervisor owns it. A self-play lease reserves the positions that it may insert; the learner draws samples against a
total that it may reach, its allowance. Both credits are given in advance, so nobody asks before each insert or sample.
"""

import math
import time
from collections.abc import Callable
from typing import Any

from muzero.replay.limiter import RateLimiter, smallest_error_buffer

_SHARE_IN_FLIGHT = (
    0.05  # of the replay's capacity: more would replace what the learner sees in great lumps
)


class FleetLimiter:
    """Keeps `samples / inserts` at its target although inserts and samples happen elsewhere.

    It never deadlocks: a reservation is counted as if it were inserted, but every lease ends and gives back what it did not
    use; without reservations the two sides are those of `RateLimiter`, whose band is wide enough for the longest lease.

    Args:
        capacity: Positions that the replay holds; bounds the length of leases.
        num_games: Positions of the shortest lease: one move of all games of a worker.
        num_leases: Leases that may be out at once.
        num_batches: Batches that the learner draws ahead.
        error_buffer: None takes a width that fits all of these.

    Raises:
        ValueError: If `error_buffer` is too narrow for the shortest lease.
    """

    def __init__(
        self,
        *,
        samples_per_insert: float,
        min_size: int,
        batch_size: int,
        capacity: int,
        num_games: int,
        num_leases: int,
        num_batches: int,
        error_buffer: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batch_size, self._num_games = batch_size, num_games
        self._capacity, self._num_batches = capacity, num_batches
        self._own_width = error_buffer is None
        self._limiter = RateLimiter(
            samples_per_insert=samples_per_insert,
            min_size=min_size,
            batch_size=batch_size,
            insert_quantum=num_games,
            error_buffer=error_buffer,
            clock=clock,
        )
        self.reserved = 0
        """Positions of leases that are out."""
        self.held: int | None = None
        """Positions that can be sampled, as they were counted last, and those inserted since: while they are too few, inserts
        are not refused."""
        self.longest_lease = num_games
        """Most positions that one lease may reserve, a multiple of `num_games`."""
        self.resize(num_leases)

    @property
    def inserts(self) -> int:
        """Positions inserted."""
        return self._limiter.inserts

    @property
    def samples(self) -> int:
        """Positions sampled."""
        return self._limiter.samples

    @property
    def error(self) -> float:
        """Samples that the learner is behind (positive) or ahead of (negative) the exact ratio."""
        return self._limiter.error

    @property
    def error_buffer(self) -> float:
        """Half width of the band."""
        return self._limiter.error_buffer

    @property
    def achieved_samples_per_insert(self) -> float:
        """Positions sampled per position inserted after the filling stage; 0 before its end."""
        return self._limiter.achieved_samples_per_insert

    @property
    def allowance(self) -> int:
        """Positions that the learner may have sampled in all."""
        limiter = self._limiter
        if limiter.inserts < limiter.min_size:
            return limiter.samples
        allowed = (limiter.inserts - limiter.min_size) * limiter.samples_per_insert
        return max(limiter.samples, math.floor(allowed + limiter.error_buffer))

    @property
    def insert_wait_seconds(self) -> float:
        """Time that leases have been refused."""
        return self._limiter.insert_wait_seconds

    @property
    def sample_wait_seconds(self) -> float:
        """Time that the allowance did not suffice for a batch."""
        return self._limiter.sample_wait_seconds

    def resize(self, num_leases: int) -> None:
        """Fit lease length and band to another number of leases."""
        limiter = self._limiter
        share = int(self._capacity * _SHARE_IN_FLIGHT) // max(1, num_leases)
        longest = max(1, share // self._num_games) * self._num_games
        ratio = limiter.samples_per_insert
        if self._own_width:
            ahead = longest * max(1, num_leases) * ratio + self._batch_size * self._num_batches
            least = smallest_error_buffer(
                samples_per_insert=ratio, batch_size=self._batch_size, insert_quantum=longest
            )
            limiter.error_buffer = max(least, ahead)
        else:
            while longest > self._num_games and limiter.error_buffer < smallest_error_buffer(
                samples_per_insert=ratio, batch_size=self._batch_size, insert_quantum=longest
            ):
                longest -= self._num_games
        self.longest_lease = longest

    def reserve(self, count: int) -> bool:
        """Reserve `count` positions for a lease, if the learner is not too far behind."""
        if count > self.longest_lease:
            raise ValueError(
                f"a lease of {count} positions; the limiter's band allows {self.longest_lease}"
            )
        fits = self._limiter.can_insert(self.reserved + count)
        # A replay that has lost its positions (or used them up) has to be filled again, however far ahead self-play is.
        refills = self.held is not None and self.held + self.reserved < self._limiter.min_size
        if not (fits or refills):
            return False
        self.reserved += count
        return True

    def settle(self, reserved: int, inserted: int) -> None:
        """End a lease that had `reserved` positions and brought `inserted`."""
        self.reserved -= reserved
        self._limiter.record_insert(inserted)
        if self.held is not None:  # else leases would be refilling until the next count
            self.held += inserted

    def record_samples(self, count: int) -> None:
        """Count `count` more positions as sampled."""
        self._limiter.record_sample(count)
        self._limiter.can_sample(self._batch_size)  # tells the clock of waiting

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from; leases that are out count as given up."""
        return self._limiter.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._limiter.restore(state)
        self.reserved = 0
