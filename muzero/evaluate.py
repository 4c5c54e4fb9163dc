"""`muzero-evaluate`: how strong is a run's agent?"""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from muzero.config.arguments import check_checkpoint, run_command
from muzero.config.runs import results_folder, run_folder
from muzero.evaluate_ladder import LadderArguments, ladder
from muzero.evaluate_positions import evaluate_at_positions, position_files

if TYPE_CHECKING:
    from torch import Tensor

    from muzero.runtime.build import Builder

_FRESH_SEED = 1  # for a checkpoint that training's own evaluations have picked


@dataclass(kw_only=True, slots=True)
class EvaluateArguments:
    """Play a run's agent against an opponent, or through episodes, and report; `muzero-evaluate ladder run=...` rates checkpoints."""

    run: str = MISSING
    """Run folder, or `builtin:connect_four`: the agent that comes with the package."""
    checkpoint: str = "newest"
    """`newest`, or `best`: the one that did best in training's evaluations, here evaluated on games that those have not seen."""
    step: int | None = None
    """Learner step of the checkpoint; null leaves it to `checkpoint`."""
    seeds: list[int] | None = None
    """Evaluate with each of these seeds, none of which training uses, and show all and mean, min, max, such as [1,2,3]; null takes training's own (with `checkpoint=best`: [1])."""
    opponent: str | None = None
    """`random`, `rollout:<simulations>`, `alphabeta:<depth>`, `perfect`, or another run (a folder, or `builtin:connect_four`); null takes the run's own list."""
    games: int | None = None
    """Games per opponent, or episodes; null takes the run's `evaluation.games`."""
    simulations: int | None = None
    """Simulations per move; null takes the run's setting, 0 plays by the network alone."""
    exhaustive: bool | None = None
    """Small games: all positions and all replies; null does it where the run's config does."""
    positions: Any = None
    """File of connect four positions with exact scores, a list [a.txt,b.txt], or `builtin`: the agent's mistakes there instead of games (extra `solver`)."""
    processes: int | None = None
    """`positions`: processes that search side by side; null takes one per core."""
    baselines: bool = False
    """Also play by the trained network alone, and with the same search on the untrained network: what is due to which."""
    threads: int = 1
    """CPU threads of torch."""


def main() -> None:
    """Entry point of the command, and of `muzero-evaluate ladder`."""
    if sys.argv[1:2] == ["ladder"]:
        run_command(
            ladder, LadderArguments, program="muzero-evaluate ladder", arguments=sys.argv[2:]
        )
    else:
        run_command(evaluate, EvaluateArguments, program="muzero-evaluate")


def evaluate(arguments: EvaluateArguments, overrides: list[str]) -> None:
    """Evaluate and print; each report is a line of text, the last line one JSON object."""
    from muzero.config.store import load_config  # torch takes seconds, and `--help` should not
    from muzero.config.validate import check_for_playing
    from muzero.runtime.build import Builder, configure_torch
    from muzero.runtime.players import acting_weights, open_checkpoint

    configure_torch(arguments.threads)
    seeds = _seeds(arguments)
    run_dir = run_folder(arguments.run)
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
    check_for_playing(config)
    builder = Builder.of(config)
    if arguments.positions is not None and (unfit := _unfit_for_positions(arguments)):
        raise ValueError(f"{', '.join(unfit)}: without a meaning with positions=...; leave out")
    best = arguments.step is None and arguments.checkpoint == "best"
    weights, version = acting_weights(open_checkpoint(run_dir, arguments.step, best=best))
    simulations = evaluation.num_simulations
    if simulations is None:
        simulations = config.search.num_simulations
    most = "at most " if evaluation.stop_early else ""
    print(f"{builder.spec.name}, learner step {version}, {most}{simulations} simulations per move")
    print(_conditions(config.env))
    if arguments.positions is not None:
        evaluate_at_positions(
            config,
            weights,
            version,
            position_files(arguments.positions),
            num_simulations=simulations,
            processes=arguments.processes,
        )
        return
    if seeds is None:
        print("with the seed of training's own evaluations; seeds=[1] takes another")
    else:
        print(f"with seeds {seeds}, none of which training's evaluations have used")
    folder = results_folder(arguments.run) / "evaluation" / f"command_step_{version:08d}"
    final: dict[str, Any] = {
        "run": str(run_dir),
        "learner_step": version,
        "simulations": simulations,
        "checkpoint": "best" if best else "newest" if arguments.step is None else "step",
        "seeds": seeds,
    }
    final |= _evaluated(builder, weights, version, seeds, folder=folder)
    if arguments.baselines:
        alone = Builder.of(replace(config, evaluation=replace(evaluation, num_simulations=0)))
        network = _evaluated(alone, weights, version, seeds, "the network alone")
        start = builder.network().state_dict()
        untrained = _evaluated(builder, start, 0, seeds, "the same search, untrained network")
        final["baselines"] = {"network": network, "untrained": untrained}
    print(json.dumps(final))


def _unfit_for_positions(arguments: EvaluateArguments) -> list[str]:
    """Settings that were given but are for games."""
    plain = EvaluateArguments()
    names = ("seeds", "opponent", "games", "exhaustive", "baselines")
    return [name for name in names if getattr(arguments, name) != getattr(plain, name)]


def _seeds(arguments: EvaluateArguments) -> list[int] | None:
    """The fresh seeds to evaluate with; None for training's own."""
    check_checkpoint(arguments.checkpoint, arguments.step)
    seeds = arguments.seeds
    if seeds is None:
        return [_FRESH_SEED] if arguments.checkpoint == "best" else None
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds={seeds} must be different numbers of at least 0, such as [1,2,3]")
    return seeds


def _evaluated(
    builder: "Builder",
    weights: "dict[str, Tensor]",
    version: int,
    seeds: list[int] | None,
    who: str = "",
    *,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Evaluate with every seed and print the reports, each as a line; returns them as one JSON object.

    Raises:
        ValueError: If fewer games differ than the config asks for.
    """
    from muzero.runtime.evaluation import RunEvaluator, as_metrics, too_few_distinct

    evaluator, results = RunEvaluator(builder), []
    for seed in [None] if seeds is None else seeds:
        place = folder
        if folder is not None and seed is not None:
            place = folder.with_name(f"{folder.name}_seed_{seed}")
        reports = evaluator.evaluate(weights, version, place, fresh_seed=seed)
        of_seed = f"seed {seed}" if seeds is not None and len(seeds) > 1 else ""
        for report in reports:
            print(": ".join(filter(None, (who, of_seed, describe(report)))))
        if problem := too_few_distinct(reports, builder.config.evaluation):
            raise ValueError(problem)
        results.append(reports)
    if seeds is None or len(seeds) == 1:
        return _one_object(results[0])
    every = [as_metrics(reports) for reports in results]
    spread = {name: _spread([metrics[name] for metrics in every]) for name in every[0]}
    for name, figures in spread.items():
        line = ", ".join(f"{figure} {value:.4g}" for figure, value in figures.items())
        print(": ".join(filter(None, (who, f"over {len(seeds)} seeds", f"{name} {line}"))))
    by_seed = [
        {"seed": seed} | _one_object(reports) for seed, reports in zip(seeds, results, strict=True)
    ]
    return {"by_seed": by_seed, "over_seeds": spread}


def _one_object(reports: list[dict[str, Any]]) -> dict[str, Any]:
    return reports[0] if len(reports) == 1 else {"reports": reports}


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": fmean(values), "min": min(values), "max": max(values)}


def describe(report: dict[str, Any]) -> str:
    """A report as a line of text."""
    if "episodes" in report:
        return (
            f"{report['episodes']} episodes: mean {report['mean']:.2f}, std {report['std']:.2f}, "
            f"min {report['min']:.2f}, IQM {report['iqm']:.2f}"
        )
    results = ", ".join(
        f"{report[counts]} {word} [{{:.2f}}, {{:.2f}}]".format(*report[f"{rate}_rate_interval"])
        for counts, word, rate in (
            ("wins", "won", "win"),
            ("draws", "drawn", "draw"),
            ("losses", "lost", "loss"),
        )
    )
    line = (
        f"against {report['opponent']}: {results} of {report['games']} different games "
        f"({report['duplicate_games']} duplicates left out), in brackets the shares' 95 % intervals"
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
