"""One network that answers the searches of many clients (SEED's way): latents stay here, and requests of several clients share a batch.

Letters: `n` rows of a client's request, `b` rows of a batch, `*O` observation shape.
"""

import heapq
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from muzero.inference.answering import Answerer
from muzero.inference.batching import Batch, BatchingRule, RequestQueue
from muzero.inference.local import LocalModel
from muzero.inference.messages import CallReply, CallRequest, RingTicket, ServerInfo
from muzero.inference.questions import CallQuestion, Question, RingQuestion
from muzero.inference.ring import Listener, ServerEnd, ServerLost
from muzero.inference.server_statistics import ServerStatistics
from muzero.network.base import MuZeroNetwork

_IDLE_SECONDS = 0.1
"""Longest sleep: how late a `stop` event is noticed."""


class _Gone(NamedTuple):
    """A client that has left its place, or a new one of its name that has replaced it there."""

    client: int
    is_replaced: bool


class InferenceServer:
    """A `LocalModel` with trees for `max_clients` clients, of `rows_per_client` rows each.

    Clients of this host attach with a ticket, others by calls of `answer`; both come and go while the server serves.
    `serve` belongs to one thread; everything else may be called from any.

    Example:
        >>> server = InferenceServer(network, max_clients=8, rows_per_client=64, num_nodes=51, discount=0.997)
        >>> threading.Thread(target=server.serve).start()
        >>> model = RemoteModel(RingTransport(server.ticket()))  # in any process of this host

    Args:
        network: Is copied; its own weights serve until `load`.
        rule: When a batch starts, and how large it is.
        observation_dtype: What observations are sent as; uint8 takes a quarter of float32.
        discount, device, bfloat16, cuda_graph, num_threads, version: See `LocalModel`.
    """

    def __init__(
        self,
        network: MuZeroNetwork,
        *,
        max_clients: int,
        rows_per_client: int,
        num_nodes: int,
        discount: float,
        rule: BatchingRule | None = None,
        observation_dtype: npt.DTypeLike = np.float32,
        device: torch.device | str = "cpu",
        bfloat16: bool = False,
        cuda_graph: bool = True,
        num_threads: int = 1,
        version: int = 0,
    ) -> None:
        rule = BatchingRule() if rule is None else rule
        for name, count in (("max_clients", max_clients), ("rows_per_client", rows_per_client)):
            if count < 1:
                raise ValueError(f"{name} is {count}; it has to be at least 1")
        if rows_per_client > rule.max_rows:
            raise ValueError(
                f"rows_per_client is {rows_per_client}, and a batch has at most {rule.max_rows} rows: raise max_rows, or "
                "give a client fewer games"
            )
        self._model = LocalModel(
            network,
            batch_size=max_clients * rows_per_client,
            num_nodes=num_nodes,
            discount=discount,
            device=device,
            bfloat16=bfloat16,
            cuda_graph=cuda_graph,
            num_threads=num_threads,
            version=version,
        )
        latent = self._model.latents(np.ones(1, np.int32))
        self.info = ServerInfo(
            spec=network.spec,
            rows_per_client=rows_per_client,
            num_nodes=num_nodes,
            discount=discount,
            observation_dtype=np.dtype(observation_dtype).name,
            latent_format=self._model.latent_format,
            latent_shape=latent.shape[1:],
            latent_dtype=latent.dtype.name,
        )
        """What a client has to know."""
        self._shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
        self._queue: RequestQueue[Question] = RequestQueue(rule)
        self._statistics = ServerStatistics(rule.max_rows)
        self._answerer = Answerer(self._model, self.info, rule.max_rows)
        self._rings: dict[int, RingQuestion] = {}
        self._lock = threading.RLock()
        # What other threads leave for the serving one, under the lock.
        self._free = list(range(max_clients))
        self._num_clients = 0
        self._names: dict[str, int] = {}
        self._events: deque[CallQuestion | _Gone] = deque()
        self._weights: tuple[Mapping[str, Tensor], int] | None = None
        self._stopped = threading.Event()
        self._is_closed = self._is_serving = False
        self._answerer.compile()
        self._listener = Listener(
            request_bytes=self.info.request_bytes,
            reply_bytes=self.info.reply_bytes,
            take_place=self._take_place,
        )

    @property
    def version(self) -> int:
        """Version of the weights that answer now."""
        return self._model.version

    def ticket(self) -> RingTicket:
        """What clients on this host attach with, all with the same."""
        return RingTicket(self._listener.ticket, self.info)

    def attach(self, name: str) -> ServerInfo:
        """Let a client in that will ask by `answer`. A name that is in already begins anew.

        Raises:
            ServerLost: If the server has ended.
            ValueError: If there is no room.
        """
        with self._lock:
            if self._is_closed:
                raise ServerLost("the inference server has ended")
            client = self._names.get(name)
            if client is not None:
                self._events.append(_Gone(client, is_replaced=True))
                return self.info
            client = self._take_place()
            if client is None:
                raise ValueError(f"no room for client {name}; raise the server's max_clients")
            self._names[name] = client
        return self.info

    def detach(self, name: str) -> None:
        """Free the place of a client that came by `attach`; nothing if there is none of that name."""
        with self._lock:
            client = self._names.pop(name, None)
            if client is not None:
                self._give_back(client)

    def answer(
        self, name: str, request: CallRequest, *, timeout_seconds: float = 10.0
    ) -> CallReply:
        """Answer a client that came by `attach`; waits for others to share the batch, like any request.

        Raises:
            ServerLost: If the server has ended, does not serve in time, or does not know the client.
            ValueError: If the request is not one that this server can answer.
        """
        with self._lock:
            client = self._names.get(name)
            if self._is_closed or client is None:
                why = "has ended" if self._is_closed else f"knows no client {name}: attach anew"
                raise ServerLost(f"the inference server {why}")
            question = CallQuestion(client, request, self.info)
            self._events.append(question)
        self._listener.wake()
        return question.wait(timeout_seconds)

    def load(self, state: Mapping[str, Tensor], version: int) -> None:
        """Take a training network's state dict before the next batch; it must not change afterwards.

        Of several that come between two batches the last one is taken.

        Raises:
            ValueError: If it is not of this network.
        """
        shapes = {name: tensor.shape for name, tensor in state.items()}
        if shapes != self._shapes:
            wrong = {*shapes.items()} ^ {*self._shapes.items()}
            names = ", ".join(sorted({name for name, _ in wrong}))
            raise ValueError(f"weights of version {version} are of another network: {names}")
        with self._lock:
            self._weights = state, version
        self._listener.wake()

    def report(self) -> dict[str, float]:
        """Figures since the last report, under the names of the metrics reference."""
        return self._statistics.report() | {"inference/clients": float(self._num_clients)}

    def serve(self, stop: threading.Event | None = None) -> None:
        """Answer until `stop` is set or called; then hang up on all clients. Once in a server's life."""
        if self._is_serving or self._is_closed:
            raise RuntimeError("this inference server serves already, or has ended: make another")
        self._is_serving = True
        try:
            while not (self._stopped.is_set() or (stop is not None and stop.is_set())):
                self._step()
        finally:
            self.close()

    def stop(self) -> None:
        """Let `serve` return after its batch."""
        self._stopped.set()
        self._listener.wake()

    def close(self) -> None:
        """Hang up on all clients; for a server that does not serve (`serve` does it at its end)."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed:
            return
        for waiting in (*self._events, *self._queue.drain()):
            _abandon(waiting)
        self._listener.close()

    def _step(self) -> None:
        """Wait for something to happen, and answer a batch if one is due."""
        self._take_events()
        left = self._queue.seconds_left()
        polled = self._listener.poll(_IDLE_SECONDS if left is None else min(left, _IDLE_SECONDS))
        for client in polled.left:
            self._rings.pop(client, None)
            self._give_back(client)
        for end in polled.asked:
            self._take_request(end)
        self._take_events()
        batch = self._queue.take()
        if batch is None:
            return
        try:
            self._answer(batch)
        except BaseException:
            for question in batch.requests:
                _abandon(question)
            raise

    def _take_events(self) -> None:
        """See to what other threads have left."""
        if self._weights is not None:
            with self._lock:
                weights, self._weights = self._weights, None
            self._model.load(*weights)
        while self._events:
            event = self._events.popleft()
            if isinstance(event, CallQuestion):
                _abandon(self._queue.put(event))
                continue
            _abandon(self._queue.drop(event.client))
            self._answerer.forget(event.client)
            if not event.is_replaced:
                with self._lock:
                    heapq.heappush(self._free, event.client)
        self._queue.num_clients = self._num_clients

    def _take_request(self, end: ServerEnd) -> None:
        question = self._rings.get(end.client)
        if question is None or question.end is not end:
            question = self._rings[end.client] = RingQuestion(end, self.info)
        try:
            question.read()
        except ValueError as failure:
            question.refuse(str(failure))
            return
        self._queue.put(question)

    def _take_place(self) -> int | None:
        with self._lock:
            if not self._free:
                return None
            self._num_clients += 1
            return heapq.heappop(self._free)

    def _give_back(self, client: int) -> None:
        """A place is free again once the serving thread has forgotten what was asked from it."""
        with self._lock:
            self._num_clients -= 1
            self._events.append(_Gone(client, is_replaced=False))
        self._listener.wake()

    def _answer(self, batch: Batch[Question]) -> None:
        start = time.monotonic()
        answered = self._answerer.answer(batch.requests)
        end = time.monotonic()
        if answered:
            self._queue.forward_seconds = end - start
            num_rows = sum(question.num_rows for question in answered)
            latencies = [end - question.arrived for question in answered]
            self._statistics.note_batch(num_rows, batch.timed_out, latencies)


def _abandon(waiting: object) -> None:
    """Let a call that waits know that no answer comes."""
    if isinstance(waiting, CallQuestion):
        waiting.abandon()
