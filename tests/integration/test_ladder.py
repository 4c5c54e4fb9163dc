"""`muzero-evaluate ladder` on a small run of tic-tac-toe."""

import csv
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

from muzero import evaluate as command
from muzero.config.compose import compose
from muzero.config.store import save_config
from muzero.evaluation.arena import read_records
from muzero.runtime.ladder import spread
from muzero.runtime.local import LocalRuntime

QUIET = ("logger.progress=none", "logger.tensorboard=false", "evaluation.games=0")
KEEPING = ("learner.num_steps=20", "runtime.checkpoint_interval=5", "runtime.checkpoints_kept=3")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ladder") / "run"
    config = compose(["experiment=tictactoe", "debug=smoke", *QUIET, *KEEPING], run_dir=str(folder))
    save_config(config, folder)
    LocalRuntime(config, folder).train()
    assert len(list((folder / "checkpoints").glob("step_*"))) == 3
    return folder


@pytest.fixture
def steps(trained: Path) -> list[str]:
    """Names of the three checkpoints."""
    found = sorted(
        int(path.name.split("_")[1]) for path in (trained / "checkpoints").glob("step_*")
    )
    return [f"step {step}" for step in found]


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def ladder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[dict, str]:
    """The command's last line as JSON, and all that it printed."""
    monkeypatch.setattr(sys, "argv", ["muzero-evaluate", "ladder", *arguments])
    command.main()
    printed = capsys.readouterr().out
    return json.loads(printed.splitlines()[-1]), printed


def test_a_ladder_rates_checkpoints_and_fixed_players(run_dir, steps, capsys, monkeypatch):
    arguments = (f"run={run_dir}", "games=10", "players=[random,perfect]", "simulations=4")
    result, printed = ladder(capsys, monkeypatch, *arguments)
    by_name = {player["player"]: player for player in result["players"]}
    assert list(by_name) == [*steps, "random", "perfect"]
    assert by_name["random"]["elo_interval"] == [0.0, 0.0]
    assert by_name["perfect"]["elo"] > 100.0
    assert by_name["perfect"]["elo"] == max(player["elo"] for player in result["players"])
    # Three checkpoints meet each other and both fixed players, who meet too: 10 pairs.
    played = [
        read_records(path) for path in (run_dir / "evaluation" / "ladder").glob("games_*.jsonl")
    ]
    assert sorted(map(len, played)) == [10] * 10
    assert sum(player["games"] for player in result["players"]) <= 2 * 100
    assert steps[-1] in printed and "95 % interval" in printed
    rows = list(csv.DictReader(Path(result["csv"]).read_text(encoding="utf-8").splitlines()))
    assert [row["player"] for row in rows] == list(by_name)
    if importlib.util.find_spec("matplotlib") is not None:
        assert Path(result["png"]).read_bytes().startswith(b"\x89PNG")
    again, _ = ladder(capsys, monkeypatch, *arguments)
    assert again == result
    assert not [p for p in (run_dir / "evaluation").rglob("*") if p.name.endswith(".tmp")]


def test_without_matplotlib_the_csv_alone_is_written(run_dir, steps, capsys, monkeypatch):
    monkeypatch.setattr("muzero.evaluation.ladder.can_draw", lambda: False)
    arguments = (f"run={run_dir}", "games=4", "players=[random]", "checkpoints=2", "simulations=0")
    result, printed = ladder(capsys, monkeypatch, *arguments)
    assert result["png"] is None and not (run_dir / "evaluation" / "elo.png").exists()
    assert "matplotlib is not installed: pip install 'muzero-trainer[plots]'" in printed
    assert [player["player"] for player in result["players"]] == [steps[0], steps[2], "random"]


def test_a_checkpoint_as_the_anchor_and_another_run_as_a_player(
    run_dir, trained, steps, capsys, monkeypatch
):
    arguments = (f"run={run_dir}", "games=4", f"players=[{trained}]", "simulations=0")
    result, _ = ladder(capsys, monkeypatch, *arguments, f"anchor={steps[0]}")
    by_name = {player["player"]: player for player in result["players"]}
    assert list(by_name) == [*steps, str(trained)]
    assert by_name[steps[0]]["elo_interval"] == [0.0, 0.0]
    assert all(player["games"] > 0 for player in result["players"])


def test_damaged_checkpoints_are_left_out_by_name(run_dir, steps, capsys, monkeypatch, caplog):
    damaged = sorted((run_dir / "checkpoints").glob("step_*"))[1]
    weights = next(damaged.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    arguments = (f"run={run_dir}", "games=4", "players=[random]", "simulations=0")
    result, _ = ladder(capsys, monkeypatch, *arguments)
    assert [player["player"] for player in result["players"]] == [steps[0], steps[2], "random"]
    assert "Left out a damaged checkpoint" in caplog.text and damaged.name in caplog.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("anchor=perfect",),
            "anchor='perfect' is none of the players step ",
        ),
        (("players=[randm]",), "'randm' is none of random"),
        (("games=0",), "games=0 must be at least 1"),
        (("checkpoints=0",), "checkpoints=0 must be at least 1"),
        (("playrs=[random]",), "playrs"),
        (("checkpoints=1", "players=[]"), "nobody to play"),
    ],
)
def test_slips_are_told(run_dir, capsys, monkeypatch, arguments, words):
    with pytest.raises(SystemExit) as leaving:
        ladder(capsys, monkeypatch, f"run={run_dir}", "simulations=0", *arguments)
    assert leaving.value.code == 2
    assert words in "".join(capsys.readouterr())


def test_help_is_the_ladders(capsys, monkeypatch):
    with pytest.raises(SystemExit) as leaving:
        ladder(capsys, monkeypatch, "--help")
    assert leaving.value.code == 0
    assert "muzero-evaluate ladder run=..." in capsys.readouterr().out


def test_steps_are_spread_with_both_ends():
    assert spread([1, 2, 3], 8) == [1, 2, 3]
    assert spread(list(range(0, 101, 10)), 3) == [0, 50, 100]
    assert spread([5, 7, 9], 2) == [5, 9]
    assert spread([5, 7, 9], 1) == [9]
