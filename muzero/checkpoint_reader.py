"""A checkpoint on the disk, as its readers see it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from muzero.checkpoint_parts import (
    ARRAYS,
    EMPTY,
    JSON,
    TENSORS,
    DamagedFileError,
    parse_tensors,
    read_array,
    read_bytes,
)
from muzero.manifest import ManifestFile, UnknownFormatError, read_manifest, verify_files


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or read, with the reason and the way out."""


class Checkpoint:
    """A checkpoint on the disk, its manifest checked; parts are read, and verified again, when asked for."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._manifest = read_manifest(path)
        except (DamagedFileError, UnknownFormatError, OSError) as error:
            raise CheckpointError(f"checkpoint {path}: {error}") from error

    @property
    def step(self) -> int:
        """Learner step at which it was saved."""
        return self._manifest.step

    @property
    def parts(self) -> list[str]:
        """Names of its parts."""
        return list(self._manifest.parts)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the packages that wrote it."""
        return dict(self._manifest.versions)

    def verify(self) -> None:
        """Compare every file with its checksum; CheckpointError names the first that differs."""
        try:
            verify_files(self.path, self._manifest)
        except (DamagedFileError, OSError) as error:
            raise CheckpointError(f"checkpoint {self.path}: {error}") from error

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Read a part of arrays."""
        files = self._files(name, ARRAYS)
        try:
            return {
                str(file.array): read_array(self.path / file.path, file.digest, file.raw_bytes)
                for file in files
            }
        except (DamagedFileError, OSError) as error:
            raise CheckpointError(f"checkpoint {self.path}: {error}") from error

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Read a part of tensors, on the CPU."""
        content = self._content(name, TENSORS)
        return {} if content is None else parse_tensors(content)

    def json(self, name: str) -> dict[str, Any]:
        """Read a JSON part."""
        content = self._content(name, JSON)
        return {} if content is None else json.loads(content)

    def part(self, name: str) -> dict[str, Any]:
        """Read a part of whatever kind."""
        known = self._manifest.parts.get(name)
        kind = EMPTY if known is None else known.kind
        if kind == ARRAYS:
            return self.arrays(name)
        return self.tensors(name) if kind == TENSORS else self.json(name)

    def _content(self, name: str, kind: str) -> bytes | None:
        files = self._files(name, kind)
        if not files:
            return None
        try:
            return read_bytes(self.path / files[0].path, files[0].digest)
        except (DamagedFileError, OSError) as error:
            raise CheckpointError(f"checkpoint {self.path}: {error}") from error

    def _files(self, name: str, kind: str) -> list[ManifestFile]:
        part = self._manifest.parts.get(name)
        if part is None:
            raise CheckpointError(
                f"checkpoint {self.path} has no part {name!r}; it has {', '.join(self.parts)}"
            )
        if part.kind not in (kind, EMPTY):
            raise CheckpointError(
                f"checkpoint {self.path}: part {name!r} holds {part.kind}, not {kind}"
            )
        return part.files
