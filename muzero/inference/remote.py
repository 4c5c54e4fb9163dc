"""A model whose network and latents are a server's: what a client's searches see.

Letters: `B` rows, `b` of them in a call, `A` actions, `*O` observation shape, `*M` a latent in memory.
"""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from mcts.base import FloatArray, IntArray, ModelOutput, RootOutput, Selection
from muzero.inference.local import used_nodes
from muzero.inference.messages import (
    COUNT,
    JOINABLE,
    KIND,
    LENGTH,
    REFUSED,
    SENT,
    STATUS,
    VERSION,
    Array,
    Kind,
    RingTicket,
    Transport,
    arrays_in,
    check_room,
)
from muzero.inference.ring import ClientRing


class RingTransport:
    """Requests through shared memory, for clients on the server's host.

    Args:
        timeout_seconds: Of every wait. A server that loads weights or compiles answers later than usual.

    Raises:
        ServerLost: If no server answers the ticket in time.
        ValueError: If the server has no room for another client.
    """

    def __init__(self, ticket: RingTicket, *, timeout_seconds: float = 10.0) -> None:
        self.info = ticket.info
        self._ring = ClientRing(ticket.ring, timeout_seconds=timeout_seconds)
        self._requests: dict[tuple[int, int], list[Array]] = {}
        self._replies: dict[tuple[int, int], list[Array]] = {}

    def prepare(self, kind: Kind, count: int) -> list[Array]:
        """See `Transport.prepare`."""
        arrays = self._requests.get((kind, count))
        if arrays is None:
            check_room(self.info, kind, count)
            arrays = arrays_in(self._ring.slots.request, self.info.request_layout(kind, count))
            if kind in JOINABLE:  # of few sizes
                self._requests[kind, count] = arrays
        return arrays

    def ask(self, kind: Kind, count: int) -> tuple[int, list[Array]]:
        """See `Transport.ask`."""
        slots = self._ring.slots
        header = slots.request_header
        header[KIND], header[COUNT], header[SENT] = kind, count, time.monotonic_ns()
        self._ring.call()
        header = slots.reply_header
        if header[STATUS] == REFUSED:
            raise ValueError(slots.reply[: header[LENGTH]].tobytes().decode(errors="replace"))
        arrays = self._replies.get((kind, count))
        if arrays is None:
            arrays = arrays_in(slots.reply, self.info.reply_layout(kind, count))
            if kind in JOINABLE:
                self._replies[kind, count] = arrays
        return int(header[VERSION]), arrays

    def close(self) -> None:
        """See `Transport.close`."""
        self._ring.close()


class RemoteModel:
    """Stands where a `LocalModel` stands in self-play and reanalyze; a server's network answers.

    The server may take new weights between two calls, so in the middle of a search. The arrays of a `ModelOutput` are valid
    until the next call. Every call but `close` may raise `ServerLost`: the trees are lost then, and whoever searches begins
    anew with another model. For one thread at a time; two models in two threads wait side by side.

    Example:
        >>> model = RemoteModel(RingTransport(ticket))
        >>> root = model.roots(observation)

    Raises:
        ServerLost: If the server does not answer.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        info = transport.info
        self.spec, self.discount, self.num_nodes = info.spec, info.discount, info.num_nodes
        self.batch_size, self.latent_format = info.rows_per_client, info.latent_format
        self._dtype = np.dtype(info.observation_dtype)
        self._outputs: dict[int, tuple[list[Array], ModelOutput]] = {}
        transport.prepare(Kind.HELLO, 0)
        self.version, _ = transport.ask(Kind.HELLO, 0)
        """Version of the weights that answered `roots` last; of those that served at the beginning before."""

    def load(self, state: Mapping[str, Tensor], version: int) -> None:
        """Raise a ValueError: a client has no weights of its own, `InferenceServer.load` takes them for all."""
        raise ValueError(
            f"weights of version {version} were given to a client of central inference: the server loads them"
        )

    def roots(self, observation: npt.NDArray[Any]) -> RootOutput:
        """See `LocalModel.roots`."""
        self._check(observation)
        if len(observation) > self.batch_size:
            raise ValueError(
                f"{len(observation)} observations; this model has room for batch_size {self.batch_size}"
            )
        self.version, output = self._observe(Kind.ROOTS, observation)
        return output

    def recurrent(self, selection: Selection) -> ModelOutput:
        """See `LocalModel.recurrent`."""
        count = len(selection.action)
        (edges,) = self._transport.prepare(Kind.RECURRENT, count)
        edges[0], edges[1], edges[2], edges[3] = selection
        _, arrays = self._transport.ask(Kind.RECURRENT, count)
        known = self._outputs.get(count)
        # Arrays that stay the same give the same record, which a search need not look at again.
        if known is None or known[0] is not arrays:
            logits, (value, reward, discount) = arrays
            known = self._outputs[count] = arrays, ModelOutput(reward, discount, logits, value)
        return known[1]

    def values(self, observation: npt.NDArray[Any]) -> FloatArray:
        """See `LocalModel.values`."""
        return self.predict(observation).value

    def predict(self, observation: npt.NDArray[Any]) -> RootOutput:
        """See `LocalModel.predict`."""
        self._check(observation)
        logits = np.empty((len(observation), self.spec.num_actions), np.float32)
        value = np.empty(len(observation), np.float32)
        for first in range(0, len(observation), self.batch_size):
            chunk = slice(first, first + self.batch_size)
            _, output = self._observe(Kind.PREDICT, observation[chunk])
            logits[chunk], value[chunk] = output.prior_logits, output.value
        return RootOutput(logits, value)

    def move_nodes(self, source: IntArray, num_nodes: IntArray) -> None:
        """See `LocalModel.move_nodes`."""
        rows, nodes = used_nodes(num_nodes)
        if len(rows) > 0:
            (moves,) = self._transport.prepare(Kind.MOVE, len(rows))
            moves[0], moves[1], moves[2] = rows, source[rows, nodes], nodes
            self._transport.ask(Kind.MOVE, len(rows))

    def latents(self, num_nodes: IntArray) -> npt.NDArray[Any]:
        """See `LocalModel.latents`."""
        rows, nodes = used_nodes(num_nodes)
        info = self._transport.info
        latents = np.empty((len(rows), *info.latent_shape), info.latent_dtype)
        for chunk in self._chunks(Kind.READ, len(rows)):
            count = len(rows[chunk])
            (places,) = self._transport.prepare(Kind.READ, count)
            places[0], places[1] = rows[chunk], nodes[chunk]
            _, (latents[chunk],) = self._transport.ask(Kind.READ, count)
        return latents

    def restore_latents(self, num_nodes: IntArray, latents: npt.NDArray[Any]) -> None:
        """See `LocalModel.restore_latents`."""
        rows, nodes = used_nodes(num_nodes)
        for chunk in self._chunks(Kind.WRITE, len(rows)):
            count = len(rows[chunk])
            places, values = self._transport.prepare(Kind.WRITE, count)
            places[0], places[1], values[:] = rows[chunk], nodes[chunk], latents[chunk]
            self._transport.ask(Kind.WRITE, count)

    def close(self) -> None:
        """Leave the server."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _observe(self, kind: Kind, observation: npt.NDArray[Any]) -> tuple[int, RootOutput]:
        count = len(observation)
        (sent,) = self._transport.prepare(kind, count)
        sent[:] = observation
        version, (logits, value) = self._transport.ask(kind, count)
        return version, RootOutput(logits.copy(), value.copy())

    def _chunks(self, kind: Kind, count: int) -> list[slice]:
        most = self._transport.info.most(kind)
        return [slice(first, first + most) for first in range(0, count, most)]

    def _check(self, observation: npt.NDArray[Any]) -> None:
        shape = self.spec.observation_shape
        if observation.shape[1:] != shape:
            raise ValueError(
                f"observations have shape {list(observation.shape[1:])}; the network expects {list(shape)}"
            )
        if not np.can_cast(observation.dtype, self._dtype, "same_kind"):
            raise ValueError(
                f"observations are {observation.dtype}; the server takes {self._dtype}, which cannot hold them: give it "
                f"observation_dtype={observation.dtype}"
            )
