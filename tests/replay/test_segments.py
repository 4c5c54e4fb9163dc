"""Cutting an episode into segments changes nothing that the learner sees."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.config.schema import ReplayConfig, TargetsConfig
from muzero.replay import Batch, ReplayBuffer, Segment, cut, head_length, tail_length
from tests.oracles.games import Game, games, segment_of, spec_of


def buffer_of(
    segments: list[Segment],
    *,
    K: int = 3,
    n: int = 4,
    stack: int = 1,
    bootstrap: str = "search",
    td_lambda: float = 1.0,
) -> ReplayBuffer:
    buffer = ReplayBuffer(
        spec_of(stack),
        ReplayConfig(capacity=500, min_size=1),
        TargetsConfig(discount=0.9, td_steps=n, td_lambda=td_lambda, bootstrap=bootstrap),
        num_unroll_steps=K,
        with_next_observation=True,
        batch_size=8,
        insert_quantum=8,
        generator=np.random.default_rng(3),
    )
    for segment in segments:
        buffer.add(segment)
    return buffer


def every_position(buffer: ReplayBuffer) -> Batch:
    """Uniform weights and one stratum per position: each is drawn exactly once, in the order of slots."""
    batch = buffer.sample(buffer.size)
    assert len(np.unique(batch.slot)) == buffer.size
    return batch


@settings(max_examples=80, deadline=None)
@given(
    games(max_length=25),
    st.lists(st.integers(1, 7), min_size=25, max_size=25),
    st.integers(0, 5),
    st.integers(1, 8),
    st.integers(1, 5),
    st.sampled_from([("search", 1.0), ("search", 0.5), ("target_network", 1.0)]),
    st.integers(0, 3),
)
def test_blocks_of_any_length_give_the_same_batch(
    game: Game,
    blocks: list[int],
    K: int,
    n: int,
    stack: int,
    kind: tuple[str, float],
    opening: int,
) -> None:
    episode = segment_of(game, first=min(opening, game.length - 1))
    settings = {"K": K, "n": n, "stack": stack, "bootstrap": kind[0], "td_lambda": kind[1]}
    head, tail = head_length(stack), tail_length(K, n)
    pieces, start, stop = [], episode.first, episode.first + episode.count
    for block in blocks:
        if start < stop:
            pieces.append(cut(episode, start, min(start + block, stop), head=head, tail=tail))
            start += block
    assert sum(piece.count for piece in pieces) == episode.count

    whole = every_position(buffer_of([episode], **settings))
    parts = every_position(buffer_of(pieces, **settings))
    for field in fields(Batch):
        ours, theirs = getattr(parts, field.name), getattr(whole, field.name)
        if field.name in ("slot", "generation") or theirs is None:
            continue
        if field.name == "bootstrap_observation":
            real = whole.bootstrap_discount != 0  # elsewhere nobody looks
            ours, theirs = ours[real], theirs[real]
        np.testing.assert_array_equal(ours, theirs, err_msg=field.name)


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8])
def test_short_episodes_are_trained(length: int, truncated: bool) -> None:
    """Shorter than K, than n and than K + n; a single move, too."""
    game = Game([0, 1] * 5, [1.0] * length, [0.5] * (length + 1), truncated)
    batch = every_position(buffer_of([segment_of(game), segment_of(game)], K=3, n=4))
    assert len(batch.slot) == 2 * length
    t = np.tile(np.arange(length), 2)[:, None] + np.arange(4)
    assert np.array_equal(batch.policy_mask, t < length)
    assert np.array_equal(batch.value_mask, (t < length) | (not truncated))


def test_context_is_never_sampled() -> None:
    game = Game([0, 1] * 10, [0.0] * 19, [0.0] * 20, True)
    episode = segment_of(game, first=3)
    pieces = [cut(episode, 3, 7, head=2, tail=7), cut(episode, 7, 19, head=2, tail=7)]
    for stack in (1, 3):
        batch = every_position(buffer_of(pieces, stack=stack))
        assert batch.observation[:, -1].tolist() == list(range(3, 19))


def test_cut_asks_for_sampled_positions() -> None:
    episode = segment_of(Game([0] * 6, [0.0] * 5, [0.0] * 6, True), first=1)
    for start, stop in ((0, 2), (2, 2), (4, 6)):
        with pytest.raises(ValueError, match=r"not among the sampled ones \[1, 5\)"):
            cut(episode, start, stop, head=0, tail=1)


def test_wrong_segments_are_refused() -> None:
    episode = segment_of(Game([0] * 21, [0.0] * 20, [0.0] * 21, True))
    buffer = buffer_of([], K=3, n=4, stack=3)
    too_short = cut(episode, 0, 10, head=2, tail=6)
    with pytest.raises(ValueError, match=r"has 6 positions behind .* at least 7"):
        buffer.add(too_short)
    headless = cut(episode, 10, 12, head=1, tail=7)
    with pytest.raises(ValueError, match=r"has 1 positions before .* at least 2"):
        buffer.add(headless)
    empty = {
        f.name: getattr(episode, f.name)[:0]
        for f in fields(Segment)
        if isinstance(getattr(episode, f.name), np.ndarray)
    }
    without_action = episode.has_action.copy()
    without_action[7] = False
    rewards = np.where(np.arange(21) == 5, np.nan, 0).astype(np.float32)
    for wrong, message in (
        ({"count": 0}, "cannot have the sampled positions"),
        (empty | {"count": 0}, "cannot have the sampled positions"),
        ({"first": -1}, "cannot have the sampled positions"),
        ({"count": 22}, "cannot have the sampled positions"),
        ({"count": 21}, "never sampled"),
        ({"has_action": without_action}, "only the last position"),
        ({"has_policy": np.ones(21, bool)}, "without action cannot have a policy target"),
        ({"reward": rewards}, "reward of a segment of games is NaN"),
        ({"reward": rewards[:-1]}, "reward of a segment has shape"),
        ({"legal": episode.legal[:, :2]}, "legal of a segment has shape"),
        ({"action": np.full(21, 3, np.int32)}, r"in \[0, 3\)"),
        ({"turn": np.full(21, 2, np.int8)}, "turns -1, 0 or 1"),
        ({"frame": episode.frame.astype(np.float64)}, "frames of a segment are float64"),
    ):
        with pytest.raises(ValueError, match=message):
            buffer.add(replace(episode, **wrong))
    assert buffer.size == 0 and buffer.limiter.inserts == 0
    buffer.add(episode)
    assert buffer.size == 20
