"""Search speed of mctx on a table model from a file; `bench_search.py` runs this beside ours.

    python scripts/rival_mctx.py TABLE.npz OUTPUT.npz --policy puct --simulations 50

Its stock policies, compiled, with their own defaults. Compilation comes before the clock starts. OUTPUT gets its root noise
(`gumbel`) or noisy root logits (`root_logits`), so that another search can be given the same, and its root visits. The last
line is one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# A search longer than this is timed twice only.
LONG_SECONDS = 1.0


def main() -> None:
    """Parse the command line, search, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", help="npz of logits, value, reward, successor, discount and roots")
    parser.add_argument("output", help="npz to be written")
    parser.add_argument("--policy", choices=("puct", "gumbel"), default="puct")
    parser.add_argument("--simulations", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="least time of one repeat")
    arguments = parser.parse_args()
    try:
        import jax
        import jax.numpy as jnp
        import mctx
    except ImportError as error:
        raise SystemExit(
            f'--against mctx needs mctx and jax: {error}. pip install "muzero-trainer[oracle]"'
        ) from error
    with np.load(arguments.table) as file:
        table = {name: jnp.asarray(file[name]) for name in file.files}
    discount = table["discount"]

    def recurrent(params: Any, key: Any, action: Any, state: Any) -> Any:
        following = table["successor"][state, action]
        output = mctx.RecurrentFnOutput(
            reward=table["reward"][state, action],
            discount=jnp.full(action.shape, discount),
            prior_logits=table["logits"][following],
            value=table["value"][following],
        )
        return output, following

    policy: Callable[..., Any] = (
        mctx.muzero_policy if arguments.policy == "puct" else mctx.gumbel_muzero_policy
    )

    @jax.jit
    def search(key: Any, states: Any) -> Any:
        root = mctx.RootFnOutput(
            prior_logits=table["logits"][states], value=table["value"][states], embedding=states
        )
        tree = policy((), key, root, recurrent, num_simulations=arguments.simulations).search_tree
        noise = {"root_logits": tree.children_prior_logits[:, 0]}
        if arguments.policy == "gumbel":
            noise = {"gumbel": tree.extra_data.root_gumbel}
        return noise | {"visits": tree.children_visits[:, 0], "parents": tree.parents}

    key = jax.random.PRNGKey(1)
    start = time.perf_counter()
    result = jax.block_until_ready(search(key, table["roots"]))
    first_seconds = time.perf_counter() - start
    start = time.perf_counter()
    jax.block_until_ready(search(key, table["roots"]))
    num_repeats = arguments.repeats
    if time.perf_counter() - start > LONG_SECONDS:
        num_repeats = min(num_repeats, 2)
    samples = []
    for _ in range(num_repeats):
        start, start_cpu, count = time.perf_counter(), time.process_time(), 0
        while count == 0 or time.perf_counter() - start < arguments.seconds:
            jax.block_until_ready(search(key, table["roots"]))
            count += 1
        wall = time.perf_counter() - start
        samples.append((wall / count, (time.process_time() - start_cpu) / count))
    seconds, cpu_seconds = np.median(np.array(samples), axis=0)

    parents = np.asarray(result.pop("parents"))
    num_roots = len(parents)
    depth = np.zeros(parents.shape)
    for node in range(1, parents.shape[1]):
        depth[:, node] = depth[np.arange(num_roots), parents[:, node]] + 1
    arrays: dict[str, Any] = {name: np.asarray(array) for name, array in result.items()}
    np.savez(arguments.output, **arrays)
    figures = {
        "simulations_per_second": num_roots * arguments.simulations / seconds,
        "simulations_per_cpu_second": num_roots * arguments.simulations / cpu_seconds,
        "depth_mean": float(depth[:, 1:].mean()),
        "depth_max": int(depth.max()),
        "step_microseconds": seconds / arguments.simulations * 1e6,
        "first_search_seconds": first_seconds,
        "repeats": num_repeats,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
