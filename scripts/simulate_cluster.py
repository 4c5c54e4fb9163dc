"""What a cluster of some size would do: a simulation with measured costs, the real limiter and the real controller.

    python scripts/simulate_cluster.py --cores 1000 --learners 8
    python scripts/simulate_cluster.py --table
    python scripts/simulate_cluster.py --measure experiment=connect_four > costs.txt
    python scripts/simulate_cluster.py --costs costs.txt --cores 64 --cost learner_step_seconds=0.02 --set fresh_fraction=0.8
    python scripts/simulate_cluster.py --compare runs/connect_four/RUN --costs costs.txt --cores 2

Costs and settings without an option are those of `Costs` and `Scenario` in muzero/runtime/simulation/scenario.py. `--measure`
measures them here, on one thread, for the settings that follow; `--costs` reads the last line of what it printed. `--compare`
takes the settings from a run's config and shows what was predicted beside the second half of its metrics. The last line is
one JSON object. docs/scaling.md explains the model.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from muzero.runtime.controller import start_record
from muzero.runtime.simulation import Costs, Report, Scenario, Simulation

TABLE_CORES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
TABLE_LEARNERS = (1, 2, 4, 8)
COLUMNS = (
    "cores", "learners", "workers", "samples/s", "positions/s", "reanalyzed/s", "dropped", "wait", "cause", "self-play", "idle",
    "behaviour age", "target age", "fresh", "bottleneck", "next",
)  # fmt: skip
COMPARED = {
    "learner/steps_per_second": "steps_per_second",
    "learner/wait_fraction": "learner_wait_fraction",
    "selfplay/env_steps_per_second": "positions_per_second",
    "replay/samples_per_insert": "samples_per_insert",
    "reanalyze/positions_per_second": "reanalyzed_per_second",
    "learner/behaviour_age": "behaviour_age",
    "reanalyze/fresh_fraction": "fresh_fraction",
}
"""Metrics of a run, and what the simulation calls them. Fractions are compared by difference, the others by ratio."""


def row(report: Report) -> list[str]:
    """A line of the table."""
    causes = report.learner_wait_causes
    cause = max(causes, key=causes.__getitem__) if report.learner_wait_fraction > 0.001 else "-"
    return [
        f"{report.cores:,}",
        str(report.learners),
        f"{report.num_workers:,}",
        f"{report.samples_per_second:,.0f}",
        f"{report.positions_per_second:,.0f}",
        f"{report.reanalyzed_per_second:,.0f}",
        f"{report.dropped_fraction:.0%}",
        f"{report.learner_wait_fraction:.1%}",
        cause,
        f"{report.selfplay_share:.0%}",
        f"{report.idle_fraction:.0%}",
        f"{report.behaviour_age:,.0f}",
        f"{report.target_age:,.0f}",
        f"{report.fresh_fraction:.0%}",
        report.bottleneck,
        f"{report.next_bottleneck} {report.utilisations[report.next_bottleneck]:.0%}",
    ]


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """A table that Markdown understands."""
    for line in (COLUMNS, ["---"] * len(COLUMNS), *rows):
        print("| " + " | ".join(line) + " |")


def assignments(texts: Sequence[str]) -> dict[str, float | int]:
    """`name=number` as a mapping.

    Raises:
        ValueError: If one is not of that form.
    """
    values: dict[str, float | int] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"{text!r} is not name=number, such as learner_step_seconds=0.02")
        values[name] = int(value) if value.is_integer() else value
    return values


def read_costs(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Costs and settings from the last line that is JSON: what `--measure` prints, or costs alone.

    Raises:
        ValueError: If the file holds neither.
    """
    lines = path.read_text().strip()
    for text in (lines, lines.splitlines()[-1] if lines else ""):
        try:
            content = json.loads(text)
        except ValueError:
            continue
        if isinstance(content, dict):
            return content.get("costs", content), content.get("scenario", {})
    raise ValueError(f"{path} holds no JSON object of costs; --measure prints one")


def real_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of the compared metrics over the second half of a run's rows; those it has not are left out.

    Raises:
        ValueError: If there are none at all.
    """
    half = rows[len(rows) // 2 :]
    means = {}
    for name in COMPARED:
        values = [each[name] for each in half if each.get(name) is not None]
        if values:
            means[name] = math.fsum(values) / len(values)
    if not means:
        raise ValueError(f"metrics.jsonl has none of {', '.join(COMPARED)}")
    return means


def compare(run: Path, report: Report) -> dict[str, dict[str, float]]:
    """Predicted and real figures of a run, and the error: a difference of fractions, else relative to the real one."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    compared = {}
    for name, real in real_means([json.loads(line) for line in lines]).items():
        predicted = getattr(report, COMPARED[name])
        error = predicted - real
        if not name.endswith("_fraction"):
            error = (
                error / real if real else (0.0 if predicted == 0.0 else math.copysign(1.0, error))
            )
        compared[name] = {"predicted": predicted, "real": real, "error": error}
    return compared


def measure_costs(overrides: Sequence[str], seconds: float) -> dict[str, Any]:
    """What the pieces of a config cost here."""
    # Only this needs torch and a config.
    from muzero.config.compose import compose
    from muzero.runtime.build import configure_torch
    from muzero.runtime.simulation.measure import measure, scenario_settings

    configure_torch(1)
    config = compose(["runtime.device=cpu", "search.num_threads=1", *overrides])
    return {
        "costs": asdict(measure(config, seconds)),
        "scenario": scenario_settings(config),
        "overrides": list(overrides),
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="names: " + ", ".join(each.name for each in (*fields(Costs), *fields(Scenario))),
    )
    parser.add_argument("--cores", type=int, help="cores of the cluster (default: 2)")
    parser.add_argument("--learners", type=int, help="data-parallel learners (default: 1)")
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated time")
    parser.add_argument("--warmup", type=float, default=120.0, help="not measured before that")
    parser.add_argument("--costs", type=Path, help="JSON of costs, as --measure prints it")
    parser.add_argument("--cost", action="append", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--table", action="store_true", help="a grid of cores and learners")
    parser.add_argument("--table-cores", type=int, nargs="+", default=TABLE_CORES)
    parser.add_argument("--table-learners", type=int, nargs="+", default=TABLE_LEARNERS)
    parser.add_argument("--log", type=Path, help="write the controller's decisions to this file")
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object")
    parser.add_argument("--compare", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--measure", nargs="*", metavar="SETTING", help="measure costs here")
    parser.add_argument(
        "--measure-seconds", type=float, default=3.0, help="time for each measurement"
    )
    arguments = parser.parse_args()
    if arguments.log is not None and arguments.table:
        parser.error("--log takes the decisions of one run, not of --table")
    if arguments.compare is not None and arguments.table:
        parser.error("--compare compares one size, not --table")
    return arguments


def simulate(arguments: argparse.Namespace, costs: Costs, settings: dict[str, Any]) -> Report:
    """One run."""
    simulation = Simulation(Scenario.from_mapping(settings), costs)
    start = start_record(simulation.controller)
    report = simulation.run(arguments.seconds, arguments.warmup)
    if arguments.log is not None:
        lines = [start, *simulation.decisions]
        arguments.log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return report


def grid(arguments: argparse.Namespace, costs: Costs, settings: dict[str, Any]) -> list[Report]:
    """All sizes in which there is a core for search, fewest learners first."""
    reports = []
    for learners in arguments.table_learners:
        for cores in arguments.table_cores:
            sized = settings | {"cores": cores, "learners": learners}
            try:
                Scenario.from_mapping(sized).check()
            except ValueError:
                if learners >= cores or cores < 8 + 2 * learners:
                    continue  # too small for so many learners
                raise
            reports.append(simulate(arguments, costs, sized))
    return reports


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line asks for; returns the JSON object."""
    costs: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    if arguments.costs is not None:
        costs, settings = read_costs(arguments.costs)
    if arguments.compare is not None:
        from muzero.config.store import load_config
        from muzero.runtime.simulation.measure import scenario_settings

        config = load_config(arguments.compare)
        settings |= scenario_settings(config)
        workers = str(getattr(config.runtime, "num_workers", "auto"))
        if workers.isdigit():
            settings["workers"] = int(workers)
        settings["shards"] = getattr(config.runtime, "num_replay_shards", 1)
    costs |= assignments(arguments.cost)
    for name in ("cores", "learners"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    settings |= assignments(arguments.set)
    measured = Costs.from_mapping(costs)
    if arguments.table:
        reports = grid(arguments, measured, settings)
        if not arguments.json:
            print_table([row(report) for report in reports])
        return {
            "table": [report.as_json() for report in reports],
            "costs": asdict(measured),
            "settings": settings,
        }
    report = simulate(arguments, measured, settings)
    result = report.as_json() | {"costs": asdict(measured), "settings": settings}
    if not arguments.json:
        print_table([row(report)])
    if arguments.compare is not None:
        result["compared"] = compare(arguments.compare, report)
        if not arguments.json:
            print("\n| metric | predicted | real | error |\n| --- | --- | --- | --- |")
            for name, each in result["compared"].items():
                print(
                    f"| `{name}` | {each['predicted']:,.3g} | {each['real']:,.3g} | {each['error']:+.1%} |"
                )
    return result


def main() -> None:
    """Parse the command line, simulate, print."""
    arguments = parse()
    try:
        if arguments.measure is not None:
            result = measure_costs(arguments.measure, arguments.measure_seconds)
            if not arguments.json:
                for name, value in result["costs"].items():
                    print(f"{name:>24}: {value:.4g}")
        else:
            result = run(arguments)
    except (ValueError, OSError) as error:
        raise SystemExit(f"simulate_cluster: {error}") from None
    print(json.dumps(result))


if __name__ == "__main__":
    main()
