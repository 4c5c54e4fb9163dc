"""Files that survive a kill or a power cut: written in full, synced, then put in place by one rename."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

CHUNK_BYTES = 4 << 20


class FileDigest(NamedTuple):
    """What a manifest tells about a file."""

    size: int
    """Bytes in the file."""
    sha256: str
    """Hexadecimal digest of its bytes."""


def write_synced(path: Path, chunks: Iterable[bytes | memoryview]) -> FileDigest:
    """Write `chunks` to a new file and sync it; the digest is taken of what was meant to be written."""
    digest = hashlib.sha256()
    size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            digest.update(view)
            size += view.nbytes
            while view.nbytes:
                view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return FileDigest(size, digest.hexdigest())


def digest_of(path: Path) -> FileDigest:
    """Digest a file as it stands on the disk."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileDigest(file.tell(), digest.hexdigest())


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content: a kill leaves the old or the new content, never a mixture."""
    aside = path.with_name(path.name + ".tmp")
    aside.unlink(missing_ok=True)
    write_synced(aside, [content])
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder (new, renamed, removed) durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
