"""How the parts of a checkpoint become files, and files parts again. No pickle on either side.

Arrays are one `.npy` file each, streamed through zstd level 1 where a sample of the array shrinks enough to pay
for it; tensors are one safetensors file; everything else is JSON.
"""

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors.torch
import torch
import zstandard

from muzero.durable import CHUNK_BYTES, FileDigest

Part = Mapping[str, Any]
"""Named arrays, named tensors, or a JSON object."""

ARRAYS, TENSORS, JSON, EMPTY = "arrays", "tensors", "json", "empty"
KINDS = (ARRAYS, TENSORS, JSON, EMPTY)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]*")
_SAMPLE_BYTES = 1 << 20
_WORTHWHILE_RATIO = 0.8
"""Compressed size of the sample below which zstd's time is repaid by the bytes that are not written."""


class DamagedFileError(Exception):
    """A file that is not what the manifest says."""


class PlannedFile(NamedTuple):
    """A file of a part, before it is written."""

    path: str
    """Relative to the checkpoint's folder."""
    chunks: Callable[[], Iterator[bytes | memoryview]]
    estimated_bytes: int
    array: str | None = None
    """Name of the array that it holds."""
    raw_bytes: int = 0
    """Bytes of that array in memory."""


def check_name(name: str) -> None:
    """Refuse names that could leave the folder or hide in it."""
    if not _NAME.fullmatch(name) or ".." in name or "//" in name or name.endswith("/"):
        raise ValueError(
            f"checkpoint name {name!r}: use letters, digits, '_', '-', '.' and '/' between words"
        )


def kind_of(name: str, part: Part) -> str:
    """Tell which kind of part this is; a mixture of kinds is a ValueError."""
    check_name(name)
    if "/" in name:
        raise ValueError(f"checkpoint part {name!r}: a part's name has no '/'")
    if not part:
        return EMPTY
    if all(isinstance(value, np.ndarray) for value in part.values()):
        return ARRAYS
    if all(isinstance(value, torch.Tensor) for value in part.values()):
        return TENSORS
    _check_json(part, name)
    return JSON


def plan(name: str, kind: str, part: Part) -> list[PlannedFile]:
    """List the files that hold a part of this kind."""
    if kind == EMPTY:
        return []
    if kind == TENSORS:
        size = sum(tensor.nbytes for tensor in part.values())
        return [PlannedFile(f"{name}.safetensors", lambda: _tensor_chunks(part), size)]
    if kind == JSON:
        content = json.dumps(part, indent=1).encode()
        return [PlannedFile(f"{name}.json", lambda: iter([content]), len(content))]
    files = [_plan_array(name, key, array) for key, array in part.items()]
    if len({file.path.lower().removesuffix(".zst") for file in files}) < len(files):
        raise ValueError(
            f"checkpoint part {name!r}: array names differ only in '/' and '.', or in case"
        )
    return files


def read_array(path: Path, expected: FileDigest, raw_bytes: int) -> np.ndarray:
    """Read an array, its file verified while it is read."""
    with path.open("rb") as file:
        source = _HashingReader(file)
        stream: BinaryIO = io.BufferedReader(source, CHUNK_BYTES)
        if path.suffix == ".zst":
            stream = zstandard.ZstdDecompressor().stream_reader(stream, closefd=False)
        try:
            array = _read_npy(stream, raw_bytes)
        except Exception as error:  # a damaged npy header lets numpy's tokenizer raise anything
            raise DamagedFileError(f"{path.name} cannot be read: {error}") from error
        source.drain()
    if (source.size, source.digest.hexdigest()) != expected:
        raise DamagedFileError(f"{path.name} does not match its checksum")
    return array


def read_bytes(path: Path, expected: FileDigest) -> bytes:
    """Read a file and verify it."""
    content = path.read_bytes()
    if (len(content), sha256(content).hexdigest()) != expected:
        raise DamagedFileError(f"{path.name} does not match its checksum")
    return content


def parse_tensors(content: bytes) -> dict[str, torch.Tensor]:
    """Parse the tensors of a safetensors file, on the CPU."""
    return safetensors.torch.load(content)


def _plan_array(part: str, name: str, array: np.ndarray) -> PlannedFile:
    check_name(name)
    if array.dtype.hasobject:
        raise ValueError(
            f"checkpoint array {part}/{name}: dtype {array.dtype} holds Python objects, which are not saved"
        )
    path = f"{part}/{name.replace('/', '.')}.npy"
    ratio = _sampled_ratio(array)
    if ratio < _WORTHWHILE_RATIO:
        return PlannedFile(
            path + ".zst",
            lambda: _compressed(_npy_chunks(array)),
            int(ratio * array.nbytes),
            name,
            array.nbytes,
        )
    return PlannedFile(path, lambda: _npy_chunks(array), array.nbytes + 128, name, array.nbytes)


def _sampled_ratio(array: np.ndarray) -> float:
    """Compressed over plain size of slices from all over the array; 1 for small ones, which stay plain."""
    if array.nbytes < _SAMPLE_BYTES:
        return 1.0
    data = (
        _as_bytes(array)
        if array.flags.c_contiguous
        else _as_bytes(array[: max(1, len(array) // 16)])
    )
    starts = np.linspace(0, max(0, data.size - _SAMPLE_BYTES // 8), 8, dtype=np.int64)
    sample = b"".join(data[start : start + _SAMPLE_BYTES // 8].tobytes() for start in starts)
    return len(zstandard.ZstdCompressor(level=1).compress(sample)) / len(sample)


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _npy_chunks(array: np.ndarray) -> Iterator[bytes | memoryview]:
    header = io.BytesIO()
    description = np.lib.format.header_data_from_array_1_0(array)
    description["fortran_order"] = False
    np.lib.format.write_array_header_1_0(header, description)
    yield header.getvalue()
    if array.size:
        data = _as_bytes(array).data
        for start in range(0, data.nbytes, CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]


def _compressed(chunks: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _tensor_chunks(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    storages: set[int] = set()
    plain = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().to("cpu").contiguous()
        storage = tensor.untyped_storage().data_ptr()
        # Tied weights are written twice: safetensors refuses tensors that share memory.
        plain[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    yield safetensors.torch.save(plain)


def _read_npy(stream: BinaryIO, raw_bytes: int) -> np.ndarray:
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"npy version {version} is not known")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if fortran_order or dtype.hasobject or math.prod(shape) * dtype.itemsize != raw_bytes:
        raise ValueError("its header contradicts the manifest")
    array = np.empty(shape, dtype)
    if array.size:
        view = array.reshape(-1).view(np.uint8).data
        while view.nbytes:
            count = stream.readinto(view)  # type: ignore[attr-defined]
            if not count:
                raise EOFError("it ends too early")
            view = view[count:]
    if stream.read(1):
        raise ValueError("it is longer than its header says")
    return array


def _check_json(value: Any, where: str) -> None:
    """Refuse what JSON would change silently (integer keys) or cannot hold (NumPy scalars)."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if type(key) is not str:
                raise ValueError(
                    f"checkpoint part {where}: key {key!r} is no string, JSON would change it"
                )
            _check_json(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_json(item, f"{where}[{index}]")
    elif type(value) not in (str, int, float, bool, type(None)):
        raise ValueError(
            f"checkpoint part {where}: {type(value).__name__} is neither JSON nor in a part of arrays or tensors alone"
        )


class _HashingReader(io.RawIOBase):
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.digest = sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self.digest.update(memoryview(buffer)[:count])
        self.size += count
        return count

    def drain(self) -> None:
        """Hash what nobody has read."""
        while chunk := self._file.read(CHUNK_BYTES):
            self.digest.update(chunk)
            self.size += len(chunk)
