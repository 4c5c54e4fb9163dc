"""The simulated cluster: conservation, saturations in closed form, determinism, monotonicity."""

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.runtime.controller import replay_decisions, start_record
from muzero.runtime.simulation import Costs, Report, Scenario, Simulation
from muzero.runtime.simulation.report import find_bottleneck
from muzero.runtime.simulation.resources import Events, Server, Weights

# A position takes 1 ms, a learner step of 100 samples 10 ms; messages cost next to nothing.
COSTS = Costs(
    search_seconds=2e-5,
    network_seconds=7e-5,
    move_seconds=1e-4,
    refresh_seconds=1e-4,
    learner_step_seconds=0.01,
    sample_seconds=1e-7,
    insert_seconds=1e-7,
    take_seconds=1e-7,
    position_bytes=100.0,
    sample_bytes=100.0,
    reanalyze_bytes=100.0,
    weights_bytes=1e5,
    call_seconds=1e-5,
    supervisor_call_seconds=1e-6,
)
SCENARIO = Scenario(
    cores=16,
    num_games=50,
    num_simulations=10,
    reanalyze_simulations=10,
    reanalyze_batch=50,
    batch_size=100,
    samples_per_insert=2.0,
    capacity=50_000,
    min_size=1_000,
    fresh_fraction=0.0,
)


def simulate(
    seconds: float = 120.0, warmup: float = 60.0, costs: Costs = COSTS, **changes: float
) -> Report:
    return Simulation(replace(SCENARIO, **changes), costs).run(seconds, warmup)


def test_search_bound_rate() -> None:
    # 3 workers make 3,000 positions/s, so 6,000 samples/s; the learner could take 10,000
    report = simulate(cores=4)
    assert report.num_workers == 3
    assert report.samples_per_second == pytest.approx(6_000, rel=0.02)
    assert report.learner_wait_fraction == pytest.approx(0.4, abs=0.02)
    assert report.learner_wait_causes["limiter"] > 0.95 * report.learner_wait_fraction
    assert report.bottleneck == "search"
    assert report.utilisations["search"] > 0.97
    assert report.samples_per_insert == pytest.approx(2.0, rel=0.02)


def test_learner_bound_rate() -> None:
    report = simulate(cores=16)
    assert report.samples_per_second == pytest.approx(10_000, rel=0.005)
    assert report.learner_wait_fraction < 0.005
    assert report.bottleneck == "learner"
    assert report.utilisations["learner"] > 0.995


def test_shard_bound_rate() -> None:
    # A shard that needs 40 ms for a batch of 100 serves 2,500 samples/s, and inserts take a part of its time
    costs = replace(COSTS, sample_seconds=4e-4, insert_seconds=0.0)
    report = simulate(costs=costs)
    assert report.samples_per_second == pytest.approx(2_500, rel=0.02)
    assert report.learner_wait_causes["assembly"] > 0.9 * report.learner_wait_fraction
    assert report.bottleneck == "replay shard"


def test_transfer_bound_rate() -> None:
    # 100 samples of 45 kB through a memory of 450 MB/s: ten batches a second would fit, 100 could be computed
    report = simulate(costs=replace(COSTS, sample_bytes=4.5e5))
    assert report.samples_per_second == pytest.approx(1_000, rel=0.02)
    assert report.bottleneck == "network link"


def test_supervisor_bound_rate() -> None:
    # Leases of 50 positions, 20/s at 2 x 25 ms each: 1,000 positions/s and 2,000 samples/s for however many workers
    costs = replace(COSTS, supervisor_call_seconds=0.025)
    report = simulate(costs=costs, lease_seconds=0.05)
    assert report.leases_per_second == pytest.approx(20.0, rel=0.02)
    assert report.samples_per_second == pytest.approx(2_000, rel=0.03)
    assert report.bottleneck == "supervisor"


def test_workers_that_share_cores_with_the_learner_slow_it_down() -> None:
    report = simulate(cores=4, workers=7)  # with the learner eight on four cores: half as fast
    assert report.utilisations["learner"] == pytest.approx(1.0, abs=0.02)
    assert report.samples_per_second == pytest.approx(5_000, rel=0.02)


def test_learners_step_together_and_pay_for_the_sum_of_their_gradients() -> None:
    costs = replace(COSTS, weights_bytes=9e6)
    report = simulate(cores=64, learners=2, cores_per_host=64, costs=costs)
    step = 0.01 + 2 * 0.5 * 9e6 / 4.5e8 + 1e-5
    assert report.steps_per_second == pytest.approx(1 / step, rel=0.01)
    assert report.samples_per_second == pytest.approx(200 / step, rel=0.01)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(2, 40),
    st.floats(0.2, 8.0),
    st.floats(0.3, 3.0),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.integers(0, 5),
)
def test_what_is_sampled_is_what_was_inserted_times_the_ratio(
    cores: int, ratio: float, step: float, fresh: float, seed: int
) -> None:
    scenario = replace(
        SCENARIO, cores=cores, samples_per_insert=ratio, fresh_fraction=fresh, seed=seed
    )
    costs = replace(COSTS, learner_step_seconds=0.01 * step)
    simulation = Simulation(scenario, costs)
    limiter = simulation.limiter
    widest = 0.0  # the band follows the number of workers, which the controller changes
    for num_workers in range(scenario.num_workers, 0, -1):
        limiter.resize(num_workers)
        widest = max(widest, limiter.error_buffer)
    limiter.resize(scenario.num_workers)
    report = simulation.run(12.0)
    assert abs(limiter.error) <= widest
    assert 0 <= limiter.reserved <= scenario.num_workers * limiter.longest_lease
    drawn = limiter.samples - report.samples_per_second * report.seconds
    ahead = simulation.learners.prefetch + 1
    assert 0 <= round(drawn) <= ahead * scenario.batch_size  # ready, in flight, or being learnt
    assert round(report.positions_per_second * report.seconds) == limiter.inserts
    assert simulation.ring.size <= scenario.capacity
    assert report.learner_wait_fraction + report.utilisations["learner"] == pytest.approx(
        1.0, abs=0.02
    )


def test_one_seed_gives_one_run() -> None:
    first, second = simulate(fresh_fraction=0.5), simulate(fresh_fraction=0.5)
    assert first == second
    assert simulate(fresh_fraction=0.5, seed=1) != first


def test_more_cores_never_make_it_slower() -> None:
    rates = [simulate(cores=cores).samples_per_second for cores in (2, 3, 4, 6, 16, 100)]
    for fewer, more in itertools.pairwise(rates):
        assert more >= 0.99 * fewer
    assert rates[2] > 2.5 * rates[0]


def test_more_learners_need_more_search() -> None:
    waits = [simulate(cores=24, learners=n).learner_wait_fraction for n in (1, 2, 4, 8)]
    assert waits == sorted(waits)
    assert waits[0] < 0.01 < waits[-1]


def test_reanalyze_gets_what_self_play_leaves() -> None:
    # 5 of 20 workers feed the learner; the others refresh every position of the ring three times before it leaves
    without, with_ = simulate(cores=23), simulate(cores=23, fresh_fraction=0.99, max_target_age=100)
    assert with_.reanalyzed_per_second == pytest.approx(15_000, rel=0.05)
    assert with_.samples_per_second == pytest.approx(without.samples_per_second, rel=0.02)
    assert with_.target_age < 0.5 * without.target_age
    assert with_.behaviour_age == pytest.approx(without.behaviour_age, rel=0.1)


def test_the_controller_finds_the_split_and_lets_idle_workers_go() -> None:
    simulation = Simulation(replace(SCENARIO, cores=43, fresh_fraction=0.0), COSTS)
    report = simulation.run(400.0, 300.0)
    assert 5 <= report.num_workers <= 7  # 5 are needed
    assert report.learner_wait_fraction < 0.02


def test_the_split_is_stable_with_leases_as_long_as_a_decision() -> None:
    # A lease of self-play takes 9 s, one of reanalyze 36 s, the band half a minute: everything is seen late
    costs = replace(COSTS, search_seconds=0.0, network_seconds=7e-4)
    sizes = {
        "num_games": 64,
        "num_simulations": 200,
        "reanalyze_simulations": 200,
        "reanalyze_batch": 256,
    }
    simulation = Simulation(
        replace(SCENARIO, cores=103, fresh_fraction=0.9, batch_size=10, capacity=750_000, **sizes),
        replace(
            costs, learner_step_seconds=10 / 700.0
        ),  # 350 positions/s are needed, 714 could be had
    )
    report = simulation.run(900.0, 300.0)
    assert report.learner_wait_fraction < 0.01
    assert report.reanalyzed_per_second > 0.8 * (714 - 350)
    shares = [each["decision"]["selfplay_share"] for each in simulation.decisions[30:]]
    assert max(shares) < 1.25 * min(shares)


def test_its_decisions_are_a_controllers_log(tmp_path: Path) -> None:
    simulation = Simulation(replace(SCENARIO, fresh_fraction=0.5), COSTS)
    rows = [start_record(simulation.controller)]
    simulation.run(60.0)
    path = tmp_path / "controller.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *simulation.decisions]))
    replayed = replay_decisions(path)
    assert len(replayed) == 6
    assert all(each.recorded == each.decided for each in replayed)


def test_a_report_is_json() -> None:
    report = simulate(20.0, 0.0)
    assert json.loads(json.dumps(report.as_json(), allow_nan=False))["bottleneck"] in {
        "search", "learner", "replay shard", "network link", "supervisor", "weights",
    }  # fmt: skip


def test_which_resource_is_named() -> None:
    idle = dict.fromkeys(
        ("search", "learner", "replay shard", "network link", "supervisor", "weights"), 0.1
    )
    causes = {"limiter": 0.0, "assembly": 0.0, "transfer": 0.0}
    assert find_bottleneck(0.01, causes, idle | {"search": 0.9}) == ("learner", "search")
    waiting = causes | {"limiter": 0.5}
    assert find_bottleneck(0.5, waiting, idle | {"learner": 0.5}) == ("search", "learner")
    full = idle | {"weights": 0.99, "supervisor": 0.5}
    assert find_bottleneck(0.5, waiting, full) == ("weights", "supervisor")
    assert find_bottleneck(0.5, causes | {"transfer": 0.5}, idle)[0] == "network link"


def test_weights_are_pulled_once_per_host_and_skipped_while_one_is_on_its_way() -> None:
    weights = Weights(put_seconds=1.0, pull_seconds=0.5, num_hosts=2, publish_seconds=0.0)
    assert weights.pull(0.0, 0) == (0, 0.0)
    weights.publish(2.0, 1)
    weights.publish(2.5, 2)  # the first is not there yet: left out
    assert weights.pull(2.9, 0) == (0, 2.9)
    assert weights.pull(3.0, 0) == (1, 3.5)
    assert weights.pull(3.0, 0) == (1, 3.0)
    assert weights.pull(3.0, 1) == (1, 4.0)  # behind the other host
    weights.publish(3.0, 3)
    assert weights.newest(3.9) == 1 and weights.newest(4.0) == 3


def test_a_server_serves_in_turn_and_events_come_in_order() -> None:
    server = Server()
    assert [server.finish(at, 2.0) for at in (1.0, 1.5, 9.0)] == [3.0, 5.0, 11.0]
    assert server.busy_seconds == 6.0
    events, seen = Events(), []
    for number, time in enumerate((2.0, 1.0, 2.0, 5.0)):
        events.at(time, lambda number=number: seen.append((events.now, number)))  # type: ignore[misc]
    events.run(3.0)
    assert seen == [(1.0, 1), (2.0, 0), (2.0, 2)] and events.now == 3.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": 1}, "cores=1 leave none for search"),
        ({"cores": 10, "learners": 8}, "use more cores or fewer learners"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"noise": -1.0}, "noise is -1.0"),
    ],
)
def test_impossible_scenarios_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(**changes)


def test_costs_are_read_by_name() -> None:
    assert Costs.from_mapping(asdict(COSTS)) == COSTS
    with pytest.raises(ValueError, match="unknown name search_second; there are search_seconds"):
        Costs.from_mapping({"search_second": 1.0})
    with pytest.raises(ValueError, match="it must be a number"):
        Costs.from_mapping({"search_seconds": "1"})
    with pytest.raises(ValueError, match="at least 0"):
        Simulation(SCENARIO, replace(COSTS, take_seconds=-1.0))
    with pytest.raises(ValueError, match="warmup is 9"):
        simulate(9.0, 9.0)
