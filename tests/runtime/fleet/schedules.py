"""The fleet around its limiter, in a few counters: workers with leases that end in lumps, die or bring nothing, a learner with credit."""

from dataclasses import dataclass

from muzero.replay.limiter import smallest_error_buffer
from muzero.runtime.fleet.limiter import FleetLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(**settings: object) -> FleetLimiter:
    defaults: dict = {
        "samples_per_insert": 2.0,
        "min_size": 100,
        "batch_size": 16,
        "capacity": 4000,
        "num_games": 4,
        "num_leases": 2,
        "num_batches": 3,
        "clock": Clock(),
    }
    return FleetLimiter(**(defaults | settings))


@dataclass(frozen=True)
class Sizes:
    spi: float
    min_size: int
    batch: int
    games: int
    leases: int
    batches: int
    capacity: int
    slack: float | None
    """Of a user's `error_buffer` above the least; None leaves the width to the limiter."""
    unsent: int
    """Most positions that workers hold back, since whole episodes are handed in."""


class Fleet:
    """The processes around the limiter, in a few counters; every step ends with `check`."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        least = smallest_error_buffer(
            samples_per_insert=sizes.spi, batch_size=sizes.batch, insert_quantum=sizes.games
        )
        self.limit = limiter(
            samples_per_insert=sizes.spi,
            min_size=sizes.min_size,
            batch_size=sizes.batch,
            capacity=sizes.capacity,
            num_games=sizes.games,
            num_leases=sizes.leases,
            num_batches=sizes.batches,
            error_buffer=None if sizes.slack is None else least + sizes.slack,
        )
        self.leases: list[int] = []
        self.unsent = self.held = self.inserts = self.samples = self.refilled = 0
        self.known_held: int | None = None
        self.widest = self.limit.error_buffer

    def lease(self, part: float) -> None:
        """Ask for a lease; the answer is the formula's."""
        limit, sizes = self.limit, self.sizes
        longest = limit.longest_lease // sizes.games
        count = sizes.games * (1 + int(part * (longest - 1)))
        total = self.inserts + sum(self.leases) + count
        ahead = (total - sizes.min_size) * sizes.spi - self.samples
        fits = total <= sizes.min_size or ahead <= limit.error_buffer
        known = self.known_held
        refills = known is not None and known + sum(self.leases) < sizes.min_size
        granted = limit.reserve(count)
        if abs(ahead - limit.error_buffer) > 1e-6:  # else rounding decides
            assert granted == (fits or refills)
        if granted:
            self.leases.append(count)
            if not fits:
                self.refilled += count

    def end(self, which: float, part: float) -> None:
        """A lease ends; it brings nothing, or also what was held back in earlier ones."""
        if not self.leases:
            return
        reserved = self.leases.pop(int(which * len(self.leases)))
        played = self.unsent + reserved
        least = max(0, played - self.sizes.unsent)
        inserted = least + round(part * (played - least))
        self.unsent = played - inserted
        self.limit.settle(reserved, inserted)
        self.inserts += inserted
        self.held = min(self.sizes.capacity, self.held + inserted)
        if self.known_held is not None:
            self.known_held += inserted

    def die(self, which: float, part: float) -> None:
        """A worker dies with its lease and a part of what was held back."""
        if self.leases:
            self.limit.settle(self.leases.pop(int(which * len(self.leases))), 0)
            self.unsent -= round(part * self.unsent)

    def sample(self, most: int) -> None:
        """The learner draws batches within its allowance."""
        allowed = (self.limit.allowance - self.samples) // self.sizes.batch
        count = min(most, allowed) * self.sizes.batch if self.held else 0
        self.limit.record_samples(count)
        self.samples += count

    def lose(self, part: float) -> None:
        """A shard is lost."""
        self.held -= round(part * self.held)

    def count(self) -> None:
        """The shards tell what they hold."""
        self.limit.held = self.known_held = self.held

    def resize(self, leases: int) -> None:
        self.limit.resize(leases)
        self.widest = max(self.widest, self.limit.error_buffer)

    def restore(self) -> None:
        """The run is resumed: leases that were out are given up."""
        self.limit.restore(self.limit.state())
        self.leases.clear()

    def check(self) -> None:
        limit, sizes = self.limit, self.sizes
        assert limit.reserved == sum(self.leases)
        assert (limit.inserts, limit.samples) == (self.inserts, self.samples)
        assert limit.longest_lease % sizes.games == 0 and limit.longest_lease > 0
        ahead = (self.inserts - sizes.min_size) * sizes.spi - self.samples
        lumps = (sizes.unsent + self.refilled) * sizes.spi
        assert ahead <= self.widest + lumps + 1e-6
        assert self.samples == 0 or ahead >= -self.widest - 1e-6
        if not self.leases:
            self.check_that_somebody_may_go_on()

    def check_that_somebody_may_go_on(self) -> None:
        self.count()
        if self.limit.reserve(self.sizes.games):
            self.limit.settle(self.sizes.games, 0)
        else:
            assert self.limit.allowance - self.samples >= self.sizes.batch and self.held > 0
