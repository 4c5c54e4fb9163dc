"""Checkpoints: folders that are either whole or not there, whatever is killed and when.

A checkpoint is written aside in `step_00001234.tmp`, every file synced, the manifest last, and renamed into place.
"""

import errno
import json
import logging
import os
import re
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self

from muzero.checkpoint_parts import Part, PlannedFile, kind_of, plan
from muzero.checkpoint_reader import Checkpoint, CheckpointError
from muzero.durable import replace_file, sync_folder, write_synced
from muzero.manifest import (
    MANIFEST,
    Manifest,
    ManifestFile,
    ManifestPart,
    UnknownFormatError,
    current_versions,
)

__all__ = ["Checkpoint", "CheckpointError", "CheckpointManager", "Part"]

logger = logging.getLogger(__name__)

_BEST = "BEST.json"
_FOLDER = re.compile(r"step_(\d{8,})")
_ASIDE, _REPLACED = ".tmp", ".replaced"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class CheckpointManager:
    """The checkpoints of a run: the `kept` newest, the first of every `keep_interval` steps for ever, and the best.

    `owner=True` is for the one process that trains in the folder: it removes what a kill has left half written.
    Others (evaluation, play) read with `owner=False`.
    """

    def __init__(self, folder: Path, kept: int = 1, keep_interval: int = 0, *, owner: bool = True):
        if kept < 1:
            raise ValueError(
                f"runtime.checkpoints_kept={kept}: keep at least 1, or a kill could leave none"
            )
        if keep_interval < 0:
            raise ValueError(
                f"runtime.checkpoint_keep_interval={keep_interval}: use 0 (keep none for ever) or more"
            )
        self.folder = Path(folder)
        self._kept = kept
        self._keep_interval = keep_interval
        self._owner = owner
        self._sound: dict[int, bool] = {}
        self.awaited: frozenset[int] = frozenset()
        """Steps that may yet be marked best: an evaluation goes on, and their checkpoints are kept until then."""
        self._writer: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        if owner:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._recover()

    def save(
        self, step: int, parts: dict[str, Part], *, background: bool = False, best: bool = False
    ) -> Path:
        """Write the checkpoint of a learner step, mark it as the best if it is, and remove those that are no longer kept.

        With `background` a thread writes; the parts must then be copies that nobody changes. Its failure is raised
        by the next `save`, `wait` or `close`. A failed save leaves all older checkpoints as they were.

        Raises:
            CheckpointError: the disk is full or fails.
            ValueError: a part is neither arrays, nor tensors, nor JSON.
        """
        if not self._owner:
            raise CheckpointError(f"{self.folder} was opened for reading only")
        self.wait()
        kinds = {name: kind_of(name, part) for name, part in parts.items()}
        plans = {name: plan(name, kinds[name], part) for name, part in parts.items()}
        path = self._path(step)
        write = partial(self._write, step, kinds, plans, best)
        if background:
            self._writer = self._writer or ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
            self._pending = self._writer.submit(write)
        else:
            write()
        return path

    def wait(self) -> None:
        """Wait for a background save; its failure is raised here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    @property
    def is_writing(self) -> bool:
        """Whether a background save is going on."""
        return self._pending is not None and not self._pending.done()

    def close(self) -> None:
        """Finish a background save and end its thread."""
        try:
            self.wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
                self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def steps(self) -> list[int]:
        """List the learner steps of all checkpoints, damaged ones too, oldest first."""
        if not self.folder.is_dir():
            return []
        matches = (
            _FOLDER.fullmatch(entry.name) for entry in self.folder.iterdir() if entry.is_dir()
        )
        return sorted(int(match[1]) for match in matches if match)

    def newest_valid(self) -> Checkpoint | None:
        """Return the newest checkpoint whose every file matches; damaged ones are named in the log and skipped.

        A sound checkpoint of an unknown format is an error, as an older one in its place would lose progress unseen.
        """
        self.wait()
        for step in reversed(self.steps()):
            try:
                return self._load(step)
            except CheckpointError as error:
                if isinstance(error.__cause__, UnknownFormatError):
                    raise
                logger.warning("Skipped a damaged checkpoint: %s", error)
        return None

    def load(self, step: int) -> Checkpoint:
        """Return the checkpoint of a step, verified; CheckpointError tells what is wrong with it."""
        self.wait()
        return self._load(step)

    @property
    def best_step(self) -> int | None:
        """Step that was marked best, if its checkpoint is there."""
        try:
            step = json.loads((self.folder / _BEST).read_bytes())["step"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            logger.warning(
                "%s cannot be read (%r): no checkpoint counts as the best",
                self.folder / _BEST,
                error,
            )
            return None
        return step if isinstance(step, int) and self._path(step).is_dir() else None

    def mark_best(self, step: int) -> None:
        """Keep the checkpoint of this step until another is marked."""
        self.wait()
        if not self._path(step).is_dir():
            raise ValueError(
                f"{self.folder} has no checkpoint of step {step} to mark as best; it has {self.steps()}"
            )
        self._mark(step)

    def _mark(self, step: int) -> None:
        replace_file(self.folder / _BEST, json.dumps({"step": step}).encode())

    def discard_after(self, step: int) -> None:
        """Remove checkpoints newer than `step`, for a run that goes on from an older one."""
        self.wait()
        for newer in self.steps():
            if newer > step:
                self._remove(newer)

    def _load(self, step: int) -> Checkpoint:
        path = self._path(step)
        if not path.is_dir():
            raise CheckpointError(
                f"{self.folder} has no checkpoint of step {step}; it has {self.steps() or 'none'}"
            )
        try:
            checkpoint = Checkpoint(path)
            checkpoint.verify()
            if checkpoint.step != step:
                raise CheckpointError(
                    f"checkpoint {path}: its manifest is of step {checkpoint.step}"
                )
        except CheckpointError:
            self._sound[step] = False
            raise
        self._sound[step] = True
        return checkpoint

    def _path(self, step: int) -> Path:
        return self.folder / f"step_{step:08d}"

    def _write(
        self, step: int, kinds: dict[str, str], plans: dict[str, list[PlannedFile]], best: bool
    ) -> None:
        path = self._path(step)
        aside = path.with_name(path.name + _ASIDE)
        needed = sum(file.estimated_bytes for files in plans.values() for file in files)
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise CheckpointError(self._disk_full(step, needed, free))
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            parts = {
                name: ManifestPart(kinds[name], _write_files(aside, files))
                for name, files in plans.items()
            }
            write_synced(aside / MANIFEST, [Manifest(step, parts, current_versions()).encode()])
            for folder in (*(entry for entry in aside.iterdir() if entry.is_dir()), aside):
                sync_folder(folder)
            self._put_in_place(aside, path)
            if best:
                self._mark(step)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            self._recover()
            if not isinstance(error, OSError):
                raise
            if error.errno in _DISK_FULL:
                free = shutil.disk_usage(self.folder).free
                raise CheckpointError(self._disk_full(step, needed, free)) from error
            raise CheckpointError(
                f"checkpoint of step {step} cannot be written to {self.folder}: {error}"
            ) from error
        self._sound[step] = True
        self._retain(step)

    def _put_in_place(self, aside: Path, path: Path) -> None:
        replaced = path.with_name(path.name + _REPLACED)
        if path.exists():
            os.rename(path, replaced)
        os.rename(aside, path)
        sync_folder(self.folder)
        shutil.rmtree(replaced, ignore_errors=True)

    def _recover(self) -> None:
        """Undo what a kill has interrupted: half a save, half a replacement, half a removal."""
        for entry in sorted(self.folder.iterdir()):
            if entry.name.endswith(_REPLACED):
                original = entry.with_name(entry.name.removesuffix(_REPLACED))
                if original.exists():
                    shutil.rmtree(entry)
                else:
                    os.rename(entry, original)
            elif entry.name.endswith(_ASIDE) and entry.is_dir():
                shutil.rmtree(entry)

    def _retain(self, saved: int) -> None:
        """Remove checkpoints older than the `kept` newest sound ones, unless something else protects them."""
        sound: list[int] = []
        steps = self.steps()
        for step in reversed(steps):
            if len(sound) < self._kept and self._is_sound(step):
                sound.append(step)
        protected = {saved, self.best_step} | self.awaited | self._milestones(steps)
        for step in steps:
            if len(sound) == self._kept and step < sound[-1] and step not in protected:
                self._remove(step)

    def _milestones(self, steps: list[int]) -> set[int]:
        """The first step of every interval: with several learner steps at a time a run seldom stands at its very beginning."""
        if self._keep_interval == 0:
            return set()
        first: dict[int, int] = {}
        for step in steps:
            first.setdefault(step // self._keep_interval, step)
        first.pop(0, None)
        return set(first.values())

    def _is_sound(self, step: int) -> bool:
        if step not in self._sound:
            try:
                self._load(step)
            except CheckpointError as error:
                logger.warning("A damaged checkpoint does not count as kept: %s", error)
        return self._sound[step]

    def _remove(self, step: int) -> None:
        path = self._path(step)
        # Renamed first: a kill while the files go must not leave what looks like a damaged checkpoint.
        aside = path.with_name(path.name + ".removed" + _ASIDE)
        try:
            os.rename(path, aside)
            shutil.rmtree(aside)
        except OSError as error:
            logger.warning("The old checkpoint %s cannot be removed: %s", path, error)
        self._sound.pop(step, None)

    def _disk_full(self, step: int, needed: int, free: int) -> str:
        return (
            f"disk full: the checkpoint of step {step} needs about {needed:,} bytes, {self.folder} has {free:,} free. "
            f"Older checkpoints ({self.steps() or 'none'}) are intact. Free some space, lower "
            "runtime.checkpoints_kept or replay.capacity, or set replay.save_with_checkpoint=false; then resume."
        )


def _write_files(folder: Path, files: list[PlannedFile]) -> list[ManifestFile]:
    written = []
    for file in files:
        path = folder / file.path
        path.parent.mkdir(exist_ok=True)
        written.append(
            ManifestFile(file.path, write_synced(path, file.chunks()), file.array, file.raw_bytes)
        )
    return written
