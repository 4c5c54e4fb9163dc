"""Who does what next, and what it brought: the controller's mix, lengths by measured speed, the limiter's last word."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.runtime.fleet.leasing import Leasing, Plan
from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.fleet.messages import REANALYZE, SELFPLAY, Lease, LeaseReport
from muzero.selfplay import Totals
from tests.runtime.fleet.roles import Store, address, lease, small

GAMES, BATCH = 4, 16


def limiter(**settings: object) -> FleetLimiter:
    defaults: dict = {
        "samples_per_insert": 1.0,
        "min_size": 10**6,  # the filling stage: nothing is refused
        "batch_size": BATCH,
        "capacity": 4000,
        "num_games": GAMES,
        "num_leases": 2,
        "num_batches": 4,
    }
    return FleetLimiter(**(defaults | settings))


def make(*, reanalyzes: bool = True, seconds: float = 0.5, **settings: object) -> Leasing:
    return Leasing(small(), limiter(**settings), lease_seconds=seconds, reanalyzes=reanalyzes)


def given_lease(plan: Plan) -> Lease:
    return lease(plan.kind, Store(), amount=plan.amount, reserved=plan.reserved)


def report(plan: Plan, *, seconds: float = 1.0, inserted: int = 0, **rest: object) -> LeaseReport:
    moves = plan.amount * GAMES if plan.kind == SELFPLAY else 0
    totals = Totals(games=1, env_steps=moves, simulations=4 * moves)
    defaults: dict = {"totals": totals, "inserted": inserted, "seconds": seconds}
    return LeaseReport(lease=given_lease(plan), **(defaults | rest))


def finish(leasing: Leasing, plan: Plan, now: float = 0.0, **rest: object) -> None:
    leasing.done(report(plan, **rest), now)


def work(leasing: Leasing, seconds: dict[str, float], count: int) -> Counter[str]:
    """Leases of so many seconds, two out at a time; returns the seconds worked by kind."""
    out = [leasing.plan(0.0)]
    worked: Counter[str] = Counter()
    for _ in range(count):
        out.append(leasing.plan(0.0))
        plan = out.pop(0)
        searched = BATCH if plan.kind == REANALYZE else 0
        finish(leasing, plan, seconds=seconds[plan.kind], inserted=plan.reserved, searched=searched)
        worked[plan.kind] += seconds[plan.kind]
    for plan in out:
        leasing.lost(given_lease(plan))
    return worked


@pytest.mark.parametrize("share", [0.125, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seconds", [(0.5, 0.5), (0.1, 0.4), (0.6, 0.2)])
def test_the_mix_of_work_time_is_the_controllers(share: float, seconds: tuple) -> None:
    leasing = make()
    leasing.selfplay_share = share
    worked = work(leasing, {SELFPLAY: seconds[0], REANALYZE: seconds[1]}, 1500)
    assert worked[SELFPLAY] / worked.total() == pytest.approx(share, abs=0.05)


def test_the_mix_follows_a_change_of_mind_soon() -> None:
    """What was done long ago is forgotten, so that a new share does not have to make up for all of the past."""
    leasing, seconds = make(), {SELFPLAY: 0.5, REANALYZE: 0.5}
    leasing.selfplay_share = 0.9
    work(leasing, seconds, 2000)
    leasing.selfplay_share = 0.2
    work(leasing, seconds, 200)
    worked = work(leasing, seconds, 400)
    assert worked[SELFPLAY] / worked.total() == pytest.approx(0.2, abs=0.04)


def test_reanalyze_rests_while_enough_is_fresh() -> None:
    leasing = make()
    leasing.selfplay_share = 0.2
    leasing.is_fresh = True
    assert {leasing.plan(0.0).kind for _ in range(50)} == {SELFPLAY}
    leasing.is_fresh = False
    assert leasing.plan(0.0).kind == REANALYZE


def test_reanalyze_that_fills_a_gap_is_not_made_up_for() -> None:
    """The limiter refuses self-play for long; once it allows it again, the mix is as before and not all self-play."""
    leasing, seconds = make(min_size=8), {SELFPLAY: 0.5, REANALYZE: 0.5}
    leasing.selfplay_share = 0.5
    assert work(leasing, seconds, 500)[REANALYZE] > 200.0
    leasing.limiter.record_samples(10**6)
    worked = work(leasing, seconds, 100)
    assert worked[SELFPLAY] / worked.total() == pytest.approx(0.5, abs=0.1)


def test_without_reanalyze_all_is_selfplay_or_nothing() -> None:
    leasing = make(reanalyzes=False, min_size=8)
    assert leasing.selfplay_share == 1.0
    plans = [leasing.plan(0.0) for _ in range(200)]
    granted = [plan for plan in plans if plan is not None]
    assert {plan.kind for plan in granted} == {SELFPLAY} and plans[-1] is None
    assert sum(plan.reserved for plan in granted) == leasing.limiter.reserved
    finish(leasing, granted[0], inserted=0)
    assert leasing.plan(0.0) is not None


def test_what_the_limiter_refuses_goes_to_reanalyze() -> None:
    leasing = make(min_size=8)
    leasing.selfplay_share = 1.0
    kinds = [leasing.plan(0.0).kind for _ in range(300)]
    assert kinds[0] == SELFPLAY and set(kinds[-100:]) == {REANALYZE}
    leasing.limiter.record_samples(10 * BATCH)
    assert leasing.plan(0.0).kind == SELFPLAY


def test_where_nothing_is_stale_selfplay_takes_over_for_a_second() -> None:
    leasing = make()
    leasing.selfplay_share = 0.2
    plan = leasing.plan(0.0)
    while plan.kind == SELFPLAY:
        plan = leasing.plan(0.0)
    finish(leasing, plan, now=10.0, searched=0)
    assert {leasing.plan(10.0 + i / 100).kind for i in range(99)} == {SELFPLAY}
    assert leasing.plan(11.0).kind == REANALYZE


def test_nothing_to_do_is_none() -> None:
    leasing = make(min_size=8)
    plans = [leasing.plan(0.0) for _ in range(300)]
    finish(leasing, plans[-1], now=5.0, searched=0)
    assert leasing.plan(5.5) is None
    assert leasing.plan(6.0).kind == REANALYZE


def test_a_lost_store_says_nothing_of_speed_or_staleness() -> None:
    leasing = make()
    leasing.selfplay_share = 0.2
    plan = next(p for p in (leasing.plan(0.0) for _ in range(9)) if p.kind == REANALYZE)
    leasing.done(LeaseReport(lease=given_lease(plan)), 10.0)
    assert REANALYZE in {leasing.plan(10.0).kind for _ in range(9)}
    assert leasing.reanalyze_rate == leasing.selfplay_rate == 0.0


def test_lengths_follow_the_measured_speed() -> None:
    leasing = make(seconds=0.5)
    first = leasing.plan(0.0)
    assert first == Plan(SELFPLAY, 1, GAMES)  # of unknown speed: the shortest
    finish(leasing, first, seconds=4 / 100)  # 100 positions a second
    assert leasing.selfplay_rate == pytest.approx(100.0)
    reanalyze = leasing.plan(0.0)
    assert reanalyze == Plan(REANALYZE, 1, 0)
    finish(leasing, reanalyze, seconds=0.1, searched=BATCH)
    assert leasing.reanalyze_rate == pytest.approx(160.0)
    assert leasing.plan(0.0) == Plan(SELFPLAY, 12, 12 * GAMES)  # 0.5 s * 100 / 4
    assert leasing.plan(0.0) == Plan(REANALYZE, 5, 0)  # 0.5 s * 160 / 16
    finish(leasing, reanalyze, seconds=0.1, searched=2 * BATCH)
    assert leasing.reanalyze_rate == pytest.approx(160.0 + 0.2 * 160.0)  # smoothed
    finish(leasing, first, seconds=4 / 100, totals=Totals(env_steps=1, opening_steps=3))
    assert leasing.selfplay_rate == pytest.approx(100.0)  # openings are moves as well


def test_lengths_are_capped_by_the_limiter() -> None:
    leasing = make(reanalyzes=False)
    finish(leasing, leasing.plan(0.0), seconds=1e-6)
    assert leasing.limiter.longest_lease == 100
    assert leasing.plan(0.0) == Plan(SELFPLAY, 25, 100)
    leasing.limiter.resize(50)
    assert leasing.plan(0.0) == Plan(SELFPLAY, 1, GAMES)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-4, 10.0), st.integers(1, 30), st.booleans()), max_size=30),
    st.floats(0.05, 5.0),
    st.floats(0.0, 1.0),
)
def test_every_plan_can_be_given(leases: list, seconds: float, share: float) -> None:
    """Whole moves of all games, within the limiter; reservations are given back by whichever end."""
    leasing = make(seconds=seconds, min_size=200)
    leasing.selfplay_share = share
    out: list[Plan] = []
    for duration, resized, dies in leases:
        leasing.limiter.resize(resized)
        plan = leasing.plan(0.0)
        assert plan is not None and plan.amount >= 1
        assert plan.reserved == (plan.amount * GAMES if plan.kind == SELFPLAY else 0)
        assert plan.reserved <= leasing.limiter.longest_lease
        out.append(plan)
        if dies:
            leasing.lost(given_lease(out.pop(0)))
        else:
            plan = out[-1]
            searched = BATCH * plan.amount if plan.kind == REANALYZE else 0
            finish(leasing, out.pop(), seconds=duration, searched=searched)
        assert leasing.limiter.reserved == sum(plan.reserved for plan in out)
        assert math.isfinite(leasing.selfplay_rate + leasing.reanalyze_rate)


def test_accounts() -> None:
    leasing = make()
    play, search = leasing.plan(0.0), leasing.plan(0.0)
    finish(leasing, play, inserted=7, lost=3)
    finish(leasing, search, searched=20)
    leasing.lost(given_lease(Plan(SELFPLAY, 1, 0)))
    account = leasing.account
    assert (account.inserted, account.lost, account.searched) == (7, 3, 20)
    assert (account.leases, account.lost_leases) == (2, 1)
    assert leasing.totals == Totals(games=2, env_steps=4, simulations=16)
    assert (leasing.limiter.inserts, leasing.limiter.reserved) == (7, 0)


def test_a_resumed_run_goes_on_counting_and_measures_anew() -> None:
    leasing = make()
    leasing.selfplay_share = 0.3
    finish(leasing, leasing.plan(0.0), inserted=7)
    leasing.plan(0.0)
    state = leasing.state()
    other = make()
    other.restore(state)
    assert other.state() == state
    assert (other.selfplay_share, other.selfplay_rate, other.limiter.reserved) == (0.3, 0.0, 0)
    assert other.account == leasing.account and other.totals == leasing.totals
    assert other.totals is not leasing.totals
    without = make(reanalyzes=False)
    without.restore(state)
    assert without.selfplay_share == 1.0


def test_inserts_go_where_the_fewest_have_gone() -> None:
    """Leases differ in length; shards are to be filled alike."""
    leasing, directed = make(), Counter[int]()
    for reserved in (40, 4, 4, 8, 40, 4, 36, 4, 4):
        index = leasing.choose_shard(SELFPLAY, [0, 1, 2])
        leasing.note_directed(lease(SELFPLAY, Store(), reserved=reserved, shard=address(index)))
        directed[index] += reserved
    assert max(directed.values()) - min(directed.values()) <= 40
    assert leasing.choose_shard(SELFPLAY, [0, 2]) in (0, 2)  # one is lost
    taken = [leasing.choose_shard(REANALYZE, [0, 1, 2]) for _ in range(9)]
    assert Counter(taken) == {0: 3, 1: 3, 2: 3}
