import pytest

from muzero.runtime.fleet.failures import WINDOW_SECONDS, Failures, RoleFailed


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_back_off_doubles_up_to_a_minute() -> None:
    failures = Failures("search worker 3", 100, Clock())
    delays = [failures.note("x") for _ in range(9)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60] and failures.total == 9


def test_failures_are_forgotten_after_the_window() -> None:
    clock = Clock()
    failures = Failures("learner 0", 3, clock)
    assert failures.note("x") == 1
    clock.now = WINDOW_SECONDS
    assert failures.note("x") == 2  # still within
    clock.now = WINDOW_SECONDS + 1.0
    assert failures.note("x") == 2  # the first is not
    clock.now = 3 * WINDOW_SECONDS
    assert failures.note("x") == 1 and failures.total == 4


def test_one_failure_a_window_never_ends_a_run() -> None:
    clock = Clock()
    failures = Failures("replay shard 0", 2, clock)
    for _ in range(20):
        clock.now += WINDOW_SECONDS + 1.0
        assert failures.note("x") == 1


def test_one_too_many_ends_the_run_with_the_roles_last_error() -> None:
    failures = Failures("search worker 3", 5, Clock())
    for number in range(4):
        failures.note(f"error {number}")
    with pytest.raises(RoleFailed) as told:
        failures.note("Traceback ...\nZeroDivisionError: in my_game.py")
    message = str(told.value)
    assert message.startswith("search worker 3 failed 5 times within 10 minutes")
    assert "runtime.max_failures=5" in message
    assert message.endswith("its last error:\nTraceback ...\nZeroDivisionError: in my_game.py")
    assert "error 3" not in message


def test_a_limit_of_one_forgives_nothing() -> None:
    with pytest.raises(RoleFailed, match="failed 1 times"):
        Failures("learner 0", 1, Clock()).note("gone")
