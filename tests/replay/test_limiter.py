import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muzero.replay.limiter import RateLimiter, default_error_buffer, smallest_error_buffer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(**settings: object) -> RateLimiter:
    defaults: dict = {
        "samples_per_insert": 2.0,
        "min_size": 10,
        "batch_size": 4,
        "insert_quantum": 3,
        "error_buffer": 8.0,
    }
    return RateLimiter(**(defaults | settings))


def test_filling_stage() -> None:
    limit = limiter()
    assert limit.can_insert(10) and not limit.can_sample(1)
    limit.record_insert(9)
    assert not limit.can_sample(1)
    limit.record_insert(1)
    # error - n >= -8: eight samples may run ahead
    assert limit.can_sample(8) and not limit.can_sample(9)
    # error + 2 n <= 8: four inserts may run ahead
    assert limit.can_insert(4) and not limit.can_insert(5)


def test_bounds_are_reverbs() -> None:
    limit = limiter()
    limit.record_insert(14)
    assert not limit.can_insert(1)
    limit.record_sample(1)
    assert not limit.can_insert(1)
    limit.record_sample(1)
    assert limit.can_insert(1) and not limit.can_insert(2)
    limit.record_sample(14)
    assert limit.error == -8 and not limit.can_sample(1)
    limit.record_insert(1)
    assert limit.can_sample(2) and not limit.can_sample(3)


def test_last_quantum_of_the_filling_stage_may_overshoot_within_the_band() -> None:
    limit = limiter(insert_quantum=4, batch_size=1, error_buffer=6.0)
    limit.record_insert(9)
    assert limit.can_insert(4) and not limit.can_insert(5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"error_buffer": 4.9}, r"error_buffer is 4.9.*at least 5; raise it, or set it to null"),
        ({"error_buffer": math.nan}, "error_buffer is nan"),
        (
            {"samples_per_insert": 0.1, "batch_size": 1, "error_buffer": 0.9},
            "at least 1;",
        ),  # Reverb's own least width
        (
            {"samples_per_insert": 9.0, "insert_quantum": 1, "error_buffer": 8.0},
            "at least 9;",
        ),
        ({"samples_per_insert": 0.0}, "samples_per_insert is 0.0"),
        ({"samples_per_insert": math.inf}, "samples_per_insert is inf"),
        ({"min_size": 0}, "min_size is 0"),
        ({"insert_quantum": 0}, "insert_quantum is 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        limiter(**settings)


def test_waiting_is_counted_per_side() -> None:
    clock = Clock()
    limit = limiter(clock=clock)
    assert not limit.can_sample(4)
    clock.now += 2.0
    assert not limit.can_sample(4)
    assert limit.sample_wait_seconds == 2.0 and limit.sample_waits == 1
    limit.record_insert(14)
    clock.now += 0.5
    assert limit.can_sample(4)
    clock.now += 10.0
    assert limit.sample_wait_seconds == 2.5
    assert not limit.can_insert(3)
    clock.now += 1.0
    assert limit.insert_wait_seconds == 1.0 and limit.insert_waits == 1
    assert limit.sample_wait_seconds == 2.5 and limit.sample_waits == 1


def test_state_continues() -> None:
    clock = Clock()
    limit = limiter(clock=clock)
    limit.record_insert(12)
    limit.record_sample(5)
    assert not limit.can_insert(9)
    clock.now += 3.0
    other = limiter(clock=clock)
    other.restore(limit.state())
    assert (other.inserts, other.samples, other.error) == (12, 5, -1.0)
    assert other.insert_wait_seconds == 3.0 and other.insert_waits == 1
    clock.now += 3.0
    assert other.insert_wait_seconds == 3.0  # the time between the runs is nobody's wait
    assert other.achieved_samples_per_insert == 2.5


SPI = st.sampled_from([0.05, 0.3, 1.0, 2.5, 7.0, 40.0])


class Alternation(RuleBasedStateMachine):
    """Self-play inserts up to a quantum where it may, the learner samples a batch where it may."""

    @initialize(
        spi=SPI,
        min_size=st.integers(1, 60),
        batch_size=st.integers(1, 50),
        quantum=st.integers(1, 50),
        slack=st.sampled_from([0.0, 0.5, 20.0, None]),
    )
    def begin(
        self, spi: float, min_size: int, batch_size: int, quantum: int, slack: float | None
    ) -> None:
        sizes = {"samples_per_insert": spi, "batch_size": batch_size, "insert_quantum": quantum}
        buffer = None if slack is None else smallest_error_buffer(**sizes) + slack
        self.limit = RateLimiter(min_size=min_size, error_buffer=buffer, **sizes)
        self.spi, self.min_size, self.batch, self.quantum = spi, min_size, batch_size, quantum
        self.inserts = self.samples = 0
        width = default_error_buffer(**sizes) if buffer is None else buffer
        self.low, self.high = min_size * spi - width, min_size * spi + width

    # Reverb's rate_limiter.cc, written out
    def may_sample(self, n: int) -> bool:
        ahead = self.inserts * self.spi - self.samples
        return self.inserts >= self.min_size and ahead - n >= self.low

    def may_insert(self, n: int) -> bool:
        ahead = (self.inserts + n) * self.spi - self.samples
        return self.inserts + n <= self.min_size or ahead <= self.high

    @rule(part=st.integers(0, 50))
    def insert(self, part: int) -> None:
        """As many as the games happened to give, none included."""
        if self.limit.can_insert(self.quantum):
            count = min(part, self.quantum)
            self.limit.record_insert(count)
            self.inserts += count

    @rule()
    def sample(self) -> None:
        if self.limit.can_sample(self.batch):
            self.limit.record_sample(self.batch)
            self.samples += self.batch

    @precondition(lambda self: hasattr(self, "limit"))
    @rule()
    def save_and_restore(self) -> None:
        self.limit.restore(self.limit.state())

    @invariant()
    def somebody_may_go_on(self) -> None:
        if hasattr(self, "limit"):
            assert self.limit.can_insert(self.quantum) or self.limit.can_sample(self.batch)

    @invariant()
    def bounds_hold(self) -> None:
        if hasattr(self, "limit"):
            ahead = self.inserts * self.spi - self.samples
            assert ahead <= self.high + 1e-6
            assert self.samples == 0 or ahead >= self.low - 1e-6

    @invariant()
    def answers_are_reverbs(self) -> None:
        if not hasattr(self, "limit"):
            return
        # away from the bounds, where rounding decides
        for n in (1, 3, self.quantum, self.batch):
            ahead = self.inserts * self.spi - self.samples
            if abs(ahead - n - self.low) > 1e-6:
                assert self.limit.can_sample(n) == self.may_sample(n)
            if abs(ahead + n * self.spi - self.high) > 1e-6:
                assert self.limit.can_insert(n) == self.may_insert(n)


TestAlternation = Alternation.TestCase
TestAlternation.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@settings(max_examples=500, deadline=None)
@given(
    st.floats(0.01, 50),
    st.integers(1, 4096),
    st.integers(1, 4096),
    st.integers(0, 10**9),
    st.integers(-2, 2),
)
def test_rounding_cannot_deadlock(
    spi: float, batch: int, quantum: int, inserts: int, offset: int
) -> None:
    sizes = {"samples_per_insert": spi, "batch_size": batch, "insert_quantum": quantum}
    limit = RateLimiter(min_size=1, error_buffer=smallest_error_buffer(**sizes), **sizes)
    limit.record_insert(1 + inserts)
    # the error at which both sides are closest to being refused
    limit.record_sample(max(0, round(inserts * spi - (batch - limit.error_buffer)) + offset))
    assert limit.can_insert(quantum) or limit.can_sample(batch)
    fresh = RateLimiter(min_size=inserts + 1, error_buffer=limit.error_buffer, **sizes)
    fresh.record_insert(inserts)
    assert fresh.can_insert(quantum)


@settings(max_examples=200, deadline=None)
@given(SPI, st.integers(1, 50), st.integers(1, 50))
def test_a_narrower_band_would_deadlock(spi: float, batch: int, quantum: int) -> None:
    """`smallest_error_buffer` is not just enough but needed, where it is not Reverb's own least width."""
    least = smallest_error_buffer(samples_per_insert=spi, batch_size=batch, insert_quantum=quantum)
    assume(least > max(1.0, spi) and least == (quantum * spi + batch) / 2)
    width = least - 0.01
    # an error between `width - quantum * spi` and `batch - width` refuses both
    stuck = (width - quantum * spi + batch - width) / 2
    assert stuck + quantum * spi > width and stuck - batch < -width


@pytest.mark.parametrize("spi", [0.25, 4.0])
@pytest.mark.parametrize("eager", ["self-play", "learner"])
def test_ratio_stays_at_the_wish(spi: float, eager: str) -> None:
    """Over any 1,000 steps after filling, positions sampled per position inserted are within 5 % (peers, row 41)."""
    limit = RateLimiter(samples_per_insert=spi, min_size=500, batch_size=32, insert_quantum=8)
    marks = []
    while len(marks) < 3000:
        inserted = sampled = 0
        while limit.can_insert(8) and not (eager == "learner" and inserted):
            limit.record_insert(8)
            inserted += 1
        while limit.can_sample(32) and not (eager == "self-play" and sampled):
            limit.record_sample(32)
            sampled += 1
            marks.append((limit.inserts, limit.samples))
    for (i0, s0), (i1, s1) in zip(marks[:-1000], marks[1000:], strict=True):
        assert (s1 - s0) / (i1 - i0) == pytest.approx(spi, rel=0.05)
    assert limit.achieved_samples_per_insert == pytest.approx(spi, rel=0.05)
