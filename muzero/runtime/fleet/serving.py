"""Inference servers of a fleet: how large they are, and who asks which."""

from collections.abc import Sequence

from mcts.pipeline import split_rows
from muzero.inference import BatchingRule, InferenceServer
from muzero.inference.precision import choose_bfloat16
from muzero.runtime.build import Builder
from muzero.runtime.fleet.models import ServerAddress

GROUPS = 2
"""Groups of games of a worker: one steps while the other waits."""
_SPARE_WORKERS = 1  # a worker that was made anew may attach before the old one's place is free


def num_clients(reanalyzes: bool, num_workers: int, num_servers: int) -> int:
    """Clients that a server has to have room for."""
    workers = -(-num_workers // num_servers) + _SPARE_WORKERS
    return workers * (GROUPS + int(reanalyzes))


def make_server(builder: Builder, clients: int) -> InferenceServer:
    """A server with room for so many clients of this run."""
    config = builder.config
    search, selfplay, reanalyze = config.search, config.selfplay, config.reanalyze
    rows = split_rows(selfplay.num_games)  # of the larger group
    simulations = selfplay.num_simulations or search.num_simulations
    if reanalyze.fresh_fraction > 0.0:
        rows = max(rows, reanalyze.batch_size)
        simulations = max(simulations, reanalyze.num_simulations or search.num_simulations)
    default = BatchingRule()
    return InferenceServer(
        builder.network(),
        max_clients=clients,
        rows_per_client=rows,
        num_nodes=simulations + 1,
        discount=config.targets.discount,
        rule=BatchingRule(max_rows=max(rows, default.max_rows)),
        observation_dtype=builder.spec.frame_dtype,
        device=builder.device,
        bfloat16=choose_bfloat16(search.bfloat16, builder.device),
        cuda_graph=search.cuda_graph,
        num_threads=search.num_threads,
    )


def server_of(worker: int, servers: Sequence[ServerAddress]) -> ServerAddress | None:
    """The server that a worker asks: the workers are shared out among those there are."""
    return servers[worker % len(servers)] if servers else None
