"""All randomness hangs on the run's one seed (peers, rows 42 and 43)."""

import ast
from pathlib import Path

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.runtime.build import Role, role_seed

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path for package in ("mcts", "muzero", "reanalyze") for path in (ROOT / package).rglob("*.py")
]
MAKERS = {"default_rng", "Generator", "SeedSequence", "PCG64", "BitGenerator"}
"""What `numpy.random` may be used for; all else of it draws from the global generator."""


def dotted(node: ast.expr) -> str:
    """`numpy.random.seed` as it is written; empty for anything but names."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def global_randomness(source: str) -> list[str]:
    """What a module does that draws from a global generator, or seeds one from the clock or the system."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name in ("random", "secrets")]
        elif isinstance(node, ast.ImportFrom) and node.module in ("random", "secrets"):
            found.append(node.module)
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            if name.startswith(("np.random.", "numpy.random.")) and node.attr not in MAKERS:
                found.append(name)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            last = name.rpartition(".")[2]
            unseeded = last in MAKERS and not node.args and not node.keywords
            if unseeded or name in ("os.urandom", "torch.seed", "uuid.uuid4"):
                found.append(name)
            if last in MAKERS | {"manual_seed"}:
                clocks = [
                    dotted(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call)
                ]
                found += [clock for clock in clocks if clock.startswith("time.")]
    return found


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "np.random.seed(3)",
        "x = numpy.random.rand(4)",
        "rng = np.random.default_rng()",
        "rng = np.random.default_rng(time.time_ns())",
        "torch.manual_seed(int(time.time()))",
    ],
)
def test_the_search_for_global_randomness_finds_it(line: str) -> None:
    assert global_randomness(line)
    assert not global_randomness("rng = np.random.default_rng(seed); rng.random(3)")


HARMLESS = {
    "muzero/envs/open_spiel.py": ["np.random.default_rng"],  # its state is set before it draws
    "muzero/runtime/simulation/workers.py": ["random"],  # a generator of the scenario's seed
    # Names and tokens between processes, of which no result depends
    "muzero/inference/ring.py": ["secrets"],
    "muzero/runtime/fleet/cluster.py": ["secrets"],
    "muzero/runtime/fleet/supervisor.py": ["uuid.uuid4"],
}


def test_nothing_draws_from_a_global_generator_or_from_the_clock() -> None:
    found = {
        str(path.relative_to(ROOT)): global_randomness(path.read_text(encoding="utf-8"))
        for path in SOURCES
    }
    assert {name: what for name, what in found.items() if what} == HARMLESS


def test_roles_and_runs_have_seeds_of_their_own() -> None:
    """Row 42: no role of any of many neighbouring runs shares its seed with another."""
    config = compose()
    words = []
    for seed in range(50):
        config.seed = seed
        for role in Role:
            sequence = role_seed(config, role)
            words += [tuple(part.generate_state(4)) for part in (sequence, *sequence.spawn(2))]
    assert len(set(words)) == len(words) == 50 * len(Role) * 3
    again = np.array(role_seed(config, Role.REPLAY).generate_state(4))
    assert tuple(again) in set(words)  # and the same one every time
