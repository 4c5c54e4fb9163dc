"""Self-play speed of mujax 0.1.3 (`pip install "muzero-trainer[rivals]"`); `bench_selfplay.py` runs this beside ours.

    python scripts/rival_mujax.py --environment CartPole-v1 --environments 16 --simulations 50 --seconds 10

Its own environment loop plays with its own Gumbel MuZero, an untrained network of its size preset and its own replay, without a
learner. Compilation comes before the clock starts. CPU seconds are those of all threads of this process. The last line is one
JSON object.
"""

import argparse
import json
import os
import threading
import time
from typing import Any

# Work for one core: a second thread costs XLA more CPU seconds than it saves in networks of this size.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

MISSING = (
    "--against mujax needs mujax, jax and flax in the interpreter that plays it: {error}. Install them with\n"
    '    pip install "muzero-trainer[rivals]"\n'
    "or into an environment of their own, and name its interpreter with --rival-python."
)


class Clock:
    """An observer of mujax's loop that starts after `warm_up` steps and stops the loop after `seconds`."""

    def __init__(self, warm_up: int, seconds: float, stop: threading.Event) -> None:
        self._warm_up = warm_up
        self._seconds = seconds
        self._stop = stop
        self._start = self._start_cpu = 0.0
        self._num_calls = 0
        self.num_steps = 0
        self.wall_seconds = self.cpu_seconds = 0.0

    def observe_first(self, env: Any, num_envs: int) -> None:
        """See mujax's `EnvLoopObserver`."""

    def observe(self, env: Any, step: Any) -> None:
        """Called after every step of all environments."""
        self._num_calls += 1
        if self._num_calls <= self._warm_up:
            self._start, self._start_cpu = time.perf_counter(), time.process_time()
            return
        self.num_steps += len(step.action)
        self.wall_seconds = time.perf_counter() - self._start
        self.cpu_seconds = time.process_time() - self._start_cpu
        if self.wall_seconds >= self._seconds:
            self._stop.set()

    def get_metrics(self, index: int) -> dict[str, float]:
        """See mujax's `EnvLoopObserver`."""
        return {}


def main() -> None:
    """Parse the command line, play, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default="CartPole-v1", help="id in Gymnasium")
    parser.add_argument("--environments", type=int, default=16, help="played in lock step")
    parser.add_argument("--simulations", type=int, default=50, help="per move")
    parser.add_argument("--size", default="S", help="its preset; S has 177 thousand parameters")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    try:
        import gymnasium
        import jax
        from flax import nnx
        from mujax import GMZ, EnvironmentLoop, GMZConfig, make_environment_spec
        from mujax.actor import Actor
        from mujax.replay import Buffer
    except ImportError as error:
        raise SystemExit(MISSING.format(error=error)) from error

    config = GMZConfig(num_simulations=arguments.simulations).with_size(arguments.size)
    environment = gymnasium.make_vec(
        arguments.environment,
        num_envs=arguments.environments,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    spec = make_environment_spec(environment)
    model = GMZ.make_model(spec, config, nnx.Rngs(jax.random.PRNGKey(0)))
    graph, parameters = nnx.split(model)
    replay = Buffer(
        spec,
        num_envs=arguments.environments,
        max_size=100_000,
        sample_batch_size=config.batch_size,
        sequence_length=config.sequence_length,
    )
    actor = Actor(
        GMZ.make_policy(graph, spec, config, False),
        jax.random.PRNGKey(1),
        lambda: (parameters, 0),
        num_actions=spec.num_actions,
        replay=replay.adder(0),
        value_fn=GMZ.make_value_fn(graph, config),
        device=jax.devices("cpu")[0],
        update_period=config.variable_update_period,
    )
    stop = threading.Event()
    # Every kernel has run before the clock starts: the search, and twice a chunk written to the replay.
    clock = Clock(2 * config.sequence_length, arguments.seconds, stop)
    EnvironmentLoop(environment, actor, observers=[clock], stop_event=stop, seed=0).run()

    def count(part: Any) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(part)))

    num_simulations = clock.num_steps * arguments.simulations
    result = {
        "environments": arguments.environments,
        "simulations_per_move": arguments.simulations,
        "parameters": count(model),
        "parameters_per_simulation": count(model) - count(model.representation),
        "moves_per_second": round(clock.num_steps / clock.wall_seconds, 1),
        "simulations_per_second": round(num_simulations / clock.wall_seconds, 1),
        "simulations_per_cpu_second": round(num_simulations / clock.cpu_seconds, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
