"""`muzero-evaluate run=... positions=...`: a run's agent at connect four positions with exact scores."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from muzero.config.schema import Config


def position_files(positions: Any) -> list[Path]:
    """The files that `positions=FILE` or `positions=[FILE,FILE]` names; `builtin` stands for those of the package.

    Raises:
        ValueError: For anything else.
    """
    if positions == "builtin":
        from muzero.evaluation.positions import BUILTIN, STAGES

        return [BUILTIN / f"{stage}.txt" for stage in STAGES]
    names = positions if isinstance(positions, list) else [positions]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(
            f"positions={positions!r} must be a file of connect four positions, or a list such as [a.txt,b.txt], or builtin"
        )
    return [Path(name) for name in names]


def evaluate_at_positions(
    config: "Config",
    weights: "dict[str, Tensor]",
    version: int,
    files: list[Path],
    *,
    num_simulations: int,
    processes: int | None,
) -> None:
    """Grade and print: for each file a line for the network alone and one with search; the last line is one JSON object.

    Raises:
        ValueError: See `muzero.runtime.positions.evaluate_positions`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from muzero.evaluation.positions import describe
    from muzero.progress import shared_console
    from muzero.runtime.positions import evaluate_positions

    if processes is not None and processes < 1:
        raise ValueError(f"processes={processes} must be at least 1, or null for one per core")
    console = shared_console()
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        "positions",
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("positions", total=None)
        reports = evaluate_positions(
            config,
            {name: tensor.cpu().numpy() for name, tensor in weights.items()},
            version,
            files,
            num_simulations=num_simulations,
            processes=processes,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    for name, report in reports.items():
        print(f"{name}: {report['positions']} positions")
        for who in ("network", "search"):
            if who in report:
                print(f"  {describe(who, report[who], report['positions'])}")
    print(json.dumps({"files": reports, "simulations": num_simulations}))
