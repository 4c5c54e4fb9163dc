"""The fleet's roles as Ray actors: thin shells around plain classes."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import Config
from muzero.inference import (
    CallReply,
    CallRequest,
    CallTransport,
    RemoteModel,
    RingTransport,
    ServerLost,
)
from muzero.runtime.build import Builder
from muzero.runtime.fleet.actor import Actor, prepare_process
from muzero.runtime.fleet.faults import ask
from muzero.runtime.fleet.links import LearnerRayLinks, RayLinks
from muzero.runtime.fleet.messages import (
    LearnerStatus,
    Lease,
    LeaseReport,
    ShardAddress,
    StoreLost,
)
from muzero.runtime.fleet.models import CentralModels, ModelSource, OwnModels, ServerAddress
from muzero.runtime.fleet.serving import make_server, server_of
from muzero.runtime.fleet.shard import ReplayShard
from muzero.runtime.fleet.training import Snapshot, Training
from muzero.runtime.fleet.worker import SearchWorker
from muzero.weights import Arrays, to_tensors

_SWITCH_SECONDS = 2e-4
CONTROL = "control"


def _or_end(work: Callable[[], None]) -> None:
    """Work in a thread without which the process is of no use: it ends with it, and the supervisor makes another."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


class WeightStoreActor(Actor):
    """Keeps the newest weights in the object store, once per host that pulls them.

    Args:
        is_gated: Whether those who search get the weights that were accepted last, instead of the newest.
    """

    def __init__(self, is_gated: bool) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._is_gated = is_gated
        self._version: int | None = None
        self._reference: Any = None
        self._accepted: tuple[int, Any] | None = None
        self._servers: list[ServerAddress] = []

    def publish(self, version: int, weights: Arrays) -> bool:
        """Keep weights as the newest; False if as new or newer ones are there."""
        if self._version is not None and version <= self._version:
            return False
        # Put by this process: an object goes with the process that put it, and a learner may come and go.
        self._reference, self._version = ray.put(weights), version
        return True

    def accept(self, version: int, reference: list[Any]) -> None:
        """Hand out these weights from now on; the reference comes in a list, or Ray would pass what it stands for."""
        (weights,) = reference
        self._accepted = version, weights

    def newest(self) -> tuple[int, Arrays] | None:
        """Version and arrays of the newest weights, accepted or not; None before the first."""
        if self._version is None:
            return None
        return self._version, ray.get(self._reference)

    def pull(self, version: int | None) -> tuple[int, Any] | None:
        """Version and reference of the weights to search with, if newer than `version`."""
        found = self._accepted
        if not self._is_gated and self._version is not None:
            found = self._version, self._reference
        if found is None or (version is not None and found[0] <= version):
            return None
        return found

    def version(self) -> int | None:
        """Version of the newest weights."""
        return self._version

    def set_servers(self, servers: list[ServerAddress]) -> None:
        """Take down which inference servers there are."""
        self._servers = servers

    def servers(self) -> list[ServerAddress]:
        """The inference servers: for workers that wait for one."""
        return self._servers


class ShardActor(ReplayShard, Actor):
    """A replay shard."""

    def __init__(
        self, config: Config, index: int, num_shards: int, incarnation: int, log_folder: Path | None
    ) -> None:
        prepare_process(config)
        super().__init__(config, index, num_shards, incarnation, log_folder)


class LearnerActor(Actor):
    """The learner; `run` occupies its main thread, the rest is answered beside it."""

    def __init__(self, config: Config, incarnation: int, seconds: float) -> None:
        prepare_process(config)
        # Loaders and learner share the interpreter: by default one may keep it from the other for 5 ms, half a small step.
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._links = LearnerRayLinks(seconds)
        self._training = Training(config, incarnation, self._links)

    def restore(
        self, tensors: Arrays, meta: dict[str, Any], offset: int, newest_version: int
    ) -> None:
        """See `Training`."""
        self._training.restore(tensors, meta, offset=offset, newest_version=newest_version)

    def start_over(self, newest_version: int) -> None:
        """See `Training`."""
        self._training.start_over(newest_version)

    def run(self) -> int:
        """See `Training`."""
        return self._training.run()

    @ray.method(concurrency_group=CONTROL)
    def connect(self, shards: list[ShardAddress], store: Any) -> None:
        """Use these shards and this store from now on."""
        is_new = self._links.store is None or store != self._links.store
        self._links.store = store
        self._training.connect(shards)
        if is_new:
            self._training.publish_anew()

    @ray.method(concurrency_group=CONTROL)
    def exchange(self, allowance: int) -> LearnerStatus:
        """Take a new allowance, tell what has happened."""
        self._training.allow(allowance)
        return self._training.status()

    @ray.method(concurrency_group=CONTROL)
    def tune(self, prefetch: int, assembly_threads: int) -> None:
        """See `Training`."""
        self._training.tune(prefetch, assembly_threads)

    @ray.method(concurrency_group=CONTROL)
    def snapshot(self, timeout_seconds: float) -> Snapshot:
        """See `Training`."""
        return self._training.snapshot(timeout_seconds)

    @ray.method(concurrency_group=CONTROL)
    def stop(self) -> None:
        """See `Training`."""
        self._training.stop()


class WorkerActor(Actor):
    """A search worker."""

    def __init__(
        self,
        config: Config,
        index: int,
        incarnation: int,
        seconds: float,
    ) -> None:
        prepare_process(config)
        runtime = config.runtime
        assert isinstance(runtime, RayRuntimeConfig)
        self._name = f"worker {index} of {incarnation}"
        self._index, self._seconds = index, seconds
        self._store: Any = None
        models: ModelSource = OwnModels()
        if runtime.inference == "central":
            models = CentralModels(
                config,
                self._connect,
                self._find_server,
                waits=runtime.on_lost_server == "wait",
                deadline_seconds=seconds,
            )
        self._worker = SearchWorker(config, index, incarnation, RayLinks(seconds), models)

    def work(self, lease: Lease) -> LeaseReport:
        """See `SearchWorker`."""
        self._store = lease.store
        return self._worker.work(lease)

    def _connect(self, server: ServerAddress, name: str) -> RemoteModel:
        """A client of a server: through shared memory on its host, by calls from others."""
        if server.node == ray.get_runtime_context().get_node_id():
            return RemoteModel(RingTransport(server.ticket))
        client, handle, seconds = f"{self._name}, {name}", server.handle, self._seconds

        def call(request: CallRequest) -> CallReply:
            reference = handle.answer.remote(client, request)
            reply: CallReply = ask(reference, seconds, ServerLost, "the inference server")
            return reply

        info = ask(handle.attach.remote(client), seconds, ServerLost, "the inference server")
        return RemoteModel(CallTransport(call, info))

    def _find_server(self) -> ServerAddress | None:
        """The worker's server as the weight store has it."""
        try:
            call = self._store.servers.remote()
            servers: list[ServerAddress] = ask(call, self._seconds, StoreLost, "the weight store")
        except StoreLost:
            return None
        return server_of(self._index, servers)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """See `SearchWorker`."""
        return self._worker.state()

    def restore(self, arrays: Arrays, meta: dict[str, Any]) -> bool:
        """See `SearchWorker`."""
        return self._worker.restore(arrays, meta)

    def close(self) -> None:
        """See `SearchWorker`."""
        self._worker.close()


class InferenceActor(Actor):
    """An inference server; it pulls new weights itself."""

    def __init__(self, config: Config, num_clients: int, seconds: float) -> None:
        prepare_process(config)
        builder = Builder.of(config)
        assert isinstance(config.runtime, RayRuntimeConfig)
        self._links = RayLinks(seconds)
        self._store: Any = None
        self._pause = config.runtime.publish_seconds / 2
        self._server = make_server(builder, num_clients)
        for name, work in (("inference", self._server.serve), ("weights", self._pull)):
            threading.Thread(target=_or_end, args=(work,), name=name, daemon=True).start()

    def set_store(self, store: Any) -> None:
        """Pull weights from this store from now on."""
        self._store = store

    def ticket(self) -> tuple[str, Any]:
        """The node it is on, and what clients there attach with."""
        return ray.get_runtime_context().get_node_id(), self._server.ticket()

    def attach(self, client: str) -> Any:
        """See `InferenceServer`."""
        return self._server.attach(client)

    def answer(self, client: str, request: CallRequest) -> CallReply:
        """See `InferenceServer`."""
        return self._server.answer(client, request)

    def report(self) -> dict[str, float]:
        """See `InferenceServer`."""
        return self._server.report()

    def _pull(self) -> None:
        """Load newer weights as they come, for as long as the process lives."""
        version = None
        while True:
            if self._store is not None:
                with suppress(StoreLost):
                    newer = self._links.pull_weights(self._store, version)
                    if newer is not None:
                        version, arrays = newer
                        state = to_tensors(arrays)
                        self._server.load(state, version)
            time.sleep(max(0.02, self._pause))


def remote(actor: type[Actor], **options: Any) -> Any:
    """An actor class with its resources, to be made by `.remote(...)`; it is never restarted by Ray, but by the supervisor."""
    decorate: Any = ray.remote
    if actor is InferenceActor:
        options["max_concurrency"] = 64  # calls from other hosts wait for a shared batch
    if actor is LearnerActor:
        decorate = decorate(concurrency_groups={CONTROL: 4})
    return decorate(actor).options(max_restarts=0, max_task_retries=0, **options)
