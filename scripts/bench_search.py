"""Measure the search's own speed on a random table model, alone or beside mctx.

    python scripts/bench_search.py --batch 64 --actions 18 --simulations 50 --policy puct --against mctx
    python scripts/bench_search.py --grid --against mctx

Simulations are counted over all roots. The model costs next to nothing; its time is measured apart and taken off
`simulations_per_second`, and stays in `simulations_per_second_with_model` and `simulations_per_cpu_second`. Depth decides the work of a simulation:
compare speeds at equal depth. `--against mctx` runs mctx in a process of its own on the same table; ours then gets mctx's
root noise, so that both grow the same trees, and the rows whose root visits differ are counted. `--grid` measures six shapes with
both policies. The last line is one JSON object.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from mcts import ModelOutput, RootOutput, Search, SearchSettings, Selection, draw_noise

NUM_STATES = 4096
DISCOUNT = 0.997
# (roots, actions, simulations)
GRID = (
    (64, 18, 50), (256, 18, 50), (64, 9, 25), (64, 7, 200), (16, 362, 200), (1024, 18, 50),
)  # fmt: skip
POLICIES = ("puct", "gumbel")


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

    def save(self, path: Path, roots: np.ndarray) -> None:
        """Write the table and the root states to an npz file."""
        arrays = {name: getattr(self, name) for name in ("logits", "value", "reward", "successor")}
        np.savez(path, **arrays, roots=roots, discount=np.float32(DISCOUNT))


@njit(cache=True, nogil=True)
def _step(
    rows: np.ndarray,
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
    for place in range(len(rows)):
        row = rows[place]
        state = states[row, parent[place]]
        following = successor[state, action[place]]
        states[row, node[place]] = following
        out_r[place] = reward[state, action[place]]
        out_v[place] = value[following]
        for other in range(logits.shape[1]):
            out_l[place, other] = logits[following, other]


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
        """One step of the table; all rows search equally long."""
        start = time.perf_counter()
        table, output = self._table, self._output
        _step(
            *selection, self.states, table.successor, table.reward, table.logits, table.value,
            output.reward, output.prior_logits, output.value,
        )  # fmt: skip
        self.seconds += time.perf_counter() - start
        return output


def time_ours(
    case: argparse.Namespace, table: Table, roots: np.ndarray, rival: dict[str, np.ndarray]
) -> tuple[dict[str, Any], np.ndarray]:
    """Time whole searches, begin and result included; the figures, and the root visits `[B, A]`.

    `rival` holds the root noise to search with, as `rival_mctx.py` writes it; without it ours is drawn.
    """
    settings = SearchSettings(
        kind=case.policy,
        num_simulations=case.simulations,
        normalization=case.normalization,
        min_value_range=0.0 if case.normalization == "siblings" else 0.01,  # mctx has none
    )
    search = Search(
        settings, batch_size=case.batch, num_actions=case.actions, num_threads=case.threads
    )
    model = TableModel(table, case.batch, case.simulations)
    legal = np.ones((case.batch, case.actions), np.bool_)
    noise = None
    if not rival:
        noise = draw_noise(settings, legal, np.random.default_rng(1))
    elif case.policy == "gumbel":
        noise = rival["gumbel"]

    def once() -> None:
        root = model.root(roots)
        if "root_logits" in rival:
            root = RootOutput(prior_logits=rival["root_logits"], value=root.value)
        search.begin(root, legal, noise)
        while (selection := search.select()) is not None:
            search.update(model.recurrent(selection))
        search.result()

    start = time.perf_counter()
    once()
    first_seconds = time.perf_counter() - start
    samples = []
    for _ in range(case.repeats):
        model.seconds = 0.0
        start, start_cpu, count = time.perf_counter(), time.process_time(), 0
        while count == 0 or time.perf_counter() - start < case.seconds:
            once()
            count += 1
        wall = time.perf_counter() - start
        cpu = time.process_time() - start_cpu
        samples.append(((wall - model.seconds) / count, wall / count, cpu / count))
    tree_seconds, wall_seconds, cpu_seconds = np.median(np.array(samples), axis=0)
    total = case.batch * case.simulations
    output = search.result()
    figures = {
        "simulations_per_second": total / tree_seconds,
        "simulations_per_second_with_model": total / wall_seconds,
        "simulations_per_cpu_second": total / cpu_seconds,
        "depth_mean": float(output.depth.mean()),
        "depth_max": int(search.tree.depths[search.tree.visits > 0].max()),
        "step_microseconds": tree_seconds / case.simulations * 1e6,
        "first_search_seconds": first_seconds,
    }
    return figures, output.visits


def time_mctx(
    case: argparse.Namespace, table: Table, roots: np.ndarray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run mctx on the same table in a process of its own: its figures, and its noise and root visits."""
    with tempfile.TemporaryDirectory() as folder:
        table_path, output_path = Path(folder) / "table.npz", Path(folder) / "output.npz"
        table.save(table_path, roots)
        command = [
            sys.executable, str(Path(__file__).with_name("rival_mctx.py")),
            str(table_path), str(output_path), "--policy", case.policy,
            "--simulations", str(case.simulations), "--repeats", str(case.repeats),
            "--seconds", str(case.seconds),
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(done.returncode)  # it has told why
        with np.load(output_path) as arrays:
            output = {name: arrays[name] for name in arrays.files}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures, output


def measure(case: argparse.Namespace) -> dict[str, Any]:
    """All figures of one case: ours, and under `rivals` those of the rivals."""
    rng = np.random.default_rng(case.seed)
    table = Table.draw(case.actions, rng)
    roots = rng.integers(NUM_STATES, size=case.batch).astype(np.int32)
    rival, theirs = time_mctx(case, table, roots) if "mctx" in case.against else ({}, {})
    figures, visits = time_ours(case, table, roots, theirs)
    if rival:
        rival["ratio"] = figures["simulations_per_second"] / rival["simulations_per_second"]
        if case.normalization == "siblings":  # mctx's own rule
            differs = (visits != theirs["visits"]).any(axis=1)
            rival["root_visit_mismatches"] = int(differs.sum())
            rival["root_visits_identical"] = not differs.any()
    settings = {name: getattr(case, name) for name in ("batch", "actions", "simulations", "policy")}
    return {**settings, **figures, "rivals": {"mctx": rival} if rival else {}}


def table_row(result: dict[str, Any]) -> str:
    """One line of the table for people."""
    cells = [f"{result['batch']}, {result['actions']}, {result['simulations']}", result["policy"]]
    for figures in (result, *result["rivals"].values()):
        cells += [
            f"{figures['simulations_per_second']:,.0f}",
            f"{figures['step_microseconds']:,.1f}",
            f"{figures['depth_mean']:.2f} / {figures['depth_max']}",
        ]
    for rival in result["rivals"].values():
        mismatches = rival.get("root_visit_mismatches")
        differing = "other rule" if mismatches is None else f"{mismatches} of {result['batch']}"
        cells += [f"{rival['ratio']:.1f}", differing]
    return f"| {' | '.join(cells)} |"


def table_head(rivals: list[str]) -> str:
    """The head of the table."""
    cells = ["roots, actions, simulations", "policy"]
    for name in ("", *(f"{rival}: " for rival in rivals)):
        cells += [f"{name}simulations/s", "us per step", "mean / max depth"]
    for _ in rivals:
        cells += ["ratio", "rows with other root visits"]
    return f"| {' | '.join(cells)} |\n|{' --- |' * len(cells)}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="roots searched together")
    parser.add_argument("--actions", type=int, default=18)
    parser.add_argument("--simulations", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--policy", choices=POLICIES, default="puct")
    parser.add_argument("--grid", action="store_true", help="six shapes, both policies")
    parser.add_argument(
        "--normalization", choices=("tree", "siblings", "bounds", "none"), default="siblings",
        help="mctx's own rule is siblings",
    )  # fmt: skip
    parser.add_argument("--against", choices=("mctx",), action="append", default=[])
    parser.add_argument("--repeats", type=int, default=5, help="the median counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="time of one repeat")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.against = list(dict.fromkeys(arguments.against))
    cases = [arguments]
    if arguments.grid:
        cases = [
            argparse.Namespace(
                **{**vars(arguments), "batch": batch, "actions": actions,
                   "simulations": simulations, "policy": policy}
            )
            for batch, actions, simulations in GRID
            for policy in POLICIES
        ]  # fmt: skip
    print(table_head(arguments.against), flush=True)
    results = []
    for case in cases:
        results.append(measure(case))
        print(table_row(results[-1]), flush=True)
    shared = {
        name: value
        for name, value in vars(arguments).items()
        if not (arguments.grid and name in ("batch", "actions", "simulations", "policy"))
    }
    print(json.dumps({**shared, **({"grid": results} if arguments.grid else results[0])}))


if __name__ == "__main__":
    main()
