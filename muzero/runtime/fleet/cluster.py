"""Ray on this machine, or a cluster that is there: started and left without a trace."""

import logging
import os
import secrets
import shutil
import tempfile
from typing import Any

import ray

from muzero.config.runtime import RayRuntimeConfig

logger = logging.getLogger(__name__)

_LONGEST_FOLDER = 40  # Ray appends some 65 characters, and a socket's name has at most 107
_STORE_SHARE = 0.3  # of the free memory, Ray's own choice
_SMALLEST_STORE = 200_000_000
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no report leaves the machine
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # roles without a GPU see none, and make no context on it
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # answers that nobody waits for any more
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class ClusterError(RuntimeError):
    """Ray cannot be started or reached, or has not what the run needs."""


class Cluster:
    """A connection to Ray.

    Without an address Ray is started for this run alone: whatever cluster runs on this machine or is named in the environment
    is left alone, the dashboard stays off, files lie in a folder that goes with the run, and processes end with this one
    whatever ends it.

    Args:
        store_bytes: What the run wants of the object store of a local cluster.
    """

    def __init__(self, config: RayRuntimeConfig, namespace: str, store_bytes: int) -> None:
        self._address = config.address
        self._folder: str | None = None
        options: dict[str, Any] = {
            "namespace": namespace,
            "log_to_driver": False,
            "configure_logging": False,
            "logging_level": logging.ERROR,
        }
        if ray.is_initialized():
            raise ClusterError(
                "this process is connected to Ray already; a run starts its own: call ray.shutdown() first"
            )
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if config.address is None:
            # Ray keeps the history of 100,000 calls for its dashboard, in memory that grows for an hour.
            os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
            # Ray's helper processes hold out so long for a cluster that was killed, before they end.
            os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "20")
            # Ray protects a new cluster by a token, and tells so at each start; this one need not be kept in a file.
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
            self._folder = _make_folder()
            options |= {
                "address": "local",
                "include_dashboard": False,
                "_temp_dir": self._folder,
                "object_store_memory": store_bytes,
                "num_cpus": os.cpu_count(),
            }
        else:
            options["address"] = config.address
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            self._remove_folder()
            where = "on this machine" if config.address is None else f"at {config.address}"
            raise ClusterError(
                f"Ray cannot be started {where} (runtime.address={config.address}): {error}"
            ) from error

    @property
    def is_local(self) -> bool:
        """Whether Ray was started for this run."""
        return self._address is None

    @property
    def num_cpus(self) -> float:
        """Cores of the live nodes."""
        return float(ray.cluster_resources().get("CPU", 0.0))

    @property
    def num_gpus(self) -> float:
        """GPUs of the live nodes."""
        return float(ray.cluster_resources().get("GPU", 0.0))

    def close(self) -> None:
        """Leave the cluster; one that was started for this run ends."""
        ray.shutdown()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _make_folder() -> str:
    """A folder for Ray's files, with a name short enough for its sockets."""
    folder = tempfile.mkdtemp(prefix="muzero-")
    if len(folder) > _LONGEST_FOLDER:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="muzero-", dir="/tmp")
    return folder


def store_bytes(available: int, replay_bytes: int, weight_bytes: int, num_workers: int) -> int:
    """Size of a local object store: room for a checkpoint's copy of the replay, batches, inserts and weights."""
    wanted = replay_bytes + 8 * weight_bytes + 64_000_000 + 16_000_000 * num_workers
    return max(_SMALLEST_STORE, min(int(available * _STORE_SHARE), 2 * wanted))
