"""Servers of central inference, their clients, and the models that they are compared with."""

import contextlib
import pickle
import threading
import time
from collections.abc import Iterator

import numpy as np

from mcts.base import RootOutput, Selection
from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.inference import (
    CallRequest,
    CallTransport,
    InferenceServer,
    LocalModel,
    RemoteModel,
    RingTransport,
)
from muzero.network import MuZeroNetwork, NetworkSpec, make_network

FLAT = NetworkSpec(observation_shape=(5,), num_actions=3)
BOARD = NetworkSpec(observation_shape=(2, 3, 4), num_actions=12, num_players=2, has_turn_head=True)
SUPPORTS = {"value_support_size": 5, "value_support_max": 4.0, "reward_support_max": 1.0}
MLP = MLPConfig(latent_size=20, hidden_sizes=[16], reward_support_size=3, **SUPPORTS)
RESNET = ResNetConfig(
    num_channels=8,
    num_blocks=1,
    head_channels=2,
    head_hidden_size=6,
    reward_support_size=3,
    **SUPPORTS,
)
MODULES = ResNetConfig(
    num_channels=8,
    num_blocks=1,
    head_channels=2,
    head_hidden_size=6,
    norm="group",
    reward_support_size=3,
    **SUPPORTS,
)
ROWS, NODES, DISCOUNT = 6, 5, 0.75
LONG = 60.0
"""Seconds: whoever waits so long has failed."""


def network_of(config=MLP, spec=FLAT, seed: int = 0) -> MuZeroNetwork:
    return make_network(config, spec, seed).eval()


def local_of(network: MuZeroNetwork, **settings) -> LocalModel:
    options = {"batch_size": ROWS, "num_nodes": NODES, "discount": DISCOUNT, **settings}
    return LocalModel(network, **options)


def server_of(network: MuZeroNetwork, **settings) -> InferenceServer:
    options = {"max_clients": 4, "rows_per_client": ROWS, "num_nodes": NODES, **settings}
    return InferenceServer(network, discount=DISCOUNT, **options)


@contextlib.contextmanager
def serving(server: InferenceServer) -> Iterator[InferenceServer]:
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(LONG)
        assert not thread.is_alive()


def client_of(server: InferenceServer) -> RemoteModel:
    return RemoteModel(RingTransport(server.ticket(), timeout_seconds=LONG))


def calling(server: InferenceServer, name: str, pickled: bool = False) -> RemoteModel:
    def call(request: CallRequest):
        if pickled:
            request = pickle.loads(pickle.dumps(request))
        reply = server.answer(name, request, timeout_seconds=LONG)
        return pickle.loads(pickle.dumps(reply)) if pickled else reply

    return RemoteModel(CallTransport(call, server.attach(name)))


def observations(spec: NetworkSpec, number: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, (number, *spec.observation_shape)).astype(np.float32)


def selection(rng: np.random.Generator, num_actions: int, rows: np.ndarray, node: int) -> Selection:
    count = len(rows)
    return Selection(
        rows.astype(np.int32),
        rng.integers(0, node, count).astype(np.int32),
        rng.integers(0, num_actions, count).astype(np.int32),
        np.full(count, node, np.int32),
    )


def assert_same(mine, expected) -> None:
    names = ("reward", "discount", "prior_logits", "value")
    for name in names[2:] if isinstance(expected, RootOutput) else names:
        np.testing.assert_array_equal(getattr(mine, name), getattr(expected, name), err_msg=name)


def wait_until(condition) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
