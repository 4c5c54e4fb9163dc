"""Central inference against a model of one's own: the same answers, whoever else asks."""

import threading

import numpy as np
import pytest

from mcts.base import RootOutput
from muzero.inference import (
    BatchingRule,
    CallRequest,
)
from muzero.inference.messages import Kind, arrays_in
from tests.inference.served import (
    BOARD,
    DISCOUNT,
    FLAT,
    LONG,
    MLP,
    MODULES,
    NODES,
    RESNET,
    ROWS,
    assert_same,
    calling,
    client_of,
    local_of,
    network_of,
    observations,
    selection,
    server_of,
    serving,
    wait_until,
)


@pytest.mark.parametrize("way", ["ring", "call", "pickled call"])
@pytest.mark.parametrize(("config", "spec"), [(MLP, FLAT), (RESNET, BOARD), (MODULES, BOARD)])
def test_it_answers_like_a_local_model_bit_for_bit(config, spec, way):
    network = network_of(config, spec)
    local = local_of(network, version=3)
    with serving(server_of(network, version=3)) as server:
        pickled = way == "pickled call"
        remote = client_of(server) if way == "ring" else calling(server, "a", pickled)
        assert (remote.spec, remote.version, remote.discount) == (spec, 3, DISCOUNT)
        assert (remote.batch_size, remote.num_nodes) == (ROWS, NODES)
        rng = np.random.default_rng(1)
        for count in (ROWS, 4):
            observation = observations(spec, count, seed=count)
            assert_same(remote.roots(observation), local.roots(observation))
            for node in range(1, NODES):
                rows = np.sort(rng.permutation(count)[: rng.integers(1, count + 1)])
                asked = selection(rng, spec.num_actions, rows, node)
                assert_same(remote.recurrent(asked), local.recurrent(asked))
        observation = observations(spec, 2 * ROWS + 1)
        assert_same(remote.predict(observation), local.predict(observation))
        assert np.array_equal(remote.values(observation), local.values(observation))
        kept = np.array([3, 0, 1, 5], np.int32)
        source = np.array([[2, 3, 4, -1, -1], [-1] * 5, [4, -1, -1, -1, -1], [0, 1, 2, 3, 4]])
        for model in (remote, local):
            model.move_nodes(source.astype(np.int32), kept)
        latents = local.latents(kept)
        assert remote.latent_format == local.latent_format
        assert np.array_equal(remote.latents(kept), latents)
        for model in (remote, local):
            model.roots(observations(spec, ROWS, seed=9))
            model.restore_latents(kept, latents[::-1].copy())
        assert np.array_equal(remote.latents(kept), latents[::-1])
        asked = selection(rng, spec.num_actions, np.array([0, 2, 3]), 1)
        assert_same(remote.recurrent(asked), local.recurrent(asked))
        remote.close()


def test_many_latents_take_several_requests(monkeypatch):
    monkeypatch.setattr("muzero.inference.messages._LATENT_BYTES", 3 * 20 * 4)
    with serving(server_of(network_of())) as server:
        remote = client_of(server)
        kept = np.full(ROWS, NODES, np.int32)
        latents = np.random.default_rng(0).random((ROWS * NODES, 20), np.float32)
        remote.restore_latents(kept, latents)
        assert np.array_equal(remote.latents(kept), latents)
        remote.close()


def test_clients_never_influence_each_other():
    """Any order of requests of three clients, two ways in: each gets what it would get alone."""
    network, rng = network_of(RESNET, BOARD), np.random.default_rng(0)
    with serving(server_of(network)) as server:
        remotes = [client_of(server), client_of(server), calling(server, "c")]
        locals_ = [local_of(network) for _ in remotes]
        planted = [0, 0, 0]
        for step in range(300):
            i = int(rng.integers(3))
            remote, local = remotes[i], locals_[i]
            what = rng.random()
            if planted[i] == 0 or what < 0.1:
                planted[i] = int(rng.integers(1, ROWS + 1))
                observation = observations(BOARD, planted[i], seed=step)
                assert_same(remote.roots(observation), local.roots(observation))
            elif what < 0.2:
                kept = rng.integers(0, NODES + 1, planted[i]).astype(np.int32)
                source = np.sort(rng.integers(0, NODES, (planted[i], NODES)), axis=1)
                for model in (remote, local):
                    model.move_nodes(source.astype(np.int32), kept)
            else:
                count = rng.integers(1, planted[i] + 1)
                rows = np.sort(rng.permutation(planted[i])[:count])
                asked = selection(rng, 12, rows, int(rng.integers(1, NODES)))
                assert_same(remote.recurrent(asked), local.recurrent(asked))
        for remote in remotes:
            remote.close()


def test_two_clients_in_two_threads_of_one_process():
    network = network_of()
    failures: list[BaseException] = []

    def search(seed: int) -> None:
        try:
            rng, local, remote = np.random.default_rng(seed), local_of(network), client_of(server)
            for turn in range(30):
                observation = observations(FLAT, ROWS, seed=100 * seed + turn)
                assert_same(remote.roots(observation), local.roots(observation))
                for node in range(1, NODES):
                    asked = selection(rng, 3, np.arange(ROWS), node)
                    assert_same(remote.recurrent(asked), local.recurrent(asked))
            remote.close()
        except BaseException as failure:
            failures.append(failure)

    with serving(server_of(network)) as server:
        threads = [threading.Thread(target=search, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert not failures
        # A root and four steps in each turn.
        wait_until(lambda: server._statistics._rows == 2 * 30 * NODES * ROWS)


def test_requests_that_wait_together_are_answered_in_one_batch(monkeypatch):
    network = network_of()
    server = server_of(network, rule=BatchingRule(max_rows=40))
    sizes: list[int] = []
    roots = server._model.roots
    monkeypatch.setattr(server._model, "roots", lambda *a: [sizes.append(len(a[0])), roots(*a)][1])
    outputs: dict[int, RootOutput] = {}

    def ask(i: int) -> None:
        server.attach(str(i))
        request = CallRequest(Kind.ROOTS, [observations(FLAT, i + 2, seed=i)])
        outputs[i] = RootOutput(*server.answer(str(i), request, timeout_seconds=LONG).arrays)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(server._events) == 3)
    with serving(server):
        for thread in threads:
            thread.join(LONG)
        wait_until(lambda: server._statistics._batches == 1)
        report = server.report()
    assert sizes == [2 + 3 + 4]
    local = local_of(network)
    for i in range(3):
        assert_same(outputs[i], local.roots(observations(FLAT, i + 2, seed=i)))
    assert report["inference/occupancy"] == pytest.approx(9 / 40)
    assert report["inference/clients"] == 3.0
    assert report["inference/timeout_fraction"] == 0.0
    assert 0.0 < report["inference/latency_p50_seconds"] <= report["inference/latency_p99_seconds"]
    assert report["inference/rows_per_second"] > 0.0
    assert server.report().keys() == {"inference/rows_per_second", "inference/clients"}


def test_weights_are_taken_between_batches_with_their_version():
    old, new = network_of(), network_of(seed=5)
    with serving(server_of(old, version=1)) as server:
        remote = client_of(server)
        observation = observations(FLAT, ROWS)
        assert_same(remote.roots(observation), local_of(old).roots(observation))
        server.load(new.state_dict(), 8)
        assert remote.version == 1  # that of the last roots
        assert_same(remote.roots(observation), local_of(new).roots(observation))
        assert (remote.version, server.version) == (8, 8)
        with pytest.raises(ValueError, match="version 9 are of another network"):
            server.load(network_of(RESNET, BOARD).state_dict(), 9)
        with pytest.raises(ValueError, match="the server loads them"):
            remote.load(new.state_dict(), 9)
        assert_same(remote.roots(observation), local_of(new).roots(observation))
        remote.close()


def test_a_refused_request_is_told_and_harms_nobody():
    network = network_of()
    with serving(server_of(network)) as server:
        good, bad, local = client_of(server), client_of(server), local_of(network)
        for model in (good, local, bad):
            model.roots(observations(FLAT, ROWS))
        right = selection(np.random.default_rng(0), 3, np.arange(ROWS), 1)
        for field, value in (("row", ROWS), ("parent", NODES), ("action", 3), ("node", -1)):
            wrong = right._replace(**{field: np.full(ROWS, value, np.int32)})
            with pytest.raises(ValueError, match="out of range"):
                bad.recurrent(wrong)
        with pytest.raises(ValueError, match="nodes out of range"):
            bad.move_nodes(np.full((ROWS, 1), NODES, np.int32), np.ones(ROWS, np.int32))
        with pytest.raises(ValueError, match=f"{ROWS + 1} observations; this model has room"):
            bad.roots(observations(FLAT, ROWS + 1))
        with pytest.raises(ValueError, match=f"for {ROWS + 1} rows.*larger rows_per_client"):
            bad.recurrent(selection(np.random.default_rng(0), 3, np.arange(ROWS + 1), 1))
        with pytest.raises(ValueError, match=r"shape \[4\]; the network expects \[5\]"):
            bad.roots(np.zeros((2, 4), np.float32))
        assert_same(good.recurrent(right), local.recurrent(right))
        assert_same(bad.recurrent(right), local.recurrent(right))  # it may go on
        for model in (good, bad):
            model.close()


def test_a_message_larger_than_its_slot_is_an_error():
    with pytest.raises(ValueError, match="a message of 512 bytes does not fit into a slot of 400"):
        arrays_in(np.zeros(400, np.uint8), [((100,), np.float32), ((1,), np.int8)])


def test_small_observations_are_sent_as_they_are():
    network = network_of(RESNET, BOARD)
    local = local_of(network)
    with serving(server_of(network, observation_dtype=np.uint8)) as server:
        remote = client_of(server)
        observation = observations(BOARD, ROWS)
        for dtype in (np.uint8, np.bool_):
            sent = observation.astype(dtype)
            assert_same(remote.roots(sent), local.roots(sent))
        with pytest.raises(ValueError, match="observation_dtype=float32"):
            remote.roots(observation)
        remote.close()
