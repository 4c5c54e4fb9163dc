"""Self-play in a second process does what it does in this one, and never outlives or hangs its run."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from muzero.config.compose import compose
from muzero.metrics import strip_timing
from muzero.runtime.build import Builder
from muzero.runtime.gathering import LocalGatherer, ProcessGatherer, Work
from muzero.weights import to_arrays

SMALL = ("experiment=tictactoe", "debug=smoke", "selfplay.num_games=8")


@pytest.fixture
def config():
    return compose([*SMALL, "reanalyze.fresh_fraction=0.5"])


def gather(gatherer, num_moves: int, weights=None):
    """Quanta in turn; the weights come with the third."""
    made = []
    for move in range(num_moves):
        is_new = weights is not None and move >= 3
        work = Work(move, 7 if is_new else 0, weights if is_new else None, None)
        gatherer.begin(work)
        made.append(gatherer.finish())
    return made


def assert_same(left, right) -> None:
    assert len(left) == len(right)
    for ours, theirs in zip(left, right, strict=True):
        assert ours.totals == theirs.totals
        assert len(ours.segments) == len(theirs.segments)
        for a, b in zip(ours.segments, theirs.segments, strict=True):
            for field in dataclasses.fields(a):
                np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))


def test_both_processes_make_the_same_games_and_continue_each_others_state(config):
    builder = Builder.of(config)
    weights = {
        name: array + 0.1 for name, array in to_arrays(builder.network().state_dict()).items()
    }
    here, there = LocalGatherer(builder), ProcessGatherer(config)
    try:
        assert_same(gather(here, 12, weights), gather(there, 12, weights))
        assert strip_timing(here.report()) == strip_timing(there.report())
        arrays, meta = there.state()
        fresh = LocalGatherer(builder)
        fresh.restore(arrays, meta, Work(12, 7, weights, None))
        assert_same(gather(fresh, 9), gather(there, 9))
    finally:
        there.close()


def test_a_killed_process_is_an_error_at_once_and_leaves_nothing(config):
    gatherer = ProcessGatherer(config)
    child = gatherer._child.pid
    os.kill(child, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"died \(exit code -9\); resume"):
        gather(gatherer, 50)
    assert not psutil.pid_exists(child)


def test_closing_ends_the_process(config):
    gatherer = ProcessGatherer(config)
    child = gatherer._child.pid
    gather(gatherer, 2)
    gatherer.close()
    assert not psutil.pid_exists(child)


def test_a_bad_environment_is_told_as_the_users_error(config):
    config.env.game = "no_such_game"
    with pytest.raises(ValueError, match="no_such_game"):
        ProcessGatherer(config)


def test_it_ends_when_its_parent_is_killed():
    script = (
        "from muzero.config.compose import compose\n"
        "from muzero.runtime.gathering import ProcessGatherer\n"
        f"gatherer = ProcessGatherer(compose({list(SMALL)!r}))\n"
        "print(gatherer._child.pid, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 20
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.05)
