"""Weights in motion (`WeightStore`) and at rest (safetensors files; nothing here reads a pickle)."""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

StateDict = dict[str, Tensor]
Arrays = dict[str, npt.NDArray[Any]]


def copy_state(state: Mapping[str, Tensor]) -> StateDict:
    """Contiguous copies on the CPU that share no memory with `state`."""
    return {
        name: torch.empty(value.shape, dtype=value.dtype).copy_(value.detach())
        for name, value in state.items()
    }


def to_arrays(state: Mapping[str, Tensor]) -> Arrays:
    """Tensors of the CPU as arrays that share their memory."""
    return {name: np.asarray(tensor.numpy()) for name, tensor in state.items()}


def to_tensors(arrays: Mapping[str, npt.NDArray[Any]]) -> StateDict:
    """Arrays as tensors, copied: what another process lends is memory that must not be written to, and may vanish."""
    return {name: torch.tensor(array) for name, array in arrays.items()}


class WeightStore:
    """Hands the newest weights from the learner to whoever acts with them; safe between threads.

    Example:
        >>> store.publish(step, learner.acting_weights())
        >>> if (newer := store.pull_if_newer(model.version)) is not None:
        ...     version, state = newer
        ...     model.load(state, version)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version: int | None = None
        self._state: StateDict = {}

    @property
    def version(self) -> int | None:
        """Version of the newest weights; None before the first."""
        return self._version

    def publish(self, version: int, state: Mapping[str, Tensor]) -> bool:
        """Keep copies of `state` as the newest weights; False if as new or newer ones are there already."""
        copies = copy_state(state)  # outside the lock, so that readers never wait for it
        with self._lock:
            if self._version is not None and version <= self._version:
                return False
            self._version, self._state = version, copies
            return True

    def pull_if_newer(self, version: int | None) -> tuple[int, StateDict] | None:
        """Newest version and its tensors (shared, not to be written to) if newer than `version`, else None.

        With `version` None, whatever there is.
        """
        with self._lock:
            if self._version is None or (version is not None and self._version <= version):
                return None
            return self._version, self._state


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file of weights, read back."""

    state: StateDict
    """Tensors by name, on the CPU."""
    version: int
    """Learner step that they were taken at."""
    config: dict[str, Any]
    """Settings of the network, as saved."""
    spec: dict[str, Any]
    """Fields of the `NetworkSpec`, as saved."""


def save_weights(
    path: Path | str,
    state: Mapping[str, Tensor],
    *,
    version: int,
    config: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> None:
    """Write weights with the settings that rebuild their network; the file appears whole or not at all."""
    path = Path(path)
    metadata = {
        "version": str(version),
        "config": json.dumps(dict(config), sort_keys=True),
        "spec": json.dumps(dict(spec), sort_keys=True),
    }
    aside = path.with_name(path.name + ".partial")
    save_file(copy_state(state), aside, metadata)
    os.replace(aside, path)


def load_weights(path: Path | str) -> Weights:
    """Read a file of `save_weights`. Raises ValueError that names the file if it is damaged or something else."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Weights(
            state=state,
            version=int(metadata["version"]),
            config=json.loads(metadata["config"]),
            spec=json.loads(metadata["spec"]),
        )
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path} is not a file of weights written by save_weights: {error!r}"
        ) from error
