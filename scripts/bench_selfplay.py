"""Self-play speed: moves/s, simulations/s, and the network's share of the search, on one thread.

    python scripts/bench_selfplay.py experiment=tictactoe
    python scripts/bench_selfplay.py experiment=cartpole search.num_simulations=50 --seconds 20
    python scripts/bench_selfplay.py experiment=tictactoe search.num_simulations=25 --against CHECKOUT --rival-game tictactoe

The network is untrained; environment, search, recording and cutting into segments are all in the figure. The last line is
one JSON object. `search_efficiency` is the time inside the network's calls over the time of the whole search.
`--against` names a checkout of muzero-general, which then plays in a process of its own, before and after ours.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mcts.base import ModelOutput, RootOutput, Selection
from muzero.config.compose import compose
from muzero.inference.local import LocalModel
from muzero.runtime.build import Builder, configure_torch
from muzero.selfplay import SelfPlay


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


def play_for(selfplay: SelfPlay, seconds: float) -> tuple[float, float]:
    """Play for so long; returns moves/s and simulations/s."""
    totals = selfplay.totals
    steps, simulations, start = totals.env_steps, totals.simulations, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        selfplay.play(learner_step=0)
    return (totals.env_steps - steps) / elapsed, (totals.simulations - simulations) / elapsed


def rival(checkout: str, game: str, seconds: float) -> dict[str, Any]:
    """muzero-general's self-play in a process of its own."""
    script = Path(__file__).with_name("rival_muzero_general.py")
    command = [sys.executable, str(script), checkout, game, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="settings, as for muzero-train")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements; the median counts")
    parser.add_argument(
        "--against", help="checkout of muzero-general to be measured in the same run"
    )
    parser.add_argument(
        "--rival-game", default="tictactoe", help="its game: tictactoe, cartpole, connect4"
    )
    arguments = parser.parse_args()
    before = arguments.against and rival(arguments.against, arguments.rival_game, arguments.seconds)
    configure_torch(1)
    config = compose(["runtime.device=cpu", "search.num_threads=1", *arguments.overrides])
    builder = Builder.of(config)
    selfplay = builder.selfplay()
    model = TimedModel(selfplay.model)
    search_seconds = 0.0
    play_for(selfplay, 2.0)  # compiles and fills caches

    measured = [play_for(selfplay, arguments.seconds) for _ in range(arguments.repeats)]
    moves, simulations = (statistics.median(column) for column in zip(*measured, strict=True))

    from mcts import run

    settings = selfplay.search.settings
    observation = selfplay.observation
    legal = selfplay.legal
    for _ in range(50):
        start = time.perf_counter()
        run(selfplay.search, model, model.roots(observation), legal)
        search_seconds += time.perf_counter() - start
    efficiency = model.seconds / search_seconds

    parameters = builder.network().num_parameters()
    result: dict[str, Any] = {
        "environment": builder.spec.name,
        "games": config.selfplay.num_games,
        "simulations_per_move": settings.num_simulations,
        "parameters": parameters,
        "moves_per_second": round(moves, 1),
        "simulations_per_second": round(simulations, 1),
        "search_efficiency": round(efficiency, 4),
        "moves_per_second_of_each_repeat": [round(each, 1) for each, _ in measured],
    }
    if before:
        after = rival(arguments.against, arguments.rival_game, arguments.seconds)
        speeds = [before["moves_per_second"], after["moves_per_second"]]
        theirs = statistics.mean(speeds)
        ratio = round(moves / theirs, 1)
        result["rivals"] = {
            "muzero-general": {**before, "moves_per_second": theirs, "ratio": ratio}
        }
    for name, value in result.items():
        print(f"{name:>34}: {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
