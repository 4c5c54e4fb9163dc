"""The boundaries between the packages, and what must not be imported where it would be slow."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_import_contracts() -> None:
    """If this fails: `lint-imports` says which import breaks which contract."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_module_has_its_layer() -> None:
    """A module that no layer names would be bound by no rule."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]
    (layers,) = [
        contract["layers"] for contract in contracts["contracts"] if contract["type"] == "layers"
    ]
    named = {name.strip(" ()") for layer in layers for name in layer.split("|")}
    found = {
        f"muzero.{path.stem}"
        for path in (ROOT / "muzero").iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    assert found <= named


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("muzero", ["torch", "numba", "hydra"]),
        ("muzero.config.cli", ["torch", "numba", "ray", "gymnasium", "pyspiel", "numpy"]),
        ("muzero.progress", ["torch", "numba", "ray"]),
        ("muzero.train", ["torch", "numba", "ray", "gymnasium", "pyspiel"]),
        ("muzero.evaluate", ["torch", "numba", "ray", "gymnasium", "pyspiel"]),
        ("muzero.inspect_run", ["torch", "numba", "ray", "gymnasium", "pyspiel"]),
        ("muzero.play.__main__", ["torch", "numba", "ray", "gymnasium", "pyspiel"]),
        ("muzero.check_environment", ["torch", "numba", "ray", "gymnasium", "pyspiel"]),
        ("muzero.runtime.local", ["ray"]),
        ("mcts", ["torch", "ray", "hydra", "gymnasium", "pyspiel"]),
    ],
)
def test_light_modules_stay_light(module: str, heavy: list[str]) -> None:
    code = f"import {module}, sys; print(sorted(set({heavy}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
