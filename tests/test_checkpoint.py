import errno
import itertools
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from muzero import checkpoint, durable, manifest
from muzero.checkpoint import CheckpointError, CheckpointManager


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch):
    """Syncing is tested by its calls; doing it would make these tests as slow as the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def make_parts(seed: int = 0, large: bool = False) -> dict:
    rng = np.random.default_rng(seed)
    weight = torch.from_numpy(rng.random((3, 4), dtype=np.float32))
    replay = {
        "limiter/inserts": np.array(7 + seed),
        "legal": rng.random((5, 7)) < 0.5,
        "observation": rng.integers(0, 2, (4, 3, 6, 7), dtype=np.uint8),
        "fortran": np.asfortranarray(rng.random((3, 5))),
        "strided": rng.integers(0, 99, (10, 6), dtype=np.int32)[::2, 1:],
        "empty": np.zeros((0, 3), np.float32),
        "words": np.array(["a", "bcd"]),
    }
    if large:
        replay["planes"] = (rng.random((300_000, 9)) < 0.1).astype(np.uint8)
        replay["noise"] = rng.random(400_000)
    return {
        "learner": {
            "weight": weight,
            "tied": weight,
            "step": torch.tensor(seed),
            "strided": weight.T,
        },
        "replay": replay,
        "state": {"rng": {"state": 2**127 + seed}, "curve": [1.5, float("inf"), None], "name": "x"},
        "nothing": {},
    }


def assert_same(checkpoint, parts: dict) -> None:
    assert checkpoint.parts == list(parts)
    for name, array in checkpoint.arrays("replay").items():
        expected = parts["replay"][name]
        assert array.dtype == expected.dtype and array.shape == expected.shape
        np.testing.assert_array_equal(array, expected)
    assert checkpoint.arrays("replay").keys() == parts["replay"].keys()
    for name, tensor in checkpoint.tensors("learner").items():
        assert tensor.dtype == parts["learner"][name].dtype
        assert torch.equal(tensor, parts["learner"][name])
    assert checkpoint.tensors("learner").keys() == parts["learner"].keys()
    assert checkpoint.json("state") == parts["state"]
    assert checkpoint.part("nothing") == checkpoint.arrays("nothing") == {}


def files_of(path: Path) -> list[Path]:
    return sorted(entry for entry in path.rglob("*") if entry.is_file())


@pytest.mark.parametrize("large", [False, True])
def test_what_is_saved_comes_back(tmp_path, large):
    parts = make_parts(large=large)
    path = CheckpointManager(tmp_path, 1).save(12, parts)
    assert path == tmp_path / "step_00000012"
    found = CheckpointManager(tmp_path, 1, owner=False).newest_valid()
    assert found.step == 12 and found.path == path
    assert found.versions["numpy"] == np.__version__
    assert_same(found, parts)
    assert found.part("learner").keys() == parts["learner"].keys()


def test_compresses_only_what_shrinks(tmp_path):
    path = CheckpointManager(tmp_path, 1).save(1, make_parts(large=True))
    assert (path / "replay/planes.npy.zst").stat().st_size < 1_000_000
    assert (path / "replay/noise.npy").stat().st_size >= 3_200_000


def test_plain_arrays_are_plain_npy_files(tmp_path):
    parts = make_parts()
    path = CheckpointManager(tmp_path, 1).save(1, parts)
    array = np.load(path / "replay/observation.npy", allow_pickle=False)
    np.testing.assert_array_equal(array, parts["replay"]["observation"])


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("again", [False, True])
def test_everything_is_synced_before_it_is_renamed_into_place(tmp_path, monkeypatch, again):
    manager = CheckpointManager(tmp_path, 1)
    if again:
        manager.save(1, make_parts())
    calls = []
    real = os.rename
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: calls.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    monkeypatch.setattr(
        os, "rename", lambda *paths: (calls.append(tuple(map(str, paths))), real(*paths))
    )
    path = manager.save(1, make_parts())
    aside = Path(f"{path}.tmp")
    files = {str(aside / file.relative_to(path)) for file in files_of(path)}
    folders = {str(aside), str(aside / "replay")}
    moved = calls.index((str(aside), str(path)))
    assert set(calls[:moved]) - {(str(path), f"{path}.replaced")} == files | folders
    position = calls.index(str(aside / manifest.MANIFEST))
    assert files == set(calls[: position + 1])  # the manifest is the last file
    assert str(tmp_path) in calls[moved + 1 :]


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert CheckpointManager(tmp_path / "new", 1).newest_valid() is None
    assert CheckpointManager(tmp_path / "none", 1, owner=False).newest_valid() is None
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 5; it has none"):
        CheckpointManager(tmp_path, 1).load(5)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"a": np.array([object()])}, "Python objects"),
        ({"a": np.zeros(2), "b": 1}, "neither JSON"),
        ({"a": {"b": {3: 1}}}, r"bad\.a\.b: key 3"),
        ({"a": [1, np.float32(2)]}, r"bad\.a\[1\]: float32"),
        ({"../a": np.zeros(2)}, "checkpoint name"),
        ({"/a": np.zeros(2)}, "checkpoint name"),
        ({".a": np.zeros(2)}, "checkpoint name"),
        ({"a/b": np.zeros(2), "A.b": np.ones(2)}, "differ only"),
    ],
)
def test_refuses_what_would_not_come_back(tmp_path, part, message):
    manager = CheckpointManager(tmp_path, 1)
    with pytest.raises(ValueError, match=message):
        manager.save(1, {"bad": part})
    with pytest.raises(ValueError, match="checkpoint"):
        manager.save(1, {"../bad": {"a": 1}})
    assert list(tmp_path.iterdir()) == []


def test_asking_for_the_wrong_part_is_told(tmp_path):
    manager = CheckpointManager(tmp_path, 1)
    manager.save(1, make_parts())
    found = manager.load(1)
    with pytest.raises(CheckpointError, match="'learner' holds tensors, not arrays"):
        found.arrays("learner")
    with pytest.raises(CheckpointError, match="no part 'league'; it has learner, replay, state"):
        found.part("league")


def damage_truncate(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def damage_bit_flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def damage_remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def damage_extend(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + b"{")


def damage_swap(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)) if any(content) else b"\1" * len(content))


@pytest.mark.parametrize(
    "damage", [damage_truncate, damage_bit_flip, damage_remove, damage_extend, damage_swap]
)
def test_any_damaged_file_is_found_named_and_skipped(tmp_path, caplog, damage):
    manager = CheckpointManager(tmp_path, 2)
    manager.save(1, make_parts(1))
    newest = manager.save(2, make_parts(2))
    rng = random.Random(0)
    for path in files_of(newest):
        original = path.read_bytes()
        for _ in range(4):
            damage(path, rng)
            caplog.clear()
            found = CheckpointManager(tmp_path, 2).newest_valid()
            assert found is not None and found.step == 1
            assert "step_00000002" in caplog.text and path.name in caplog.text
            with pytest.raises(CheckpointError, match=path.name):
                manager.load(2)
            path.write_bytes(original)
    assert manager.newest_valid().step == 2
    assert_same(manager.newest_valid(), make_parts(2))


def test_damage_after_the_check_is_found_when_a_part_is_read(tmp_path):
    manager = CheckpointManager(tmp_path, 1)
    rng = random.Random(1)
    path = manager.save(1, make_parts(large=True))
    found = manager.load(1)
    readers = {"learner": found.tensors, "replay": found.arrays, "state": found.json}
    for file in files_of(path):
        if file.name == manifest.MANIFEST:
            continue
        part = file.relative_to(path).parts[0].split(".")[0]
        original = file.read_bytes()
        for damage in (damage_truncate, damage_bit_flip, damage_remove, damage_extend):
            damage(file, rng)
            with pytest.raises(CheckpointError, match=file.name):
                readers[part](part)
            file.write_bytes(original)
        readers[part](part)


def test_all_damaged_is_no_checkpoint(tmp_path, caplog):
    manager = CheckpointManager(tmp_path, 2)
    for step in (1, 2):
        (manager.save(step, make_parts()) / manifest.MANIFEST).unlink()
    assert manager.newest_valid() is None
    assert "step_00000001" in caplog.text and "step_00000002" in caplog.text
    assert manager.steps() == [1, 2]


def rewrite_manifest(path: Path, change) -> None:
    fields = json.loads((path / manifest.MANIFEST).read_bytes())
    del fields["sha256"]
    change(fields)
    fields["sha256"] = manifest._checksum(fields)
    (path / manifest.MANIFEST).write_text(json.dumps(fields))


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "a\\b", "", "a\0b", 3])
def test_a_manifest_cannot_point_outside(tmp_path, name):
    manager = CheckpointManager(tmp_path, 1)
    path = manager.save(1, {"state": {"a": 1}})
    rewrite_manifest(path, lambda fields: fields["parts"]["state"]["files"][0].update(path=name))
    with pytest.raises(CheckpointError, match="not a path inside"):
        manager.load(1)


def test_a_link_in_place_of_a_file_is_refused(tmp_path):
    manager = CheckpointManager(tmp_path / "run", 1)
    path = manager.save(1, {"state": {"a": 1}})
    shutil.move(path / "state.json", tmp_path / "elsewhere.json")
    (path / "state.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(CheckpointError, match=r"state\.json"):
        manager.load(1)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("parts"),
        lambda fields: fields.pop("step"),
        lambda fields: fields["parts"]["state"].update(kind="pickle"),
        lambda fields: fields["parts"]["state"].update(files=[]),
        lambda fields: fields["parts"]["state"]["files"][0].update(size=-1),
        lambda fields: fields["parts"]["state"]["files"][0].pop("size"),
        lambda fields: fields.update(parts=[]),
        lambda fields: fields.update(step=7),
        lambda fields: fields.update(step="1"),
    ],
)
def test_a_nonsensical_manifest_counts_as_damaged(tmp_path, change):
    manager = CheckpointManager(tmp_path, 1)
    rewrite_manifest(manager.save(1, {"state": {"a": 1}}), change)
    assert manager.newest_valid() is None


def test_a_huge_array_is_not_allocated(tmp_path):
    manager = CheckpointManager(tmp_path, 1)
    path = manager.save(1, {"replay": {"a": np.zeros(3)}})
    file = path / "replay/a.npy"
    shape, huge = b"(3,), }" + b" " * 11, b"(300000000000,), }"
    assert len(shape) == len(huge) and shape in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(shape, huge))
    with pytest.raises(CheckpointError, match=r"a\.npy"):
        checkpoint.Checkpoint(path).arrays("replay")


def test_another_format_version_stops_instead_of_falling_back(tmp_path):
    manager = CheckpointManager(tmp_path, 2)
    manager.save(1, make_parts())
    rewrite_manifest(manager.save(2, make_parts()), lambda fields: fields.update(format_version=9))
    with pytest.raises(
        CheckpointError, match=r"step_00000002.*format is version 9, .* reads version 1"
    ):
        manager.newest_valid()


class Killed(BaseException):
    """The process is gone: nothing it calls has an effect any more."""


class Machine:
    """Counts system calls that change the disk and dies at one of them."""

    CALLS = (
        (os, "write"),
        (os, "fsync"),
        (os, "rename"),
        (os, "replace"),
        (Path, "mkdir"),
        (shutil, "rmtree"),
    )

    def __init__(
        self, monkeypatch, dies_at: int | None = None, fails_at: int | None = None, error: int = 0
    ):
        self.calls = 0
        self.dies_at, self.fails_at, self.error = dies_at, fails_at, error
        for owner, name in self.CALLS:
            monkeypatch.setattr(owner, name, self._wrap(name, getattr(owner, name)))

    def _wrap(self, name, original):
        def call(*args, **kwargs):
            self.calls += 1
            if self.dies_at is not None and self.calls >= self.dies_at:
                if name == "write" and self.calls == self.dies_at:
                    original(args[0], args[1][: len(args[1]) // 2])
                raise Killed
            if self.calls == self.fails_at:
                raise OSError(self.error, os.strerror(self.error))
            return original(*args, **kwargs)

        return call


@pytest.mark.parametrize("again", [False, True], ids=["new step", "same step again"])
def test_a_kill_at_any_system_call_leaves_the_old_or_the_new_checkpoint(tmp_path, again):
    seen = set()
    for dies_at in itertools.count(1):
        folder = tmp_path / str(dies_at)
        manager = CheckpointManager(folder, 1)
        manager.save(1, make_parts(1))
        if again:
            manager.save(2, make_parts(1))
        with pytest.MonkeyPatch.context() as patch:
            machine = Machine(patch, dies_at=dies_at)
            try:
                manager.save(2, make_parts(2))
            except Killed:
                killed = True
            else:
                killed = False
        reopened = CheckpointManager(folder, 1)
        found = reopened.newest_valid()
        inserts = int(found.arrays("replay")["limiter/inserts"])
        seen.add(inserts)
        assert_same(found, make_parts(inserts - 7))
        assert not any(entry.suffix in (".tmp", ".replaced") for entry in folder.iterdir())
        reopened.save(3, make_parts(3))
        assert_same(reopened.newest_valid(), make_parts(3))
        if not killed:
            assert inserts == 9 and machine.calls < dies_at
            break
    assert seen == {8, 9} and dies_at > 20


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_at_any_system_call_loses_nothing_and_says_so(tmp_path, error):
    for fails_at in itertools.count(1):
        folder = tmp_path / str(fails_at)
        manager = CheckpointManager(folder, 2)
        manager.save(1, make_parts(1))
        manager.save(2, make_parts(1))
        message = None
        with pytest.MonkeyPatch.context() as patch:
            machine = Machine(patch, fails_at=fails_at, error=error)
            try:
                manager.save(2, make_parts(2))
            except CheckpointError as failure:
                message = str(failure)
        assert manager.load(1) and manager.load(2)
        if message is None and machine.calls < fails_at:
            break
        if message is not None:
            assert str(folder) in message and "step 2" in message
            assert ("bytes, " in message and "free" in message) == (error != errno.EIO)
            assert {entry.name for entry in folder.iterdir()} == {"step_00000001", "step_00000002"}
        manager.save(3, make_parts(3))
        assert manager.newest_valid().step == 3
    assert fails_at > 20


def test_space_is_checked_before_anything_is_written(tmp_path, monkeypatch):
    manager = CheckpointManager(tmp_path, 1)
    manager.save(1, make_parts())
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        CheckpointError, match=r"disk full.*1,000 free.*\[1\].*intact.*save_with_checkpoint"
    ):
        manager.save(2, {"replay": {"a": np.zeros(1000)}})
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_00000001"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_really_full(tmp_path, monkeypatch):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no tmpfs here")
    try:
        manager = CheckpointManager(tmp_path, 2)
        manager.save(1, {"replay": {"a": np.arange(50_000)}})
        too_much = {"replay": {"a": np.arange(120_000)}}
        with pytest.raises(CheckpointError, match="disk full"):
            manager.save(2, too_much)
        plenty = shutil.disk_usage(tmp_path)._replace(free=1 << 40)
        monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: plenty)
        with pytest.raises(CheckpointError, match="disk full"):
            manager.save(2, too_much)
        assert manager.newest_valid().step == 1
        assert [entry.name for entry in tmp_path.iterdir()] == ["step_00000001"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


SAVING_FOR_EVER = """
import sys, itertools, numpy as np
from pathlib import Path
from muzero.checkpoint import CheckpointManager
manager = CheckpointManager(Path(sys.argv[1]), 2)
newest = manager.newest_valid()
for step in itertools.count(0 if newest is None else newest.step + 1):
    manager.save(step, {"replay": {f"a{i}": np.full(20_000, step) for i in range(5)}}, background=step % 2 == 0)
    print(step, flush=True)
"""


@pytest.mark.parametrize("num_kills", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_sigkill_while_saving(tmp_path, num_kills):
    rng = random.Random(0)
    newest = -1
    for _ in range(num_kills):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING_FOR_EVER, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=Path(checkpoint.__file__).parents[1],
        )
        with process:
            process.stdout.readline()
            process.stdout.readline()  # a save begins when the one before is done
            time.sleep(rng.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        found = CheckpointManager(tmp_path, 2, owner=False).newest_valid()
        assert found.step > newest
        newest = found.step
        assert all((array == newest).all() for array in found.arrays("replay").values())


def test_retention_keeps_the_newest_the_milestones_and_the_best(tmp_path):
    manager = CheckpointManager(tmp_path, 2, keep_interval=40)
    for step in range(10, 60, 10):
        manager.save(step, make_parts(step))
        if step == 20:
            manager.mark_best(20)
    assert manager.steps() == [20, 40, 50]
    assert manager.best_step == 20
    for step in range(60, 100, 10):
        manager.save(step, make_parts(step))
    assert manager.steps() == [20, 40, 80, 90]
    manager.mark_best(90)
    manager.save(100, make_parts(100))
    assert manager.steps() == [40, 80, 90, 100]
    assert CheckpointManager(tmp_path, 2).best_step == 90


def test_a_milestone_is_the_first_of_its_interval(tmp_path):
    """With a second process learner steps come several at a time, and saves a little late."""
    manager = CheckpointManager(tmp_path, 1, keep_interval=40)
    for step in (10, 21, 31, 42, 51, 60, 70, 81, 90, 119, 130, 161):
        manager.save(step, make_parts(step))
    assert manager.steps() == [42, 81, 130, 161]
    manager.save(170, make_parts(170))
    assert manager.steps() == [42, 81, 130, 161, 170]


@pytest.mark.parametrize("background", [False, True])
def test_a_checkpoint_is_saved_as_the_best(tmp_path, background):
    with CheckpointManager(tmp_path, 1) as manager:
        for step, best in ((1, True), (2, False), (3, True), (4, False)):
            manager.save(step, make_parts(step), background=background, best=best)
            manager.wait()
            assert manager.best_step == (1 if step < 3 else 3)
    assert manager.steps() == [3, 4]


def test_damaged_checkpoints_never_count_as_kept(tmp_path, caplog):
    manager = CheckpointManager(tmp_path, 2)
    for step in (1, 2, 3):
        manager.save(step, make_parts(step))
    assert manager.steps() == [2, 3]
    damage_bit_flip(tmp_path / "step_00000003/replay/legal.npy", random.Random(0))
    reopened = CheckpointManager(tmp_path, 2)
    assert reopened.newest_valid().step == 2
    reopened.save(4, make_parts(4))
    assert reopened.steps() == [2, 3, 4]
    reopened.save(5, make_parts(5))
    assert reopened.steps() == [4, 5]
    assert "step_00000003" in caplog.text


def test_a_good_checkpoint_replaces_a_damaged_one_of_the_same_step(tmp_path):
    manager = CheckpointManager(tmp_path, 2)
    manager.save(1, make_parts(1))
    (manager.save(2, make_parts(2)) / "state.json").unlink()
    reopened = CheckpointManager(tmp_path, 2)
    assert reopened.newest_valid().step == 1
    reopened.save(2, make_parts(5))
    assert_same(CheckpointManager(tmp_path, 2).newest_valid(), make_parts(5))


def test_going_on_from_an_older_checkpoint(tmp_path):
    manager = CheckpointManager(tmp_path, 3)
    for step in (1, 2, 3):
        manager.save(step, make_parts(step))
    manager.discard_after(1)
    assert manager.steps() == [1]
    manager.save(2, make_parts(7))
    assert manager.newest_valid().step == 2


def test_an_older_step_is_kept_when_it_is_saved_last(tmp_path):
    manager = CheckpointManager(tmp_path, 1)
    manager.save(9, make_parts(9))
    manager.save(2, make_parts(2))
    assert manager.steps() == [2, 9]


def test_best_must_exist_and_may_be_damaged(tmp_path, caplog):
    manager = CheckpointManager(tmp_path, 1)
    assert manager.best_step is None
    with pytest.raises(ValueError, match="no checkpoint of step 3"):
        manager.mark_best(3)
    (tmp_path / "BEST.json").write_text('{"step"')
    assert manager.best_step is None
    assert "BEST.json" in caplog.text
    manager.save(3, make_parts())
    manager.mark_best(3)
    assert manager.best_step == 3
    shutil.rmtree(tmp_path / "step_00000003")
    assert manager.best_step is None


def test_readers_change_nothing(tmp_path):
    CheckpointManager(tmp_path, 1).save(1, make_parts())
    (tmp_path / "step_00000002.tmp").mkdir()
    reader = CheckpointManager(tmp_path, 1, owner=False)
    assert reader.newest_valid().step == 1
    with pytest.raises(CheckpointError, match="reading only"):
        reader.save(2, make_parts())
    assert (tmp_path / "step_00000002.tmp").exists()


def test_foreign_files_are_left_alone(tmp_path):
    (tmp_path / "notes.tmp").write_text("mine")
    (tmp_path / "step_7").mkdir()
    (tmp_path / "step_00000009").write_text("a file")
    manager = CheckpointManager(tmp_path, 1)
    manager.save(1, make_parts())
    manager.save(2, make_parts())
    assert manager.steps() == [2]
    assert {"notes.tmp", "step_7", "step_00000009"} < {entry.name for entry in tmp_path.iterdir()}


def test_background_saves_do_not_wait_and_finish_in_order(tmp_path, monkeypatch):
    gate = threading.Event()
    original = durable.write_synced

    def slow(path, chunks):
        assert gate.wait(10)
        return original(path, chunks)

    monkeypatch.setattr(checkpoint, "write_synced", slow)
    with CheckpointManager(tmp_path, 2) as manager:
        path = manager.save(1, make_parts(1), background=True)
        assert not path.exists()
        gate.set()
        manager.save(2, make_parts(2), background=True)
        assert path.exists()
        manager.save(3, make_parts(3))
        assert manager.newest_valid().step == 3
        manager.save(4, make_parts(4), background=True)
    assert manager.steps() == [3, 4]


def test_a_failed_background_save_is_raised_once(tmp_path, monkeypatch):
    def full(path, chunks):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    manager = CheckpointManager(tmp_path, 2)
    manager.save(1, make_parts())
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_synced", full)
        manager.save(2, make_parts(), background=True)
        with pytest.raises(CheckpointError, match="disk full"):
            manager.wait()
        manager.save(3, make_parts(), background=True)
        with pytest.raises(CheckpointError, match="disk full"):
            manager.save(4, make_parts())
    manager.save(5, make_parts(), background=True)
    manager.close()
    assert manager.steps() == [1, 5]


def test_a_failed_removal_is_a_warning(tmp_path, monkeypatch, caplog):
    manager = CheckpointManager(tmp_path, 1)
    manager.save(1, make_parts())
    real = os.rename

    def refuse(source, target):
        if ".removed" in str(target):
            raise OSError(errno.EACCES, "no")
        real(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with caplog.at_level(logging.WARNING):
        manager.save(2, make_parts())
    assert manager.steps() == [1, 2] and "cannot be removed" in caplog.text


@pytest.mark.parametrize(("kept", "interval"), [(0, 0), (1, -1)])
def test_settings_are_checked(tmp_path, kept, interval):
    with pytest.raises(ValueError, match=r"runtime\.checkpoint"):
        CheckpointManager(tmp_path, kept, interval)


def test_equal_parts_give_equal_bytes(tmp_path):
    paths = [CheckpointManager(tmp_path / name, 1).save(1, make_parts(large=True)) for name in "ab"]
    first, second = (
        {file.relative_to(path): file.read_bytes() for file in files_of(path)} for path in paths
    )
    assert first == second
