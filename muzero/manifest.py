"""MANIFEST.json: what a checkpoint holds. Written last, so a folder without a good one is no checkpoint."""

import hashlib
import importlib.metadata
import json
import platform
import re
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import muzero
from muzero.checkpoint_parts import ARRAYS, EMPTY, KINDS, DamagedFileError
from muzero.durable import FileDigest, digest_of

MANIFEST = "MANIFEST.json"
FORMAT_VERSION = 1
_PACKAGES = ("numpy", "torch", "numba", "safetensors", "zstandard")


class UnknownFormatError(Exception):
    """A sound manifest of a format that this version cannot read."""


class ManifestFile(NamedTuple):
    """A file of a part."""

    path: str
    """Relative to the checkpoint's folder."""
    digest: FileDigest
    array: str | None
    """Name of the array that it holds, in a part of arrays."""
    raw_bytes: int
    """Bytes of that array in memory."""


class ManifestPart(NamedTuple):
    """A part and its files."""

    kind: str
    """`arrays`, `tensors`, `json` or `empty`."""
    files: list[ManifestFile]


class Manifest(NamedTuple):
    """The verified content of a MANIFEST.json."""

    step: int
    """Learner step."""
    parts: dict[str, ManifestPart]
    versions: dict[str, str]
    """Versions of the packages that wrote it."""

    def encode(self) -> bytes:
        """Return the file's content; its checksum covers every other field."""
        fields: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "step": self.step,
            "parts": {name: _part_fields(part) for name, part in self.parts.items()},
            "versions": self.versions,
        }
        return json.dumps({"sha256": _checksum(fields), **fields}, indent=1).encode()


def current_versions() -> dict[str, str]:
    """Return the versions of Python, of muzero and of the packages that decide how a checkpoint is read."""
    versions = {"python": platform.python_version(), "muzero": muzero.__version__}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def read_manifest(folder: Path) -> Manifest:
    """Parse and check a manifest; DamagedFileError or UnknownFormatError say what is wrong with it."""
    try:
        fields = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DamagedFileError(f"{MANIFEST} is missing") from None
    except ValueError as error:
        raise DamagedFileError(f"{MANIFEST} is not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.pop("sha256", None) != _checksum(fields):
        raise DamagedFileError(f"{MANIFEST} does not match its own checksum")
    version = fields.get("format_version")
    if version != FORMAT_VERSION:
        raise UnknownFormatError(
            f"its format is version {version}, this muzero reads version {FORMAT_VERSION}; "
            f"it was written with {fields.get('versions')}"
        )
    try:
        return Manifest(
            fields["step"],
            {name: _parse_part(name, part) for name, part in fields["parts"].items()},
            fields["versions"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(f"{MANIFEST} lacks a field: {error!r}") from error


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Compare every file with the manifest; DamagedFileError names the first that differs."""
    for part in manifest.parts.values():
        for file in part.files:
            path = folder / file.path
            if not path.is_file() or path.is_symlink():
                raise DamagedFileError(f"{file.path} is missing")
            size = path.stat().st_size
            if size != file.digest.size:
                raise DamagedFileError(
                    f"{file.path} has {size} bytes instead of {file.digest.size}"
                )
            if digest_of(path) != file.digest:
                raise DamagedFileError(f"{file.path} does not match its checksum")


def _checksum(fields: dict[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _part_fields(part: ManifestPart) -> dict[str, Any]:
    return {"kind": part.kind, "files": [_file_fields(file) for file in part.files]}


def _file_fields(file: ManifestFile) -> dict[str, Any]:
    fields: dict[str, Any] = {"path": file.path, **file.digest._asdict()}
    if file.array is not None:
        fields |= {"array": file.array, "raw_bytes": file.raw_bytes}
    return fields


def _parse_part(name: str, fields: dict[str, Any]) -> ManifestPart:
    kind = fields["kind"]
    files = [_parse_file(file) for file in fields["files"]]
    complete = (
        all(file.array is not None for file in files)
        if kind == ARRAYS
        else len(files) == (kind != EMPTY)
    )
    if kind not in KINDS or not complete:
        raise DamagedFileError(f"{MANIFEST}: part {name!r} of kind {kind!r} has the wrong files")
    return ManifestPart(kind, files)


def _parse_file(fields: dict[str, Any]) -> ManifestFile:
    path, size, digest = fields["path"], fields["size"], fields["sha256"]
    raw_bytes = fields.get("raw_bytes", 0)
    if not _is_inside(path):
        raise DamagedFileError(
            f"{MANIFEST} names {path!r}, which is not a path inside the checkpoint"
        )
    if type(size) is not int or type(raw_bytes) is not int or min(size, raw_bytes) < 0:
        raise DamagedFileError(f"{MANIFEST}: {path} has no sensible size")
    return ManifestFile(path, FileDigest(size, str(digest)), fields.get("array"), raw_bytes)


def _is_inside(path: Any) -> bool:
    if not isinstance(path, str) or not re.fullmatch(r"[A-Za-z0-9_.\-/]+", path):
        return False
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
