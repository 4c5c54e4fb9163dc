"""What a run's pieces cost on this machine, for the simulation."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from mcts import Search, run
from mcts.base import ModelOutput, Selection
from muzero.config.schema import Config
from muzero.inference.local import LocalModel
from muzero.replay.buffer import ReplayBuffer
from muzero.replay.episode import Segment
from muzero.runtime.build import Builder
from muzero.runtime.simulation.scenario import Costs, Scenario
from muzero.selfplay import SelfPlay
from reanalyze import Lease, ReanalyzeWorker

_RING_BYTES = 2e9
_LEAST_POSITIONS = 500


class _TimedModel:
    """A model that knows how long its answers inside the tree took."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model
        self.seconds = 0.0

    def recurrent(self, selection: Selection) -> ModelOutput:
        start = time.process_time()
        output = self._model.recurrent(selection)
        self.seconds += time.process_time() - start
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def seconds_per_call(call: Callable[[], object], seconds: float) -> float:
    """Core seconds, which other jobs of the machine do not lengthen: a mean over at least two calls, after one that compiles."""
    call()
    count, start = 0, time.process_time()
    while count < 2 or time.process_time() - start < seconds:
        call()
        count += 1
    return (time.process_time() - start) / count


def measure(config: Config, seconds: float = 2.0) -> Costs:
    """Measure each piece of `config` for about so many core seconds, on one thread and with an untrained network.

    Raises:
        ValueError: For `search.dynamics=rules` or `search.pipelined`: their search cannot be told from their network here.
    """
    if config.search.dynamics != "learned" or config.search.pipelined:
        raise ValueError(
            f"costs cannot be measured with search.dynamics={config.search.dynamics}, search.pipelined={config.search.pipelined}: "
            "measure with search.dynamics=learned search.pipelined=false"
        )
    if config.reanalyze.fresh_fraction <= 0.0:  # its costs are wanted all the same
        config = replace(config, reanalyze=replace(config.reanalyze, fresh_fraction=0.5))
    builder = Builder.of(config)
    # What is stalest is looked for in the whole ring, so the ring is full, and as large as memory allows.
    frame_bytes = math.prod(builder.spec.frame_shape) * builder.spec.frame_dtype.itemsize
    most = int(_RING_BYTES / (frame_bytes + 16 * builder.spec.num_actions + 64))
    ring = replace(config.replay, capacity=min(config.replay.capacity, most), min_size=1)
    builder = Builder.of(replace(config, replay=ring))
    selfplay, replay = builder.selfplay(), builder.replay()
    per_simulation = _search(builder, selfplay, seconds)
    move_seconds, segments = _play(selfplay, per_simulation, seconds)
    costs = {"move_seconds": move_seconds, **per_simulation}
    costs |= _replay(replay, segments, config.learner.batch_size, seconds)
    costs |= _reanalyze(builder, replay, per_simulation, seconds)
    costs |= _learner(builder, replay, seconds)
    return Costs(**costs)


def scenario_settings(config: Config) -> dict[str, Any]:
    """The settings of a `Scenario` that `config` decides."""
    search = config.search.num_simulations
    settings: dict[str, Any] = {
        "num_games": config.selfplay.num_games,
        "num_simulations": config.selfplay.num_simulations or search,
        "reanalyze_simulations": config.reanalyze.num_simulations or search,
        "reanalyze_batch": config.reanalyze.batch_size,
        "batch_size": config.learner.batch_size,
        "samples_per_insert": config.replay.samples_per_insert,
        "num_unroll_steps": config.learner.num_unroll_steps,
        "capacity": config.replay.capacity,
        "min_size": config.replay.min_size,
        "fresh_fraction": config.reanalyze.fresh_fraction,
        "max_target_age": config.reanalyze.max_target_age,
        "seed": config.seed,
    }
    runtime = {"lease_seconds", "publish_seconds", "controller_seconds"}
    for name in runtime & {each.name for each in fields(config.runtime)}:
        settings[name] = getattr(config.runtime, name)
    known = {each.name for each in fields(Scenario)}
    assert settings.keys() <= known
    return settings


def _search(builder: Builder, selfplay: SelfPlay, seconds: float) -> dict[str, float]:
    """The tree's own work and the network's answer, per simulation."""
    assert isinstance(selfplay.search, Search) and isinstance(selfplay.model, LocalModel)
    search, model = selfplay.search, _TimedModel(selfplay.model)
    root = model.roots(selfplay.observation)
    spent = []

    def once() -> None:
        before, start = model.seconds, time.process_time()
        run(search, model, root, selfplay.legal)
        spent.append((time.process_time() - start, model.seconds - before))

    seconds_per_call(once, seconds)
    whole, network = np.mean(spent[1:], axis=0)
    simulations = search.settings.num_simulations * builder.config.selfplay.num_games
    return {
        "search_seconds": float(whole - network) / simulations,
        "network_seconds": float(network) / simulations,
    }


def _play(
    selfplay: SelfPlay, per_simulation: dict[str, float], seconds: float
) -> tuple[float, list[Segment]]:
    """What a position costs beside its simulations, and what was played, at least five hundred positions of it."""
    segments: list[Segment] = []
    selfplay.play(0)
    totals = selfplay.totals
    steps, simulations, start = totals.env_steps, totals.simulations, time.process_time()
    while (
        time.process_time() - start < seconds
        or sum(each.count for each in segments) < _LEAST_POSITIONS
    ):
        segments += selfplay.play(0)
    elapsed = time.process_time() - start
    searched = (totals.simulations - simulations) * sum(per_simulation.values())
    return max(0.0, elapsed - searched) / (totals.env_steps - steps), segments


def _replay(
    replay: ReplayBuffer, segments: list[Segment], batch_size: int, seconds: float
) -> dict[str, float]:
    """A shard's work and the bytes of what goes through it."""
    positions = sum(segment.count for segment in segments)

    def insert() -> None:
        for segment in segments:
            replay.add(segment)

    insert_seconds = seconds_per_call(insert, seconds) / positions
    while replay.statistics()["replay/evicted"] == 0:
        insert()

    def sample() -> None:
        batch = replay.sample(batch_size)
        replay.update_priorities(batch.slot, batch.generation, np.ones(len(batch.slot), np.float32))

    batch = replay.sample(batch_size)
    return {
        "insert_seconds": insert_seconds,
        "sample_seconds": seconds_per_call(sample, seconds) / batch_size,
        "position_bytes": sum(map(_nbytes, segments)) / positions,
        "sample_bytes": _nbytes(batch) / batch_size,
    }


def _reanalyze(
    builder: Builder, replay: ReplayBuffer, per_simulation: dict[str, float], seconds: float
) -> dict[str, float]:
    """What refreshing a position costs beside its simulations, a shard's work for it, and its bytes."""
    config = builder.config
    refresher, worker = builder.refresher(), ReanalyzeWorker()
    assert refresher is not None
    version = 0

    def take() -> Lease:
        lease = worker.take(
            replay, config.reanalyze.batch_size, version=version, learner_step=version
        )
        assert lease is not None
        return lease

    version = 1
    lease = take()
    positions = lease.positions
    refresh_seconds = seconds_per_call(lambda: refresher.refresh(positions), seconds)
    result = replace(refresher.refresh(positions), version=1)
    worker.give_back(replay, lease, result)

    def round_trip() -> None:
        nonlocal version
        version += 1
        taken = take()
        worker.give_back(replay, taken, replace(result, version=version))

    count = len(lease.slot)
    simulations = config.reanalyze.num_simulations or config.search.num_simulations
    searched = simulations * sum(per_simulation.values())
    return {
        "refresh_seconds": max(0.0, refresh_seconds / count - searched),
        "take_seconds": seconds_per_call(round_trip, seconds) / count,
        "reanalyze_bytes": (_nbytes(positions) + _nbytes(result)) / count,
    }


def _learner(builder: Builder, replay: ReplayBuffer, seconds: float) -> dict[str, float]:
    learner = builder.learner()
    batch = replay.sample(builder.config.learner.batch_size)
    weights = learner.acting_weights().values()
    return {
        "learner_step_seconds": seconds_per_call(lambda: learner.step(batch), seconds),
        "weights_bytes": float(sum(each.numel() * each.element_size() for each in weights)),
    }


def _nbytes(record: Any) -> int:
    """Bytes of the arrays in a dataclass."""
    assert is_dataclass(record)
    values: Iterable[Any] = (getattr(record, each.name) for each in fields(record))
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))
