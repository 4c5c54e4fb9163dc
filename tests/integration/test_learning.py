"""The shipped recipes learn within minutes (peers, row 92), to a level that an untrained agent never has."""

import json
import subprocess
import sys

import pytest

from muzero.metrics import read_rows

pytestmark = pytest.mark.slow


def train(tmp_path, *overrides: str) -> list[dict]:
    """Rows of the metrics of a whole run of the command."""
    command = [sys.executable, "-m", "muzero.train", *overrides, "logger.progress=none"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    run_dir = json.loads(done.stdout.strip().splitlines()[-1])["run_dir"]
    return list(read_rows(tmp_path / run_dir / "metrics.jsonl"))


def test_cartpole_reaches_475(tmp_path):
    rows = train(tmp_path, "experiment=cartpole", "learner.num_steps=6000", "seed=1")
    scores = [row["evaluation/score_mean"] for row in rows if "evaluation/score_mean" in row]
    assert scores[0] < 475.0  # not by luck from the start
    assert min(scores[-3:]) >= 475.0


def test_tictactoe_leaves_no_losing_line(tmp_path):
    rows = train(tmp_path, "experiment=tictactoe", "seed=1")
    last = [row for row in rows if "evaluation/losing_lines" in row][-1]
    assert last["evaluation/losing_lines"] == 0
    assert last["evaluation/optimal_move_rate"] >= 0.98
    assert last["evaluation/perfect/loss_rate"] <= 0.02
