"""Self-play and reanalyze as clients of central inference: the same games and targets as with a model of their own."""

import contextlib
import itertools
import multiprocessing
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.config.schema import Config
from muzero.inference import InferenceServer, RemoteModel, RingTransport, ServerLost
from muzero.replay.storage import RootPositions
from muzero.runtime.build import Builder, search_settings
from reanalyze import Refresher

LONG = 60.0
"""Seconds: whoever waits so long has failed."""
SMALL = ("debug=smoke", "search.num_simulations=8", "selfplay.num_games=5")
CASES = {
    "gumbel": ("experiment=tictactoe",),
    "puct": ("experiment=tictactoe", "search=puct"),
    "convolutions": ("experiment=tictactoe", "network=resnet_small"),
    "cuts": ("experiment=cartpole", "env.max_episode_steps=5"),
    "kept trees": ("experiment=tictactoe", "search=puct", "selfplay.reuse_subtree=true"),
}


def config_of(*overrides: str) -> Config:
    return compose([overrides[0], *SMALL, *overrides[1:]])


def make_server(config: Config) -> InferenceServer:
    return InferenceServer(
        Builder.of(config).network(),
        max_clients=2,
        rows_per_client=config.selfplay.num_games,
        num_nodes=config.search.num_simulations + 1,
        discount=config.targets.discount,
    )


@contextlib.contextmanager
def serving(config: Config) -> Iterator[InferenceServer]:
    server = make_server(config)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(LONG)
        assert not thread.is_alive()


def client_of(ticket: Any) -> RemoteModel:
    return RemoteModel(RingTransport(ticket, timeout_seconds=LONG))


def assert_same(mine: list, expected: list) -> None:
    assert len(mine) == len(expected)
    for a, b in zip(mine, expected, strict=True):
        for name in ("action", "policy", "root_value", "reward", "version"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_plays_the_same_games_bit_for_bit(case):
    config = config_of(*case)
    builder = Builder.of(config)
    own = builder.selfplay()
    num_segments = 0
    with serving(config) as server, client_of(server.ticket()) as model:
        remote = builder.selfplay(model=model)
        for move in range(20):
            if move == 10:
                state = {
                    name: 1.1 * value for name, value in builder.network().state_dict().items()
                }
                server.load(state, 7)
                own.model.load(state, 7)
                # A load may come after a reply: the next request is answered with it.
                assert client_of_version(server) == 7
            expected = own.play(0)
            assert_same(remote.play(0), expected)
            num_segments += len(expected)
        assert num_segments > 0
        arrays, meta = remote.state()
        for (name, array), other in zip(arrays.items(), own.state()[0].values(), strict=True):
            np.testing.assert_array_equal(array, other, err_msg=name)
        again = builder.selfplay(model=model)
        again.restore(arrays, meta)
        for _ in range(6):
            assert_same(again.play(0), own.play(0))


def client_of_version(server: InferenceServer) -> int:
    with client_of(server.ticket()) as model:
        return model.version


def test_two_threads_play_half_of_the_games_each():
    config = config_of("experiment=tictactoe")
    builder = Builder.of(config)
    played: dict[int, list] = {}

    def play(half: int) -> None:
        with client_of(server.ticket()) as model:
            selfplay = builder.selfplay(model=model, seed=np.random.SeedSequence(half))
            played[half] = list(itertools.chain.from_iterable(selfplay.play(0) for _ in range(15)))

    with serving(config) as server:
        threads = [threading.Thread(target=play, args=(half,)) for half in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
    for half in range(2):
        own = builder.selfplay(seed=np.random.SeedSequence(half))
        expected = list(itertools.chain.from_iterable(own.play(0) for _ in range(15)))
        assert expected
        assert_same(played[half], expected)


def test_reanalyze_makes_the_same_targets_and_tells_the_version():
    config = config_of("experiment=tictactoe")
    builder = Builder.of(config)
    settings = search_settings(config.search, None)
    rng = np.random.default_rng(0)
    observation = rng.integers(0, 2, (5, *builder.spec.observation_shape)).astype(np.float32)
    legal = rng.random((5, 9)) < 0.7
    legal[:, 4] = True
    nothing = np.zeros(5, np.int64)
    positions = RootPositions(
        **{"observation": observation, "legal": legal}
        | {
            name: nothing
            for name in RootPositions.__dataclass_fields__
            if name not in ("observation", "legal")
        }
    )
    with serving(config) as server, client_of(server.ticket()) as model:
        results = [
            Refresher(each, builder.search(5, settings), root_value="mean").refresh(positions)
            for each in (model, builder.model(5, 8))
        ]
        np.testing.assert_array_equal(results[0].policy, results[1].policy)
        np.testing.assert_array_equal(results[0].root_value, results[1].root_value)
        server.load(builder.network().state_dict(), 12)
        refresher = Refresher(model, builder.search(5, settings), root_value="mean")
        assert refresher.refresh(positions).version == 12


def run_server(connection: Any) -> None:
    server = make_server(config_of("experiment=tictactoe"))
    connection.send(server.ticket())
    server.serve()


def test_a_killed_server_ends_a_search_and_the_next_server_begins_it_anew():
    config = config_of("experiment=tictactoe")
    builder = Builder.of(config)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=run_server, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        assert mine.poll(LONG)
        model = client_of(mine.recv())
        selfplay = builder.selfplay(model=model)
        own = builder.selfplay()
        assert_same(selfplay.play(0), own.play(0))
        ask, count = model.recurrent, itertools.count()

        def recurrent(selection):
            if next(count) == 3:
                process.kill()
                process.join(LONG)
            return ask(selection)

        model.recurrent = recurrent
        arrays, meta = selfplay.state()
        with pytest.raises(ServerLost):
            selfplay.play(0)
        assert next(count) == 4  # the search ended there
        with serving(config) as server, client_of(server.ticket()) as other:
            again = builder.selfplay(model=other)
            again.restore(arrays, meta)
            for _ in range(8):
                assert_same(again.play(0), own.play(0))
    finally:
        process.kill()
        process.join(LONG)
        process.close()
        mine.close()
