"""`muzero-train`: train an agent, or go on with a run."""

import json
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from muzero.config.cli import hydra_main
from muzero.config.schema import Config

if TYPE_CHECKING:
    from muzero.checkpoint import Checkpoint
    from muzero.runtime.launch import Runtime

logger = logging.getLogger(__name__)


def main() -> None:
    """Entry point of the command."""
    hydra_main(train)


def train(config: Config) -> float | None:
    """Train `config` to its end; returns the objective of a sweep.

    The objective is the last evaluation's mean score, or its mean win rate with draws as halves, higher is better.
    """
    # Imported here: they take seconds, and `--help` should not.
    from muzero.checkpoint import CheckpointError
    from muzero.config.validate import check
    from muzero.learner import TrainingDiverged
    from muzero.runtime.build import Builder
    from muzero.runtime.evaluation import objective
    from muzero.runtime.fleet.failures import RoleFailed
    from muzero.runtime.fleet.watchdog import FleetStalled
    from muzero.runtime.launch import make_runtime
    from muzero.runtime.memory import GIGABYTE, check_memory

    run_dir = Path(config.run_dir)
    builder = Builder.of(config)
    spec = builder.spec
    check(
        config,
        num_players=spec.num_players,
        return_bounds=spec.return_bounds,
        max_episode_steps=spec.max_episode_steps,
        turn_order=spec.turn_order,
    )
    logger.info(
        "%s: %d actions, observation %s; %s network with %s parameters on %s; run folder %s",
        spec.name,
        spec.num_actions,
        list(spec.observation_shape),
        config.network.kind,
        f"{builder.network().num_parameters():,}",
        builder.device,
        run_dir,
    )
    need = check_memory(builder)
    logger.info(
        "memory: replay of %s positions %.2f GB, latents of the searches %.2f GB",
        f"{config.replay.capacity:,}",
        need.replay / GIGABYTE,
        need.latents / GIGABYTE,
    )
    checkpoint = _newest(run_dir) if config.resume else None
    logger.info("preparing (the first start on a machine compiles kernels, up to half a minute)")
    start = time.monotonic()
    runtime = make_runtime(config, run_dir, checkpoint)
    logger.info("ready after %.1f s", time.monotonic() - start)
    try:
        metrics = runtime.train()
    except (CheckpointError, TrainingDiverged, RoleFailed, FleetStalled) as error:
        _stop(run_dir, error)
    _tell(runtime, metrics)
    return objective(metrics)


def _newest(run_dir: Path) -> "Checkpoint":
    from muzero.runtime.players import open_checkpoint

    checkpoint = open_checkpoint(run_dir)
    if "learner" not in checkpoint.parts:
        raise ValueError(
            f"resume={run_dir} holds an agent that muzero-export wrote, without what training needs to go on; "
            "resume the run that it came from, or train anew with the command at the top of its config.yaml"
        )
    logger.info("continuing from learner step %d", checkpoint.step)
    return checkpoint


def _stop(run_dir: Path, error: Exception) -> NoReturn:
    """End a run that cannot go on, with the checkpoint that it can be continued from."""
    from muzero.checkpoint import CheckpointManager

    logger.error("stopped", exc_info=error)
    print(error, file=sys.stderr)
    steps = CheckpointManager(run_dir / "checkpoints", owner=False).steps()
    last = f"the last one is of learner step {steps[-1]}" if steps else "there is none yet"
    print(f"checkpoints lie in {run_dir}/checkpoints: {last}", file=sys.stderr)
    raise SystemExit(1)


def _tell(runtime: "Runtime", metrics: dict[str, float]) -> None:
    """Say what came of it and what to do next; the last line is one JSON object."""
    step, last = runtime.learner_step, runtime.config.learner.num_steps
    run_dir = runtime.run_dir
    is_saved = any(run_dir.glob("checkpoints/step_*/"))
    if not is_saved:
        print("stopped before there was anything to save: start the run again")
    elif step < last:
        print(f"stopped and saved at learner step {step} of {last}")
        print(f"go on:     muzero-train resume={run_dir}")
    else:
        print(f"finished {last} learner steps, {runtime.totals.env_steps:,} env steps")
    if is_saved:
        print(f"evaluate:  muzero-evaluate run={run_dir}")
        print(f"look into: muzero-inspect run={run_dir}")
    print(json.dumps({"run_dir": str(run_dir), "learner_step": step, **metrics}))


if __name__ == "__main__":
    main()
