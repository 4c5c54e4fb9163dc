"""`muzero-evaluate ladder`: Elo ratings of a run's checkpoints and of fixed players."""

import json
from dataclasses import dataclass, field

from omegaconf import MISSING

from muzero.config.runs import results_folder, run_folder


@dataclass(kw_only=True, slots=True)
class LadderArguments:
    """Play a run's checkpoints against each other and against fixed players, and rate them all."""

    run: str = MISSING
    """Run folder; `evaluation/elo.csv` and, with the extra `plots`, `evaluation/elo.png` are written there."""
    checkpoints: int = 8
    """Checkpoints that play, spread evenly over the steps (`runtime.checkpoint_keep_interval` keeps some of all of training)."""
    players: list[str] = field(default_factory=lambda: ["random", "rollout:100"])
    """Fixed players: `random`, `rollout:<simulations>`, `alphabeta:<depth>`, `perfect`, or other runs (folders, or `builtin:connect_four`)."""
    anchor: str = "random"
    """Who is rated 0: one of `players`, or a checkpoint, such as `"step 2000"`."""
    games: int = 40
    """Games of every pair that meets, seats swapped; a checkpoint meets the next two, a fixed player three checkpoints."""
    simulations: int | None = None
    """Simulations per move of the checkpoints; null takes the run's setting, 0 plays by the network alone."""
    threads: int = 1
    """CPU threads of torch."""


def ladder(arguments: LadderArguments, overrides: list[str]) -> None:
    """Play, rate, print and write; the last line is one JSON object."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from muzero.config.store import load_config  # torch takes seconds, and `--help` should not
    from muzero.config.validate import check_for_playing
    from muzero.evaluation.ladder import as_table, can_draw, write_csv, write_png
    from muzero.progress import shared_console
    from muzero.runtime.build import configure_torch
    from muzero.runtime.ladder import play_ladder

    for name in ("checkpoints", "games"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"{name}={getattr(arguments, name)} must be at least 1")
    configure_torch(arguments.threads)
    run_dir = run_folder(arguments.run)
    config = load_config(run_dir, overrides)
    if arguments.simulations is not None:
        config.evaluation.num_simulations = arguments.simulations
    check_for_playing(config)
    console, folder = shared_console(), results_folder(arguments.run) / "evaluation"
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pairs  {task.fields[pair]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("pairs", total=None, pair="")
        result = play_ladder(
            config,
            run_dir,
            max_checkpoints=arguments.checkpoints,
            players=arguments.players,
            anchor=arguments.anchor,
            games=arguments.games,
            folder=folder / "ladder",
            on_progress=lambda done, total, pair: bar.update(
                task, completed=done, total=total, pair=pair
            ),
        )
    standings = result.standings()
    print(as_table(standings))
    table, picture = folder / "elo.csv", folder / "elo.png"
    write_csv(table, standings)
    drawn = can_draw()
    if drawn:
        write_png(picture, standings, f"{config.env.name}, {arguments.anchor} is 0")
        print(f"wrote {table} and {picture}")
    else:
        print(
            f"wrote {table}; no elo.png, since matplotlib is not installed: pip install 'muzero-trainer[plots]'"
        )
    final = {
        "run": str(run_dir),
        "anchor": arguments.anchor,
        "players": [standing.to_json() for standing in standings],
        "csv": str(table),
        "png": str(picture) if drawn else None,
    }
    print(json.dumps(final))
