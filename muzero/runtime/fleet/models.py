"""Where a search worker's models come from: its own network, or the central servers."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from mcts.base import FloatArray, ModelOutput, RootOutput, Selection
from mcts.pipeline import split_rows
from muzero.config.schema import Config
from muzero.inference import RemoteModel, ServerLost
from muzero.inference.local import LocalModel
from muzero.runtime.build import Builder
from muzero.weights import to_tensors

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """An inference server as its clients reach it."""

    index: int
    incarnation: int
    handle: Any
    """The actor."""
    node: str
    """The host it is on, by Ray's name."""
    ticket: Any
    """What clients on its host attach with."""


class ModelSource(Protocol):
    """Gives a worker's models."""

    @property
    def is_substituted(self) -> bool:
        """Whether a lost server is replaced by the worker's own network at the moment."""
        ...

    def groups(self, builder: Builder) -> list[tuple[int, Any]]:
        """Games and model of each group of games; None takes the model that the builder makes."""
        ...

    def refreshing(self, builder: Builder) -> Any:
        """The model of reanalyze; None takes the one that the builder makes."""
        ...

    def takes_weights(self, model: Any) -> bool:
        """Whether the worker loads new weights into this model itself."""
        ...

    def prepare(
        self, version: int, weights: Mapping[str, npt.NDArray[Any]], server: ServerAddress | None
    ) -> None:
        """A lease begins, with these weights as the newest and this server, if there is one."""
        ...

    def lost(self, model: Any) -> None:
        """A search with this model lost its server; it is to begin anew."""
        ...

    def close(self) -> None:
        """Let go of servers."""
        ...


class OwnModels:
    """Every worker evaluates the network itself (IMPALA's way)."""

    is_substituted = False

    def groups(self, builder: Builder) -> list[tuple[int, Any]]:
        """See `ModelSource`."""
        return [(builder.config.selfplay.num_games, None)]

    def refreshing(self, builder: Builder) -> Any:
        """See `ModelSource`."""
        return None

    def takes_weights(self, model: Any) -> bool:
        """See `ModelSource`."""
        return True

    def prepare(
        self, version: int, weights: Mapping[str, npt.NDArray[Any]], server: ServerAddress | None
    ) -> None:
        """See `ModelSource`."""

    def lost(self, model: Any) -> None:
        """See `ModelSource`."""
        raise AssertionError("there is no server to lose")

    def close(self) -> None:
        """See `ModelSource`."""


class SwitchedModel:
    """A client of a server, or the worker's own network while there is none; which of them, a search need not know.

    Questions that stand for themselves (`roots`, `predict`) are asked again when a server is lost. In the middle of a tree
    `ServerLost` is raised: hidden states are gone with the server, and the search has to begin anew.

    Args:
        own: The worker's own network, with the same room.
        wait: Blocks until there is a server again; None goes on with `own`.
    """

    def __init__(self, own: LocalModel, wait: Callable[["SwitchedModel"], None] | None) -> None:
        self._own, self._wait = own, wait
        self.remote: RemoteModel | None = None
        self.spec, self.batch_size = own.spec, own.batch_size
        self.num_nodes, self.discount = own.num_nodes, own.discount

    @property
    def version(self) -> int:
        """Version of the weights that answered `roots` last."""
        return self._own.version if self.remote is None else self.remote.version

    @property
    def own(self) -> LocalModel:
        """The worker's own network."""
        return self._own

    def switch(self, remote: RemoteModel | None) -> None:
        """Ask this server from now on, or the own network."""
        if self.remote is not None:
            self.remote.close()
        self.remote = remote

    def roots(self, observation: npt.NDArray[Any]) -> RootOutput:
        """See `LocalModel.roots`."""
        root: RootOutput = self._insist(lambda model: model.roots(observation))
        return root

    def predict(self, observation: npt.NDArray[Any]) -> RootOutput:
        """See `LocalModel.predict`."""
        output: RootOutput = self._insist(lambda model: model.predict(observation))
        return output

    def values(self, observation: npt.NDArray[Any]) -> FloatArray:
        """See `LocalModel.values`."""
        return self.predict(observation).value

    def recurrent(self, selection: Selection) -> ModelOutput:
        """See `LocalModel.recurrent`; raises `ServerLost`."""
        return (self.remote or self._own).recurrent(selection)

    def forget_server(self) -> None:
        """The server is lost: go on with the own network, or wait for another server."""
        self.switch(None)
        if self._wait is not None:
            self._wait(self)

    def _insist(self, ask: Callable[[Any], Any]) -> Any:
        while True:
            try:
                return ask(self.remote or self._own)
            except ServerLost as error:
                logger.warning("an inference server is lost: %s", error)
                self.forget_server()


class CentralModels:
    """Servers evaluate the network for all workers (SEED's way); a worker has two groups of games that take turns.

    Args:
        connect: Makes a client of a server; raises `ServerLost`.
        waits: Whether to wait for another server when one is lost, instead of evaluating the network here.
        find: Gives the present address of the worker's server, or None while there is none.
    """

    def __init__(
        self,
        config: Config,
        connect: Callable[[ServerAddress, str], RemoteModel],
        find: Callable[[], ServerAddress | None],
        *,
        waits: bool,
        deadline_seconds: float,
    ) -> None:
        self._config, self._connect, self._find = config, connect, find
        self._waits, self._deadline_seconds = waits, deadline_seconds
        self._models: dict[str, SwitchedModel] = {}
        self._server: ServerAddress | None = None
        self._weights: tuple[int, Mapping[str, npt.NDArray[Any]]] | None = None

    @property
    def is_substituted(self) -> bool:
        """See `ModelSource`."""
        return any(model.remote is None for model in self._models.values())

    def groups(self, builder: Builder) -> list[tuple[int, Any]]:
        """See `ModelSource`."""
        num_games = builder.config.selfplay.num_games
        simulations = (
            builder.config.selfplay.num_simulations or builder.config.search.num_simulations
        )
        first = split_rows(num_games)
        halves = (first, num_games - first)
        return [
            (number, self._add(f"games {half}", builder.network_model(number, simulations + 1)))
            for half, number in enumerate(halves)
        ]

    def refreshing(self, builder: Builder) -> Any:
        """See `ModelSource`."""
        config = builder.config
        if config.reanalyze.fresh_fraction <= 0.0:
            return None
        simulations = config.reanalyze.num_simulations or config.search.num_simulations
        own = builder.network_model(config.reanalyze.batch_size, simulations + 1)
        return self._add("reanalyze", own)

    def takes_weights(self, model: Any) -> bool:
        """See `ModelSource`."""
        return False

    def prepare(
        self, version: int, weights: Mapping[str, npt.NDArray[Any]], server: ServerAddress | None
    ) -> None:
        """See `ModelSource`."""
        self._weights = version, weights
        known = self._server
        if server is not None and (
            known is None
            or (known.index, known.incarnation) != (server.index, server.incarnation)
            or self.is_substituted
        ):
            self._attach(server)
        for model in self._models.values():
            if model.remote is None:
                self._load_own(model)

    def lost(self, model: Any) -> None:
        """See `ModelSource`."""
        model.forget_server()

    def close(self) -> None:
        """See `ModelSource`."""
        for model in self._models.values():
            model.switch(None)

    def _add(self, name: str, own: LocalModel) -> SwitchedModel:
        model = SwitchedModel(own, self._await_server if self._waits else self._load_own)
        self._models[name] = model
        return model

    def _attach(self, server: ServerAddress) -> None:
        self._server = server
        for name, model in self._models.items():
            try:
                model.switch(self._connect(server, name))
            except ServerLost as error:
                logger.warning("inference server %d: %s", server.index, error)
                model.forget_server()

    def _load_own(self, model: SwitchedModel) -> None:
        """Give a worker's own network the newest weights: it is asked now."""
        assert self._weights is not None
        version, weights = self._weights
        if model.own.version != version:
            state = to_tensors(weights)
            model.own.load(state, version)

    def _await_server(self, model: SwitchedModel) -> None:
        name = next(name for name, other in self._models.items() if other is model)
        deadline = time.monotonic() + self._deadline_seconds
        while time.monotonic() < deadline:
            server = self._find()
            if server is not None:
                try:
                    model.switch(self._connect(server, name))
                    self._server = server
                    return
                except ServerLost:
                    pass
            time.sleep(_RETRY_SECONDS)
        raise ServerLost(
            f"no inference server for {self._deadline_seconds:g} s (runtime.on_lost_server=wait)"
        )
