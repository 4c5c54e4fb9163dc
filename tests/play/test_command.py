"""`muzero-play` as a user types it, in a process of its own."""

import http.client
import json
import re
import signal
import subprocess
import sys

import pytest

from muzero.checkpoint import CheckpointManager
from muzero.config.compose import compose
from muzero.config.store import save_config
from tests.play.games import TIC_TAC_TOE, TwoCheckpoints, make_builder


def command(*arguments):
    return [sys.executable, "-m", "muzero.play", *arguments]


def run(*arguments, typed="", expect=0):
    done = subprocess.run(
        command(*arguments), input=typed, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """The folder of a run with two checkpoints, neither of them trained."""
    folder = tmp_path_factory.mktemp("run")
    builder = make_builder(*TIC_TAC_TOE)
    save_config(builder.config, folder)
    weights = TwoCheckpoints(builder)
    with CheckpointManager(folder / "checkpoints", kept=2) as manager:
        for step in (0, 5):
            manager.save(step, {"acting": weights.load(step)[0]})
    return folder


def test_a_game_in_the_terminal(run_dir):
    output = run(f"run={run_dir}", "simulations=8", typed="4\nh\nr\nq\n")
    assert "learner step 5, 8 simulations per move" in output
    assert "agent (player 1) plays o(" in output
    assert "line imagined" in output
    (record,) = [
        json.loads(line[line.index("{") :]) for line in output.splitlines() if '"game"' in line
    ]
    assert record["actions"][0] == 4
    assert record["learner_step"] == 5


@pytest.fixture
def heeds_ctrl_c():
    """A shell's background jobs ignore Ctrl-C, and so would all that a test there starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_the_page_is_served_until_ctrl_c(run_dir):
    with subprocess.Popen(
        command(f"run={run_dir}", "web=true", "port=0", "step=0", "side=second", "simulations=4"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            lines = [process.stdout.readline() for _ in range(2)]
            address = re.search(r"http://(127\.0\.0\.1:\d+)/", lines[1])
            assert address, lines
            connection = http.client.HTTPConnection(address[1], timeout=60)
            connection.request("GET", "/api/state")
            state = json.loads(connection.getresponse().read())
            connection.close()
            assert state["settings"]["step"] == 0
            assert state["settings"]["steps"] == [0, 5]
            assert state["turn"] == "agent"
        finally:
            process.send_signal(signal.SIGINT)
        try:
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        assert "Traceback" not in rest
        assert process.returncode == 0, rest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("step=3",), "there are checkpoints of the steps [0, 5]"),
        (("checkpoint=best",), "no checkpoint marked as the best"),
        (("checkpoint=old",), "must be newest or best"),
        (("checkpoint=best", "step=5"), "name two checkpoints"),
        (("side=third",), "must be one of first, second, both, watch"),
        (("simulations=0",), "simulations=0"),
        (("time_limit=0",), "time_limit=0"),
        (("web=true", "port=70000"), "port=70000"),
        (("web=true", "host=192.0.2.1", "port=0"), "host=192.0.2.1"),
        (("prot=1",), "port"),
    ],
)
def test_what_cannot_be_is_told_without_a_traceback(run_dir, arguments, message):
    assert message in run(f"run={run_dir}", *arguments, expect=2)


def test_only_board_games_can_be_played(tmp_path):
    save_config(compose(["experiment=cartpole"]), tmp_path)
    assert "only OpenSpiel's games can be played" in run(f"run={tmp_path}", expect=2)
