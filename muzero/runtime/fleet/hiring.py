"""How each role's actor is made: its resources, its place, and the settings it gets."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import Config
from muzero.runtime.fleet.actors import (
    InferenceActor,
    LearnerActor,
    ShardActor,
    WeightStoreActor,
    WorkerActor,
    remote,
)
from muzero.runtime.fleet.cluster import Cluster, ClusterError
from muzero.runtime.fleet.crew import Member
from muzero.runtime.fleet.match_actors import EvaluatorActor, GatekeeperActor
from muzero.runtime.fleet.serving import num_clients

STORE, SHARD, LEARNER = "weight store", "replay shard", "learner"
WORKER, EVALUATOR, SERVER = "search worker", "evaluator", "inference server"
GATEKEEPER = "gatekeeper"


class Hiring:
    """Makes actors. Store, shards, evaluator and gatekeeper stay on the supervisor's node; workers and servers are spread.

    Raises:
        ClusterError: The cluster has not the cores that the config asks for.
    """

    def __init__(self, config: Config, run_dir: Path, cluster: Cluster) -> None:
        assert isinstance(config.runtime, RayRuntimeConfig)
        self._config, self._runtime, self._cluster = config, config.runtime, cluster
        self._run_dir = run_dir.resolve()
        self._stays = NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        self.first_workers = self._wanted_workers()
        """Workers to begin with."""
        self._worker_cpus = self._cpus_per_worker()

    def most_workers(self) -> int:
        """Workers that the live nodes have room for."""
        if self._runtime.num_workers != "auto":
            return int(self._runtime.num_workers)
        return max(1, int(self._cluster.num_cpus) - 1)

    def _wanted_workers(self) -> int:
        """Workers to begin with."""
        wanted = self.most_workers()
        cpus = self._cluster.num_cpus
        if not self._cluster.is_local and wanted > cpus:
            raise ClusterError(
                f"runtime.num_workers={wanted}, but the cluster at {self._runtime.address} has {cpus:g} cores; lower it, or "
                "take auto"
            )
        return wanted

    def _cpus_per_worker(self) -> float:
        """One core; on one machine with more workers than cores, what the learner leaves of them."""
        if not self._cluster.is_local:
            return 1.0
        free = max(0.5, self._cluster.num_cpus - 1.0)
        return min(1.0, math.floor(1000 * free / self.first_workers) / 1000)

    def make(self, member: Member) -> Any:
        """The actor of a member."""
        config, seconds = self._config, self._runtime.deadline_seconds
        role, index, incarnation = member.role, member.index, member.incarnation
        if role == WORKER:
            spread = {} if self._cluster.is_local else {"scheduling_strategy": "SPREAD"}
            actor = remote(WorkerActor, num_cpus=self._worker_cpus, **spread)
            return actor.remote(_on_cpu(config), index, incarnation, seconds)
        if role == LEARNER:
            has_gpu = self._cluster.num_gpus > 0 and config.runtime.device != "cpu"
            options: dict[str, Any] = {"num_gpus": 1} if has_gpu else {}
            own = config if has_gpu else _on_cpu(config)
            if not has_gpu:
                options["scheduling_strategy"] = self._stays
            return remote(LearnerActor, num_cpus=1, **options).remote(own, incarnation, seconds)
        stays = {"num_cpus": 0, "scheduling_strategy": self._stays}
        if role == SHARD:
            folder = self._run_dir / "replay_log" / f"shard_{index}"
            count = self._runtime.num_replay_shards
            log = folder if self._runtime.log_inserts else None
            return remote(ShardActor, **stays).remote(
                _on_cpu(config), index, count, incarnation, log
            )
        if role == SERVER:
            return self._make_server()
        if role == EVALUATOR:
            return remote(EvaluatorActor, **stays).remote(_on_cpu(config))
        if role == GATEKEEPER:
            return remote(GatekeeperActor, **stays).remote(_on_cpu(config))
        is_gated = config.gatekeeping.interval > 0
        return remote(WeightStoreActor, **stays).remote(is_gated)

    def _make_server(self) -> Any:
        """On a GPU of its own if there is one beside the learner's, else on half of that, else on the processor."""
        config = self._config
        gpus = self._cluster.num_gpus if config.runtime.device != "cpu" else 0.0
        servers = self._runtime.num_inference_servers
        options: dict[str, Any] = {"num_cpus": 0}
        if gpus > 0:
            options["num_gpus"] = 1 if gpus > servers else 0.5 / servers
        elif self._cluster.is_local:
            options["scheduling_strategy"] = self._stays
        else:
            options["scheduling_strategy"] = "SPREAD"
        clients = num_clients(
            config.reanalyze.fresh_fraction > 0.0,
            self.most_workers(),
            servers,
        )
        own = config if gpus > 0 else _on_cpu(config)
        seconds = self._runtime.deadline_seconds
        return remote(InferenceActor, **options).remote(own, clients, seconds)


def _on_cpu(config: Config) -> Config:
    return replace(config, runtime=replace(config.runtime, device="cpu"))
