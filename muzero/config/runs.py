"""Which folder a run is: a path, or an agent that comes with the package."""

import difflib
from pathlib import Path

PREFIX = "builtin:"
_AGENTS = Path(__file__).parents[1] / "agents"


def run_folder(run: str | Path) -> Path:
    """The folder of a run, whether or not it is there; `builtin:<name>` is an agent that comes with the package.

    Raises:
        ValueError: If no such agent comes with the package.
    """
    name = str(run).removeprefix(PREFIX)
    if name == str(run):
        return Path(run)
    known = builtin_agents()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
        raise ValueError(
            f"{run}: no such agent comes with the package, which has {', '.join(known)}{hint}"
        )
    return _AGENTS / name


def saved_run(run: str | Path) -> Path:
    """The folder of a run that is there.

    Raises:
        ValueError: If it is not.
    """
    folder = run_folder(run)
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"run={folder} is no run folder: it has no config.yaml")
    return folder


def results_folder(run: str | Path) -> Path:
    """Where commands write what they find out about a run: its own folder, never the package's."""
    folder = run_folder(run)
    return Path("runs", "builtin", folder.name) if str(run).startswith(PREFIX) else folder


def builtin_agents() -> list[str]:
    """Names of the agents that come with the package."""
    return sorted(path.parent.name for path in _AGENTS.glob("*/config.yaml"))
