"""When a batch starts and who is in it, by a clock that the test turns."""

from dataclasses import dataclass

import pytest

from muzero.inference.batching import BatchingRule, RequestQueue


@dataclass
class Asked:
    client: int
    arrived: float = 0.0
    kind: int = 3
    num_rows: int = 10
    is_joinable: bool = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def queue_of(num_clients: int, forward_seconds: float = 1.0, **rule) -> RequestQueue[Asked]:
    queue: RequestQueue[Asked] = RequestQueue(BatchingRule(**rule), clock=Clock())
    queue.num_clients, queue.forward_seconds = num_clients, forward_seconds
    return queue


def clients_of(queue: RequestQueue[Asked]) -> list[int] | None:
    batch = queue.take()
    return None if batch is None else [request.client for request in batch.requests]


@pytest.mark.parametrize(
    ("num_clients", "least"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (64, 32)]
)
def test_half_of_the_live_clients_start_a_batch(num_clients, least):
    assert BatchingRule().min_requests(num_clients) == least
    queue = queue_of(num_clients)
    for client in range(least - 1):
        queue.put(Asked(client))
        assert queue.take() is None
    queue.put(Asked(least - 1))
    assert queue.seconds_left() == 0.0
    batch = queue.take()
    assert batch is not None and not batch.timed_out
    assert [request.client for request in batch.requests] == list(range(least))
    assert queue.seconds_left() is None and queue.take() is None


def test_a_death_lowers_what_is_enough():
    queue = queue_of(4)
    queue.put(Asked(0))
    assert queue.take() is None
    queue.num_clients = 2
    assert clients_of(queue) == [0]


@pytest.mark.parametrize(("forward", "wait"), [(0.0005, 0.0005), (0.05, 0.002), (0.0, 0.0)])
def test_the_oldest_waits_as_long_as_the_network_took_last_and_2_ms_at_most(forward, wait):
    queue = queue_of(8, forward_seconds=forward)
    queue._clock.now = 5.0
    queue.put(Asked(0, arrived=5.0))
    assert queue.seconds_left() == pytest.approx(wait)
    if wait > 0.0:
        queue._clock.now = 5.0 + 0.9 * wait
        queue.put(Asked(1, arrived=queue._clock.now))
        assert queue.take() is None
        assert queue.seconds_left() == pytest.approx(0.1 * wait)
    queue._clock.now = 5.0 + 1.1 * wait
    batch = queue.take()
    assert batch is not None and batch.timed_out
    assert batch.requests[0].client == 0


def test_a_full_batch_starts_and_holds_no_more_than_its_rows():
    queue = queue_of(100, max_rows=32)
    for client in range(4):
        assert clients_of(queue) is None
        queue.put(Asked(client, arrived=-1e-5 * client))  # the last is the oldest
    assert clients_of(queue) == [3, 2, 1]
    assert clients_of(queue) is None


def test_a_smaller_request_may_pass_one_that_has_no_room():
    queue = queue_of(1, max_rows=32)
    for client, rows in enumerate((20, 20, 12)):
        queue.put(Asked(client, arrived=client, num_rows=rows))
    assert clients_of(queue) == [0, 2]
    assert clients_of(queue) == [1]


def test_kinds_are_not_mixed_and_the_oldest_comes_first():
    queue = queue_of(1)
    queue.put(Asked(0, arrived=2.0, kind=3))
    queue.put(Asked(1, arrived=1.0, kind=1))
    queue.put(Asked(2, arrived=3.0, kind=1))
    assert clients_of(queue) == [1, 2]
    assert clients_of(queue) == [0]


def test_what_cannot_be_joined_is_taken_alone():
    queue = queue_of(1)
    for client in range(2):
        queue.put(Asked(client, arrived=client, kind=4, is_joinable=False))
    assert clients_of(queue) == [0]
    assert clients_of(queue) == [1]


def test_a_client_has_one_request_and_takes_it_along():
    queue = queue_of(3, max_rows=32)
    first, second = Asked(0, num_rows=30), Asked(0, num_rows=1)
    assert queue.put(first) is None
    assert queue.put(second) is first
    assert queue.take() is None  # neither two requests nor 31 rows
    assert queue.drop(0) is second and queue.drop(0) is None
    assert queue.seconds_left() is None
    queue.put(first)
    assert queue.drain() == [first] and queue.drain() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_rows": 0}, "max_rows is 0"),
        ({"max_wait_seconds": -1.0}, "max_wait_seconds is -1"),
        ({"max_wait_seconds": float("nan")}, "max_wait_seconds is nan"),
        ({"min_client_fraction": 1.5}, "min_client_fraction is 1.5"),
    ],
)
def test_settings_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        BatchingRule(**settings)
