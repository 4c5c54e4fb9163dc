"""Where rows of metrics go besides `metrics.jsonl`. A writer that fails is switched off; the run goes on."""

import importlib.util
import logging
import os
import re
import socket
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from muzero.config.schema import LoggerConfig

logger = logging.getLogger(__name__)

_IMAGES = "tensorboard"  # the writer that takes pictures


class Writer(Protocol):
    """Takes rows of finite numbers, in order of learner steps."""

    def write(self, row: Mapping[str, float], learner_step: int) -> None:
        """Pass a row on."""

    def close(self) -> None:
        """Flush and close."""


class TensorBoardWriter:
    """TensorBoard scalars, through tensorboard's own record format: no thread, and TensorFlow is never loaded."""

    def __init__(self, folder: Path, first_step: int):
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard merges the files of a folder in order of their names.
        name = f"events.out.tfevents.{time.time_ns() // 1000}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        if first_step > 0:
            # Tells TensorBoard to forget what a killed run wrote beyond its last checkpoint.
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=first_step, session_log=start)

    def write(self, row: Mapping[str, float], learner_step: int) -> None:
        """Write one scalar per name."""
        scalars = [self._summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._write(step=learner_step, summary=self._summary(value=scalars))

    def write_image(self, name: str, image: npt.NDArray[np.uint8], learner_step: int) -> None:
        """Write a picture `[H, W, 3]`."""
        height, width, _ = image.shape
        picture = self._summary.Image(
            height=height, width=width, colorspace=3, encoded_image_string=encode_png(image)
        )
        value = self._summary.Value(tag=name, image=picture)
        self._write(step=learner_step, summary=self._summary(value=[value]))

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _write(self, **fields: object) -> None:
        event = self._event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
        self._file.flush()


class WandbWriter:
    """Weights & Biases."""

    def __init__(self, run_dir: Path, config: LoggerConfig):
        import wandb

        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(run_dir.absolute().parts[-2:]))
        self._run = wandb.init(
            project=config.wandb_project,
            mode=config.wandb_mode,
            dir=str(run_dir),
            id=name,
            name=name,
            resume="allow",
        )

    def write(self, row: Mapping[str, float], learner_step: int) -> None:
        """Log the row at its learner step."""
        self._run.log(dict(row), step=learner_step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class Writers:
    """The optional writers that a run asks for, opened with the first row."""

    def __init__(self, run_dir: Path, config: LoggerConfig):
        self._run_dir = run_dir
        self._config = config
        self._open: dict[str, Writer] | None = None
        wanted = {"tensorboard": config.tensorboard, "wandb": config.wandb}
        missing = [name for name in wanted if importlib.util.find_spec(name) is None]
        for name in missing:
            if wanted[name]:
                raise ValueError(
                    f"logger.{name}=true, but {name} is not installed: pip install "
                    f"'muzero-trainer[{name}]', or set logger.{name}=false"
                )
        if config.wandb_mode not in ("offline", "online"):
            raise ValueError(f"logger.wandb_mode={config.wandb_mode}: use offline or online")
        if config.tensorboard is None:
            wanted["tensorboard"] = "tensorboard" not in missing
        self._wanted = [name for name, on in wanted.items() if on]

    @property
    def shows_images(self) -> bool:
        """Whether there is a writer that takes pictures: TensorBoard's, unless it failed."""
        return _IMAGES in (self._wanted if self._open is None else self._open)

    def write(self, row: Mapping[str, float], learner_step: int, first_step: int) -> None:
        """Pass a row on; `first_step` is the learner step from which this process writes."""
        for name, writer in list(self._opened(first_step).items()):
            try:
                writer.write(row, learner_step)
            except Exception as error:
                self._switch_off(name, error)

    def write_image(
        self, name: str, image: npt.NDArray[np.uint8], learner_step: int, first_step: int
    ) -> None:
        """Pass a picture `[H, W, 3]` to the writer that takes them, if there is one; see `write`."""
        writer = self._opened(first_step).get(_IMAGES)
        if writer is None:
            return
        assert isinstance(writer, TensorBoardWriter)
        try:
            writer.write_image(name, image, learner_step)
        except Exception as error:
            self._switch_off(_IMAGES, error)

    def close(self) -> None:
        """Close all writers."""
        for name, writer in list((self._open or {}).items()):
            try:
                writer.close()
            except Exception as error:
                self._switch_off(name, error)
        self._open = {}

    def _opened(self, first_step: int) -> dict[str, Writer]:
        """The writers, opened if they are not yet."""
        if self._open is None:
            self._open = {}
            for name in self._wanted:
                try:
                    self._open[name] = self._make(name, first_step)
                except Exception as error:
                    self._switch_off(name, error)
        return self._open

    def _make(self, name: str, first_step: int) -> Writer:
        if name == "wandb":
            return WandbWriter(self._run_dir, self._config)
        return TensorBoardWriter(self._run_dir / "tensorboard", first_step)

    def _switch_off(self, name: str, error: Exception) -> None:
        # Third-party code may raise anything, and none of it is worth a training run.
        logger.warning("%s is switched off, training goes on: %r", name, error)
        if self._open:
            self._open.pop(name, None)


def encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """A PNG file of a picture `[H, W, 3]`; so small a format needs no library.

    Raises:
        ValueError: If the array is no such picture.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
        raise ValueError(f"a picture is uint8 [H, W, 3]; this is {image.dtype} {image.shape}")
    height, width, _ = image.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    # Every line begins with the number of its filter; 0 is none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)
    # 8 bits per colour, red, green and blue, not interlaced
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines.tobytes()))
        + chunk(b"IEND", b"")
    )
