"""`muzero-export`: a trained agent as a small folder, to keep, ship and play against."""

import json
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from muzero.config.arguments import check_checkpoint, run_command
from muzero.config.runs import saved_run


@dataclass(kw_only=True, slots=True)
class ExportArguments:
    """Copy a run's agent, without what only training needs, into a folder of its own."""

    run: str = MISSING
    """Run folder."""
    to: str = MISSING
    """Folder to make: `config.yaml` and one checkpoint that holds the acting weights; the other commands take it as a run folder."""
    checkpoint: str = "newest"
    """`newest`, or `best`: the one that did best in training's evaluations."""
    step: int | None = None
    """Learner step of the checkpoint; null leaves it to `checkpoint`."""


def main() -> None:
    """Entry point of the command."""
    run_command(export, ExportArguments, program="muzero-export", overrides=False)


def export(arguments: ExportArguments, overrides: list[str]) -> None:
    """Write the folder; the last line is one JSON object with its size and the weights' checksum."""
    from muzero.checkpoint import CheckpointManager  # torch takes seconds, and `--help` should not
    from muzero.config.store import CONFIG_FILE
    from muzero.durable import digest_of, replace_file
    from muzero.runtime.players import acting_weights, open_checkpoint

    check_checkpoint(arguments.checkpoint, arguments.step)
    run_dir, folder = saved_run(arguments.run), Path(arguments.to)
    if folder.exists():
        raise ValueError(f"to={folder} is there already; name a folder that is not")
    best = arguments.step is None and arguments.checkpoint == "best"
    weights, step = acting_weights(open_checkpoint(run_dir, arguments.step, best=best))
    folder.mkdir(parents=True)
    with CheckpointManager(folder / "checkpoints") as manager:
        path = manager.save(step, {"acting": dict(weights)})
    # Last: without it the folder counts as no run. Its first lines say how to make the agent again.
    replace_file(folder / CONFIG_FILE, (run_dir / CONFIG_FILE).read_bytes())
    file = path / "acting.safetensors"
    print(f"wrote {folder}: the agent of learner step {step}")
    print(f"evaluate:  muzero-evaluate run={folder}")
    final = {
        "run": str(run_dir),
        "folder": str(folder),
        "learner_step": step,
        "bytes": sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()),
        "weights_sha256": digest_of(file).sha256,
    }
    print(json.dumps(final))


if __name__ == "__main__":
    main()
