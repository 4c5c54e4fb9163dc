"""Checks of the section `runtime`."""

import re
from collections.abc import Iterator

from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import Config

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_ADDRESS = re.compile(r"[^\s/:]+:\d+")


def runtime_problems(config: Config) -> Iterator[str]:
    """What keeps a run from being set up, one sentence each."""
    device = config.runtime.device
    if not _DEVICE.fullmatch(device):
        yield f"runtime.device is {device!r}; it must be auto, cpu, cuda or cuda:<number>"
    if config.learner.warmup_steps > config.learner.num_steps:
        yield (
            f"learner.warmup_steps is {config.learner.warmup_steps}; it must be at most learner.num_steps, "
            f"{config.learner.num_steps}"
        )
    if isinstance(config.runtime, RayRuntimeConfig):
        yield from _fleet(config, config.runtime)


def _fleet(config: Config, runtime: RayRuntimeConfig) -> Iterator[str]:
    """What only the Ray runtime has to know."""
    workers = runtime.num_workers
    if workers != "auto" and not (workers.isdecimal() and int(workers) >= 1):
        yield f"runtime.num_workers is {workers!r}; it must be auto, or a number of at least 1"
    address = runtime.address
    if address is not None and address != "auto" and not _ADDRESS.fullmatch(address):
        yield (
            f"runtime.address is {address!r}; it must be auto, the host:port of a running cluster, or null to start Ray on "
            "this machine"
        )
    for name, seconds in (
        ("deadline_seconds", runtime.deadline_seconds),
        ("watchdog_seconds", runtime.watchdog_seconds),
    ):
        if seconds < 4 * runtime.lease_seconds:
            yield (
                f"runtime.{name} is {seconds:g}, but two leases of runtime.lease_seconds={runtime.lease_seconds:g} may be out "
                f"at once and take longer than planned; set it to at least {4 * runtime.lease_seconds:g}, or shorten the leases"
            )
    if runtime.inference == "central":
        for name, value, plain in (
            ("search.dynamics", config.search.dynamics, "learned"),
            ("search.pipelined", config.search.pipelined, False),
            ("selfplay.reuse_subtree", config.selfplay.reuse_subtree, False),
        ):
            if value != plain:
                yield (
                    f"{name} is {value}, which runtime.inference='central' cannot serve: hidden states stay on the "
                    f"server; set it to {plain}, or runtime.inference to local"
                )
        if config.selfplay.num_games < 2:
            yield (
                f"selfplay.num_games is {config.selfplay.num_games}; with runtime.inference='central' half of a worker's "
                "games step while the other half waits for the server, so it must be at least 2"
            )
