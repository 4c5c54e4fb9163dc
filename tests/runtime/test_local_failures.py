"""What a local run does when the disk is full or training diverges."""

import errno
from pathlib import Path

import pytest
import torch

from muzero import checkpoint as checkpoint_module
from muzero.checkpoint import CheckpointError
from muzero.config.compose import compose
from muzero.learner import TrainingDiverged
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint

QUIET = ("logger.progress=none", "logger.tensorboard=false", "evaluation.interval=0")


def make(run_dir: Path, *overrides: str) -> LocalRuntime:
    run_dir.mkdir()
    config = compose(
        ["experiment=tictactoe", "debug=smoke", "runtime.overlap=false", *QUIET, *overrides],
        run_dir=str(run_dir),
    )
    return LocalRuntime(config, run_dir)


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_in_mid_run_is_told_and_training_goes_on(tmp_path, monkeypatch, caplog):
    runtime = make(tmp_path / "run", "runtime.checkpoint_interval=4")
    write, saves = checkpoint_module.write_synced, []

    def sometimes_full(path, chunks):
        [folder] = [part for part in path.parts if part.startswith("step_")]
        step = int(folder[5:13])
        saves.append(step)
        return full_disk() if 8 <= step < 16 else write(path, chunks)

    monkeypatch.setattr(checkpoint_module, "write_synced", sometimes_full)
    runtime.train()
    assert runtime.learner_step == 20
    assert any("disk full" in record.message for record in caplog.records)
    assert runtime.checkpoints.steps() == [4, 16, 20]
    assert set(saves) == {4, 8, 12, 16, 20}


def test_a_full_disk_at_the_end_is_an_error_and_older_checkpoints_stay(tmp_path, monkeypatch):
    runtime = make(tmp_path / "run", "runtime.checkpoint_interval=1000")
    runtime.stop_after(5)
    runtime.train()
    first = open_checkpoint(tmp_path / "run")
    config = runtime.config
    again = LocalRuntime(config, tmp_path / "run", first)
    monkeypatch.setattr(checkpoint_module, "write_synced", full_disk)
    with pytest.raises(CheckpointError, match="disk full") as caught:
        again.train()
    assert "intact" in str(caught.value)
    assert open_checkpoint(tmp_path / "run").step == first.step


def test_weights_stay_finite_when_training_diverges_and_the_run_stops(tmp_path, monkeypatch):
    runtime = make(
        tmp_path / "run", "runtime.checkpoint_interval=2", "learner.max_nonfinite_steps=3"
    )
    sample, calls = runtime.replay.sample, []

    def poisoned(batch_size):
        calls.append(batch_size)
        batch = sample(batch_size)
        if len(calls) > 6:
            batch.weight[:] = 3e38  # the loss overflows
        return batch

    monkeypatch.setattr(runtime.replay, "sample", poisoned)
    with pytest.raises(TrainingDiverged, match="3 steps in a row"):
        runtime.train()
    weights = open_checkpoint(tmp_path / "run").tensors("learner")
    assert all(torch.isfinite(value).all() for value in weights.values())
    assert runtime.learner_step == 9


def test_a_few_bad_steps_are_skipped_and_counted(tmp_path, monkeypatch):
    from muzero.metrics import read_rows

    runtime = make(tmp_path / "run")
    sample, calls = runtime.replay.sample, []

    def poisoned(batch_size):
        calls.append(batch_size)
        batch = sample(batch_size)
        if len(calls) in (4, 9):
            batch.weight[:] = 3e38  # the loss overflows
        return batch

    monkeypatch.setattr(runtime.replay, "sample", poisoned)
    runtime.train()
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert rows[-1]["learner/skipped_steps"] == 2
    assert all(torch.isfinite(v).all() for v in runtime.learner.acting_weights().values())


def test_no_evaluation_at_all_if_it_is_off(tmp_path):
    runtime = make(tmp_path / "run", "evaluation.games=0")
    assert runtime.train() == {}
    assert not (tmp_path / "run" / "evaluation").exists()
