"""Central inference against a network in every process, and what the way to the server and back takes.

    python scripts/bench_inference.py
    python scripts/bench_inference.py --clients 1 2 4 8 --rows 128 --threads 2 --override network=resnet_small

Every client is a process that searches `rows` random positions at a time with the search and the network of an experiment
(weights drawn at random, one thread of computation per process): `central` asks one server process, `local` has a copy of the
network. Figures are the sum over all clients between a common start and a common end. `latency_microseconds` is the median time
of a simulation's network call as the client sees it; central's includes the waits for other clients. `ring_microseconds` is the
median round trip through the ring to a server process that answers at once, and `call_microseconds` what a request of the search
takes beyond the network's own time, with one client. The last line is one JSON object.
"""

import argparse
import json
import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np

from mcts import ModelOutput, Search, Selection, draw_noise, run
from muzero.config.compose import compose
from muzero.config.schema import Config
from muzero.inference import InferenceServer, LocalModel, RemoteModel, RingTransport
from muzero.inference.messages import RingTicket
from muzero.inference.ring import ClientRing, Listener, Ticket
from muzero.runtime.build import Builder, configure_torch, search_settings

_SPAWN = multiprocessing.get_context("spawn")
_STARTING_SECONDS = 120.0


class Timed:
    """A model whose steps are timed."""

    def __init__(self, model: LocalModel | RemoteModel) -> None:
        self.model = model
        self.nanoseconds: list[int] = []

    def recurrent(self, selection: Selection) -> ModelOutput:
        """See `mcts.Model`."""
        start = time.perf_counter_ns()
        output = self.model.recurrent(selection)
        self.nanoseconds.append(time.perf_counter_ns() - start)
        return output


def serve(config: Config, num_clients: int, rows: int, connection: Connection) -> None:
    """A server process: hands out its ticket, serves until it is told to stop, reports."""
    configure_torch(1)
    server = InferenceServer(
        Builder.of(config).network(),
        max_clients=num_clients,
        rows_per_client=rows,
        num_nodes=config.search.num_simulations + 1,
        discount=config.targets.discount,
    )
    connection.send(server.ticket())
    thread = threading.Thread(target=server.serve)
    thread.start()
    while connection.recv() == "report":
        connection.send(server.report())
    server.stop()
    thread.join()


def search(
    config: Config, ticket: RingTicket | None, rows: int, num_threads: int, connection: Connection
) -> None:
    """A client process: warms up, waits for the start, searches for as long as it is told, reports."""
    configure_torch(1)
    builder = Builder.of(config)
    settings = search_settings(config.search, None)
    share = rows // num_threads
    rng = np.random.default_rng(0)
    shape = (share, *builder.spec.observation_shape)
    observation = rng.integers(0, 2, shape).astype(np.float32)
    legal = np.ones((share, builder.spec.num_actions), np.bool_)
    noise = draw_noise(settings, legal, rng)
    models: list[Timed] = []
    searches: list[Search] = []
    for _ in range(num_threads):
        model: LocalModel | RemoteModel
        if ticket is not None:
            model = RemoteModel(RingTransport(ticket))
        else:
            model = LocalModel(
                builder.network(),
                batch_size=share,
                num_nodes=settings.num_simulations + 1,
                discount=config.targets.discount,
            )
        models.append(Timed(model))
        searches.append(builder.search(share, settings))

    def search_once(half: int) -> None:
        root = models[half].model.roots(observation)
        run(searches[half], models[half], root, legal, noise)

    def search_until(half: int, end: float) -> None:
        while time.monotonic() < end:
            search_once(half)

    for half in range(num_threads):
        for _ in range(3):
            search_once(half)
        models[half].nanoseconds.clear()
    connection.send("ready")
    end = connection.recv()  # of the host's clock
    threads = [
        threading.Thread(target=search_until, args=(half, end)) for half in range(num_threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    nanoseconds = [each for model in models for each in model.nanoseconds]
    connection.send((len(nanoseconds) * share, median(nanoseconds) / 1e3))


def start(function: Any, *arguments: Any) -> tuple[Any, Connection]:
    """A process, and the connection that it gets as its last argument."""
    mine, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, mine


def receive(connection: Connection, seconds: float = _STARTING_SECONDS) -> Any:
    if not connection.poll(seconds):
        raise TimeoutError("a process of the benchmark does not answer")
    return connection.recv()


def measure(config: Config, way: str, num_clients: int, arguments: argparse.Namespace) -> dict:
    """Figures of one way with so many clients."""
    rows, num_threads = arguments.rows, arguments.threads
    ticket, server, server_line = None, None, None
    if way == "central":
        places, share = num_clients * num_threads, rows // num_threads
        server, server_line = start(serve, config, places, share)
        ticket = receive(server_line)
    clients = [start(search, config, ticket, rows, num_threads) for _ in range(num_clients)]
    for _, line in clients:
        receive(line)
    if server_line is not None:
        server_line.send("report")  # what is reported later begins here
        receive(server_line)
    end = time.monotonic() + arguments.seconds
    for _, line in clients:
        line.send(end)
    results = [receive(line) for _, line in clients]
    for process, _ in clients:
        process.join()
    figures = {
        "simulations_per_second": round(sum(count for count, _ in results) / arguments.seconds),
        "latency_microseconds": round(median(latency for _, latency in results), 1),
    }
    if server is not None and server_line is not None:
        server_line.send("report")
        report = receive(server_line)
        server_line.send("stop")
        server.join()
        for name in ("occupancy", "timeout_fraction"):
            figures[name] = round(report[f"inference/{name}"], 4)
    return figures


def echo(connection: Connection) -> None:
    """A server process that answers at once."""
    free = [0]
    listener = Listener(
        request_bytes=64, reply_bytes=64, take_place=lambda: free.pop() if free else None
    )
    connection.send(listener.ticket)
    has_left = False
    while not has_left:
        polled = listener.poll(1.0)
        for end in polled.asked:
            end.ring()
        has_left = bool(polled.left)
    listener.close()


def measure_ring(seconds: float) -> float:
    """Median microseconds of a round trip."""
    process, line = start(echo)
    ticket: Ticket = receive(line)
    ring = ClientRing(ticket)
    nanoseconds: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = time.perf_counter_ns()
        ring.call()
        nanoseconds.append(time.perf_counter_ns() - before)
    ring.close()
    process.join()
    return round(median(nanoseconds) / 1e3, 1)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rows", type=int, default=64, help="positions of a client")
    parser.add_argument("--threads", type=int, default=1, help="of a client, which share its rows")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--experiment", default="tictactoe")
    parser.add_argument("--override", action="append", default=[], help="of its config")
    arguments = parser.parse_args()
    if arguments.rows < 1 or arguments.threads < 1 or arguments.rows % arguments.threads:
        parser.error(
            f"--rows {arguments.rows} is no multiple of --threads {arguments.threads}, or below 1"
        )
    config = compose([f"experiment={arguments.experiment}", *arguments.override])
    result: dict[str, Any] = {
        "rows": arguments.rows,
        "threads": arguments.threads,
        "simulations": config.search.num_simulations,
        "parameters": Builder.of(config).network().num_parameters(),
        "ring_microseconds": measure_ring(arguments.seconds),
        "clients": {},
    }
    print(f"ring: {result['ring_microseconds']} microseconds")
    for num_clients in arguments.clients:
        figures = result["clients"][str(num_clients)] = {
            way: measure(config, way, num_clients, arguments) for way in ("central", "local")
        }
        for way, values in figures.items():
            print(f"{num_clients} clients, {way}: {values}")
    if "1" in result["clients"]:
        latency = [result["clients"]["1"][way]["latency_microseconds"] for way in figures]
        result["call_microseconds"] = round(latency[0] - latency[1], 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
