"""Settings of the runtimes: where and how the roles run."""

from dataclasses import dataclass


@dataclass(kw_only=True, slots=True)
class RuntimeConfig:
    """Where and how the roles run."""

    kind: str = "local"
    """`local`: this machine, on a deterministic schedule; `ray`: a fleet of processes, here or on a cluster."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`; `auto` takes CUDA where there is one and says so."""
    learner_threads: int = 1
    """CPU threads of torch in this process."""
    overlap: bool = False
    """Self-play runs in a second process beside the learner; a fixed schedule keeps the run deterministic. Evaluations go on in a third one."""
    checkpoint_interval: int = 1_000
    """Learner steps between checkpoints."""
    checkpoints_kept: int = 3
    """Newest checkpoints kept."""
    checkpoint_keep_interval: int = 0
    """The first checkpoint of every so many learner steps is kept for ever; 0 keeps none."""
    log_interval: int = 100
    """Learner steps between two rows of metrics."""
    memory_limit_gb: float | None = None
    """A run whose replay and latents need more is refused at its start; null allows what the machine has free."""


@dataclass(kw_only=True, slots=True)
class RayRuntimeConfig(RuntimeConfig):
    """A fleet: self-play and reanalyze workers, replay shards and the learner as Ray actors."""

    kind: str = "ray"
    address: str | None = None
    """Cluster to join, `auto` or `host:port`; null starts Ray on this machine, for this run alone."""
    num_workers: str = "auto"
    """Search workers; `auto` takes one per core that the learner leaves free, on every node."""
    num_replay_shards: int = 1
    """Processes that share the replay; a shard takes some 100 MB of new positions a second."""
    inference: str = "local"
    """Who evaluates the network for the search: every worker itself (`local`), or servers for all of them (`central`)."""
    num_inference_servers: int = 1
    """Servers of central inference."""
    on_lost_server: str = "local"
    """What workers do when their server dies: evaluate the network themselves until it is back (`local`), or `wait`."""
    lease_seconds: float = 0.5
    """Length of a lease: a worker plays or reanalyzes so long with one set of weights before it reports."""
    publish_seconds: float = 0.5
    """Shortest time between two publications of the weights."""
    prefetch: int = 4
    """Batches held ready for the learner, at least; the controller may ask for more."""
    controller_seconds: float = 10.0
    """Time between two decisions of the controller."""
    heartbeat_seconds: float = 2.0
    """Time between two questions to every role whether it lives."""
    deadline_seconds: float = 120.0
    """A role that has not answered after so long is replaced."""
    max_failures: int = 5
    """A role that fails so often within ten minutes ends the run."""
    watchdog_seconds: float = 60.0
    """A run in which nothing moves for so long is ended, with the reason."""
    log_inserts: bool = True
    """Write inserted segments to the run folder as well, so that a replay shard that dies loses nothing."""
