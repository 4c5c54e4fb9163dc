"""A fleet whose processes are killed: it goes on, loses no more than it says, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from muzero.metrics import read_rows
from tests.runtime.fleet.chaos import SMALL, Hand, back, end_in, kill, make

pytestmark = [
    pytest.mark.ray,
    # Ray's own threads and sockets are closed with its processes.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ENDLESS = ("learner.num_steps=100000",)  # until the hand ends it
ROLES = ("search worker", "replay shard", "weight store", "learner")


def assert_accounted(runtime):
    """Inserted = what the shards confirmed (held or evicted) + what was told lost."""
    account, rows = runtime.account, read_rows(runtime.run_dir / "metrics.jsonl")
    assert account.inserted == sum(runtime.confirmed.values()) + account.lost
    last = rows[-1]
    assert last["replay/inserted"] == account.inserted - account.lost
    assert last["fleet/lost_positions"] == account.lost
    assert account.inserted == runtime.limiter.inserts


def test_every_role_is_killed_and_the_run_ends_as_if_nothing_had_been(tmp_path):
    runtime = make(tmp_path / "run", *ENDLESS, "runtime.checkpoint_interval=100")
    steps = [step for role in ROLES for step in (kill(role, at_step=110), back(role))]
    hand = Hand(runtime, [*steps, end_in(100)])
    hand.start()
    runtime.train()
    hand.assert_done()
    assert runtime.account.lost == 0  # the log gave back what the shard had
    assert_accounted(runtime)
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert rows[-1]["fleet/restarts"] == len(ROLES)
    steps_told = [row["learner_step"] for row in rows]
    assert steps_told == sorted(steps_told)


def test_a_shard_without_a_log_loses_what_came_behind_its_checkpoint_and_says_so(tmp_path):
    runtime = make(
        tmp_path / "run",
        *ENDLESS,
        "runtime.log_inserts=false",
        "runtime.num_replay_shards=2",
        "runtime.checkpoint_interval=1000",
    )
    shard = "replay shard"
    hand = Hand(runtime, [kill(shard, at_step=60, index=1), back(shard, index=1), end_in(100)])
    hand.start()
    runtime.train()
    hand.assert_done()
    assert runtime.account.lost > 0
    assert_accounted(runtime)


def test_an_environment_that_always_fails_ends_the_run_with_its_own_error(tmp_path):
    module = tmp_path / "broken_game.py"
    module.write_text(
        "import gymnasium\n"
        "class Broken(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        self.steps = 0\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.steps += 1\n"
        "        if self.steps == 5:\n"
        "            raise ArithmeticError('the seventh seal')\n"
        "        return self.observation_space.sample(), 0.0, False, False, {}\n"
        "gymnasium.register('Broken-v0', Broken)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    settings = [part for part in SMALL if not part.startswith("experiment")]
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "muzero.train",
            "env=gym",
            "env.id=broken_game:Broken-v0",
            "env.return_bounds=[-1,1]",
            *settings,
            "runtime.max_failures=2",
            f"run_dir={tmp_path / 'run'}",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert finished.returncode == 1
    for part in (
        "search worker 0",
        "ArithmeticError",
        "the seventh seal",
        "broken_game.py",
        "seed",
    ):
        assert part in finished.stderr
    assert "runtime.max_failures=2" in finished.stderr


def start_command(run_dir: Path, *settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "muzero.train", *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"},
    )


def wait_for_step(run_dir: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        path = run_dir / "checkpoints" / f"step_{step:08d}"
        if any(folder.name >= path.name for folder in run_dir.glob("checkpoints/step_????????")):
            return
        time.sleep(0.1)
    raise AssertionError(f"no checkpoint of step {step} after 120 s")


def leftovers(processes: list[psutil.Process]) -> list[psutil.Process]:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        alive = [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not alive:
            return []
        time.sleep(0.2)
    return alive


def test_a_killed_run_leaves_nothing_and_goes_on_where_it_was_saved(tmp_path):
    """Kill -9 of everything; then resume, SIGTERM, resume to the end."""
    run_dir = tmp_path / "run"
    shared_before = set(os.listdir("/dev/shm"))
    settings = [*SMALL, "learner.num_steps=100000", "runtime.checkpoint_interval=100"]
    process = start_command(run_dir, *settings, f"run_dir={run_dir}")
    wait_for_step(run_dir, 200, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    assert len(family) >= 5  # Ray's own processes, and the roles
    assert leftovers(family) == []
    assert set(os.listdir("/dev/shm")) <= shared_before

    process = start_command(run_dir, f"resume={run_dir}")
    saved = max(int(p.name[5:]) for p in run_dir.glob("checkpoints/step_????????"))
    wait_for_step(run_dir, saved + 100, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    told = json.loads(output.splitlines()[-1])
    assert told["learner_step"] >= saved + 100
    assert f"go on:     muzero-train resume={run_dir}" in output
    assert leftovers(family) == []

    last = told["learner_step"] + 50
    finished = subprocess.run(
        [sys.executable, "-m", "muzero.train", f"resume={run_dir}", f"learner.num_steps={last}"],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    assert json.loads(finished.stdout.splitlines()[-1])["learner_step"] == last
    rows = read_rows(run_dir / "metrics.jsonl")
    steps = [row["learner_step"] for row in rows]
    assert steps == sorted(steps)
    games = [row["selfplay/env_steps"] for row in rows]
    assert games == sorted(games)
    assert rows[-1]["replay/size"] > 200
