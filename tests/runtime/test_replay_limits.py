"""Whole runs whose positions are used only so often and only while they are fresh: never stuck, exactly resumed."""

from pathlib import Path

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.metrics import read_rows, strip_timing
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint

BASE = (
    "logger.progress=none",
    "logger.tensorboard=false",
    "evaluation.games=0",
    "runtime.log_interval=20",
    "learner.num_steps=120",
    "learner.batch_size=16",
    "replay.min_size=32",
    "replay.samples_per_insert=4",
    "selfplay.num_games=4",
)


def make(folder: Path, *overrides: str) -> LocalRuntime:
    config = compose(
        ["experiment=tictactoe", "debug=smoke", *BASE, *overrides], run_dir=str(folder)
    )
    resumes = folder.exists()
    return LocalRuntime(config, folder, open_checkpoint(folder) if resumes else None)


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize(
    ("limits", "counter"),
    [
        (("replay.max_behaviour_age=2",), "replay/expired"),
        (("replay.max_times_sampled=4",), "replay/used_up"),
        (("replay.max_behaviour_age=1", "replay.max_times_sampled=4"), "replay/expired"),
    ],
    ids=str,
)
def test_a_run_with_tight_limits_goes_on_to_its_end(tmp_path, overlap, limits, counter):
    runtime = make(tmp_path / "run", f"runtime.overlap={overlap}", *limits)
    sampled_ages, sample = [], runtime.replay.sample

    def watched(batch_size):
        batch = sample(batch_size)
        sampled_ages.append(int((runtime.learner_step - batch.behaviour_version).max()))
        return batch

    runtime.replay.sample = watched
    runtime.train()
    last = read_rows(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["learner_step"] == 120
    assert last[counter] > 0
    age = runtime.config.replay.max_behaviour_age
    if age is not None:
        assert max(sampled_ages) <= age
    if runtime.config.replay.max_times_sampled is not None:
        assert last["replay/reuse"] <= 4 + 1  # a batch may hold a position more than once


def test_a_stopped_run_with_limits_equals_one_that_was_not(tmp_path):
    limits = ("runtime.overlap=false", "replay.max_behaviour_age=3", "replay.max_times_sampled=5")
    whole = make(tmp_path / "whole", *limits)
    whole.train()
    stopped = make(tmp_path / "stopped", *limits)
    stopped.stop_after(57)
    stopped.train()
    resumed = make(tmp_path / "stopped", *limits)
    resumed.train()
    (arrays, meta), (expected, expected_meta) = resumed.replay.state(), whole.replay.state()
    assert arrays.keys() == expected.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)
    assert meta["counts"] == expected_meta["counts"]
    assert meta["counts"]["expired"] > 0
    rows = [read_rows(tmp_path / name / "metrics.jsonl")[-1] for name in ("whole", "stopped")]
    assert strip_timing(rows[0]) == strip_timing(rows[1])
