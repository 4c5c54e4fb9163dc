"""The fleet's limiter as a state machine: workers with leases that end in lumps, die or bring nothing, and a learner with credit."""

import itertools

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.runtime.fleet.schedules import Clock, Fleet, Sizes, limiter

PART = st.floats(0.0, 1.0, exclude_max=True)
SIZES = st.builds(
    Sizes,
    spi=st.sampled_from([0.05, 0.3, 1.0, 2.5, 7.0, 40.0]),
    min_size=st.integers(1, 60),
    batch=st.integers(1, 50),
    games=st.integers(1, 20),
    leases=st.integers(1, 6),
    batches=st.integers(1, 5),
    capacity=st.integers(60, 2000),
    slack=st.sampled_from([0.0, 0.5, 20.0, 300.0, None]),
    unsent=st.integers(0, 80),
)


class Schedules(RuleBasedStateMachine):
    """Hypothesis chooses the schedule, and shortens one that fails."""

    @initialize(sizes=SIZES)
    def begin(self, sizes: Sizes) -> None:
        self.fleet = Fleet(sizes)

    @rule(part=PART)
    def lease(self, part: float) -> None:
        self.fleet.lease(part)

    @rule(which=PART, part=st.sampled_from([0.0, 0.4, 1.0]))
    def end(self, which: float, part: float) -> None:
        self.fleet.end(which, part)

    @rule(which=PART, part=PART)
    def die(self, which: float, part: float) -> None:
        self.fleet.die(which, part)

    @rule(most=st.integers(1, 100))
    def sample(self, most: int) -> None:
        self.fleet.sample(most)

    @rule(part=st.sampled_from([0.1, 0.5, 1.0]))
    def lose(self, part: float) -> None:
        self.fleet.lose(part)

    @rule()
    def count(self) -> None:
        self.fleet.count()

    @rule(leases=st.integers(0, 12))
    def resize(self, leases: int) -> None:
        self.fleet.resize(leases)

    @rule()
    def restore(self) -> None:
        self.fleet.restore()

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            while self.fleet.leases:
                self.fleet.end(0.0, 0.0)
            self.fleet.check()

    def check_invariants(self, *args: object, **kwargs: object) -> None:
        super().check_invariants(*args, **kwargs)
        if hasattr(self, "fleet"):
            self.fleet.check()


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def random_sizes(rng: np.random.Generator) -> Sizes:
    slack = rng.choice([-1.0, 0.0, 0.5, 20.0, 300.0])
    return Sizes(
        spi=float(rng.choice([0.05, 0.1, 0.3, 1.0, 2.5, 7.0, 40.0, rng.uniform(0.01, 50)])),
        min_size=int(rng.integers(1, 200)),
        batch=int(rng.integers(1, 300)),
        games=int(rng.integers(1, 40)),
        leases=int(rng.integers(1, 20)),
        batches=int(rng.integers(1, 8)),
        capacity=int(rng.integers(200, 20_000)),
        slack=None if slack < 0 else float(slack),
        unsent=int(rng.integers(0, 400)),
    )


def test_long_random_schedules_never_stand_still() -> None:
    """More than 10^5 steps; each schedule has its own mood, so that each side is at its bound in some."""
    rng, steps = np.random.default_rng(3), 0
    for _ in range(250):
        fleet = Fleet(random_sizes(rng))
        mood = rng.dirichlet([2.0, 2.0, 0.3, 2.0, 0.05, 1.0, 0.1, 0.02])
        for choice in rng.choice(len(mood), size=450, p=mood):
            a, b = rng.random(2)
            if choice == 0:
                fleet.lease(a)
            elif choice == 1:
                fleet.end(a, float(rng.choice([0.0, 1.0, b])))
            elif choice == 2:
                fleet.die(a, b)
            elif choice == 3:
                fleet.sample(int(rng.choice([1, 10**6])))
            elif choice == 4:
                fleet.lose(b)
            elif choice == 5:
                fleet.count()
            elif choice == 6:
                fleet.resize(int(rng.integers(0, 20)))
            else:
                fleet.restore()
            fleet.check()
            steps += 1
        while fleet.leases:
            fleet.die(0.0, 0.0)
        fleet.check()
    assert steps >= 100_000


@pytest.mark.parametrize("slack", [0.0, None], ids=["narrowest", "own width"])
@pytest.mark.parametrize("spi", [0.25, 4.0])
@pytest.mark.parametrize("eager", ["self-play", "learner"])
def test_the_long_run_ratio_is_the_wish(slack: float | None, spi: float, eager: str) -> None:
    fleet = Fleet(Sizes(spi, 500, 32, 8, 4, 3, 4000, slack, 100))
    rng = np.random.default_rng(0)
    while fleet.inserts < 40_000:
        for _ in range(50 if eager == "self-play" else 1):
            fleet.lease(rng.random())
        while fleet.leases:
            fleet.end(0.0, rng.random())
        fleet.count()
        fleet.sample(10**6 if eager == "learner" else 2)
        fleet.check()
    assert fleet.refilled == 0
    assert fleet.samples / (fleet.inserts - 500) == pytest.approx(spi, rel=0.05)
    assert fleet.limit.achieved_samples_per_insert == pytest.approx(spi, rel=0.05)


def test_a_band_too_narrow_for_the_shortest_lease_is_refused() -> None:
    with pytest.raises(ValueError, match=r"replay.error_buffer is 11.9.*at least 12; raise it"):
        limiter(error_buffer=11.9)  # (4 * 2 + 16) / 2
    assert limiter(error_buffer=12.0).longest_lease == 4


def test_leases_fit_the_band_and_their_share_of_the_replay() -> None:
    assert limiter().longest_lease == 100  # 5 % of 4000, for two leases
    assert limiter(num_leases=10).longest_lease == 20
    assert limiter(num_leases=1000).longest_lease == 4
    given = limiter(error_buffer=60.0)
    assert given.longest_lease == 28 and given.error_buffer == 60.0  # 32 * 2 - 2 would not fit
    given.resize(20)
    assert given.longest_lease == 8
    own = limiter()
    assert own.error_buffer == 2 * 100 * 2.0 + 16 * 3
    with pytest.raises(ValueError, match=r"a lease of 104 positions.*allows 100"):
        own.reserve(104)


def test_reservations_count_as_inserts_until_they_end() -> None:
    limit = limiter(min_size=8, num_leases=1, capacity=80, batch_size=4, num_batches=1)
    assert (limit.longest_lease, limit.error_buffer) == (4, 12.0)
    granted = list(itertools.takewhile(bool, (limit.reserve(4) for _ in range(9))))
    assert len(granted) == 3 and limit.reserved == 12  # 8 to fill, 4 * 2 <= 12 ahead
    assert limit.allowance == 0 and limit.inserts == 0
    limit.settle(4, 0)
    assert limit.reserve(4) and not limit.reserve(4)
    for _ in range(3):
        limit.settle(4, 4)
    assert limit.allowance == (12 - 8) * 2 + 12 and limit.error == 8.0
    limit.record_samples(20)
    assert limit.error == -12.0 and limit.allowance == 20


def test_a_replay_that_has_lost_its_positions_is_filled_again_and_no_further() -> None:
    limit = limiter(min_size=8, num_leases=1, capacity=80, batch_size=4, num_batches=1)
    limit.settle(0, 14)
    assert not limit.reserve(4)
    limit.held = 1
    assert limit.reserve(4) and limit.reserve(4) and not limit.reserve(4)
    limit.settle(4, 4)
    limit.settle(4, 4)
    assert not limit.reserve(4)  # although the next count is still to come
    limit.held = 9
    assert not limit.reserve(4)


def test_waiting_is_measured_and_survives_a_resume() -> None:
    clock = Clock()
    limit = limiter(clock=clock, min_size=8, num_leases=1, capacity=80)
    limit.record_samples(0)
    clock.now += 2.0
    limit.settle(0, 60)
    assert not limit.reserve(4)
    limit.record_samples(0)
    clock.now += 3.0
    assert (limit.insert_wait_seconds, limit.sample_wait_seconds) == (3.0, 2.0)
    other = limiter(clock=clock, min_size=8, num_leases=1, capacity=80)
    other.reserved = 4
    other.restore(limit.state())
    assert (other.inserts, other.samples, other.reserved) == (60, 0, 0)
    assert (other.insert_wait_seconds, other.sample_wait_seconds) == (3.0, 2.0)
