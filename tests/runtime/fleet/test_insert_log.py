"""The log of inserts: what was written is read again exactly, and whatever happens to its end costs no more than the end."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from muzero.replay.segment_block import SegmentBlock
from muzero.runtime.fleet import insert_log
from muzero.runtime.fleet.insert_log import SYNC_SECONDS, InsertLog, Stamp, cuts, read_log


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tiny(number: int) -> SegmentBlock:
    return SegmentBlock({"x": np.array([number], np.int16)})


def numbers(folder: Path, cut: int = 0, before: int | None = None) -> list[int]:
    """What `tiny` records are read, checked against their stamps."""
    found = []
    for stamp, block in read_log(folder, cut, before):
        assert stamp.sequence == block.arrays["x"][0]
        found.append(stamp.sequence)
    return found


def append(log: InsertLog, *sequence: int) -> None:
    for number in sequence:
        log.append(Stamp(1, 2, number), tiny(number))


ARRAYS = st.dictionaries(
    st.sampled_from(["frame", "legal", "a b/c", "count", "turn"]),
    st.sampled_from(
        [np.bool_, np.uint8, np.int8, np.uint16, np.int32, np.float32, np.int64]
    ).flatmap(
        lambda dtype: arrays_of.arrays(
            dtype, arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
        )
    ),
    min_size=1,
)
STAMPS = st.builds(Stamp, st.integers(0, 999), st.integers(0, 999), st.integers(1, 2**60))


@settings(max_examples=40, deadline=None)
@given(records=st.lists(st.tuples(STAMPS, ARRAYS), max_size=5), transposed=st.booleans())
def test_round_trip(tmp_path_factory, records: list, transposed: bool) -> None:
    folder = tmp_path_factory.mktemp("log")
    if transposed:  # what is not contiguous is written by its values, not by its memory
        records = [(stamp, {n: a.T for n, a in arrays.items()}) for stamp, arrays in records]
    log = InsertLog(folder, 0)
    for stamp, arrays in records:
        log.append(stamp, SegmentBlock(arrays))
    log.close()
    read = list(read_log(folder, 0))
    assert [stamp for stamp, _ in read] == [stamp for stamp, _ in records]
    for (_, block), (_, arrays) in zip(read, records, strict=True):
        assert block.arrays.keys() == arrays.keys()
        for name, array in arrays.items():
            assert block.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(block.arrays[name], array)


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, list[int]]:
    """A file of three records, and where each ends."""
    log = InsertLog(tmp_path / "log", 0)
    path, ends = tmp_path / "log" / "inserts_000000.log", []
    for number in (1, 2, 3):
        append(log, number)
        ends.append(path.stat().st_size)  # a record is with the operating system at once
    log.close()
    return path, ends


def test_a_record_cut_short_anywhere_costs_itself_alone(whole: tuple[Path, list[int]]) -> None:
    path, ends = whole
    content = path.read_bytes()
    assert ends[2] == len(content) > ends[1] + 50
    for length in range(ends[1], ends[2]):
        path.write_bytes(content[:length])
        assert numbers(path.parent) == [1, 2]
    path.write_bytes(content)
    assert numbers(path.parent) == [1, 2, 3]


def test_what_lies_behind_a_torn_file_is_read(whole: tuple[Path, list[int]]) -> None:
    """A shard that died goes on in a file of its own."""
    path, ends = whole
    path.write_bytes(path.read_bytes()[: ends[1] + 20])
    log = InsertLog(path.parent, max(cuts(path.parent)) + 1)
    append(log, 4, 5)
    log.close()
    assert numbers(path.parent) == [1, 2, 4, 5]


def test_a_changed_byte_ends_the_file_and_is_told(
    whole: tuple[Path, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    path, ends = whole
    content = path.read_bytes()
    for at in range(ends[0], ends[1]):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        caplog.clear()
        assert numbers(path.parent) == [1], f"byte {at}"
        assert str(path) in caplog.text


def test_a_body_that_is_no_record_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The checksum fits, the content does not: another program's file."""
    for body in (b"no safetensors", insert_log.save({"x": np.zeros(2)})):
        path = tmp_path / "inserts_000000.log"
        header = insert_log._HEADER.pack(b"MZIL", len(body), insert_log.zlib.crc32(body))
        path.write_bytes(header + body)
        caplog.clear()
        assert numbers(tmp_path) == [] and "cannot be read" in caplog.text


def test_files_begin_at_cuts_and_are_forgotten_before_them(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "log"
    log = InsertLog(folder, 7)
    append(log, 1, 2)
    assert log.rotate() == 8
    append(log, 3)
    assert log.rotate() == 9 and log.rotate() == 10
    append(log, 4)
    assert cuts(folder) == [7, 8, 9, 10]
    assert numbers(folder) == [1, 2, 3, 4] and numbers(folder, 8) == [3, 4]
    assert numbers(folder, 7, before=8) == [1, 2] and numbers(folder, 8, before=10) == [3]
    log.forget_before(9)
    assert cuts(folder) == [9, 10] and numbers(folder) == [4]
    append(log, 5)
    assert numbers(folder, 10) == [4, 5]
    log.close()
    log.close()


class FullDisk:
    """A file that takes `room` bytes, and refuses what comes then."""

    def __init__(self, file: object, room: int) -> None:
        self._file, self.room = file, room

    def write(self, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._file.write(bytes(data)[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [0, 1, 15, 16, 17, 60])
def test_a_full_disk_costs_its_records_alone(tmp_path: Path, room: int) -> None:
    log = InsertLog(tmp_path, 0)
    append(log, 1)
    size = (tmp_path / "inserts_000000.log").stat().st_size
    for _ in range(2):  # the second failure must not find the place of the first
        log._file = FullDisk(log._file, room)
        with pytest.raises(OSError, match="No space left"):
            append(log, 2)
        log._file = log._file._file
        assert (tmp_path / "inserts_000000.log").stat().st_size == size
        assert numbers(tmp_path) == [1]
    append(log, 3, 4)
    assert numbers(tmp_path) == [1, 3, 4]
    log.close()


def test_a_disk_that_takes_a_record_in_parts(tmp_path: Path) -> None:
    """A short write is no error: the rest follows."""
    log = InsertLog(tmp_path, 0)
    real = log._file

    class Slow(FullDisk):
        def write(self, data: bytes) -> int:
            return real.write(bytes(data)[:7])

    log._file = Slow(real, 0)
    append(log, 1, 2)
    assert numbers(tmp_path) == [1, 2]
    log.close()


def test_syncs_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(insert_log.os, "fsync", synced.append)
    clock = Clock()
    log = InsertLog(tmp_path, 0, clock)
    append(log, 1)
    clock.now = SYNC_SECONDS - 0.1
    append(log, 2)
    assert len(synced) == 0
    clock.now = SYNC_SECONDS
    append(log, 3, 4)
    assert len(synced) == 1
    clock.now = 2 * SYNC_SECONDS
    append(log, 5)
    assert len(synced) == 2
    log.close()
    assert len(synced) == 3
