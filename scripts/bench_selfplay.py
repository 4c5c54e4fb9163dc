"""Self-play speed: moves/s, simulations/s, and the network's share of the search, on one thread.

    python scripts/bench_selfplay.py experiment=tictactoe
    python scripts/bench_selfplay.py experiment=cartpole search.num_simulations=50 --seconds 20
    python scripts/bench_selfplay.py experiment=tictactoe search.num_simulations=25 --against CHECKOUT --rival-game tictactoe
    python scripts/bench_selfplay.py --against mujax --seconds 10 --repeats 3
    python scripts/bench_selfplay.py --efficiency

The network is untrained; environment, search, recording and cutting into segments are all in the figure. The last line is
one JSON object. `search_efficiency` is the time inside the network's calls over the time of the whole search.
`--against` names a checkout of muzero-general, which then plays in a process of its own, before and after ours. With
`--against mujax` mujax does; both then play CartPole in 16 games with 50 simulations a move and networks of equal size, unless
settings are given, and the ratio is of simulations per CPU second. `--efficiency` runs scripts/bench_efficiency.py instead,
for that share alone at a fixed size; options behind it are that script's own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mcts import Search
from mcts.base import ModelOutput, RootOutput, Selection
from muzero.config.compose import compose
from muzero.config.environments import GymConfig
from muzero.inference.local import LocalModel
from muzero.runtime.build import Builder, configure_torch
from muzero.selfplay import SelfPlay

# Ours with the atoms of mujax's network S and its number of parameters, in all and in what one simulation calls.
LIKE_MUJAX = (
    "experiment=cartpole", "search.num_simulations=50", "selfplay.num_games=16",
    "network.latent_size=32", "network.hidden_sizes=[64,224]",
    "network.value_support_size=255", "network.value_support_max=22.0",
    "network.reward_support_size=255", "network.reward_support_max=2.0",
)  # fmt: skip
# What a rival's ratio compares.
COMPARED = {"muzero-general": "moves_per_second", "mujax": "simulations_per_cpu_second"}


class TimedModel:
    """A model that knows how long its calls took."""

    def __init__(self, model: LocalModel):
        self._model = model
        self.seconds = 0.0

    def roots(self, observation: Any) -> RootOutput:
        """Timed `LocalModel.roots`."""
        start = time.perf_counter()
        output = self._model.roots(observation)
        self.seconds += time.perf_counter() - start
        return output

    def recurrent(self, selection: Selection) -> ModelOutput:
        """Timed `LocalModel.recurrent`."""
        start = time.perf_counter()
        output = self._model.recurrent(selection)
        self.seconds += time.perf_counter() - start
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def play_for(selfplay: SelfPlay, seconds: float) -> tuple[float, float, float]:
    """Play for so long; returns moves/s, simulations/s and simulations per CPU second."""
    totals = selfplay.totals
    steps, simulations = totals.env_steps, totals.simulations
    start, start_cpu = time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - start) < seconds:
        selfplay.play(learner_step=0)
    cpu_seconds = time.process_time() - start_cpu
    made = totals.simulations - simulations
    return (totals.env_steps - steps) / elapsed, made / elapsed, made / cpu_seconds


def rival(python: str, script: str, *arguments: object) -> dict[str, Any]:
    """The report of a rival's script, run in a process of its own."""
    command = [python, str(Path(__file__).with_name(script)), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.returncode)  # it has told why
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def mean_report(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Two reports of a rival as one, speeds averaged."""
    return {
        name: round(statistics.mean([value, after[name]]), 1) if "second" in name else value
        for name, value in before.items()
    }


def network_sizes(builder: Builder) -> dict[str, int]:
    """Parameters of the network, and of the functions that every simulation calls."""
    network = builder.network()
    total = network.num_parameters()
    in_representation = sum(
        parameter.numel()
        for name, parameter in network.named_parameters()
        if name.startswith("representation")
    )
    return {"parameters": total, "parameters_per_simulation": total - in_representation}


def check_sizes(
    parser: argparse.ArgumentParser, ours: dict[str, int], theirs: dict[str, Any]
) -> None:
    """Refuse a comparison in which our network is more than 2 % smaller."""
    for name, size in ours.items():
        if size < 0.98 * theirs[name]:
            parser.error(
                f"our network has {size:,} {name.replace('_', ' ')}, mujax's {theirs[name]:,}: compare equal sizes; "
                "network.hidden_sizes and network.latent_size set ours (no settings at all: a network like mujax's)"
            )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="settings, as for muzero-train")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements; the median counts")
    parser.add_argument(
        "--against", help="measured in the same run: a checkout of muzero-general, or mujax"
    )
    parser.add_argument(
        "--against-mujax", dest="against", action="store_const", const="mujax",
        help="the same as --against mujax",
    )  # fmt: skip
    parser.add_argument(
        "--rival-game", default="tictactoe", help="its game: tictactoe, cartpole, connect4"
    )
    parser.add_argument(
        "--rival-python", default=sys.executable, help="interpreter that has mujax installed"
    )
    parser.add_argument(
        "--efficiency",
        nargs=argparse.REMAINDER,
        help="run bench_efficiency.py with the options that follow",
    )
    arguments = parser.parse_args()
    if arguments.efficiency is not None:
        script = Path(__file__).with_name("bench_efficiency.py")
        raise SystemExit(subprocess.call([sys.executable, str(script), *arguments.efficiency]))
    overrides = arguments.overrides
    if arguments.against == "mujax" and not overrides:
        overrides = LIKE_MUJAX
    configure_torch(1)
    config = compose(["runtime.device=cpu", "search.num_threads=1", *overrides])
    rival_name = "muzero-general"
    command: tuple[Any, ...] = ()
    if arguments.against == "mujax":
        if not isinstance(config.env, GymConfig):
            parser.error(f"mujax plays Gymnasium's environments, not env.kind={config.env.kind}")
        rival_name = "mujax"
        command = (
            arguments.rival_python, "rival_mujax.py", "--environment", config.env.id,
            "--environments", config.selfplay.num_games,
            "--simulations", config.search.num_simulations,
        )  # fmt: skip
    elif arguments.against:
        command = (
            sys.executable, "rival_muzero_general.py", arguments.against, arguments.rival_game,
        )  # fmt: skip
    before: dict[str, Any] = {}
    if command:
        before = rival(*command, "--seconds", arguments.seconds)
    builder = Builder.of(config)
    sizes = network_sizes(builder)
    if rival_name == "mujax":
        check_sizes(parser, sizes, before)
    selfplay = builder.selfplay()
    if not isinstance(selfplay.model, LocalModel):
        parser.error(
            "neither search.dynamics=rules (its time goes into the game) nor search.pipelined is measured here"
        )
    assert isinstance(selfplay.search, Search)
    model = TimedModel(selfplay.model)
    search_seconds = 0.0
    play_for(selfplay, 2.0)  # compiles and fills caches

    measured = [play_for(selfplay, arguments.seconds) for _ in range(arguments.repeats)]
    moves, simulations, simulations_per_cpu_second = (
        statistics.median(column) for column in zip(*measured, strict=True)
    )

    from mcts import run

    settings = selfplay.search.settings
    observation = selfplay.observation
    legal = selfplay.legal
    for _ in range(50):
        start = time.perf_counter()
        run(selfplay.search, model, model.roots(observation), legal)
        search_seconds += time.perf_counter() - start
    efficiency = model.seconds / search_seconds

    result: dict[str, Any] = {
        "environment": builder.spec.name,
        "games": config.selfplay.num_games,
        "simulations_per_move": settings.num_simulations,
        **sizes,
        "moves_per_second": round(moves, 1),
        "simulations_per_second": round(simulations, 1),
        "simulations_per_cpu_second": round(simulations_per_cpu_second, 1),
        "search_efficiency": round(efficiency, 4),
        "moves_per_second_of_each_repeat": [round(each, 1) for each, *_ in measured],
    }
    if before:
        theirs = mean_report(before, rival(*command, "--seconds", arguments.seconds))
        compared = COMPARED[rival_name]
        ratio = round(result[compared] / theirs[compared], 2)
        result["rivals"] = {rival_name: {**theirs, "compared": compared, "ratio": ratio}}
    for name, value in result.items():
        print(f"{name:>34}: {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
