"""How much of a search's time the network takes: search_efficiency, and where the rest goes.

    python scripts/bench_efficiency.py
    python scripts/bench_efficiency.py --bfloat16 --policy gumbel --batch 64

One thread, connect four's sizes (6x7, 7 actions), a 128k-parameter MLP and a residual network with 32 channels and two blocks,
weights drawn at random. `search_efficiency` is the time of the network's calls alone over the time of the whole search. The
calls are those of the search itself, made again in their order with the same rows and latents and with nothing in between:
reading and writing latents is part of them, choosing and collecting rows is not. Both are CPU seconds of the thread, the least of
the repeats, which take turns. `latent_copies` is what copying the latents takes by itself, and `strict_efficiency` counts that
to the rest. The last line is one JSON object.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from numba import njit

from mcts import ModelOutput, Search, SearchSettings, Selection, draw_noise, run
from muzero.config.networks import MLPConfig, NetworkConfig, ResNetConfig
from muzero.inference.evaluators import Rows
from muzero.inference.local import LocalModel
from muzero.network import MuZeroNetwork, NetworkSpec, make_network
from muzero.runtime.build import configure_torch

SPEC = NetworkSpec(
    observation_shape=(3, 6, 7), num_actions=7, num_players=2, return_bounds=(-1.0, 1.0)
)
NETWORKS: dict[str, NetworkConfig] = {
    "mlp": MLPConfig(hidden_sizes=[256], value_support_size=51, reward_support_size=51),
    "resnet": ResNetConfig(num_channels=32, num_blocks=2),
}


def drawn_network(config: NetworkConfig) -> MuZeroNetwork:
    """A network whose heads say different things of different positions, as a trained one's do."""
    network = make_network(config, SPEC, seed=0)
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return network


class Recorder:
    """Keeps the selections that a search asks a model for."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self.selections: list[Selection] = []

    def recurrent(self, selection: Selection) -> ModelOutput:
        """See `mcts.Model`."""
        self.selections.append(Selection(*(part.copy() for part in selection)))
        return self._model.recurrent(selection)


class Case:
    """A search and a model of the same size, and a position per row."""

    def __init__(self, config: NetworkConfig, arguments: argparse.Namespace) -> None:
        batch, simulations = arguments.batch, arguments.simulations
        self.network = drawn_network(config)
        self.model = LocalModel(
            self.network,
            batch_size=batch,
            num_nodes=simulations + 1,
            discount=1.0,
            bfloat16=arguments.bfloat16,
        )
        settings = SearchSettings(kind=arguments.policy, num_simulations=simulations)
        self.search = Search(settings, batch_size=batch, num_actions=SPEC.num_actions)
        rng = np.random.default_rng(0)
        self.observation = rng.integers(0, 2, (batch, *SPEC.observation_shape)).astype(np.float32)
        self.legal = np.ones((batch, SPEC.num_actions), np.bool_)
        self.noise = draw_noise(settings, self.legal, rng)
        recorder = Recorder(self.model)
        root = self.model.roots(self.observation)
        self.depth = float(run(self.search, recorder, root, self.legal, self.noise).depth.mean())
        self.rows = []
        for selection in recorder.selections:
            self.rows.append(Rows(len(selection.row), self.model.device))
            self.rows[-1].fill(selection, self.model.num_nodes)

    def whole(self) -> float:
        """Seconds of a search, its root included."""
        start = time.thread_time()
        root = self.model.roots(self.observation)
        run(self.search, self.model, root, self.legal, self.noise)
        return time.thread_time() - start

    def network_alone(self) -> float:
        """Seconds inside the network's calls of that search."""
        model, step, slab = self.model, self.model._evaluator.recurrent, self.model._slab
        start = time.thread_time()
        model.roots(self.observation)
        for rows in self.rows:
            step(slab, rows)
        return time.thread_time() - start

    def latent_copies(self) -> float:
        """Seconds of copying the latents of that search once from where they are read to where they are written."""
        slab = self.model._slab.flatten(1).view(torch.uint8).numpy()
        start = time.thread_time()
        for rows in self.rows:
            _copy_rows(slab, rows.source, rows.target)
        return time.thread_time() - start

    def parts(self) -> np.ndarray:
        """Seconds of a search by part: select, model, update, and the rest (root, begin, result)."""
        clock, search = time.thread_time, self.search
        start = clock()
        search.begin(self.model.roots(self.observation), self.legal, self.noise)
        select = model = update = 0.0
        while True:
            a = clock()
            selection = search.select()
            b = clock()
            select += b - a
            if selection is None:
                break
            output = self.model.recurrent(selection)
            c = clock()
            search.update(output)
            model, update = model + c - b, update + clock() - c
        search.result()
        return np.array([select, model, update, clock() - start - select - model - update])


@njit(cache=True, nogil=True)
def _copy_rows(slab: np.ndarray, source: np.ndarray, target: np.ndarray) -> None:
    for i in range(len(source)):
        slab[target[i]] = slab[source[i]]


def measure(config: NetworkConfig, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of one network."""
    case = Case(config, arguments)
    whole: list[float] = []
    alone: list[float] = []
    parts: list[np.ndarray] = []
    case.latent_copies()  # compiles
    start = time.perf_counter()
    while len(whole) < 3 or time.perf_counter() - start < arguments.seconds:
        whole.append(case.whole())
        alone.append(case.network_alone())
        parts.append(case.parts())
    # Last: it writes over the latents.
    copies = [case.latent_copies() for _ in range(max(3, len(whole) // 4))]
    steps, batch = len(case.rows), arguments.batch
    best_whole, best_alone, best_copies = min(whole), min(alone), min(copies)
    select, model, update, rest = np.min(parts, axis=0)
    microseconds = {
        "select": select / steps * 1e6,
        "model": model / steps * 1e6,
        "update": update / steps * 1e6,
        "root_and_result_per_search": rest * 1e6,
        "network_alone": best_alone / steps * 1e6,
        "latent_copies": best_copies / steps * 1e6,
    }
    return {
        "parameters": case.network.num_parameters(),
        "depth_mean": round(case.depth, 2),
        "repeats": len(whole),
        "simulations_per_second": round(batch * steps / best_whole),
        "search_efficiency": round(best_alone / best_whole, 4),
        "strict_efficiency": round((best_alone - best_copies) / best_whole, 4),
        "microseconds_per_step": {
            name: round(float(value), 1) for name, value in microseconds.items()
        },
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--simulations", type=int, default=50)
    parser.add_argument("--policy", choices=("puct", "gumbel"), default="puct")
    parser.add_argument("--bfloat16", action="store_true", help="networks in bfloat16")
    parser.add_argument("--network", choices=(*NETWORKS, "all"), default="all")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each network")
    arguments = parser.parse_args()
    configure_torch(1)
    settings = {name: getattr(arguments, name) for name in ("batch", "simulations", "policy")}
    result: dict[str, Any] = {**settings, "bfloat16": arguments.bfloat16, "networks": {}}
    for name, config in NETWORKS.items():
        if arguments.network in (name, "all"):
            result["networks"][name] = figures = measure(config, arguments)
            print(name)
            for key, value in figures.items():
                print(f"{key:>24}: {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
