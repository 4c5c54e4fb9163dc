"""The commands as a user types them, in processes of their own: train, stop, kill, resume, evaluate, inspect."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SMOKE = ("debug=smoke", "logger.tensorboard=false")


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"muzero.{module}", *arguments]


def run(module: str, *arguments: str, cwd: Path, expect: int = 0) -> str:
    done = subprocess.run(
        command(module, *arguments), cwd=cwd, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def last_json(output: str) -> dict:
    return json.loads(output.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A finished run of tic-tac-toe."""
    folder = tmp_path_factory.mktemp("trained")
    output = run("train", "experiment=tictactoe", *SMOKE, cwd=folder)
    result = last_json(output)
    assert result["learner_step"] == 20
    assert "muzero-evaluate run=" in output
    return Path(result["run_dir"])


def test_a_run_folder_holds_what_the_design_says(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"config.yaml", "train.log", "metrics.jsonl", "checkpoints", "evaluation"} <= names


def test_evaluate_against_the_perfect_player(trained):
    output = run(
        "evaluate",
        f"run={trained}",
        "opponent=perfect",
        "games=20",
        "exhaustive=true",
        cwd=trained,
    )
    report = last_json(output)
    assert report["opponent"] == "perfect"
    assert report["games"] == 20 == report["wins"] + report["draws"] + report["losses"]
    assert report["wins"] == 0
    assert report["as_first"]["games"] == report["as_second"]["games"] == 10
    assert 0.0 < report["optimal_move_rate"] < 1.0
    assert report["losing_lines"] > 0  # untrained
    assert report["duplicate_games"] >= 0


def test_evaluating_twice_prints_the_same(trained):
    arguments = (f"run={trained}", "opponent=rollout:10", "games=10")
    first, second = (last_json(run("evaluate", *arguments, cwd=trained)) for _ in range(2))
    assert first == second


def test_baselines_tell_what_is_due_to_the_search(trained):
    """Row 100: search on an untrained network already plays, so it stands beside the trained one."""
    arguments = (f"run={trained}", "opponent=random", "games=40", "simulations=50")
    output = run("evaluate", *arguments, "baselines=true", cwd=trained)
    report = last_json(output)
    alone = last_json(run("evaluate", *arguments[:-1], "simulations=0", cwd=trained))
    assert report["baselines"]["network"]["wins"] == alone["wins"]
    untrained = report["baselines"]["untrained"]
    assert untrained["games"] == 40
    assert (untrained["wins"], untrained["losses"]) != (alone["wins"], alone["losses"])
    assert "untrained network: against random" in output


def test_another_run_as_opponent(trained):
    report = last_json(
        run("evaluate", f"run={trained}", f"opponent={trained}", "games=10", cwd=trained)
    )
    assert report["games"] == 10


def test_inspect_shows_checkpoints_games_and_a_tree(trained):
    summary = run("inspect_run", f"run={trained}", cwd=trained)
    assert "checkpoint 20: sound" in summary
    assert "won" in (games := run("inspect_run", f"run={trained}", "show=games", cwd=trained)) or (
        "lost" in games
    )
    assert "player 0" in run("inspect_run", f"run={trained}", "show=game", cwd=trained)
    tree = run("inspect_run", f"run={trained}", "show=tree", "moves=[4]", cwd=trained)
    assert "principal variation" in tree
    as_json = json.loads(
        run("inspect_run", f"run={trained}", "show=tree", "format=json", cwd=trained)
    )
    assert as_json


def test_a_step_without_checkpoint_is_refused_with_those_there_are(trained):
    output = run("evaluate", f"run={trained}", "step=7", cwd=trained, expect=2)
    assert "no checkpoint of learner step 7; it has [" in output
    assert "Traceback" not in output


def test_a_damaged_step_is_refused_with_those_there_are(trained, tmp_path):
    run_dir = shutil.copytree(trained, tmp_path / "run")
    (damaged,) = run_dir.glob("checkpoints/step_00000020/acting.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    output = run("evaluate", f"run={run_dir}", "step=20", cwd=tmp_path, expect=2)
    assert damaged.name in output and "there are checkpoints of [" in output
    assert "Traceback" not in output


def test_an_exported_agent_plays_as_its_run_does_and_cannot_be_trained_on(trained, tmp_path):
    agent = tmp_path / "agent"
    written = last_json(run("export", f"run={trained}", f"to={agent}", cwd=tmp_path))
    assert written["learner_step"] == 20
    whole = sum(path.stat().st_size for path in trained.rglob("checkpoints/*/*") if path.is_file())
    assert 0 < written["bytes"] < whole / 2
    games = ("opponent=rollout:10", "games=10")
    theirs, ours = (
        last_json(run("evaluate", f"run={folder}", *games, cwd=tmp_path))
        for folder in (trained, agent)
    )
    assert theirs.pop("run") != ours.pop("run")
    assert theirs == ours
    assert "sound" in run("inspect_run", f"run={agent}", cwd=tmp_path)
    report = last_json(
        run("evaluate", f"run={agent}", f"opponent={agent}", "games=4", cwd=tmp_path)
    )
    assert report["games"] == 4
    refusal = run("train", f"resume={agent}", cwd=tmp_path, expect=2)
    assert "resume the run that it came from" in refusal
    again = run("export", f"run={trained}", f"to={agent}", cwd=tmp_path, expect=2)
    assert "is there already" in again


def test_inspect_refuses_an_illegal_move_by_name(trained):
    output = run("inspect_run", f"run={trained}", "show=tree", "moves=[4,4]", cwd=trained, expect=2)
    assert "action 4 (number 1) is not legal" in output
    assert "Traceback" not in output


def test_three_lines_of_python_load_an_agent(trained):
    import numpy as np

    from muzero import load_agent

    agent = load_agent(trained)
    observation = np.zeros((2, *agent.model.spec.observation_shape), bool)
    legal = np.zeros((2, 9), bool)
    legal[:, [3, 7]] = True
    assert set(agent.act(observation, legal).tolist()) <= {3, 7}


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        command("train", *arguments),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_checkpoints(folder: Path, count: int) -> list[Path]:
    """The run's checkpoint folders, once there are so many."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = sorted(folder.glob("runs/*/*/checkpoints/step_????????"))
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {count} checkpoints in {folder}")


LONG = ("experiment=tictactoe", *SMOKE, "learner.num_steps=100000", "evaluation.interval=0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_exits_cleanly(tmp_path, number):
    process = start(tmp_path, *LONG, "runtime.checkpoint_interval=10")
    wait_for_checkpoints(tmp_path, 1)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    result = last_json(output)
    assert f"muzero-train resume={result['run_dir']}" in output
    newest = wait_for_checkpoints(tmp_path, 1)[-1]
    assert newest.name == f"step_{result['learner_step']:08d}"


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    process = start(tmp_path, *LONG, "runtime.checkpoint_interval=5")
    newest = wait_for_checkpoints(tmp_path, 2)[-1]
    process.kill()
    process.communicate(timeout=60)
    run_dir = newest.parents[1]
    step = int(newest.name.removeprefix("step_"))
    output = run("train", f"resume={run_dir}", f"learner.num_steps={step + 20}", cwd=tmp_path)
    result = last_json(output)
    assert Path(result["run_dir"]).resolve() == run_dir.resolve()
    assert result["learner_step"] == step + 20
    assert "continuing from learner step" in output
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [row["learner_step"] for row in rows]
    assert steps == sorted(set(steps))


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path):
    run(
        "train",
        "experiment=tictactoe",
        *SMOKE,
        "runtime.checkpoint_interval=10",
        cwd=tmp_path,
    )
    older, newest = wait_for_checkpoints(tmp_path, 2)[-2:]
    damaged = max(newest.rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    run_dir = newest.parents[1]
    output = run("train", f"resume={run_dir}", "learner.num_steps=25", cwd=tmp_path)
    joined = "".join(output.split())
    assert newest.name in joined
    assert f"continuingfromlearnerstep{int(older.name[5:])}" in joined
    assert last_json(output)["learner_step"] == 25


def test_resume_refuses_another_game_and_a_folder_without_a_run(tmp_path, trained):
    output = run("train", f"resume={trained}", "env=connect_four", cwd=tmp_path, expect=2)
    assert "env" in output and "Traceback" not in output
    output = run("train", "resume=nowhere", cwd=tmp_path, expect=2)
    assert "nowhere" in output and "Traceback" not in output


def test_cuda_without_cuda_is_an_error(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    output = run(
        "train", "experiment=tictactoe", *SMOKE, "runtime.device=cuda", cwd=tmp_path, expect=2
    )
    assert "runtime.device=cuda" in output


@pytest.mark.parametrize(
    "overrides",
    [
        ("env=open_spiel", "env.game=connect_four"),
        ("env=open_spiel", "env.game=dots_and_boxes"),
        ("env=open_spiel", "env.game=2048"),
        ("env=gym", "env.id=Acrobot-v1"),
        pytest.param(("env=atari", "env.game=pong"), marks=pytest.mark.atari),
    ],
    ids=lambda overrides: overrides[-1],
)
def test_any_environment_by_name_trains_resumes_and_is_evaluated(tmp_path, overrides):
    small = (*SMOKE, "learner.num_steps=4", "env.max_episode_steps=20", "replay.min_size=16")
    result = last_json(run("train", *overrides, *small, cwd=tmp_path))
    run_dir = result["run_dir"]
    again = last_json(run("train", f"resume={run_dir}", "learner.num_steps=6", cwd=tmp_path))
    assert again["learner_step"] == 6
    report = last_json(run("evaluate", f"run={run_dir}", "games=2", cwd=tmp_path))
    assert report.get("games", report.get("episodes")) == 2
