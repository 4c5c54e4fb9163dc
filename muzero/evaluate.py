"""`muzero-evaluate`: how strong is a run's agent?"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from muzero.config.arguments import run_command


@dataclass(kw_only=True, slots=True)
class EvaluateArguments:
    """Play a run's agent against an opponent, or through episodes, and report."""

    run: str = MISSING
    """Run folder."""
    step: int | None = None
    """Learner step of the checkpoint; null takes the newest."""
    opponent: str | None = None
    """`random`, `rollout:<simulations>`, `perfect`, or another run folder; null takes the run's own list."""
    games: int | None = None
    """Games per opponent, or episodes; null takes the run's `evaluation.games`."""
    simulations: int | None = None
    """Simulations per move; null takes the run's setting, 0 plays by the network alone."""
    exhaustive: bool | None = None
    """Small games: all positions and all replies; null does it where the run's config does."""
    threads: int = 1
    """CPU threads of torch."""


def main() -> None:
    """Entry point of the command."""
    run_command(evaluate, EvaluateArguments, program="muzero-evaluate")


def evaluate(arguments: EvaluateArguments, overrides: list[str]) -> None:
    """Evaluate and print; each report is a line of text, the last line one JSON object."""
    from muzero.config.store import load_config  # torch takes seconds, and `--help` should not
    from muzero.config.validate import check
    from muzero.runtime.build import Builder, configure_torch
    from muzero.runtime.evaluation import RunEvaluator
    from muzero.runtime.players import acting_weights, open_checkpoint

    configure_torch(arguments.threads)
    run_dir = Path(arguments.run)
    config = load_config(run_dir, overrides)
    evaluation = config.evaluation
    if arguments.opponent is not None:
        evaluation.opponents = [arguments.opponent]
    if arguments.games is not None:
        evaluation.games = arguments.games
    if arguments.simulations is not None:
        evaluation.num_simulations = arguments.simulations
    if arguments.exhaustive is not None:
        evaluation.exhaustive = arguments.exhaustive
    check(config)
    builder = Builder.of(config)
    weights, version = acting_weights(open_checkpoint(run_dir, arguments.step))
    evaluator = RunEvaluator(builder)
    simulations = evaluation.num_simulations
    if simulations is None:
        simulations = config.search.num_simulations
    print(f"{builder.spec.name}, learner step {version}, {simulations} simulations per move")
    print(_conditions(config.env))
    folder = run_dir / "evaluation" / f"command_step_{version:08d}"
    reports = evaluator.evaluate(weights, version, folder)
    common = {"run": str(run_dir), "learner_step": version, "simulations": simulations}
    for report in reports:
        print(describe(report))
    final: dict[str, Any] = common | (reports[0] if len(reports) == 1 else {"reports": reports})
    print(json.dumps(final))


def describe(report: dict[str, Any]) -> str:
    """A report as a line of text."""
    if "episodes" in report:
        return (
            f"{report['episodes']} episodes: mean {report['mean']:.2f}, std {report['std']:.2f}, "
            f"min {report['min']:.2f}, IQM {report['iqm']:.2f}"
        )
    line = (
        f"against {report['opponent']}: {report['wins']} won, {report['draws']} drawn, "
        f"{report['losses']} lost of {report['games']} ({report['duplicate_games']} duplicates)"
    )
    if "losing_lines" in report:
        line += (
            f"; optimal moves {report['optimal_move_rate']:.4f} of {report['positions']} positions, "
            f"{report['losing_lines']} losing lines of {report['lines']}"
        )
    return line


def _conditions(env: Any) -> str:
    """The environment's settings, since they decide what a score means."""
    from dataclasses import asdict

    return "environment: " + ", ".join(f"{name}={value}" for name, value in asdict(env).items())


if __name__ == "__main__":
    main()
