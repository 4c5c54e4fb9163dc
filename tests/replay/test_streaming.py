"""Copies past the caches are copies; what a segment becomes in the ring is what it was."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.envs.base import EnvSpec
from muzero.replay.storage import Storage, _packed
from muzero.replay.streaming import LINE, SMALLEST, _stream, copy_past_caches
from tests.replay.test_buffer import image_segment


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 700), st.integers(0, LINE - 1), st.integers(0, LINE - 1))
def test_all_bytes_and_no_others_are_written(size: int, target_at: int, source_at: int) -> None:
    rng = np.random.default_rng(size)
    source = rng.integers(0, 256, size + 2 * LINE, dtype=np.uint8)
    target = np.zeros(size + 4 * LINE, np.uint8)
    expected = target.copy()
    expected[target_at : target_at + size] = source[source_at : source_at + size]
    _stream(target.ctypes.data + target_at, source.ctypes.data + source_at, size)
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float32])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_large_and_small_arrays_are_copied(dtype: type, rows: int) -> None:
    source = np.random.default_rng(0).integers(0, 2, (rows, 3, 84, 84)).astype(dtype)
    assert (source.nbytes >= SMALLEST) == (rows * 3 * 84 * 84 * source.itemsize >= 2**16)
    ring = np.ones((rows + 2, 3, 84, 84), dtype)
    copy_past_caches(ring[1:-1], source)
    np.testing.assert_array_equal(ring[1:-1], source)
    assert (ring[0] == 1).all() and (ring[-1] == 1).all()


def test_what_cannot_be_streamed_is_copied_all_the_same() -> None:
    source = np.arange(4 * 10**5, dtype=np.uint8).reshape(-1, 1000)
    target = np.zeros_like(source)
    copy_past_caches(target[::2], source[1::2])
    np.testing.assert_array_equal(target[::2], source[1::2])
    frozen = source.copy()
    frozen.flags.writeable = False
    copy_past_caches(target, frozen)
    np.testing.assert_array_equal(target, source)
    with pytest.raises(ValueError):
        copy_past_caches(target, source[1:])


def test_another_thread_sees_what_was_streamed() -> None:
    source, target = np.full((2, 2**20), 0, np.uint8), np.zeros(2**20, np.uint8)
    source[1] = 7
    wrong: list[int] = []
    go, seen = threading.Event(), threading.Event()

    def reader() -> None:
        for turn in range(60):
            go.wait()
            go.clear()
            wrong.append(int(np.count_nonzero(target != 7 * (turn % 2))))
            seen.set()

    thread = threading.Thread(target=reader)
    thread.start()
    for turn in range(60):
        copy_past_caches(target, source[turn % 2])
        go.set()
        seen.wait()
        seen.clear()
    thread.join()
    assert wrong == [0] * 60


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 100))
def test_flags_are_packed_as_numpy_packs_them(length: int, width: int, seed: int) -> None:
    flags = np.random.default_rng(seed).random((length, width)) < 0.5
    np.testing.assert_array_equal(_packed(flags), np.packbits(flags, axis=1))
    transposed = np.asfortranarray(flags)
    np.testing.assert_array_equal(_packed(transposed), np.packbits(flags, axis=1))


@pytest.mark.parametrize("capacity", [70, 64, 97])
def test_a_segment_of_images_lies_in_the_ring_as_it_was_also_round_its_end(capacity: int) -> None:
    spec = EnvSpec(
        name="images",
        frame_shape=(1, 64, 65),
        frame_dtype=np.dtype(np.uint8),
        num_stacked_frames=1,
        num_actions=5,
        num_players=1,
        turn_order="single",
    )
    storage, rng = Storage(spec, capacity), np.random.default_rng(1)
    for number in range(9):
        segment = image_segment(spec, rng, 32)
        assert segment.frame.nbytes > SMALLEST
        while storage.capacity - storage.num_used < 32:
            evicted, count = storage.evict_oldest()
            assert count == len(evicted) == 32
            assert not storage.columns["sampleable"][evicted].any()
            assert (storage.columns["generation"][evicted] == -1).all()
        rows = storage.append(segment)
        assert rows.tolist() == [(32 * number + i) % capacity for i in range(32)]
        columns = storage.columns
        np.testing.assert_array_equal(columns["frame"][rows], segment.frame)
        for name in ("action", "reward", "turn", "to_play", "policy", "has_policy", "root_value"):
            np.testing.assert_array_equal(columns[name][rows], getattr(segment, name))
        np.testing.assert_array_equal(storage.roots(rows).legal, segment.legal)
        assert columns["sampleable"][rows].all() and (columns["generation"][rows] == number).all()
        assert columns["starts_episode"][rows].tolist() == [True] + [False] * 31
        assert (columns["times_sampled"][rows] == 0).all()
        columns["times_sampled"][rows] = 5
