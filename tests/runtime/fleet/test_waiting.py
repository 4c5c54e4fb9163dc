import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.runtime.fleet.waiting import ASSEMBLY, CAUSES, LIMITER, TRANSFER, WaitAccount


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_wait_is_charged_to_what_the_loaders_do() -> None:
    clock = Clock()
    account = WaitAccount(clock)
    account.enter(ASSEMBLY)
    clock.now += 9.0  # nobody waits
    account.begin()
    clock.now += 2.0
    account.enter(TRANSFER)  # of another loader
    clock.now += 4.0
    account.leave(ASSEMBLY)
    clock.now += 8.0
    account.leave(TRANSFER)
    clock.now += 16.0
    account.end()
    clock.now += 32.0
    assert account.take() == {LIMITER: 16.0, ASSEMBLY: 2.0, TRANSFER: 12.0}
    assert account.take() == dict.fromkeys(CAUSES, 0.0)


def test_a_wait_that_goes_on_is_split_between_two_looks() -> None:
    clock = Clock()
    account = WaitAccount(clock)
    account.begin()
    clock.now += 1.0
    assert account.take()[LIMITER] == 1.0
    clock.now += 2.0
    account.end()
    assert account.take()[LIMITER] == 2.0


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5), st.sampled_from(["assemble", "transfer", "wait", "look"]), st.booleans()
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_waits_add_up_second_by_second(events: list[tuple[int, str, bool]]) -> None:
    """Against a timeline in which every second has its one cause, or none."""
    clock = Clock()
    account = WaitAccount(clock)
    assembling = transferring = 0
    waiting = False
    expected = dict.fromkeys(CAUSES, 0.0)
    seen = dict.fromkeys(CAUSES, 0.0)
    for seconds, what, begins in events:
        for _ in range(seconds):
            if waiting and transferring > 0:
                expected[TRANSFER] += 1
            elif waiting and assembling > 0:
                expected[ASSEMBLY] += 1
            elif waiting:
                expected[LIMITER] += 1
        clock.now += seconds
        if what == "assemble" and (begins or assembling):
            assembling += 1 if begins else -1
            (account.enter if begins else account.leave)(ASSEMBLY)
        elif what == "transfer" and (begins or transferring):
            transferring += 1 if begins else -1
            (account.enter if begins else account.leave)(TRANSFER)
        elif what == "wait" and begins != waiting:
            waiting = begins
            (account.begin if begins else account.end)()
        elif what == "look":
            for cause, wait in account.take().items():
                seen[cause] += wait
    for cause, wait in account.take().items():
        seen[cause] += wait
    assert seen == pytest.approx(expected)


def test_stages_of_many_threads_are_all_counted() -> None:
    clock = Clock()
    account = WaitAccount(clock)

    def load() -> None:
        for _ in range(300):
            account.enter(ASSEMBLY)
            account.leave(ASSEMBLY)
            account.enter(TRANSFER)
            account.leave(TRANSFER)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    account.begin()
    clock.now += 3.0
    assert account.take() == {LIMITER: 3.0, ASSEMBLY: 0.0, TRANSFER: 0.0}
