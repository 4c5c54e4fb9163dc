from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.replay import Segment
from muzero.replay.segment_block import SegmentBlock
from muzero.replay.segments import cut
from tests.oracles.games import games, segment_of

COLUMNS = [
    field.name
    for field in fields(Segment)
    if field.name not in ("first", "count", "starts_episode")
]


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Whole games and pieces of them."""
    game = draw(games(name=draw(st.integers(0, 9))))
    whole = segment_of(game, version=draw(st.integers(0, 2**31 - 1)))
    start = draw(st.integers(0, whole.count - 1))
    stop = draw(st.integers(start + 1, whole.count))
    head, tail = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return draw(st.sampled_from([whole, cut(whole, start, stop, head=head, tail=tail)]))


@settings(max_examples=100, deadline=None)
@given(st.lists(segments(), min_size=1, max_size=5))
def test_round_trip(given_segments: list[Segment]) -> None:
    block = SegmentBlock.of(given_segments)
    assert block.num_sampled == sum(segment.count for segment in given_segments)
    assert block.nbytes == sum(array.nbytes for array in block.arrays.values()) > 0
    found = block.segments()
    assert len(found) == len(given_segments)
    for ours, theirs in zip(found, given_segments, strict=True):
        assert (ours.first, ours.count, ours.starts_episode) == (
            theirs.first,
            theirs.count,
            theirs.starts_episode,
        )
        for name in COLUMNS:
            assert getattr(ours, name).dtype == getattr(theirs, name).dtype
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def two() -> SegmentBlock:
    rng = np.random.default_rng(0)
    made = []
    for length in (4, 7):
        made.append(
            Segment(
                frame=rng.integers(0, 256, (length, 2), dtype=np.uint8),
                action=np.arange(length, dtype=np.int32),
                reward=np.zeros(length, np.float32),
                turn=np.ones(length, np.int8),
                to_play=np.zeros(length, np.int8),
                legal=np.ones((length, 3), bool),
                policy=np.zeros((length, 3), np.float32),
                has_policy=np.ones(length, bool),
                root_value=np.zeros(length, np.float32),
                has_action=np.ones(length, bool),
                version=np.zeros(length, np.int32),
                first=1,
                count=length - 2,
                starts_episode=length == 4,
            )
        )
    return SegmentBlock.of(made)


def test_a_block_is_a_copy_and_its_segments_are_views() -> None:
    block = two()
    first, second = block.segments()
    assert (len(first), len(second), block.num_sampled) == (4, 7, 7)
    assert np.shares_memory(second.frame, block.arrays["frame"])
    other = SegmentBlock.of([first])
    assert not np.shares_memory(other.arrays["frame"], block.arrays["frame"])


@pytest.mark.parametrize("name", [*COLUMNS, "length", "first", "count", "starts_episode"])
def test_damaged_blocks_are_refused(name: str) -> None:
    arrays = two().arrays
    array = arrays[name]
    with pytest.raises(ValueError, match=f"lacks {name}$"):
        SegmentBlock({n: a for n, a in arrays.items() if n != name}).segments()
    for damaged in (array[:-1], array[:0], np.concatenate([array, array[:1]]), np.array(0)):
        with pytest.raises(ValueError, match="damaged"):
            SegmentBlock({**arrays, name: damaged}).segments()


@pytest.mark.parametrize("length", [[5, 7], [11, 0], [12, -1], [4, 3, 4], [11]])
def test_lengths_that_do_not_fit_are_refused(length: list[int]) -> None:
    with pytest.raises(ValueError, match="damaged"):
        SegmentBlock({**two().arrays, "length": np.array(length)}).segments()
