"""A log of inserted segments on the disk: what a replay shard that died is filled from, behind its last checkpoint.

A log is a folder of files, one per checkpoint cut; a file is a row of records, each a header (length and checksum of the body)
and a body in the safetensors format. A record that a kill cut short ends its file; nothing behind it is read.
"""

import logging
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from muzero.replay.segment_block import SegmentBlock

logger = logging.getLogger(__name__)

SYNC_SECONDS = 5.0
"""What is on the disk's own cache for longer survives a power cut as well."""
_HEADER = struct.Struct("<4sQI")
_MAGIC = b"MZIL"
_STAMP = "stamp"


class Stamp(NamedTuple):
    """Who sent an insert: lets a repeated one be told from a new one."""

    worker: int
    incarnation: int
    sequence: int


class InsertLog:
    """Appends inserts; one per shard.

    A write reaches the operating system at once, so that it survives a killed process; every five seconds it is synced.

    Args:
        folder: Is made if it is not there. Old files stay until `forget_before`.
        cut: Number of the file to begin with; above those there are.
    """

    def __init__(self, folder: Path, cut: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._clock = folder, clock
        folder.mkdir(parents=True, exist_ok=True)
        self.cut = cut
        self._file = open(self._path(cut), "ab", buffering=0)  # noqa: SIM115
        self._synced = clock()

    def append(self, stamp: Stamp, block: SegmentBlock) -> None:
        """Write an insert. Raises OSError if the disk is full or fails."""
        arrays = {name: np.ascontiguousarray(array) for name, array in block.arrays.items()}
        body = save({**arrays, _STAMP: np.array(stamp, np.int64)})
        start = self._file.tell()
        rest = memoryview(_HEADER.pack(_MAGIC, len(body), zlib.crc32(body)) + body)
        try:
            while rest:  # a disk that fills up takes a part, and refuses only the next one
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(start)  # half a record would hide those behind it
            self._file.seek(start)
            raise
        if self._clock() - self._synced >= SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = self._clock()

    def rotate(self) -> int:
        """Begin the next file, at a checkpoint's cut; returns its number: inserts from there on are behind the cut."""
        self._file.close()
        self.cut += 1
        self._file = open(self._path(self.cut), "ab", buffering=0)  # noqa: SIM115
        return self.cut

    def forget_before(self, cut: int) -> None:
        """Remove the files before a cut: the checkpoint that holds their inserts is safe."""
        for number in cuts(self.folder):
            if number < cut:
                self._path(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Sync and close."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def _path(self, cut: int) -> Path:
        return _path(self.folder, cut)


def cuts(folder: Path) -> list[int]:
    """Numbers of the files of a log, in order."""
    return sorted(int(path.stem.partition("_")[2]) for path in folder.glob("inserts_*.log"))


def read_log(
    folder: Path, cut: int, before: int | None = None
) -> Iterator[tuple[Stamp, SegmentBlock]]:
    """All inserts from a cut on (and before another), oldest first; a damaged record ends its file, and is told in the log."""
    for number in cuts(folder):
        if number >= cut and (before is None or number < before):
            yield from _read_file(_path(folder, number))


def _read_file(path: Path) -> Iterator[tuple[Stamp, SegmentBlock]]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while header := file.read(_HEADER.size):
            body = None
            if len(header) == _HEADER.size:
                magic, length, checksum = _HEADER.unpack(header)
                if magic == _MAGIC and length <= size - file.tell():
                    body = file.read(length)
            if body is None or zlib.crc32(body) != checksum:
                logger.warning("%s ends in a record that is not whole", path)
                return
            try:
                arrays = load(body)
                stamp = Stamp(*(int(part) for part in arrays.pop(_STAMP)))
            except (SafetensorError, KeyError, TypeError, ValueError) as error:
                logger.warning("%s holds a record that cannot be read: %r", path, error)
                return
            yield stamp, SegmentBlock(arrays)


def _path(folder: Path, cut: int) -> Path:
    return folder / f"inserts_{cut:06d}.log"
