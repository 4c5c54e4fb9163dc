"""A search worker against shards and a store in this process that may fail to answer."""

import dataclasses
import socket

import numpy as np
import pytest
import torch

from muzero.config.schema import Config
from muzero.runtime.build import Builder
from muzero.runtime.fleet import worker as worker_module
from muzero.runtime.fleet.messages import REANALYZE, SELFPLAY
from muzero.runtime.fleet.models import OwnModels
from muzero.runtime.fleet.shard import ReplayShard
from muzero.runtime.fleet.worker import SearchWorker
from muzero.weights import Arrays, to_arrays
from tests.runtime.fleet.roles import FleetLinks, Store, address, lease, small

GAME = 9  # most moves of a game of tic-tac-toe


@pytest.fixture(autouse=True)
def never_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_PAUSE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def config() -> Config:
    return small("reanalyze.fresh_fraction=0.5")


@pytest.fixture(scope="module")
def weights(config: Config) -> Arrays:
    return to_arrays(Builder.of(config).network().state_dict())


@pytest.fixture
def links(config: Config) -> FleetLinks:
    return FleetLinks(ReplayShard(config, 0, 2, 0), ReplayShard(config, 1, 2, 0))


@pytest.fixture
def store(weights: Arrays) -> Store:
    return Store(1, weights)


@pytest.fixture
def worker(config: Config, links: FleetLinks):
    worker = SearchWorker(config, 5, 2, links, OwnModels())
    yield worker
    worker.close()


def size(links: FleetLinks, index: int = 0) -> int:
    return int(links.shards[index].statistics(0)["replay/size"])


def sent(links: FleetLinks, index: int = 0) -> list[int]:
    """Sequence numbers of the messages to a shard, as often as they were sent."""
    return [stamp.sequence for shard, stamp, _ in links.inserts if shard == index]


def test_a_lease_of_selfplay_plays_and_hands_in(links, store, worker) -> None:
    given = lease(SELFPLAY, store, amount=GAME, reserved=36, version=3)
    report = worker.work(given)
    assert report.lease is given and report.version == 1
    assert report.totals.env_steps + report.totals.opening_steps == GAME * 4
    assert report.totals.games >= 4 and report.totals.simulations > 0
    assert report.inserted == size(links) > 0 and report.lost == report.searched == 0
    _, stamp, _ = links.inserts[0]
    assert tuple(stamp) == (5, 2, 1)
    versions = links.shards[0].sample(64, 1, 0).batches[0].behaviour_version
    assert set(versions) == {1}
    assert set(report.split) == {"search", "insert", "weights"}
    assert 0.0 < sum(report.split.values()) <= report.seconds
    assert report.memory_bytes > 10**6 and not report.used_local_inference
    assert "selfplay/search_depth" in report.metrics and "selfplay/games" not in report.metrics


def test_totals_are_those_of_the_lease(store, worker) -> None:
    reports = [worker.work(lease(SELFPLAY, store, amount=amount)) for amount in (1, 3)]
    moves = [report.totals.env_steps + report.totals.opening_steps for report in reports]
    assert moves == [4, 12]


def test_a_lease_of_reanalyze_searches_stale_positions_again(links, store, worker) -> None:
    played = worker.work(lease(SELFPLAY, store, amount=2 * GAME)).inserted
    assert worker.work(lease(REANALYZE, store, amount=2)).searched == 0  # nothing is older
    store.version = 4
    report = worker.work(lease(REANALYZE, store, amount=2, learner_step=9))
    assert report.version == 4 and report.searched == min(32, played)
    assert report.inserted == 0 and report.totals.env_steps == 0
    assert {made.version for made in links.refreshed} == {4}
    rest = worker.work(lease(REANALYZE, store, amount=100)).searched
    assert report.searched + rest == played
    statistics = links.shards[0].statistics(4)
    assert statistics["reanalyze/written"] == statistics["reanalyze/positions"] == played


def test_newer_weights_are_pulled_and_older_kept(config, links, store, worker, weights) -> None:
    assert worker.work(lease(SELFPLAY, store)).version == 1 and links.pulled == [None]
    assert worker.work(lease(SELFPLAY, store)).version == 1 and links.pulled == [None, 1]
    store.version = 7
    store.weights = {
        name: array + 0.1 if array.dtype.kind == "f" else array for name, array in weights.items()
    }
    assert worker.work(lease(SELFPLAY, store)).version == 7
    builder = Builder.of(config)
    expected = builder.network_model(4, 5)
    expected.load({name: torch.tensor(array) for name, array in store.weights.items()}, 7)
    observation = worker._groups[0].observation
    wished, untrained = expected.roots(observation), builder.network_model(4, 5).roots(observation)
    for model in (worker._groups[0].model, worker._refresher.model):
        found = model.roots(observation)
        assert model.version == 7
        np.testing.assert_allclose(found.value, wished.value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.prior_logits, wished.prior_logits, rtol=1e-5, atol=1e-6)
        assert not np.allclose(found.prior_logits, untrained.prior_logits, rtol=1e-3)


def test_a_lost_store_is_no_reason_to_stop(links, store, worker) -> None:
    store.is_lost = True
    idle = worker.work(lease(SELFPLAY, store))
    assert (idle.totals.env_steps, idle.seconds, links.inserts) == (0, 0.0, [])
    store.is_lost = False
    worker.work(lease(SELFPLAY, store, amount=2))
    store.is_lost = True  # those it has are good enough
    report = worker.work(lease(SELFPLAY, store, amount=GAME))
    assert report.version == 1 and report.totals.env_steps > 0


def test_a_store_without_weights_has_nothing_to_do_for_it(links, worker) -> None:
    report = worker.work(lease(SELFPLAY, Store()))
    assert (report.totals.env_steps, report.seconds, links.inserts) == (0, 0.0, [])


def test_what_a_lost_shard_did_not_confirm_is_sent_again_once(links, store, worker) -> None:
    links.lost = {0}
    first = worker.work(lease(SELFPLAY, store, amount=GAME))
    second = worker.work(lease(SELFPLAY, store, amount=GAME))
    assert (first.inserted, second.inserted, second.lost, size(links)) == (0, 0, 0, 0)
    assert links.calls["insert"] == 2  # one failed call a lease: deadlines do not add up
    links.lost = set()
    third = worker.work(lease(SELFPLAY, store, amount=GAME))
    assert sent(links) == [1, 2, 3]
    assert third.inserted == size(links) > 0
    worker.work(lease(SELFPLAY, store, amount=GAME))
    assert sent(links) == [1, 2, 3, 4]
    assert links.shards[0].statistics(0)["replay/repeated_inserts"] == 0


def test_an_insert_whose_answer_was_lost_counts_once(links, store, worker) -> None:
    links.forgets_answers = {0}
    assert worker.work(lease(SELFPLAY, store, amount=GAME)).inserted == 0
    held = size(links)
    links.forgets_answers = set()
    report = worker.work(lease(SELFPLAY, store, amount=GAME))
    assert sent(links) == [1, 1, 2]
    assert size(links) == report.inserted > held
    assert links.shards[0].statistics(0)["replay/repeated_inserts"] == 1


def test_blocks_wait_for_their_own_shard(links, store, worker) -> None:
    """Stamps of a shard rise: one that went elsewhere meanwhile would be taken for a repetition."""
    links.lost = {0}
    worker.work(lease(SELFPLAY, store, amount=GAME, shard=address(0)))
    report = worker.work(lease(SELFPLAY, store, amount=GAME, shard=address(1)))
    assert report.inserted == size(links, 1) > 0 and sent(links, 1) == [2]
    links.lost = set()
    worker.work(lease(SELFPLAY, store, amount=GAME, shard=address(1)))
    assert sent(links, 0) == [] and sent(links, 1) == [2, 3]
    back = worker.work(lease(SELFPLAY, store, amount=GAME, shard=address(0, 1)))
    assert sent(links, 0) == [1, 4]
    assert back.inserted == size(links, 0) > 0 and back.lost == 0
    assert links.shards[0].statistics(0)["replay/repeated_inserts"] == 0


def test_only_so_much_is_kept_and_the_rest_is_told(links, store, worker, monkeypatch) -> None:
    monkeypatch.setattr(worker_module, "_MOST_UNSENT", 8)
    links.lost = {0}
    reports = [worker.work(lease(SELFPLAY, store, amount=GAME)) for _ in range(12)]
    assert [report.lost > 0 for report in reports] == [False] * 8 + [True] * 4
    links.lost = set()
    last = worker.work(lease(SELFPLAY, store, amount=GAME))
    recent = sent(links)[-9:]
    assert recent == list(range(5, 14)) and last.lost == 0 and last.inserted == size(links)


def test_big_leases_are_handed_in_in_pieces(links, store, worker, monkeypatch) -> None:
    monkeypatch.setattr(worker_module, "_BLOCK_BYTES", 1500)
    report = worker.work(lease(SELFPLAY, store, amount=3 * GAME))
    sizes = [
        block.arrays["frame"].nbytes + block.arrays["policy"].nbytes + block.arrays["legal"].nbytes
        for _, _, block in links.inserts
    ]
    assert len(sizes) > 2 and max(sizes) <= 1500 < sizes[0] + sizes[1]
    assert sent(links) == list(range(1, len(sizes) + 1)) and report.inserted == size(links)


def test_reanalyze_ends_with_its_shard(links, store, worker) -> None:
    worker.work(lease(SELFPLAY, store, amount=2 * GAME))
    store.version = 4
    links.lost = {0}
    assert worker.work(lease(REANALYZE, store, amount=9)).searched == 0
    assert links.calls["take"] == 1
    links.lost, links.forgets_answers = set(), {0}
    assert worker.work(lease(REANALYZE, store, amount=9)).searched == 0


def test_games_go_on_where_they_were_saved(config, links, store, worker) -> None:
    worker.work(lease(SELFPLAY, store, amount=4))
    arrays, meta = worker.state()
    arrays = {name: np.array(array) for name, array in arrays.items()}
    other_links = FleetLinks(ReplayShard(config, 0, 1, 0))
    other = SearchWorker(config, 5, 3, other_links, OwnModels())
    try:
        assert other.restore(arrays, meta)
        for each in (worker, other):
            each.work(lease(SELFPLAY, store, amount=2 * GAME))
    finally:
        other.close()
    (_, _, ours), (_, stamp, theirs) = links.inserts[-1], other_links.inserts[-1]
    assert tuple(stamp) == (5, 3, 1)  # a new incarnation counts anew
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_array_equal(array, theirs.arrays[name])


def test_games_of_another_grouping_begin_anew(store, worker) -> None:
    arrays, meta = worker.state()
    assert not worker.restore(arrays, {"groups": meta["groups"] * 2})
    assert worker.work(lease(SELFPLAY, store)).totals.opening_steps >= 0


def test_incarnations_and_workers_play_different_games(config, store) -> None:
    played = []
    for index, incarnation in ((0, 0), (0, 1), (1, 0), (0, 0)):
        links = FleetLinks(ReplayShard(config, 0, 1, 0))
        made = SearchWorker(config, index, incarnation, links, OwnModels())
        made.work(lease(SELFPLAY, store, amount=GAME))
        made.close()
        played.append(links.inserts[0][2].arrays["action"].tolist())
    assert played[0] == played[3]
    assert len({tuple(actions) for actions in played}) == 3


def test_an_error_of_the_environment_names_worker_seed_and_host(store, worker, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("in my_game.py")

    monkeypatch.setattr(worker._groups[0].env, "step", fail)
    with pytest.raises(RuntimeError) as told:
        worker.work(lease(SELFPLAY, store))
    message = str(told.value)
    assert "search worker 5 (incarnation 2, seed 0 branch [5, 5, 2]" in message
    assert socket.gethostname() in message and "failed in a lease of selfplay" in message
    assert "ZeroDivisionError('in my_game.py')" in message
    assert isinstance(told.value.__cause__, ZeroDivisionError)


class TwoGroups(OwnModels):
    """Two games each, as with central inference."""

    def groups(self, builder: Builder) -> list:
        return [(2, None), (2, None)]


def test_groups_play_side_by_side_and_are_counted_together(config, links, store) -> None:
    worker = SearchWorker(config, 0, 0, links, TwoGroups())
    try:
        report = worker.work(lease(SELFPLAY, store, amount=GAME))
        assert report.totals.env_steps + report.totals.opening_steps == GAME * 4
        assert report.inserted == size(links) > 0
        arrays, meta = worker.state()
        assert len(meta["groups"]) == 2 and {n.partition("/")[0] for n in arrays} == {"0", "1"}
        assert worker.restore(arrays, meta)
    finally:
        worker.close()


def test_reports_are_plain(store, worker) -> None:
    report = worker.work(lease(SELFPLAY, store, amount=2))
    assert all(type(value) is float for value in report.metrics.values())
    assert dataclasses.asdict(report.totals)["env_steps"] <= 8
