"""What search.bfloat16 changes: the visits of searches in bfloat16 against those in float32, and the speed of both.

    python scripts/check_bfloat16.py --run runs/connect_four/2026-01-31_12-00-00
    python scripts/check_bfloat16.py experiment=tictactoe --roots 512

With `--run` the weights are those of a run's newest checkpoint, and its settings are kept but for those given; else the
network is untrained, which says little. Positions are those that self-play meets. Searches are without noise, so that the
precision is all that differs. `same_most_visited` is the share of roots whose most visited action is the same, `visit_variation`
the mean total variation distance of visit fractions; see `muzero.inference.calibration`. The log says what multiplies in bfloat16.
The last line is one JSON object.
"""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from muzero.config.compose import compose
from muzero.config.schema import Config
from muzero.config.store import load_config
from muzero.inference.calibration import calibrate
from muzero.inference.local import LocalModel
from muzero.runtime.build import Builder, configure_torch, search_settings
from muzero.runtime.players import acting_weights, open_checkpoint


def gather(
    builder: Builder, weights: dict[str, torch.Tensor] | None, num_roots: int
) -> tuple[np.ndarray, np.ndarray]:
    """Observations and legal actions of so many positions that self-play searches, later moves of games included."""
    selfplay = builder.selfplay()
    if weights is not None:
        selfplay.model.load(weights, 0)
    observations, legal, count = [], [], 0
    while count < num_roots:
        selfplay.play(learner_step=builder.config.learner.num_steps)
        observations.append(selfplay.observation.copy())
        legal.append(selfplay.legal.copy())
        count += len(legal[-1])
    return np.concatenate(observations)[:num_roots], np.concatenate(legal)[:num_roots]


def step_seconds(model: LocalModel, observation: np.ndarray, repeats: int = 30) -> float:
    """Shortest time of one step of all rows from their roots."""
    from mcts.base import Selection

    model.roots(observation)
    rows = np.arange(len(observation), dtype=np.int32)
    edges = Selection(rows, rows * 0, rows * 0, rows * 0 + 1)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.recurrent(edges)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="settings, as for muzero-train")
    parser.add_argument("--run", type=Path, help="run folder whose weights and settings are taken")
    parser.add_argument("--roots", type=int, default=1024, help="positions to compare")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("muzero.inference").setLevel(logging.INFO)
    configure_torch(1)
    weights: dict[str, torch.Tensor] | None = None
    version = 0
    config: Config
    if arguments.run is None:
        config = compose(["runtime.device=cpu", *arguments.overrides])
    else:
        if arguments.overrides:
            parser.error("--run takes the run's own settings; leave the others out")
        config = load_config(arguments.run)
        config.runtime.device = "cpu"
        weights, version = acting_weights(open_checkpoint(arguments.run))
    config.search.pipelined = False
    builder = Builder.of(config)
    observation, legal = gather(builder, weights, arguments.roots)
    settings = search_settings(
        config.search,
        config.selfplay.num_simulations,
        num_chance_codes=config.network.num_chance_codes,
    )
    models = {}
    for name, bfloat16 in (("float32", False), ("bfloat16", True)):
        models[name] = model = LocalModel(
            builder.network(),
            batch_size=len(legal),
            num_nodes=settings.num_simulations + 1,
            discount=config.targets.discount,
            bfloat16=bfloat16,
        )
        if weights is not None:
            model.load(weights, version)
    calibration = calibrate(models["float32"], models["bfloat16"], settings, observation, legal)
    seconds = {name: step_seconds(model, observation) for name, model in models.items()}
    result: dict[str, Any] = {
        "environment": builder.spec.name,
        "learner_step": version,
        "simulations": settings.num_simulations,
        **calibration.as_dict(),
        "evaluations_per_second": {
            name: round(len(legal) / each) for name, each in seconds.items()
        },
        "speedup": round(seconds["float32"] / seconds["bfloat16"], 2),
    }
    for name, value in result.items():
        print(f"{name:>24}: {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
