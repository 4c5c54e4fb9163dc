import pytest

from muzero.runtime.fleet.watchdog import FleetStalled, Watchdog


def unexpected() -> str:
    raise AssertionError("nothing is to be explained")


def test_what_moves_is_left_alone() -> None:
    watchdog = Watchdog(10.0)
    for second in range(0, 200, 10):
        watchdog.check(float(second), lambda now=second: (now, 7), unexpected)


def test_one_counter_that_moves_is_enough() -> None:
    watchdog = Watchdog(10.0)
    watchdog.check(0.0, lambda: (1, 5), unexpected)
    watchdog.check(9.0, lambda: (1, 6), unexpected)
    watchdog.check(19.0, lambda: (1, 6), unexpected)  # 10 s are allowed


def test_a_standstill_ends_with_its_account() -> None:
    watchdog = Watchdog(10.0)
    watchdog.check(1000.0, lambda: (3, 4), unexpected)  # a late start is no standstill
    watchdog.check(1005.0, lambda: (3, 4), unexpected)
    with pytest.raises(FleetStalled) as told:
        watchdog.check(1011.0, lambda: (3, 4), lambda: "learner 0 works (1 answers awaited)")
    assert str(told.value) == (
        "nothing has moved for 11 s (runtime.watchdog_seconds=10): learner 0 works (1 answers awaited)"
    )


def test_a_counter_that_goes_back_has_moved() -> None:
    """A learner that begins anew counts from an older step."""
    watchdog = Watchdog(10.0)
    watchdog.check(0.0, lambda: (9,), unexpected)
    watchdog.check(8.0, lambda: (2,), unexpected)
    watchdog.check(17.0, lambda: (2,), unexpected)
    with pytest.raises(FleetStalled, match="for 11 s"):
        watchdog.check(19.0, lambda: (2,), lambda: "")


def test_nothing_is_expected_to_move_while_roles_are_being_made() -> None:
    watchdog = Watchdog(10.0)
    watchdog.check(0.0, lambda: (1,), unexpected)
    watchdog.check(9.0, None, unexpected)
    watchdog.check(50.0, None, unexpected)
    watchdog.check(51.0, lambda: (1,), unexpected)  # from here on
    watchdog.check(61.0, lambda: (1,), unexpected)
    with pytest.raises(FleetStalled):
        watchdog.check(62.0, lambda: (1,), lambda: "")
