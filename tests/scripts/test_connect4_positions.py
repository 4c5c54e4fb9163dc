"""The package's connect four positions are what their script writes; other sets are of the kind that was asked for."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pyspiel
import pytest

from muzero.evaluation.connect_four import ConnectFourSolver

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "make_connect4_positions.py"


@pytest.mark.slow
def test_the_script_writes_the_packages_positions() -> None:
    """If this fails: `python scripts/make_connect4_positions.py`."""
    pytest.importorskip("bitbully", reason="needs the extra `solver`")
    subprocess.run([sys.executable, str(SCRIPT), "--check"], check=True, cwd=ROOT)


def test_another_set_has_positions_of_so_many_stones_and_moves_left(tmp_path: Path) -> None:
    """The moves left are counted by playing the solver's best moves to the end."""
    pytest.importorskip("bitbully", reason="needs the extra `solver`")
    solver, game = ConnectFourSolver(), pyspiel.load_game("connect_four")
    for fewest, most, number in ((3, 14, 12), (29, 41, 4)):
        path = tmp_path / f"{fewest}.txt"
        command = f"--to {path} --stones 8 12 --remaining {fewest} {most} --number {number}"
        subprocess.run([sys.executable, str(SCRIPT), *command.split()], check=True, cwd=ROOT)
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(set(lines)) == number
        for line in lines:
            moves, score = line.split()
            assert 8 <= len(moves) <= 12
            state = game.new_initial_state()
            for column in moves:
                state.apply_action(int(column) - 1)
            assert max(solver.action_scores(state).values()) == int(score)
            while not state.is_terminal():
                scores = solver.action_scores(state)
                state.apply_action(max(scores, key=lambda column: scores[column]))
            assert fewest <= state.move_number() - len(moves) <= most


def test_a_set_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("bitbully", reason="needs the extra `solver`")
    spec = importlib.util.spec_from_file_location("make_connect4_positions", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "MOST_TRIES", 50)
    path = tmp_path / "none.txt"
    command = f"script --to {path} --stones 1 1 --remaining 40 41 --number 5"
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit, match="--number 5: only 3 were found among 50 random positions"):
        module.main()
    assert not path.exists()
