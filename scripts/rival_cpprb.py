"""Replay beside cpprb's: the same items in, the same batches out, one thread each; see `bench_replay.py --against cpprb`.

An item is an observation of `--item-bytes` bytes, an action and a reward. Both sides get items in blocks, prioritised
(alpha 0.6), with the ring full, and give batches of arrays with indices and importance weights (beta 0.4). On our side that is
the ring and the sum tree alone, without the K-step targets that `ReplayBuffer.sample` also makes; a block is an ended episode.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from muzero.config.schema import ReplayConfig
from muzero.envs.base import EnvSpec
from muzero.replay.priorities import Priorities
from muzero.replay.storage import Storage

ALPHA, BETA = 0.6, 0.4
NUM_ACTIONS = 4
NUM_BLOCKS = 16
ROUNDS, CALLS_PER_ROUND = 150, 32
TASKS = ("insert", "sample", "update")
Block = dict[str, np.ndarray]


class Ours:
    """The ring and the sum tree of `muzero.replay`."""

    def __init__(self, spec: EnvSpec, capacity: int, make_segment: Callable[..., Any]) -> None:
        self._storage = Storage(spec, capacity)
        config = ReplayConfig(
            prioritized=True,
            priority_exponent=ALPHA,
            importance_exponent=BETA,
            initial_priority="max",
        )
        self._priorities = Priorities(config, capacity)
        self._spec, self._make_segment = spec, make_segment
        self._generator = np.random.default_rng(1)

    def prepare(self, block: Block) -> Any:
        """What `insert` takes."""
        segment = self._make_segment(self._spec, len(block["act"]), np.random.default_rng(0), 0)
        segment.frame[:] = block["obs"]
        segment.action[:] = block["act"]
        segment.reward[:] = block["rew"]
        return segment

    def insert(self, segment: Any) -> None:
        """Add a block in place of the oldest."""
        storage = self._storage
        while storage.capacity - storage.num_used < len(segment):
            self._priorities.clear(storage.evict_oldest()[0])
        self._priorities.insert(storage.append(segment), None)

    def sample(self, batch_size: int) -> Block:
        """A batch with indices and weights."""
        columns = self._storage.columns
        slot = self._priorities.tree.sample(batch_size, self._generator)
        return {
            "obs": self._storage.observations(slot),
            "act": columns["action"][slot].astype(np.int64),
            "rew": columns["reward"][slot],
            "indexes": slot,
            "weights": self._priorities.importance_weights(slot),
        }

    def update(self, batch: Block, error: np.ndarray) -> None:
        """Set priorities."""
        self._priorities.set(batch["indexes"], error)


class Cpprb:
    """cpprb's prioritised buffer."""

    def __init__(self, item_bytes: int, capacity: int) -> None:
        from cpprb import PrioritizedReplayBuffer

        self._buffer = PrioritizedReplayBuffer(
            capacity,
            {
                "obs": {"shape": item_bytes, "dtype": np.uint8},
                "act": {"dtype": np.int64},
                "rew": {"dtype": np.float32},
            },
            alpha=ALPHA,
        )

    def prepare(self, block: Block) -> Block:
        """What `insert` takes."""
        return block

    def insert(self, block: Block) -> None:
        """Add a block in place of the oldest items."""
        self._buffer.add(**block)

    def sample(self, batch_size: int) -> Block:
        """A batch with indices and weights."""
        batch: Block = self._buffer.sample(batch_size, beta=BETA)
        return batch

    def update(self, batch: Block, error: np.ndarray) -> None:
        """Set priorities."""
        self._buffer.update_priorities(batch["indexes"], error)


def compare(
    make_segment: Callable[..., Any], *, capacity: int, item_bytes: int, batch_size: int
) -> dict[str, float]:
    """Items per second of both and the ratios ours / cpprb, medians over rounds in which both take turns."""
    rng = np.random.default_rng(0)
    spec = EnvSpec(
        name="items",
        frame_shape=(item_bytes,),
        frame_dtype=np.dtype(np.uint8),
        num_stacked_frames=1,
        num_actions=NUM_ACTIONS,
        num_players=1,
        turn_order="single",
    )
    blocks: list[Block] = [
        {
            "obs": rng.integers(0, 256, (batch_size, item_bytes), dtype=np.uint8),
            "act": rng.integers(0, NUM_ACTIONS, batch_size),
            "rew": rng.normal(size=batch_size).astype(np.float32),
        }
        for _ in range(NUM_BLOCKS)
    ]
    errors = rng.exponential(size=(NUM_BLOCKS, batch_size)).astype(np.float32)
    sides: dict[str, Ours | Cpprb] = {
        "ours": Ours(spec, capacity, make_segment),
        "cpprb": Cpprb(item_bytes, capacity),
    }
    prepared = {name: [side.prepare(block) for block in blocks] for name, side in sides.items()}
    num_blocks = capacity // batch_size + 1
    for name, side in sides.items():
        for index in range(num_blocks):  # fills the ring and touches all its memory
            side.insert(prepared[name][index % NUM_BLOCKS])
        for index in range(num_blocks):  # so that priorities differ
            side.update(side.sample(batch_size), errors[index % NUM_BLOCKS])
    seconds: dict[str, dict[str, list[float]]] = {
        name: {task: [] for task in TASKS} for name in sides
    }
    for turn in range(ROUNDS):
        for name in sorted(sides, reverse=turn % 2 == 1):
            for task in TASKS:
                call = task_of(sides[name], task, prepared[name], errors, batch_size)
                call(0)
                start = time.perf_counter()
                for index in range(CALLS_PER_ROUND):
                    call(index % NUM_BLOCKS)
                seconds[name][task].append((time.perf_counter() - start) / CALLS_PER_ROUND)
    figures: dict[str, float] = {}
    for task in TASKS:
        for name in sides:
            figures[f"{name}_{task}_items_per_second"] = batch_size / median(seconds[name][task])
        pairs = zip(seconds["ours"][task], seconds["cpprb"][task], strict=True)
        figures[f"{task}_ratio"] = median(theirs / ours for ours, theirs in pairs)
    return figures


def task_of(
    side: Ours | Cpprb, task: str, blocks: list[Any], errors: np.ndarray, batch_size: int
) -> Callable[[int], object]:
    """What is measured, as a function of the number of the block."""
    if task == "insert":
        return lambda index: side.insert(blocks[index])
    if task == "sample":
        return lambda index: side.sample(batch_size)
    batch = side.sample(batch_size)
    return lambda index: side.update(batch, errors[index])
