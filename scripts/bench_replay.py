"""Speed of the replay buffer: positions inserted, sampled and refreshed per second, one thread.

`--against cpprb` measures the ring and the sum tree beside that library instead (extra `rivals`); see rival_cpprb.py.
The last line is JSON. `python scripts/bench_replay.py --help` lists the settings.
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable

import numpy as np

from muzero.config.schema import ReplayConfig, TargetsConfig
from muzero.envs.base import EnvSpec
from muzero.replay import ReplayBuffer, Segment


def make_segment(spec: EnvSpec, length: int, rng: np.random.Generator, version: int) -> Segment:
    """An ended episode of random content."""
    two_players = spec.num_players == 2
    return Segment(
        frame=rng.integers(0, 2, (length, *spec.frame_shape)).astype(spec.frame_dtype),
        action=rng.integers(0, spec.num_actions, length, dtype=np.int32),
        reward=rng.normal(size=length).astype(np.float32),
        turn=np.array([-1 if two_players else 1] * (length - 1) + [0], np.int8),
        to_play=(np.arange(length) % spec.num_players).astype(np.int8),
        legal=np.ones((length, spec.num_actions), np.bool_),
        policy=rng.random((length, spec.num_actions), np.float32),
        has_policy=np.ones(length, np.bool_),
        root_value=rng.normal(size=length).astype(np.float32),
        has_action=np.ones(length, np.bool_),
        version=np.full(length, version, np.int32),
        first=0,
        count=length,
        starts_episode=True,
    )


def seconds_per_call(call: Callable[[], object], num_calls: int) -> float:
    call()
    start = time.perf_counter()
    for _ in range(num_calls):
        call()
    return (time.perf_counter() - start) / num_calls


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--segment-length", type=int, default=40)
    parser.add_argument("--frame-shape", type=int, nargs="+", default=[3, 6, 7])
    parser.add_argument("--num-stacked-frames", type=int, default=1)
    parser.add_argument("--num-actions", type=int, default=7)
    parser.add_argument("--uniform", action="store_true", help="uniform instead of prioritised")
    parser.add_argument("--against", choices=["cpprb"], help="measure beside a rival instead")
    parser.add_argument("--items", type=int, default=100_000, help="--against: items held")
    parser.add_argument("--item-bytes", type=int, default=4096, help="--against: bytes of one")
    arguments = parser.parse_args()
    if arguments.against is not None:
        figures = importlib.import_module("rival_cpprb").compare(
            make_segment,
            capacity=arguments.items,
            item_bytes=arguments.item_bytes,
            batch_size=arguments.batch_size,
        )
        for name, number in figures.items():
            print(f"{name:>26} {number:15,.2f}")
        print(json.dumps({"rivals": {"cpprb": figures}, "settings": vars(arguments)}))
        return

    spec = EnvSpec(
        name="bench",
        frame_shape=tuple(arguments.frame_shape),
        frame_dtype=np.dtype(np.uint8),
        num_stacked_frames=arguments.num_stacked_frames,
        num_actions=arguments.num_actions,
        num_players=2,
        turn_order="alternating",
    )
    batch_size, length = arguments.batch_size, arguments.segment_length
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(
        spec,
        ReplayConfig(capacity=arguments.capacity, min_size=1, prioritized=not arguments.uniform),
        TargetsConfig(td_steps=10),
        num_unroll_steps=5,
        with_next_observation=False,
        batch_size=batch_size,
        insert_quantum=length,
        generator=np.random.default_rng(1),
    )
    segments = [make_segment(spec, length, rng, version) for version in range(64)]
    buffer.add(segments[0])
    buffer.sample(batch_size)  # compiles
    num_segments = 2 * arguments.capacity // length  # fills the ring and overwrites it once
    start = time.perf_counter()
    for index in range(num_segments):
        buffer.add(segments[index % len(segments)])
    insert_seconds = time.perf_counter() - start

    batch = buffer.sample(batch_size)
    priority = np.abs(batch.root_value)
    results = {
        "positions": buffer.size,
        "bytes_per_position": buffer.bytes / arguments.capacity,
        "inserted_per_second": num_segments * length / insert_seconds,
        "sampled_per_second": batch_size / seconds_per_call(lambda: buffer.sample(batch_size), 300),
        "priorities_per_second": batch_size
        / seconds_per_call(
            lambda: buffer.update_priorities(batch.slot, batch.generation, priority), 300
        ),
        "stalest_milliseconds": 1e3 * seconds_per_call(lambda: buffer.stalest(256, 1000), 50),
    }
    for name, number in results.items():
        print(f"{name:>22} {number:15,.1f}")
    print(json.dumps(results | {"settings": vars(arguments)}))


if __name__ == "__main__":
    main()
