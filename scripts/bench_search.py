"""Measure the search's own speed on a random table model, alone or beside mctx.

    python scripts/bench_search.py --batch 64 --actions 18 --simulations 50 --policy puct --against mctx

Simulations are counted over all roots. The model costs next to nothing; its time is measured apart and taken off
`simulations_per_second`, and stays in `simulations_per_second_with_model`. Depth decides the work of a simulation:
compare speeds at equal depth. The last line is one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from mcts import ModelOutput, RootOutput, Search, SearchSettings, Selection, draw_noise

NUM_STATES = 4096
DISCOUNT = 0.997


@dataclass(frozen=True, slots=True)
class Table:
    """A random model of `NUM_STATES` states, the same for every rival."""

    logits: np.ndarray
    value: np.ndarray
    reward: np.ndarray
    successor: np.ndarray

    @staticmethod
    def draw(num_actions: int, rng: np.random.Generator) -> "Table":
        """Logits N(0, 1), values and rewards U(-1, 1), uniform successors."""
        shape = (NUM_STATES, num_actions)
        return Table(
            logits=rng.normal(size=shape).astype(np.float32),
            value=rng.uniform(-1, 1, NUM_STATES).astype(np.float32),
            reward=rng.uniform(-1, 1, shape).astype(np.float32),
            successor=rng.integers(NUM_STATES, size=shape).astype(np.int32),
        )


@njit(cache=True, nogil=True)
def _step(
    parent: np.ndarray,
    action: np.ndarray,
    node: np.ndarray,
    states: np.ndarray,
    successor: np.ndarray,
    reward: np.ndarray,
    logits: np.ndarray,
    value: np.ndarray,
    out_r: np.ndarray,
    out_l: np.ndarray,
    out_v: np.ndarray,
) -> None:
    for row in range(len(parent)):
        state = states[row, parent[row]]
        following = successor[state, action[row]]
        states[row, node[row]] = following
        out_r[row] = reward[state, action[row]]
        out_v[row] = value[following]
        for other in range(logits.shape[1]):
            out_l[row, other] = logits[following, other]


class TableModel:
    """The table behind the search's model protocol; counts its own time."""

    def __init__(self, table: Table, batch_size: int, num_simulations: int) -> None:
        num_actions = table.logits.shape[1]
        self._table = table
        self.states = np.zeros((batch_size, num_simulations + 1), np.int32)
        self._output = ModelOutput(
            reward=np.zeros(batch_size, np.float32),
            discount=np.full(batch_size, DISCOUNT, np.float32),
            prior_logits=np.zeros((batch_size, num_actions), np.float32),
            value=np.zeros(batch_size, np.float32),
        )
        self.seconds = 0.0

    def root(self, states: np.ndarray) -> RootOutput:
        """Stand at `states` `[B]`."""
        self.states[:, 0] = states
        return RootOutput(prior_logits=self._table.logits[states], value=self._table.value[states])

    def recurrent(self, selection: Selection) -> ModelOutput:
        """One step of the table."""
        start = time.perf_counter()
        table, output = self._table, self._output
        _step(
            *selection, self.states, table.successor, table.reward, table.logits, table.value,
            output.reward, output.prior_logits, output.value,
        )  # fmt: skip
        self.seconds += time.perf_counter() - start
        return output


def time_ours(arguments: argparse.Namespace, table: Table, roots: np.ndarray) -> dict[str, float]:
    """Time whole searches, begin and result included."""
    settings = SearchSettings(
        kind=arguments.policy,
        num_simulations=arguments.simulations,
        normalization=arguments.normalization,
    )
    search = Search(
        settings,
        batch_size=arguments.batch,
        num_actions=arguments.actions,
        num_threads=arguments.threads,
    )
    model = TableModel(table, arguments.batch, arguments.simulations)
    legal = np.ones((arguments.batch, arguments.actions), np.bool_)
    noise = draw_noise(settings, legal, np.random.default_rng(1))
    depths: list[float] = []

    def once() -> None:
        search.begin(model.root(roots), legal, noise)
        for _ in range(arguments.simulations):
            search.update(model.recurrent(search.select()))
        depths.append(float(search.result().depth.mean()))

    start = time.perf_counter()
    once()
    first_seconds = time.perf_counter() - start
    samples = []
    for _ in range(arguments.repeats):
        model.seconds = 0.0
        start = time.perf_counter()
        count = 0
        while count == 0 or time.perf_counter() - start < arguments.seconds:
            once()
            count += 1
        wall = time.perf_counter() - start
        samples.append(((wall - model.seconds) / count, wall / count))
    tree_seconds, wall_seconds = np.median(np.array(samples), axis=0)
    total = arguments.batch * arguments.simulations
    return {
        "simulations_per_second": total / tree_seconds,
        "simulations_per_second_with_model": total / wall_seconds,
        "depth_mean": depths[-1],
        "step_microseconds": tree_seconds / arguments.simulations * 1e6,
        "first_search_seconds": first_seconds,
    }


def time_mctx(arguments: argparse.Namespace, table: Table, roots: np.ndarray) -> dict[str, float]:
    """Time mctx, compiled, with the same table and its own defaults for the policy."""
    try:
        import jax
        import jax.numpy as jnp
        import mctx
    except ImportError as error:
        raise SystemExit(f"--against mctx needs the extra `oracle`: {error}") from error
    arrays = [jnp.asarray(array) for array in (table.logits, table.value, table.reward)]
    logits, value, reward = arrays
    successor = jnp.asarray(table.successor)

    def recurrent(params: Any, key: Any, action: Any, state: Any) -> Any:
        following = successor[state, action]
        output = mctx.RecurrentFnOutput(
            reward=reward[state, action],
            discount=jnp.full(action.shape, DISCOUNT, jnp.float32),
            prior_logits=logits[following],
            value=value[following],
        )
        return output, following

    policy: Callable[..., Any] = (
        mctx.muzero_policy if arguments.policy == "puct" else mctx.gumbel_muzero_policy
    )

    @jax.jit
    def search(key: Any, states: Any) -> Any:
        root = mctx.RootFnOutput(prior_logits=logits[states], value=value[states], embedding=states)
        output = policy((), key, root, recurrent, num_simulations=arguments.simulations)
        return output.action_weights, output.search_tree.parents

    key, states = jax.random.PRNGKey(1), jnp.asarray(roots)
    start = time.perf_counter()
    parents = np.asarray(jax.block_until_ready(search(key, states))[1])
    first_seconds = time.perf_counter() - start
    samples = []
    for _ in range(arguments.repeats):
        start = time.perf_counter()
        jax.block_until_ready(search(key, states))
        samples.append(time.perf_counter() - start)
    depth = np.zeros(parents.shape)
    for node in range(1, parents.shape[1]):
        depth[:, node] = depth[np.arange(len(parents)), parents[:, node]] + 1
    seconds = float(np.median(samples))
    return {
        "simulations_per_second": arguments.batch * arguments.simulations / seconds,
        "depth_mean": float(depth[:, 1:].mean()),
        "step_microseconds": seconds / arguments.simulations * 1e6,
        "first_search_seconds": first_seconds,
    }


def describe(name: str, figures: dict[str, float]) -> str:
    """One line for people."""
    return (
        f"{name:>5}: {figures['simulations_per_second']:>12,.0f} simulations/s   "
        f"mean depth {figures['depth_mean']:5.2f}   {figures['step_microseconds']:9.1f} us per step   "
        f"first search {figures['first_search_seconds']:.1f} s"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="roots searched together")
    parser.add_argument("--actions", type=int, default=18)
    parser.add_argument("--simulations", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--policy", choices=("puct", "gumbel"), default="puct")
    parser.add_argument(
        "--normalization", choices=("tree", "siblings", "bounds", "none"), default="siblings",
        help="mctx's own rule is siblings",
    )  # fmt: skip
    parser.add_argument("--against", choices=("mctx",), action="append", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="time of one repeat")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    table = Table.draw(arguments.actions, rng)
    roots = rng.integers(NUM_STATES, size=arguments.batch).astype(np.int32)
    figures: dict[str, Any] = time_ours(arguments, table, roots)
    print(describe("ours", figures))
    rivals = {}
    if "mctx" in arguments.against:
        rival: dict[str, Any] = time_mctx(arguments, table, roots)
        print(describe("mctx", rival))
        rival["ratio"] = figures["simulations_per_second"] / rival["simulations_per_second"]
        print(f"ratio: {rival['ratio']:.1f}")
        rivals["mctx"] = rival
    print(json.dumps({**vars(arguments), **figures, "rivals": rivals}))


if __name__ == "__main__":
    main()
