"""`muzero-evaluate`: how strong is a run's agent?"""

import json
from dataclasses import dataclass, replace
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
    baselines: bool = False
    """Also play by the trained network alone, and with the same search on the untrained network: what is due to which."""
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
    # Neither is of any use here, and search.dynamics=rules, which goes with neither, has to suit every run.
    config.reanalyze.fresh_fraction, config.search.pipelined = 0.0, False
    check(config)
    builder = Builder.of(config)
    weights, version = acting_weights(open_checkpoint(run_dir, arguments.step))
    simulations = evaluation.num_simulations
    if simulations is None:
        simulations = config.search.num_simulations
    most = "at most " if evaluation.stop_early else ""
    print(f"{builder.spec.name}, learner step {version}, {most}{simulations} simulations per move")
    print(_conditions(config.env))
    folder = run_dir / "evaluation" / f"command_step_{version:08d}"
    final: dict[str, Any] = {
        "run": str(run_dir),
        "learner_step": version,
        "simulations": simulations,
    }
    final |= _told(RunEvaluator(builder).evaluate(weights, version, folder))
    if arguments.baselines:
        untrained = RunEvaluator(builder).evaluate(builder.network().state_dict(), 0)
        alone = replace(config, evaluation=replace(evaluation, num_simulations=0))
        network = RunEvaluator(Builder.of(alone)).evaluate(weights, version)
        final["baselines"] = {
            "network": _told(network, "the network alone"),
            "untrained": _told(untrained, "the same search, untrained network"),
        }
    print(json.dumps(final))


def _told(reports: list[dict[str, Any]], who: str = "") -> dict[str, Any]:
    """Print the reports, each as a line; returns them as one JSON object."""
    for report in reports:
        print(f"{who}: {describe(report)}" if who else describe(report))
    return reports[0] if len(reports) == 1 else {"reports": reports}


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
