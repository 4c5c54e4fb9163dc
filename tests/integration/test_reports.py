"""What the commands say of a run and its results (peers, rows 45, 85, 90, 99 and 100), called in this process."""

import json
from pathlib import Path

import pytest

from muzero.config.arguments import parse_arguments
from muzero.config.compose import compose
from muzero.config.store import save_config
from muzero.evaluate import EvaluateArguments, _conditions, evaluate
from muzero.evaluation.arena import read_records
from muzero.runtime.local import LocalRuntime
from muzero.train import train


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of tic-tac-toe whose config asks for exhaustive evaluation and some simulations."""
    folder = tmp_path_factory.mktemp("reports") / "run"
    config = compose(
        [
            "experiment=tictactoe",
            "debug=smoke",
            "learner.num_steps=8",
            "logger.progress=none",
            "logger.tensorboard=false",
            "evaluation.interval=0",
            "evaluation.exhaustive=true",
            "evaluation.num_simulations=4",
        ],
        run_dir=str(folder),
    )
    save_config(config, folder)
    LocalRuntime(config, folder).train()
    return folder


def report(run_dir: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict, str]:
    """The command's last line as JSON, and all that it printed."""
    parsed, overrides = parse_arguments(
        [f"run={run_dir}", "opponent=random", *arguments],
        EvaluateArguments,
        program="muzero-evaluate",
    )
    evaluate(parsed, overrides)
    printed = capsys.readouterr().out
    return json.loads(printed.splitlines()[-1]), printed


def test_the_network_alone_and_the_search_are_told_apart(run_dir, capsys, monkeypatch):
    """Rows 90 and 100: 0 simulations means none, and the report says what was evaluated."""
    import muzero.evaluation.agent as agent

    searches, run = [], agent.run
    monkeypatch.setattr(agent, "run", lambda *a: searches.append(1) or run(*a))
    alone, printed = report(run_dir, capsys, "games=6", "simulations=0")
    assert not searches
    assert alone["simulations"] == 0 and " 0 simulations per move" in printed
    searched, printed = report(run_dir, capsys, "games=6", "simulations=3")
    assert searches
    assert searched["simulations"] == 3 and " 3 simulations per move" in printed
    default, _ = report(run_dir, capsys, "games=6")
    assert default["simulations"] == 4


def test_false_is_not_taken_for_nothing(run_dir, capsys):
    """Row 90: the run's config says true, the command line false."""
    asked, _ = report(run_dir, capsys, "games=2")
    assert "losing_lines" in asked
    quick, _ = report(run_dir, capsys, "games=2", "exhaustive=false")
    assert "losing_lines" not in quick


def test_another_seed_evaluates_other_games(run_dir, capsys):
    """Row 99: a checkpoint that one evaluation picked can be evaluated again on games that it has not seen."""
    records = {}
    for seed in (0, 1):
        result, _ = report(run_dir, capsys, "games=20", "exhaustive=false", f"seed={seed}")
        (file,) = (run_dir / "evaluation" / "command_step_00000008").glob("*.jsonl")
        records[seed] = [record.actions for record in read_records(file)]
        assert result["games"] == len(records[seed]) == 20
        low, high = result["win_rate_interval"]
        assert low <= result["win_rate"] <= high
    assert records[0] != records[1]


def test_conditions_of_a_score_are_printed(run_dir, capsys):
    """Row 45: whatever decides what a score means."""
    _, printed = report(run_dir, capsys, "games=2", "exhaustive=false")
    assert "environment: " in printed and "game=tic_tac_toe" in printed
    atari = _conditions(compose(["env=atari", "env.game=pong"]).env)
    for condition in (
        "game=pong",
        "frame_skip=4",
        "repeat_action_probability=0.0",
        "noop_max=30",
        "episodic_life=False",
        "clip_reward=True",
        "max_frames=108000",
        "full_action_space=False",
    ):
        assert condition in atari


def test_the_device_is_told_at_the_start(tmp_path, caplog, monkeypatch):
    """Row 85: also what `auto` has chosen."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = compose(
        [
            "experiment=tictactoe",
            "debug=smoke",
            "learner.num_steps=1",
            "evaluation.games=0",
            "logger.progress=none",
            "logger.tensorboard=false",
            "runtime.device=auto",
        ],
        run_dir=str(tmp_path),
    )
    with caplog.at_level("INFO", logger="muzero"):
        train(config)
    (line,) = (r.getMessage() for r in caplog.records if "parameters on" in r.getMessage())
    assert "parameters on cpu" in line and "tictactoe" in line.replace("_", "").lower()
