"""`metrics.jsonl`: one JSON object per line, whole again after any kill."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from muzero.durable import replace_file

logger = logging.getLogger(__name__)

Row = dict[str, float | int | None]
"""Metric names and numbers; null where a number was not finite."""


class MetricsFile:
    """Rows appended to a file and flushed; what a kill has torn is repaired when the file is opened."""

    def __init__(self, path: Path):
        self.path = path
        self._failing = False
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        lines = content.splitlines()
        sound = [line for line in lines if _parse(line) is not None]
        if len(sound) < len(lines):
            logger.warning("%s: dropped %d torn line(s)", path, len(lines) - len(sound))
        self.num_rows = len(sound)
        self._replace(content, sound)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row. A full disk costs the row and a warning, not the run."""
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        start = self._file.tell()
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
        except OSError as error:
            if not self._failing:
                logger.warning("%s: rows are lost until this is over: %s", self.path, error)
            self._failing = True
            self._file.truncate(start)
            self._file.seek(start)
            return
        self._failing = False
        self.num_rows += 1

    def keep(self, keeps: Callable[[int, Row], bool]) -> None:
        """Keep the rows for which `keeps(index, row)` holds and drop the others."""
        content = self.path.read_bytes()
        lines = content.splitlines()
        kept = [line for index, line in enumerate(lines) if keeps(index, json.loads(line))]
        self._file.close()
        self.num_rows = len(kept)
        self._replace(content, kept)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _replace(self, content: bytes, lines: list[bytes]) -> None:
        repaired = b"".join(line + b"\n" for line in lines)
        if repaired != content:
            replace_file(self.path, repaired)
        # Unbuffered, so that a kill tears at most the line that is being written.
        self._file = self.path.open("ab", buffering=0)


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a metrics file, a torn last line left out."""
    rows = (_parse(line) for line in path.read_bytes().splitlines())
    return [row for row in rows if row is not None]


def finite_or_none(value: float) -> float | int | None:
    """Return the plain Python number, or None for what JSON cannot hold."""
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def _parse(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
