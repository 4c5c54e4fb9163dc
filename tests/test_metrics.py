import builtins
import importlib.util
import json
import math
import os
import struct
import sys
import types
from pathlib import Path

import pytest

from muzero import metrics_file, writers
from muzero.config.schema import LoggerConfig
from muzero.metrics import (
    MetricsLogger,
    Stopwatch,
    is_timing,
    read_rows,
    strip_timing,
    time_metrics,
    wait_metrics,
)

_spec = importlib.util.spec_from_file_location(
    "metric_docs", Path(__file__).with_name("metric_docs.py")
)
metric_docs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(metric_docs)

JSON_ONLY = LoggerConfig(tensorboard=False)


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch):
    """Syncing is tested by its calls; doing it would make these tests as slow as the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_of(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_every_reduction(tmp_path):
    clock = Clock()
    with MetricsLogger(tmp_path, JSON_ONLY, clock=clock) as metrics:
        metrics.mean("learner/loss", 1.0)
        metrics.mean("learner/loss", 4.0, weight=2)
        metrics.maximum("selfplay/search_depth", -3)
        metrics.maximum("selfplay/search_depth", -5)
        metrics.last("replay/size", 10)
        metrics.last("replay/size", 20)
        metrics.total("selfplay/games", 3)
        metrics.rate("selfplay/env_steps_per_second", 30)
        metrics.rate("selfplay/env_steps_per_second", 10)
        clock.now += 4
        first = metrics.write(5, 40)
        metrics.total("selfplay/games")
        clock.now += 2
        second = metrics.write(6, 41)
    assert first == {
        "learner_step": 5,
        "env_steps": 40,
        "learner/loss": 3.0,
        "replay/size": 20,
        "selfplay/env_steps_per_second": 10.0,
        "selfplay/games": 3,
        "selfplay/search_depth": -3.0,
        "metrics/nonfinite_values": 0,
        "time/elapsed_seconds": 4.0,
    }
    assert second == {
        "learner_step": 6,
        "env_steps": 41,
        "selfplay/env_steps_per_second": 0.0,
        "selfplay/games": 4,
        "metrics/nonfinite_values": 0,
        "time/elapsed_seconds": 6.0,
    }
    assert lines_of(tmp_path) == [first, second] == read_rows(tmp_path / "metrics.jsonl")


def test_many_at_once(tmp_path):
    metrics = MetricsLogger(tmp_path, JSON_ONLY)
    metrics.means({"learner/loss": 1.0, "learner/value_loss": 2.0})
    metrics.means({"learner/loss": 3.0}, weight=3)
    metrics.lasts({"replay/size": 7})
    row = metrics.write(1, 1)
    assert (row["learner/loss"], row["learner/value_loss"], row["replay/size"]) == (2.5, 2.0, 7)
    metrics.close()


def test_one_name_has_one_reduction(tmp_path):
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        metrics.mean("learner/loss", 1)
        with pytest.raises(TypeError, match="learner/loss is a mean and cannot be a total"):
            metrics.total("learner/loss", 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_values_are_null_and_counted(tmp_path, value):
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        metrics.mean("learner/loss", value)
        metrics.last("learner/value_mean", value)
        metrics.write(1, 1)
        metrics.mean("learner/loss", 2.0)
        metrics.write(2, 2)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    first, second = lines_of(tmp_path)
    assert first["learner/loss"] is None and first["learner/value_mean"] is None
    assert first["metrics/nonfinite_values"] == second["metrics/nonfinite_values"] == 2
    assert second["learner/loss"] == 2.0


def test_no_interval_no_rate(tmp_path):
    with MetricsLogger(tmp_path, JSON_ONLY, clock=Clock()) as metrics:
        metrics.rate("learner/steps_per_second", 5)
        assert "learner/steps_per_second" not in metrics.write(1, 1)


def drive(metrics: MetricsLogger, clock: Clock, steps: range) -> None:
    for step in steps:
        clock.now += 1
        metrics.mean("learner/loss", 1 / step)
        metrics.total("selfplay/games", 2)
        metrics.maximum("selfplay/search_depth", step % 5)
        metrics.rate("learner/steps_per_second", 1)
        if step % 3 == 0:
            metrics.write(step, 10 * step)


@pytest.mark.parametrize("saved_at", [6, 7, 8])
@pytest.mark.parametrize("killed_at", [8, 9, 14])
def test_a_resumed_file_equals_the_uninterrupted_one(tmp_path, saved_at, killed_at):
    clock = Clock()
    with MetricsLogger(tmp_path / "whole", JSON_ONLY, clock=clock) as metrics:
        drive(metrics, clock, range(1, 20))
    broken = tmp_path / "broken"
    clock = Clock()
    with MetricsLogger(broken, JSON_ONLY, clock=clock) as metrics:
        drive(metrics, clock, range(1, saved_at + 1))
        state = json.loads(json.dumps(metrics.state()))
        drive(metrics, clock, range(saved_at + 1, killed_at + 1))
    with (broken / "metrics.jsonl").open("ab") as file:
        file.write(b'{"learner_step": 9, "learner/lo')
    clock = Clock()
    with MetricsLogger(broken, JSON_ONLY, clock=clock) as metrics:
        metrics.restore(state, saved_at)
        drive(metrics, clock, range(saved_at + 1, 20))
    whole, resumed = lines_of(tmp_path / "whole"), lines_of(broken)
    assert [strip_timing(row) for row in resumed] == [strip_timing(row) for row in whole]
    assert resumed[-1]["time/elapsed_seconds"] == whole[-1]["time/elapsed_seconds"] == 18
    assert not list(broken.glob("*.tmp"))


def test_a_row_of_the_checkpoints_own_step_is_not_written_twice(tmp_path):
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        metrics.write(10, 1)
        state = metrics.state()
        metrics.write(10, 1)  # an evaluation after the checkpoint
        metrics.write(11, 1)
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        metrics.restore(state, 10)
        metrics.write(10, 2)
    assert [(row["learner_step"], row["env_steps"]) for row in lines_of(tmp_path)] == [
        (10, 1),
        (10, 2),
    ]


def test_a_run_that_starts_over_drops_all_rows(tmp_path):
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        metrics.write(0, 0)
        metrics.write(1, 0)
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        metrics.rewind(0, 0)
        assert lines_of(tmp_path) == []
        metrics.write(0, 5)
    assert [row["env_steps"] for row in lines_of(tmp_path)] == [5]


def test_a_kill_at_any_byte_costs_at_most_one_row(tmp_path):
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        for step in (1, 2):
            metrics.write(step, step)
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    starts = [0, *(index + 1 for index, byte in enumerate(whole) if byte == ord("\n"))]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        num_whole = sum(start <= size for start in starts[1:])
        complete_but_for_newline = size + 1 in starts
        expected = num_whole + complete_but_for_newline
        assert len(read_rows(path)) == expected
        with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
            metrics.write(9, 9)
        assert [row["learner_step"] for row in lines_of(tmp_path)] == [*[1, 2][:expected], 9]


def test_garbage_after_a_power_cut_is_dropped(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"learner_step": 1}\n\0\0\0\n[1]\n\xff\n')
    with MetricsLogger(tmp_path, JSON_ONLY) as metrics:
        metrics.write(2, 2)
    assert [row["learner_step"] for row in lines_of(tmp_path)] == [1, 2]
    assert "dropped 3 torn line(s)" in caplog.text


def test_rows_are_on_the_disk_at_once(tmp_path):
    metrics = MetricsLogger(tmp_path, JSON_ONLY)
    metrics.write(1, 1)
    assert len(lines_of(tmp_path)) == 1
    metrics.close()


def test_a_full_disk_costs_rows_but_not_the_run(tmp_path, caplog):
    class FullDisk:
        def __init__(self, file):
            self.file = file
            self.full = True

        def write(self, line):
            if not self.full:
                return self.file.write(line)
            self.file.write(line[:7])
            if len(line) % 2:
                raise OSError(28, "No space left on device")
            return 7

        def __getattr__(self, name):
            return getattr(self.file, name)

    metrics = MetricsLogger(tmp_path, JSON_ONLY)
    metrics.write(1, 1)
    disk = metrics._file._file = FullDisk(metrics._file._file)
    metrics.write(2, 2)
    metrics.write(3, 33)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    disk.full = False
    metrics.write(4, 4)
    metrics.close()
    assert [row["learner_step"] for row in lines_of(tmp_path)] == [1, 4]


def read_events(folder: Path) -> list:
    """Parse the record format by hand: length, checksum, event, checksum."""
    from tensorboard.compat.proto.event_pb2 import Event

    events = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            events.append(Event.FromString(content[12 : 12 + length]))
            content = content[12 + length + 4 :]
    return events


def test_tensorboard_shows_the_rows_and_forgets_what_a_kill_left(tmp_path):
    pytest.importorskip("tensorboard")
    with MetricsLogger(tmp_path, LoggerConfig()) as metrics:
        metrics.last("learner/loss", 0.5)
        metrics.last("learner/value_mean", math.nan)
        metrics.write(7, 70)
        state = metrics.state()
        metrics.write(8, 80)
    with MetricsLogger(tmp_path, LoggerConfig(tensorboard=True)) as metrics:
        metrics.restore(state, 7)
        metrics.write(8, 81)
    events = read_events(tmp_path / "tensorboard")
    assert [event.file_version for event in events if event.file_version] == ["brain.Event:2"] * 2
    scalars = [
        (event.step, value.tag, value.simple_value)
        for event in events
        for value in event.summary.value
    ]
    assert (7, "learner/loss", 0.5) in scalars
    assert [value for _, tag, value in scalars if tag == "env_steps"] == [70, 80, 81]
    assert not any(tag == "learner/value_mean" for _, tag, _ in scalars)
    assert [event.step for event in events if event.session_log.status] == [8]
    assert "tensorflow" not in sys.modules

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    assert [(item.step, item.value) for item in reader.Scalars("env_steps")] == [
        (7, 70.0),
        (8, 81.0),
    ]


def test_tensorboard_asked_for_but_missing_is_a_config_error(tmp_path, monkeypatch):
    monkeypatch.setattr(writers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"logger\.tensorboard=true.*pip install.*logger\.tensorboard=false"
    ):
        MetricsLogger(tmp_path, LoggerConfig(tensorboard=True))
    with pytest.raises(ValueError, match=r"logger\.wandb=true.*muzero-trainer\[wandb\]"):
        MetricsLogger(tmp_path, LoggerConfig(wandb=True))
    with MetricsLogger(tmp_path, LoggerConfig()) as metrics:
        metrics.write(1, 1)
    assert not (tmp_path / "tensorboard").exists()


def test_a_failing_writer_is_switched_off_with_one_warning(tmp_path, monkeypatch, caplog):
    class Failing:
        def write(self, row, learner_step):
            raise RuntimeError("server gone")

        def close(self):
            raise AssertionError("never closed, as it was switched off")

    monkeypatch.setattr(writers, "TensorBoardWriter", lambda *_: Failing())
    with MetricsLogger(tmp_path, LoggerConfig(tensorboard=None)) as metrics:
        for step in range(3):
            metrics.write(step, step)
    assert len(lines_of(tmp_path)) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "tensorboard is switched off, training goes on: RuntimeError('server gone')"
    ]


def test_a_writer_that_cannot_open_or_close_is_a_warning(tmp_path, monkeypatch, caplog):
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    with MetricsLogger(tmp_path, LoggerConfig(tensorboard=True)) as metrics:
        metrics.write(1, 1)
        metrics.write(2, 1)
    assert len(caplog.records) == 1
    monkeypatch.setattr(
        writers.TensorBoardWriter, "close", lambda self: (self._file.close(), 1 / 0)
    )
    with MetricsLogger(tmp_path / "other", LoggerConfig(tensorboard=True)) as metrics:
        metrics.write(1, 1)
    assert "ZeroDivisionError" in caplog.text


def test_wandb_is_offline_unless_asked_and_continues_its_run(tmp_path, monkeypatch):
    calls = []

    class Run:
        def log(self, row, step):
            calls.append((step, row["learner/loss"]))

        def finish(self):
            calls.append("finished")

    def init(**settings):
        calls.append(settings)
        return Run()

    module = types.ModuleType("wandb")
    module.__spec__ = importlib.util.spec_from_loader("wandb", None)
    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    config = LoggerConfig(tensorboard=False, wandb=True)
    with MetricsLogger(tmp_path / "tictactoe" / "2026-01-01 10:00", config) as metrics:
        metrics.last("learner/loss", 0.25)
        metrics.write(3, 1)
    settings = calls[0]
    assert settings["mode"] == "offline" and settings["project"] == "muzero"
    assert settings["id"] == "tictactoe-2026-01-01-10-00" and settings["resume"] == "allow"
    assert calls[1:] == [(3, 0.25), "finished"]


def test_wandb_mode_is_checked(tmp_path):
    with pytest.raises(ValueError, match=r"logger\.wandb_mode=disabeld"):
        MetricsLogger(tmp_path, LoggerConfig(tensorboard=False, wandb_mode="disabeld"))


def test_timing_can_be_told_apart():
    timing = [
        "selfplay/env_steps_per_second",
        "evaluation/seconds",
        "time/selfplay_fraction",
        "time/elapsed_seconds",
        "learner/wait_fraction",
        "learner/wait_selfplay_fraction",
        "system/memory_bytes",
    ]
    exact = [
        "learner/loss",
        "reanalyze/fresh_fraction",
        "replay/bytes",
        "learner_step",
        "env_steps",
    ]
    assert all(map(is_timing, timing)) and not any(map(is_timing, exact))
    assert strip_timing(dict.fromkeys(timing + exact, 1)) == dict.fromkeys(exact, 1)


def test_documented_units_of_time_are_timing():
    for name, (unit, *_) in metric_docs.documented_rows().items():
        if name.startswith(
            ("fleet/", "inference/", "learner/ready_")
        ):  # a fleet's schedule is the clock's
            assert is_timing(name), name
            continue
        assert is_timing(name) == (unit == "s" or unit.endswith("/s") or "wall time" in unit) or (
            name == "system/memory_bytes"
        ), name


def test_stopwatch_splits_wall_time():
    clock = Clock()
    stopwatch = Stopwatch(clock)
    with stopwatch.measure("learner"):
        clock.now += 5
        with stopwatch.measure("sampling"):
            clock.now += 2
        clock.now += 1
    clock.now += 2
    assert stopwatch.fractions() == {"learner": 0.6, "sampling": 0.2}
    clock.now += 1
    with stopwatch.measure("learner"):
        clock.now += 3
        assert stopwatch.fractions() == {"learner": 0.75, "sampling": 0.0}
        clock.now += 1
    assert stopwatch.fractions() == {"learner": 1.0, "sampling": 0.0}
    assert stopwatch.fractions() == {"learner": 0.0, "sampling": 0.0}
    assert stopwatch.total_seconds == {"learner": 10.0, "sampling": 2.0}


def test_stopwatch_survives_exceptions():
    clock = Clock()
    stopwatch = Stopwatch(clock)
    with pytest.raises(KeyError), stopwatch.measure("a"), stopwatch.measure("b"):
        clock.now += 1
        raise KeyError
    clock.now += 1
    assert stopwatch.fractions() == {"a": 0.0, "b": 0.5}


def test_fractions_get_their_names():
    assert time_metrics({"selfplay": 0.5}) == {"time/selfplay_fraction": 0.5}
    assert wait_metrics({"selfplay": 0.25, "sampling": 0.125}) == {
        "learner/wait_fraction": 0.375,
        "learner/wait_selfplay_fraction": 0.25,
        "learner/wait_sampling_fraction": 0.125,
    }


def test_every_name_in_the_code_is_documented():
    names = metric_docs.names_in_code()
    assert len(names) > 30
    assert metric_docs.undocumented(names) == []


def test_the_document_says_everything_about_each_metric():
    names = metric_docs.documented_names()
    assert len(names) == len(set(names)) > 70
    for name, cells in metric_docs.documented_rows().items():
        assert len(cells) == 4 and all(cells), name
        assert len(cells[1]) > 15, name
    assert (
        metric_docs.undocumented(["evaluation/rollout_100/win_rate", "learner/policy_loss_step_3"])
        == []
    )
    assert metric_docs.undocumented(["evaluation/a/b/win_rate", "learner/losses"]) == [
        "evaluation/a/b/win_rate",
        "learner/losses",
    ]


def test_metrics_import_neither_torch_nor_tensorboard(monkeypatch):
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        assert name.split(".")[0] not in ("torch", "tensorboard", "wandb", "tensorflow"), name
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for name in ("metrics", "metrics_file", "stopwatch", "writers"):
        spec = importlib.util.find_spec(f"muzero.{name}")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert metrics_file.finite_or_none(True) is True
