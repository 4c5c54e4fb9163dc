"""The command of the simulation: its options, its table, its comparison with a run."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from muzero.config.compose import compose
from muzero.config.store import save_config
from muzero.runtime.controller import replay_decisions

SCRIPT = Path(__file__).parents[2] / "scripts" / "simulate_cluster.py"
QUICK = ("--seconds", "20", "--warmup", "5", "--set", "min_size=500", "--set", "num_games=64")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    spec = importlib.util.spec_from_file_location("simulate_cluster", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*arguments: str) -> tuple[list[str], dict[str, Any]]:
        """What is printed, and the JSON of the last line."""
        monkeypatch.setattr(sys, "argv", ["simulate_cluster.py", *arguments])
        module.main()
        lines = capsys.readouterr().out.splitlines()
        return lines[:-1], json.loads(lines[-1])

    return run


def test_one_size(call: Any, tmp_path: Path) -> None:
    log = tmp_path / "controller.jsonl"
    lines, result = call("--cores", "4", *QUICK, "--log", str(log))
    assert lines[0].startswith("| cores | learners |") and len(lines) == 3
    assert result["cores"] == 4 and result["learners"] == 1
    assert 1 <= result["num_workers"] <= 3  # idle ones are let go
    assert 0.0 <= result["learner_wait_fraction"] <= 1.0
    assert result["bottleneck"] == "learner"
    assert result["samples_per_second"] > 0.0
    assert len(replay_decisions(log)) == 2
    quiet, again = call("--cores", "4", *QUICK, "--json")
    assert quiet == [] and again == result


def test_costs_come_from_a_file_and_single_ones_win(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "costs.txt"
    measured = {
        "costs": {"network_seconds": 1.0, "learner_step_seconds": 5.0},
        "scenario": {"num_simulations": 2},
    }
    path.write_text("a table\n" + json.dumps(measured) + "\n")
    _, result = call(
        "--costs", str(path), "--cost", "learner_step_seconds=0.5", *QUICK, "--set", "num_games=1"
    )
    assert result["costs"]["network_seconds"] == 1.0
    assert result["costs"]["learner_step_seconds"] == 0.5
    assert result["settings"] == {"num_simulations": 2, "min_size": 500, "num_games": 1}
    assert result["positions_per_second"] == pytest.approx(0.5, rel=0.3)  # two simulations of 1 s
    path.write_text(json.dumps({"network_seconds": 2.0}))
    _, result = call("--costs", str(path), *QUICK)
    assert result["costs"]["network_seconds"] == 2.0


def test_the_table_leaves_out_what_is_too_small(call: Any) -> None:
    options = ("--table-cores", "2", "16", "32", "--table-learners", "1", "8")
    lines, result = call("--table", *options, *QUICK)
    sizes = [(each["cores"], each["learners"]) for each in result["table"]]
    assert sizes == [(2, 1), (16, 1), (32, 1), (32, 8)]
    assert len(lines) == 2 + len(sizes)
    assert lines[2].startswith("| 2 | 1 | 1 |")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cores", "1"), "leave none for search"),
        (("--cost", "learner_step_seconds"), "is not name=number"),
        (("--cost", "step=1"), "unknown name step"),
        (("--set", "batch_size=0"), "batch_size is 0"),
        (("--costs", "missing.json"), "missing.json"),
    ],
)
def test_mistakes_are_told_in_one_line(call: Any, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        call(*arguments)


def write_run(folder: Path) -> None:
    config = compose(
        ["experiment=tictactoe", "runtime=ray", "runtime.num_workers=3", "replay.min_size=500",
         "runtime.num_replay_shards=2"]
    )  # fmt: skip
    save_config(config, folder)
    rows = [
        {
            "learner/steps_per_second": rate,
            "learner/wait_fraction": 0.25,
            "selfplay/env_steps_per_second": 100.0,
            "replay/samples_per_insert": 4.0 if rate > 1 else None,
        }
        for rate in (1.0, 1.0, 30.0, 50.0)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_run_is_compared_with_its_prediction(call: Any, tmp_path: Path) -> None:
    write_run(tmp_path)
    lines, result = call(
        "--compare", str(tmp_path), "--cores", "8", "--seconds", "30", "--warmup", "10",
        "--cost", "learner_step_seconds=0.02",
    )  # fmt: skip
    assert result["settings"]["workers"] == 3 and result["settings"]["shards"] == 2
    assert result["settings"]["num_games"] == 128 and result["settings"]["num_unroll_steps"] == 3
    compared = result["compared"]
    assert compared["learner/steps_per_second"]["real"] == 40.0  # of the second half
    predicted = result["steps_per_second"]
    assert compared["learner/steps_per_second"]["error"] == pytest.approx(predicted / 40.0 - 1.0)
    waited = compared["learner/wait_fraction"]
    assert waited["error"] == pytest.approx(result["learner_wait_fraction"] - 0.25)
    assert "reanalyze/fresh_fraction" not in compared  # the run has none
    assert any("`learner/wait_fraction` |" in line for line in lines)


def test_a_run_without_metrics_is_told(call: Any, tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"learner_step": 1}\n')
    with pytest.raises(SystemExit, match="has none of"):
        call("--compare", str(tmp_path), "--seconds", "5", "--warmup", "0")
