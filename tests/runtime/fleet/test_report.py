"""What a fleet tells: one row of all roles, and the controller's view of its own interval."""

from pathlib import Path

import pytest

from muzero.config.schema import LoggerConfig
from muzero.metrics import MetricsLogger, read_rows
from muzero.runtime.fleet.leasing import Leasing
from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.fleet.messages import REANALYZE, SELFPLAY, LearnerStatus, LeaseReport
from muzero.runtime.fleet.report import FleetReporter, _merge
from muzero.selfplay import Totals
from tests.runtime.fleet.roles import Store, lease, small


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Case:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.clock = folder, Clock()
        config = small("reanalyze.fresh_fraction=0.6")
        limiter = FleetLimiter(
            samples_per_insert=4.0,
            min_size=64,
            batch_size=16,
            capacity=4000,
            num_games=4,
            num_leases=2,
            num_batches=4,
            clock=self.clock,
        )
        self.leasing = Leasing(config, limiter, lease_seconds=0.5, reanalyzes=True)
        logger = LoggerConfig(tensorboard=False, progress="none")
        metrics = MetricsLogger(folder, logger, clock=self.clock)
        self.reporter = FleetReporter(config, metrics, self.leasing)


@pytest.fixture
def case(tmp_path: Path):
    case = Case(tmp_path / "run")
    yield case
    case.reporter.close()


def status(**settings: object) -> LearnerStatus:
    defaults: dict = {
        "step": 10,
        "version": 10,
        "sampled": 160,
        "means": {"learner/loss": (30.0, 10.0), "reanalyze/fresh_fraction": (4.0, 10.0)},
        "lasts": {"learner/learning_rate": 0.5},
        "steps": 10,
        "seconds": 2.0,
        "busy_seconds": 1.0,
        "wait_seconds": {"limiter": 0.5, "assembly": 0.25, "transfer": 0.0},
        "ready_batches": 3,
        "memory_bytes": 1000,
        "target_age": 7.0,
    }
    return LearnerStatus(**(defaults | settings))


QUIET = {"steps": 0, "means": {}, "busy_seconds": 0.0, "target_age": 0.0, "lasts": {}}


def perceive(case: Case):
    return case.reporter.perceive(workers=3, num_cpus=4.0, memory_fraction=0.25)


def test_counts_of_shards_are_added_and_shares_averaged() -> None:
    merged = _merge(
        [
            {"replay/size": 10.0, "replay/used_fraction": 0.2, "replay/limiter_error": 5.0},
            {"replay/size": 30.0, "replay/used_fraction": 0.6, "reanalyze/value_change": 0.5},
            {"replay/size": 2.0, "replay/used_fraction": 0.1, "reanalyze/value_change": 0.1},
        ]
    )
    assert merged == pytest.approx(
        {"replay/size": 42.0, "replay/used_fraction": 0.3, "reanalyze/value_change": 0.3}
    )
    assert _merge([]) == {}


def test_what_is_held_is_that_of_the_shards_that_live(case: Case) -> None:
    assert case.reporter.held == 0
    case.reporter.note_shard(0, {"replay/size": 10.0})
    case.reporter.note_shard(1, {"replay/size": 30.0})
    case.reporter.note_shard(1, {"replay/size": 31.0})
    assert case.reporter.held == 41
    case.reporter.forget_shard(0)
    case.reporter.forget_shard(7)
    assert case.reporter.held == 31


def test_a_row_tells_of_all_roles(case: Case) -> None:
    reporter, leasing = case.reporter, case.leasing
    reporter.note_shard(0, {"replay/size": 10.0, "replay/samples_per_insert": 99.0})
    reporter.note_shard(1, {"replay/size": 30.0})
    report = LeaseReport(
        lease=lease(SELFPLAY, Store(), reserved=0, version=9),
        inserted=100,
        totals=Totals(games=2, env_steps=80, opening_steps=20, simulations=400),
        metrics={"selfplay/search_depth": 3.0},
        version=6,
        seconds=1.0,
        split={"search": 0.75, "insert": 0.25, "weights": 0.0},
        memory_bytes=500,
    )
    leasing.done(report, 0.0)
    reporter.note_lease(report)
    leasing.limiter.record_samples(160)
    reporter.note_status(status())
    reporter.note_workers(2.0, workers=4, idle=1, blocked=True)
    reporter.note_workers(2.0, workers=4, idle=3, blocked=False)
    case.clock.now = 4.0
    row = reporter.write(10, {"fleet/workers": 4}, {"evaluation/score": 0.5})
    expected = {
        "learner_step": 10,
        "learner/loss": 3.0,
        "learner/learning_rate": 0.5,
        "learner/steps_per_second": 2.5,
        "learner/busy_fraction": 0.5,
        "learner/wait_limiter_fraction": 0.25,
        "learner/wait_assembly_fraction": 0.125,
        "learner/ready_batches": 3,
        "replay/size": 40.0,
        "replay/samples_per_insert": 160 / 36,
        "replay/samples_per_insert_target": 4.0,
        "replay/limiter_error": (100 - 64) * 4.0 - 160,
        "selfplay/games": 2,
        "selfplay/env_steps": 80,
        "selfplay/env_steps_per_second": 20.0,
        "selfplay/simulations_per_second": 100.0,
        "selfplay/search_depth": 3.0,
        "selfplay/weights_age": 3.0,
        "fleet/workers": 4,
        "fleet/idle_fraction": 8 / 16,
        "fleet/blocked_fraction": 2 / 16,
        "fleet/search_fraction": 0.75 / 16,
        "fleet/worker_memory_bytes": 500,
        "fleet/leases_per_second": 0.25,
        "fleet/selfplay_share": 0.5,
        "evaluation/score": 0.5,
    }
    missing = expected.keys() - row.keys()
    assert not missing, f"{missing} of {sorted(row)}"
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert read_rows(case.folder / "metrics.jsonl") == [row] and reporter.newest == row


def test_a_second_row_tells_of_its_own_time(case: Case) -> None:
    reporter = case.reporter
    reporter.note_status(status())
    case.leasing.totals.env_steps = 100
    case.clock.now = 2.0
    reporter.write(10, {})
    case.leasing.totals.env_steps = 130
    wait = {"limiter": 0.0, "assembly": 0.0, "transfer": 1.0}
    reporter.note_status(status(wait_seconds=wait, means={"learner/loss": (8.0, 2.0)}))
    case.clock.now = 4.0
    row = reporter.write(20, {})
    assert row["learner/wait_transfer_fraction"] == 0.5
    assert row["learner/wait_limiter_fraction"] == 0.0 and row["learner/loss"] == 4.0
    assert row["selfplay/env_steps_per_second"] == 15.0
    assert "fleet/idle_fraction" not in row  # no worker was there


def test_the_controller_sees_its_own_interval(case: Case) -> None:
    reporter, leasing = case.reporter, case.leasing
    reporter.note_status(status())
    reporter.write(10, {})  # does not end the controller's interval
    reporter.note_status(status(busy_seconds=2.0, wait_seconds={"limiter": 0.25}))
    reporter.note_workers(1.0, workers=4, idle=2, blocked=True)
    reporter.note_workers(3.0, workers=4, idle=1, blocked=False)
    leasing.selfplay_rate, leasing.reanalyze_rate = 50.0, 70.0
    leasing.limiter.settle(0, 70)
    seen = perceive(case)
    assert (seen.seconds, seen.num_workers, seen.num_cpus) == (4.0, 3, 4.0)
    assert seen.learner_samples_per_second == 20 * 16 / 4.0
    assert seen.learner_busy_fraction == 0.75
    assert seen.wait_fractions == {"limiter": 0.1875, "assembly": 0.0625, "transfer": 0.0}
    assert (seen.selfplay_positions_per_second, seen.reanalyze_positions_per_second) == (50.0, 70.0)
    assert (seen.samples_per_insert, seen.limiter_error) == (4.0, 6 * 4.0)
    assert seen.error_buffer == leasing.limiter.error_buffer
    assert seen.insert_blocked_fraction == 2 / 16 and seen.idle_fraction == 5 / 16
    assert seen.fresh_fraction == pytest.approx(0.4) and seen.fresh_fraction_target == 0.6
    assert (seen.num_unroll_steps, seen.target_age_median) == (3, 7.0)
    assert seen.memory_fraction == 0.25


def test_the_controllers_next_interval_begins_with_nothing(case: Case) -> None:
    case.reporter.note_status(status())
    case.reporter.note_workers(1.0, workers=4, idle=2, blocked=True)
    perceive(case)
    seen = perceive(case)
    assert seen.seconds == seen.learner_samples_per_second == seen.learner_busy_fraction == 0.0
    assert seen.wait_fraction == seen.insert_blocked_fraction == seen.idle_fraction == 0.0
    assert seen.fresh_fraction == seen.target_age_median == 0.0


def test_a_moment_without_steps_says_nothing_of_ages(case: Case) -> None:
    """The learner is asked twenty times a second: the last answer before a decision may tell of no step."""
    case.reporter.note_status(status())
    case.reporter.note_status(status(**QUIET))
    seen = perceive(case)
    assert seen.target_age_median == 7.0 and seen.fresh_fraction == pytest.approx(0.4)
    assert seen.learner_samples_per_second == 10 * 16 / 4.0


def test_freshness_is_that_of_the_samples(case: Case) -> None:
    """Answers that tell of many steps weigh more."""
    case.reporter.note_status(status())
    one = {"reanalyze/fresh_fraction": (1.0, 1.0)}
    case.reporter.note_status(status(steps=1, means=one))
    assert perceive(case).fresh_fraction == pytest.approx(5.0 / 11.0)


def test_a_lease_without_weights_has_no_age(case: Case) -> None:
    case.reporter.note_lease(LeaseReport(lease=lease(SELFPLAY, Store(), version=9)))
    case.clock.now = 1.0
    assert "selfplay/weights_age" not in case.reporter.write(1, {})


def test_central_inference_that_fell_back_is_told(case: Case) -> None:
    for fell_back in (True, False, False, False):
        made = LeaseReport(lease=lease(REANALYZE, Store()), used_local_inference=fell_back)
        case.reporter.note_lease(made)
    assert case.reporter.write(1, {})["fleet/local_inference_fraction"] == 0.25


def test_a_resumed_run_does_not_count_the_past_as_new(case: Case, tmp_path: Path) -> None:
    case.leasing.totals.env_steps = 100
    case.clock.now = 1.0
    case.reporter.write(10, {})
    state = case.reporter.state()
    other = Case(tmp_path / "other")
    try:
        other.reporter.restore(state, 10)
        other.leasing.totals.env_steps = 140
        other.clock.now = 2.0
        row = other.reporter.write(20, {})
        assert row["selfplay/env_steps_per_second"] == pytest.approx(20.0)
    finally:
        other.reporter.close()


def test_the_score_of_a_match_stands_in_the_next_row_alone(case: Case) -> None:
    case.reporter.note_match(0.625)
    first, second = (case.reporter.write(step, {}) for step in (10, 20))
    assert first["gatekeeping/score"] == 0.625 and "gatekeeping/score" not in second
