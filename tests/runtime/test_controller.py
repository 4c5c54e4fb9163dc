"""The controller against a toy plant in closed loop, and its bounds for any input."""

import itertools
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.runtime.controller import (
    Controller,
    Decision,
    Perceived,
    record,
    replay_decisions,
    start_record,
)

TICK = 10.0
QUIET = Perceived(
    seconds=TICK,
    num_workers=8,
    num_cpus=8.0,
    learner_samples_per_second=1000.0,
    learner_busy_fraction=1.0,
    wait_fractions={"limiter": 0.0, "assembly": 0.0, "transfer": 0.0},
    selfplay_positions_per_second=100.0,
    reanalyze_positions_per_second=100.0,
    samples_per_insert=4.0,
    limiter_error=0.0,
    error_buffer=1000.0,
    insert_blocked_fraction=0.0,
    idle_fraction=0.0,
    fresh_fraction=0.9,
    fresh_fraction_target=0.9,
    num_unroll_steps=5,
    target_age_median=100.0,
    memory_fraction=0.5,
)


@dataclass
class Plant:
    """Workers, limiter and learner as fluids, in steps of a tenth of a second; what the limiter refuses is reanalyzed."""

    num_workers: int
    demand: float
    """Samples/s that the learner can take."""
    selfplay_rate: float
    """Positions/s of a worker."""
    reanalyze_rate: float
    samples_per_insert: float = 4.0
    bias: float = 1.0
    """The self-play rate that is reported over the true one."""
    error: float = 0.0
    fresh: float = 0.0

    @property
    def optimum(self) -> float:
        """The least share of self-play with which the learner gets all that can be had."""
        need = self.demand / (self.samples_per_insert * self.selfplay_rate * self.num_workers)
        return min(max(need, 0.125), 1.0)

    @property
    def best_samples(self) -> float:
        """Samples/s with the best share."""
        most = self.samples_per_insert * self.selfplay_rate * self.num_workers
        return min(self.demand, most)

    @property
    def best_reanalyzed(self) -> float:
        """Positions/s that are left for reanalyze without a loss to the learner."""
        busy = self.best_samples / (self.samples_per_insert * self.selfplay_rate)
        return (self.num_workers - busy) * self.reanalyze_rate

    def run(self, decision: Decision, dt: float = 0.1) -> tuple[Perceived, float, float]:
        """One interval under a decision; also samples/s and reanalyzed positions/s."""
        ratio, share = self.samples_per_insert, decision.selfplay_share
        buffer = 2.0 * self.demand * dt + 2.0 * self.num_workers * self.selfplay_rate * ratio * dt
        self.error = min(max(self.error, -buffer), buffer)
        taken = refused = 0.0
        steps = round(TICK / dt)
        for _ in range(steps):
            offered = share * self.num_workers * self.selfplay_rate * dt * ratio
            inserted = min(offered, buffer - self.error)
            self.error += inserted
            sampled = min(self.demand * dt, self.error + buffer)
            self.error -= sampled
            taken += sampled
            refused += share * (1.0 - inserted / offered) / steps
        reanalyzed = (1.0 - share + refused) * self.num_workers * self.reanalyze_rate
        wanted = min(1.0, reanalyzed / (6.0 * self.demand))
        self.fresh += 0.3 * (wanted - self.fresh)
        busy = taken / (self.demand * TICK)
        perceived = replace(
            QUIET,
            num_workers=self.num_workers,
            num_cpus=float(self.num_workers),
            learner_samples_per_second=taken / TICK,
            learner_busy_fraction=busy,
            wait_fractions={"limiter": 1.0 - busy, "assembly": 0.0, "transfer": 0.0},
            selfplay_positions_per_second=self.selfplay_rate * self.bias,
            reanalyze_positions_per_second=self.reanalyze_rate if share < 1.0 else 0.0,
            samples_per_insert=ratio,
            limiter_error=self.error,
            error_buffer=buffer,
            insert_blocked_fraction=refused,
            fresh_fraction=self.fresh,
        )
        return perceived, taken / TICK, reanalyzed


def close_loop(
    plant: Plant, controller: Controller, decision: Decision, ticks: int
) -> tuple[Decision, list[float], float, float]:
    """Run so many ticks; the last decision, all shares, and the last samples/s and reanalyzed positions/s."""
    shares = []
    samples = reanalyzed = 0.0
    for _ in range(ticks):
        perceived, samples, reanalyzed = plant.run(decision)
        decision = controller.decide(perceived)
        shares.append(decision.selfplay_share)
    return decision, shares, samples, reanalyzed


def started(share: float, num_workers: int) -> tuple[Controller, Decision]:
    controller = Controller(max_workers=10_000, reanalyzes=True)
    state = controller.state()
    controller.restore(state | {"share": share})
    decision = controller.decide(replace(QUIET, seconds=0.0, num_workers=num_workers))
    assert decision.selfplay_share == share
    return controller, decision


def assert_near_optimum(plant: Plant, samples: float, reanalyzed: float) -> None:
    assert samples >= 0.8 * plant.best_samples
    assert reanalyzed >= 0.8 * plant.best_reanalyzed - 0.05 * plant.num_workers * (
        plant.reanalyze_rate if plant.optimum > 0.9 else 0.0
    )


plants = st.builds(
    Plant,
    num_workers=st.sampled_from([2, 3, 8, 50, 1000]),
    demand=st.just(0.0),
    selfplay_rate=st.floats(1.0, 1e4),
    reanalyze_rate=st.floats(1.0, 1e4),
    samples_per_insert=st.floats(0.2, 32.0),
    bias=st.floats(0.7, 1.4),
)


def with_need(plant: Plant, need: float) -> Plant:
    """The plant with a demand for which this share of self-play is just enough."""
    per_worker = plant.samples_per_insert * plant.selfplay_rate
    return replace(plant, demand=need * per_worker * plant.num_workers)


@settings(max_examples=60, deadline=None)
@given(plants, st.floats(0.03, 1.6), st.floats(0.125, 1.0))
def test_reaches_the_optimum_within_two_minutes_and_stays(
    plant: Plant, need: float, start: float
) -> None:
    plant = with_need(plant, need)
    _, _, samples, reanalyzed = close_loop(plant, *started(start, plant.num_workers), ticks=12)
    assert_near_optimum(plant, samples, reanalyzed)


@settings(max_examples=40, deadline=None)
@given(plants, st.floats(0.03, 1.6), st.floats(0.125, 1.0))
def test_does_not_oscillate(plant: Plant, need: float, start: float) -> None:
    plant = with_need(plant, need)
    controller, decision = started(start, plant.num_workers)
    decision, *_ = close_loop(plant, controller, decision, 30)
    decision, shares, samples, reanalyzed = close_loop(plant, controller, decision, 60)
    assert_near_optimum(plant, samples, reanalyzed)
    assert max(shares) / min(shares) <= 1.21
    turns = np.sign(np.diff(shares))
    turns = turns[turns != 0]
    assert np.count_nonzero(np.diff(turns)) <= 2


@pytest.mark.parametrize("bias", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_step_change_of_rates_is_followed(factor: float, bias: float) -> None:
    plant = with_need(Plant(16, 0.0, 50.0, 80.0, bias=bias), 0.45)
    controller, decision = started(0.5, 16)
    decision, *_ = close_loop(plant, controller, decision, 12)
    plant.selfplay_rate *= factor
    decision, _, samples, reanalyzed = close_loop(plant, controller, decision, 12)
    assert_near_optimum(plant, samples, reanalyzed)
    plant.selfplay_rate /= factor
    plant.demand *= 1.8
    decision, _, samples, reanalyzed = close_loop(plant, controller, decision, 12)
    assert_near_optimum(plant, samples, reanalyzed)


@pytest.mark.parametrize("num_workers", [3, 64])
def test_a_step_change_of_the_fleet_is_followed(num_workers: int) -> None:
    plant = with_need(Plant(16, 0.0, 50.0, 80.0), 0.4)
    controller, decision = started(0.5, 16)
    decision, *_ = close_loop(plant, controller, decision, 12)
    plant.num_workers = num_workers
    _, _, samples, reanalyzed = close_loop(plant, controller, decision, 12)
    assert_near_optimum(plant, samples, reanalyzed)


def test_a_noisy_plant_is_left_alone_within_the_hysteresis() -> None:
    generator = np.random.default_rng(3)
    plant = with_need(Plant(32, 0.0, 50.0, 80.0), 0.4)
    controller, decision = started(0.42, 32)
    shares, samples = [], []
    for _ in range(200):
        perceived, taken, _ = plant.run(decision)
        samples.append(taken)
        rate = 50.0 * float(np.exp(0.05 * generator.normal()))
        decision = controller.decide(replace(perceived, selfplay_positions_per_second=rate))
        shares.append(decision.selfplay_share)
    settled = shares[5:]  # the first rate is taken as it is
    assert min(settled) > 0.9 * 0.4 and max(settled) < 1.25 * 0.4
    assert np.mean(samples[5:]) > 0.99 * plant.best_samples
    assert np.count_nonzero(np.diff(settled)) <= 10


def test_filling_the_replay_is_self_plays_work() -> None:
    controller = Controller(max_workers=8, reanalyzes=True)
    filling = replace(
        QUIET,
        learner_samples_per_second=0.0,
        learner_busy_fraction=0.0,
        wait_fractions={"limiter": 1.0},
        fresh_fraction=0.0,
    )
    shares = [controller.decide(filling).selfplay_share for _ in range(5)]
    assert shares == pytest.approx([0.625, 0.75, 0.875, 1.0, 1.0])


def test_unknown_rates_start_at_an_even_split() -> None:
    unknown = replace(
        QUIET,
        learner_samples_per_second=0.0,
        selfplay_positions_per_second=0.0,
        reanalyze_positions_per_second=0.0,
        fresh_fraction=0.0,
    )
    assert Controller(max_workers=8, reanalyzes=True).decide(unknown).selfplay_share == 0.5
    assert Controller(max_workers=8, reanalyzes=False).decide(unknown).selfplay_share == 1.0


def test_feed_forward_is_demand_over_what_a_worker_serves() -> None:
    # 1,000 samples/s at 4 per insert are 250 positions/s: 2.5 of 8 workers, and 5 % of headroom
    controller = Controller(max_workers=8, reanalyzes=True)
    assert controller.decide(QUIET).selfplay_share == 0.5  # nobody is refused, nobody waits
    refused = replace(QUIET, insert_blocked_fraction=0.15)
    assert controller.decide(refused).selfplay_share == pytest.approx(0.375)  # a worker less
    assert controller.decide(refused).selfplay_share == pytest.approx(1.05 * 2.5 / 8)
    assert controller.decide(QUIET).selfplay_share == pytest.approx(1.05 * 2.5 / 8)


def test_time_that_the_learner_waits_counts_as_demand() -> None:
    controller = Controller(max_workers=8, reanalyzes=True)
    waiting = replace(
        QUIET,
        learner_busy_fraction=0.5,
        wait_fractions={"limiter": 0.5},
        limiter_error=-1000.0,
        fresh_fraction=0.0,
    )
    for _ in range(4):
        decision = controller.decide(waiting)
    assert decision.selfplay_share > 1.05 * 5.0 / 8  # feed-forward for 2,000 samples/s, and more


@pytest.mark.parametrize(
    ("cause", "changed"), [("assembly", "assembly_threads"), ("transfer", "prefetch")]
)
def test_remedy_follows_the_cause(cause: str, changed: str) -> None:
    controller = Controller(max_workers=8, reanalyzes=True, max_assembly_threads=6, max_prefetch=9)
    quiet = controller.decide(QUIET)
    waiting = replace(QUIET, wait_fractions={cause: 0.1}, learner_busy_fraction=0.9)
    first = controller.decide(waiting)
    other = {"assembly_threads": "prefetch", "prefetch": "assembly_threads"}[changed]
    assert getattr(first, changed) == getattr(quiet, changed) + 1
    assert getattr(first, other) == getattr(quiet, other)
    for _ in range(20):
        last = controller.decide(waiting)
    assert getattr(last, changed) == {"assembly_threads": 6, "prefetch": 9}[changed]
    assert last.assembly_threads <= last.prefetch
    full = controller.decide(replace(waiting, memory_fraction=0.95))
    assert getattr(full, changed) == getattr(last, changed)


def test_memory_takes_workers_away_and_lets_none_back_until_it_has_fallen() -> None:
    controller = Controller(max_workers=64, reanalyzes=False, autoscales=True)
    short = replace(
        QUIET,
        num_workers=20,
        num_cpus=64.0,
        wait_fractions={"limiter": 0.6},
        learner_busy_fraction=0.4,
        learner_samples_per_second=8000.0,
        fresh_fraction_target=0.0,
    )
    assert controller.decide(short).num_workers == 22  # 52 are needed; 10 % at once
    assert controller.decide(replace(short, memory_fraction=0.92)).num_workers == 18
    assert controller.decide(replace(short, num_workers=18, memory_fraction=0.85)).num_workers == 18
    assert controller.decide(replace(short, num_workers=18, memory_fraction=0.7)).num_workers == 19
    for _ in range(60):
        decision = controller.decide(replace(short, num_workers=18, memory_fraction=0.99))
    assert decision.num_workers == 17  # one step below what is alive, however often it is asked


def test_more_workers_are_asked_for_only_where_they_fit() -> None:
    short = replace(
        QUIET, wait_fractions={"limiter": 0.5}, learner_busy_fraction=0.5, fresh_fraction=0.0
    )
    fixed = Controller(max_workers=100, reanalyzes=True)
    growing = Controller(max_workers=12, reanalyzes=True, autoscales=True)
    for _ in range(20):
        decision, elastic = fixed.decide(short), growing.decide(short)
    assert decision.num_workers == 8
    assert elastic.num_workers == 12


def test_idle_workers_are_let_go_down_to_what_is_needed() -> None:
    controller = Controller(max_workers=10, reanalyzes=False)
    wished = [10]
    for _ in range(30):
        alive = wished[-1]
        idle = 1.0 - min(1.0, 2.5 / alive)
        seen = replace(QUIET, num_workers=alive, idle_fraction=idle, fresh_fraction=0.89)
        wished.append(controller.decide(seen).num_workers)
    assert all(old - new <= 1 for old, new in itertools.pairwise(wished))
    assert wished[-1] == 3
    stale = replace(QUIET, num_workers=10, idle_fraction=0.5, fresh_fraction=0.8)
    assert Controller(max_workers=10, reanalyzes=True).decide(stale).num_workers == 10
    lazy = replace(QUIET, num_workers=1, idle_fraction=1.0, fresh_fraction_target=0.0)
    assert controller.decide(lazy).num_workers >= 1


def test_lost_workers_stay_wished_for_and_joined_ones_are_welcome() -> None:
    controller = Controller(max_workers=16, reanalyzes=True)
    assert controller.decide(QUIET).num_workers == 8
    assert controller.decide(replace(QUIET, num_workers=5)).num_workers == 8
    assert controller.decide(replace(QUIET, num_workers=12)).num_workers == 12
    assert controller.decide(replace(QUIET, num_workers=40)).num_workers == 16


def test_workers_that_idle_leave_the_split_alone() -> None:
    # Nothing is stale, so whoever is refused idles: with less self-play it would idle as well
    controller = Controller(max_workers=8, reanalyzes=True)
    idle = replace(QUIET, insert_blocked_fraction=0.3, idle_fraction=0.3)
    assert controller.decide(idle).selfplay_share == 0.5
    assert controller.decide(replace(idle, idle_fraction=0.0)).selfplay_share < 0.5


def test_an_emptying_band_is_refilled_before_the_learner_waits() -> None:
    controller, _ = started(0.25, 8)  # 0.33 are needed
    draining = replace(QUIET, limiter_error=-100.0)
    assert controller.decide(replace(QUIET, limiter_error=100.0)).selfplay_share == 0.25
    assert controller.decide(draining).selfplay_share == pytest.approx(1.05 * 2.5 / 8, rel=0.01)


@pytest.mark.parametrize("bias", [0.4, 2.5])
def test_the_limiter_corrects_a_rate_that_is_measured_wrong(bias: float) -> None:
    plant = with_need(Plant(20, 0.0, 50.0, 80.0, bias=bias), 0.4)
    decision, _, samples, reanalyzed = close_loop(plant, *started(0.9, 20), ticks=12)
    assert_near_optimum(plant, samples, reanalyzed)
    assert decision.selfplay_share > 0.38


def test_a_small_shortage_within_the_hysteresis_is_made_up_by_the_integral() -> None:
    plant = with_need(Plant(20, 0.0, 50.0, 80.0, bias=1.3), 0.4)
    controller, decision = started(0.38, 20)  # 5 % short for ever, if only feed-forward counted
    _, shares, samples, _ = close_loop(plant, controller, decision, ticks=8)
    assert shares[0] == 0.38
    assert samples > 0.98 * plant.best_samples


anything = st.floats(allow_nan=True, allow_infinity=True)
perceptions = st.builds(
    Perceived,
    seconds=anything,
    num_workers=st.integers(0, 5000),
    num_cpus=anything,
    learner_samples_per_second=anything,
    learner_busy_fraction=anything,
    wait_fractions=st.dictionaries(
        st.sampled_from(["limiter", "assembly", "transfer", "other"]), anything
    ),
    selfplay_positions_per_second=anything,
    reanalyze_positions_per_second=anything,
    samples_per_insert=anything,
    limiter_error=anything,
    error_buffer=anything,
    insert_blocked_fraction=anything,
    idle_fraction=anything,
    fresh_fraction=anything,
    fresh_fraction_target=anything,
    num_unroll_steps=st.integers(0, 20),
    target_age_median=anything,
    memory_fraction=anything,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(perceptions, min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3000),
    st.floats(0.01, 1.0),
)
def test_bounds_and_steps_hold_for_any_input(
    seen: list[Perceived], reanalyzes: bool, autoscales: bool, max_workers: int, least: float
) -> None:
    controller = Controller(
        max_workers=max_workers,
        reanalyzes=reanalyzes,
        autoscales=autoscales,
        min_selfplay_share=least,
    )
    share = controller.state()["share"]
    for perceived in seen:
        decision = controller.decide(perceived)
        assert least <= decision.selfplay_share <= 1.0
        assert reanalyzes or decision.selfplay_share == 1.0
        step = max(0.1, 1.0 / max(perceived.num_workers, 1))
        assert abs(decision.selfplay_share - share) <= step + 1e-12
        share = decision.selfplay_share
        assert 1 <= decision.assembly_threads <= decision.prefetch <= 16
        assert 1 <= decision.num_workers <= max_workers
        assert decision.reason
        state = json.loads(json.dumps(controller.state(), allow_nan=False))
        assert all(math.isfinite(value) for value in state["demand"].values())


def write_log(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_recorded_run_is_decided_again_alike(tmp_path: Path) -> None:
    plant = with_need(Plant(12, 0.0, 50.0, 80.0, bias=1.2), 0.6)
    controller, decision = started(0.2, 12)
    rows = [start_record(controller)]
    for tick in range(15):
        if tick == 9:  # resumed from a checkpoint: the log goes on with a new start line
            resumed = Controller(**controller.settings)
            resumed.restore(json.loads(json.dumps(controller.state())))
            controller = resumed
            rows.append(start_record(controller))
        perceived, *_ = plant.run(decision)
        decision = controller.decide(perceived)
        rows.append(record(perceived, decision))
    path = tmp_path / "controller.jsonl"
    write_log(path, rows)
    replayed = replay_decisions(path)
    assert len(replayed) == 15 and replayed[-1].line == 17
    assert len({each.recorded.selfplay_share for each in replayed}) > 2
    assert all(each.recorded == each.decided for each in replayed)

    rows[1]["perceived"] |= {"wait_fractions": {"limiter": 0.0}, "limiter_error": 0.0}
    write_log(path, rows)
    changed = replay_decisions(path)
    assert changed[0].recorded != changed[0].decided


def test_a_log_without_its_start_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "controller.jsonl"
    write_log(path, [record(QUIET, Controller(max_workers=1, reanalyzes=True).decide(QUIET))])
    with pytest.raises(ValueError, match="line 1: expected the settings"):
        replay_decisions(path)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"max_workers": 0}, "max_workers is 0"),
        ({"min_selfplay_share": 0.0}, "min_selfplay_share is 0.0"),
        ({"assembly_threads": 9}, "assembly_threads is 9"),
        ({"prefetch": 99}, "prefetch is 99"),
        ({"cpus_per_worker": 0.0}, "cpus_per_worker is 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Controller(**({"max_workers": 8, "reanalyzes": True} | settings_))
