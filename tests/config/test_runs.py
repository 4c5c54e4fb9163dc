"""Names of runs: paths, and agents that come with the package."""

from pathlib import Path

import pytest

from muzero.config import runs
from muzero.config.compose import compose
from muzero.config.runs import builtin_agents, results_folder, run_folder


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one agent, for a game of its own."""
    monkeypatch.setattr(runs, "_AGENTS", tmp_path)
    (tmp_path / "nim").mkdir()
    (tmp_path / "nim" / "config.yaml").touch()
    (tmp_path / "__pycache__").mkdir()
    return tmp_path


def test_a_path_is_a_run(agents: Path) -> None:
    assert run_folder("runs/a") == results_folder("runs/a") == Path("runs/a")
    assert run_folder(Path("builtin")) == Path("builtin")


def test_an_agent_of_the_package_is_found_and_never_written_to(agents: Path) -> None:
    assert builtin_agents() == ["nim"]
    assert run_folder("builtin:nim") == agents / "nim"
    assert results_folder("builtin:nim") == Path("runs/builtin/nim")


@pytest.mark.parametrize("name", ["nimm", "", "..", "nim/../nim", "/etc"])
def test_what_does_not_come_with_the_package_is_refused(agents: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no such agent comes with the package, which has nim"):
        run_folder(f"builtin:{name}")


def test_a_near_miss_gets_a_hint(agents: Path) -> None:
    with pytest.raises(ValueError, match="did you mean builtin:nim"):
        run_folder("builtin:nimm")
    with pytest.raises(
        ValueError, match=r"evaluation\.opponents has .*; did you mean builtin:nim\?$"
    ):
        compose(["evaluation.opponents=['builtin:nimm']"])


def test_an_agent_of_the_package_is_an_opponent(agents: Path) -> None:
    assert compose(["evaluation.opponents=['builtin:nim']"]).evaluation.opponents == ["builtin:nim"]
