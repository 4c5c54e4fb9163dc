"""The wheel: what is in it, and that it works away from the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


def execute(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, so that both are tried."""
    out = tmp_path_factory.mktemp("dist")
    execute(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT), cwd=out
    )
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of a new virtual environment with the wheel, and this one's other packages."""
    folder = tmp_path_factory.mktemp("venv")
    execute(sys.executable, "-m", "venv", str(folder), cwd=folder)
    python = folder / "bin" / "python"
    execute(str(python), "-m", "pip", "install", "--no-deps", "--no-index", str(wheel), cwd=folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    # A path, not a .pth of theirs: that would bring the checkout's editable install along.
    (site_packages / "others.pth").write_text("\n".join(others) + "\n")
    return python


def test_what_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    conf = {
        f"muzero/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")
    }
    assert conf <= names
    stages = {
        f"muzero/evaluation/connect_four_positions/{n}.txt" for n in ("begin", "middle", "end")
    }
    assert stages <= names
    assert "muzero/play/page/index.html" in names
    agents = [path for path in (ROOT / "muzero" / "agents").rglob("*") if path.is_file()]
    assert agents
    assert {path.relative_to(ROOT).as_posix() for path in agents} <= names
    assert {"muzero/py.typed", "mcts/py.typed", "reanalyze/py.typed"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "muzero",
        "mcts",
        "reanalyze",
    }
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


def test_the_wheel_uses_its_own_files(python: Path, tmp_path: Path) -> None:
    code = "import mcts, muzero, reanalyze; from muzero.config.store import config_dir; print(muzero.__file__, config_dir())"
    package, conf = execute(str(python), "-c", code, cwd=tmp_path).split()
    assert Path(package).is_relative_to(python.parents[1])
    assert Path(conf) == Path(package).parent / "conf"


@pytest.mark.parametrize(
    "command",
    [
        "muzero-train",
        "muzero-evaluate",
        "muzero-inspect",
        "muzero-export",
        "muzero-play",
        "muzero-check-env",
    ],
)
def test_commands_answer_to_help(python: Path, tmp_path: Path, command: str) -> None:
    assert command in execute(str(python.with_name(command)), "--help", cwd=tmp_path)


def test_a_whole_run_from_the_wheel(python: Path, tmp_path: Path) -> None:
    train = [str(python.with_name("muzero-train")), "experiment=tictactoe", "debug=smoke"]
    execute(*train, "run_dir=runs/first", "logger.tensorboard=false", cwd=tmp_path)
    assert (tmp_path / "runs" / "first" / "config.yaml").is_file()
    evaluate = [
        str(python.with_name("muzero-evaluate")),
        "run=runs/first",
        "opponent=random",
        "games=2",
    ]
    assert '"games": 2' in execute(*evaluate, cwd=tmp_path).splitlines()[-1]
