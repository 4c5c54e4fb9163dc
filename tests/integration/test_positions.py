"""`muzero-evaluate positions=...` on a small run of connect four."""

import json
import sys
from pathlib import Path

import pytest

from muzero.config.arguments import parse_arguments
from muzero.config.compose import compose
from muzero.config.store import save_config
from muzero.evaluate import EvaluateArguments, evaluate
from muzero.runtime.local import LocalRuntime

pytest.importorskip("bitbully", reason="needs the extra `solver`")

QUIET = ("logger.progress=none", "logger.tensorboard=false", "evaluation.games=0")
SMALL = ("network=mlp", "learner.num_steps=2", "replay.min_size=32")


def train(folder: Path, experiment: str) -> Path:
    config = compose(
        [f"experiment={experiment}", "debug=smoke", *QUIET, *SMALL], run_dir=str(folder)
    )
    save_config(config, folder)
    LocalRuntime(config, folder).train()
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("positions") / "run", "connect_four")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "one.txt").write_text("444444 1\n" * 99 + "434343 18\n" * 8, encoding="utf-8")
    (tmp_path / "two.txt").write_text(
        "2252576253462244111563365343671351441 -1\n", encoding="utf-8"
    )
    return [tmp_path / "one.txt", tmp_path / "two.txt"]


def report(run_dir: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict, str]:
    parsed, overrides = parse_arguments(
        [f"run={run_dir}", *arguments], EvaluateArguments, program="muzero-evaluate"
    )
    evaluate(parsed, overrides)
    printed = capsys.readouterr().out
    return json.loads(printed.splitlines()[-1]), printed


def test_the_report_of_several_files(run_dir, files, capsys):
    one, two = files
    result, printed = report(
        run_dir, capsys, f"positions=[{one},{two}]", "simulations=8", "processes=1"
    )
    assert list(result) == ["files", "simulations"]
    assert result["simulations"] == 8
    assert list(result["files"]) == ["one.txt", "two.txt"]
    assert [of_file["positions"] for of_file in result["files"].values()] == [107, 1]
    for of_file in result["files"].values():
        assert list(of_file) == ["positions", "search", "network"]
        for grades in (of_file["search"], of_file["network"]):
            assert list(grades) == ["mistake_rate", "perfect_move_rate", "value_error"]
            assert 0.0 <= grades["mistake_rate"] <= 1.0 - grades["perfect_move_rate"]
            assert 0.0 < grades["value_error"] < 2.0
    # 99 copies of one position, and 8 of another: each kind is answered alike.
    assert round(result["files"]["one.txt"]["network"]["perfect_move_rate"] * 107) in (
        0,
        8,
        99,
        107,
    )
    assert "one.txt: 107 positions" in printed
    assert "search: mistakes" in printed
    again, _ = report(run_dir, capsys, f"positions={one}", "simulations=8", "processes=2")
    assert again["files"]["one.txt"] == result["files"]["one.txt"]


def test_the_network_by_itself(run_dir, files, capsys):
    result, _ = report(run_dir, capsys, f"positions={files[1]}", "simulations=0", "processes=1")
    assert list(result["files"]["two.txt"]) == ["positions", "network"]


def test_the_rules_search_finds_a_win_at_once(run_dir, files, capsys):
    arguments = (f"positions={files[0]}", "simulations=40", "processes=1")
    result, _ = report(run_dir, capsys, *arguments, "search.dynamics=rules")
    # "434343" is won by a fourth stone in column 4, which a search with the true rules sees.
    assert round(result["files"]["one.txt"]["search"]["perfect_move_rate"] * 107) in (8, 107)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("positions=3",), "positions=3 must be a file"),
        (("positions=[]",), r"positions=\[\] must be a file"),
        (("positions=none.txt",), r"positions=none\.txt cannot be read"),
        (("positions=builtin", "games=3", "opponent=random"), "opponent, games: without a meaning"),
        (("positions=builtin", "processes=0"), "processes=0 must be at least 1"),
        (("positions=[builtin,builtin]",), "names a file twice"),
    ],
)
def test_slips_are_told(run_dir, capsys, arguments, words):
    with pytest.raises(ValueError, match=words):
        report(run_dir, capsys, *arguments)


def test_bad_lines_are_told_before_anything_is_searched(run_dir, files, capsys):
    files[1].write_text("444444 1\n4448 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"two\.txt, line 2: '4448' must be columns"):
        report(run_dir, capsys, f"positions={files[1]}", "processes=1")


def test_a_missing_solver_names_the_extra(run_dir, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "bitbully", None)
    with pytest.raises(ValueError, match=r"positions: .*muzero-trainer\[solver\]"):
        report(run_dir, capsys, "positions=builtin")


def test_other_games_are_refused(tmp_path, capsys):
    other = train(tmp_path / "run", "tictactoe")
    with pytest.raises(ValueError, match=r"positions of connect four .* the run plays tic"):
        report(other, capsys, "positions=builtin")
