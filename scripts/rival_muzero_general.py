"""Self-play speed of muzero-general, from a checkout of it; `bench_selfplay.py` runs this beside ours.

    python scripts/rival_muzero_general.py CHECKOUT tictactoe --seconds 10

Its own self-play class plays with its own settings and an untrained network, one thread, without starting Ray. It expects the
interface of gym before 0.26, which a thin stand-in over Gymnasium gives it. The last line is one JSON object.
"""

import argparse
import importlib
import json
import sys
import time
import types
from typing import Any

import gymnasium
import torch


class OldEnv:
    """A Gymnasium environment behind the interface that gym had before 0.26."""

    def __init__(self, env: gymnasium.Env[Any, Any]):
        self._env = env
        self._seed: int | None = None

    def seed(self, seed: int) -> None:
        """Seed the next reset."""
        self._seed = seed

    def reset(self) -> Any:
        """The observation alone."""
        observation, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return observation

    def step(self, action: int) -> tuple[Any, float, bool, dict[str, Any]]:
        """One end flag instead of two."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, float(reward), terminated or truncated, info


def main() -> None:
    """Parse the command line, play, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", help="folder of muzero-general")
    parser.add_argument("game", help="module of its games/, such as tictactoe")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.checkout)
    gym = types.ModuleType("gym")
    gym.make = lambda name: OldEnv(gymnasium.make(name))  # type: ignore[attr-defined]
    sys.modules["gym"] = gym
    torch.set_num_threads(1)

    game = importlib.import_module(f"games.{arguments.game}")
    models = importlib.import_module("models")
    self_play = importlib.import_module("self_play")
    config = game.MuZeroConfig()
    config.selfplay_on_gpu = False
    network = models.MuZeroNetwork(config)
    player_class = self_play.SelfPlay.__ray_metadata__.modified_class
    player = player_class({"weights": network.get_weights()}, game.Game, config, 0)

    player.play_game(1.0, config.temperature_threshold, False, "self", 0)
    moves, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < arguments.seconds:
        history = player.play_game(1.0, config.temperature_threshold, False, "self", 0)
        moves += len(history.action_history) - 1
    result = {
        "moves_per_second": round(moves / elapsed, 2),
        "simulations_per_move": config.num_simulations,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
