"""The recorder against plain lists: every position is handed out once, with the context it needs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.replay.episode import Segment
from muzero.replay.recorder import Recorder

NUM_ACTIONS = 3


class Games:
    """Random games of numbered positions, so that every position can be told from every other."""

    def __init__(self, rng: np.random.Generator, batch_size: int, mean_length: float):
        self.rng, self.batch_size, self.mean_length = rng, batch_size, mean_length
        self.serial = 0

    def numbers(self) -> np.ndarray:
        start = self.serial
        self.serial += self.batch_size
        return np.arange(start, self.serial)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        ended = self.rng.random(self.batch_size) < 1.0 / self.mean_length
        cut = self.rng.random(self.batch_size) < 0.5
        return ended & ~cut, ended & cut


def play(recorder: Recorder, games: Games, num_moves: int, skip_first: int):
    """Drive the recorder; returns its segments and, per row, the episodes as lists of (number, sampled)."""
    rows = games.batch_size
    segments: list[Segment] = []
    running: list[list[tuple[int, bool]]] = [[] for _ in range(rows)]
    finished: list[list[tuple[int, bool]]] = []
    to_play = games.rng.integers(0, 2, rows)
    for _ in range(num_moves):
        numbers = games.numbers()
        sampled = np.array([len(running[row]) >= skip_first for row in range(rows)])
        recorder.record(
            frame=numbers[:, None].astype(np.float32),
            legal=np.ones((rows, NUM_ACTIONS), bool),
            to_play=to_play,
            action=numbers,
            policy=np.full((rows, NUM_ACTIONS), 1 / NUM_ACTIONS),
            has_policy=numbers % 3 > 0,
            root_value=numbers * 0.5,
            version=7,
            sampled=sampled,
        )
        for row in range(rows):
            running[row].append((int(numbers[row]), bool(sampled[row])))
        terminated, truncated = games.ends()
        next_to_play = games.rng.integers(0, 2, rows)
        segments += recorder.outcome(
            reward=numbers * 2.0,
            next_to_play=next_to_play,
            terminated=terminated,
            truncated=truncated,
            final_frame=-numbers[:, None].astype(np.float32),
            final_value=-numbers * 1.0,
        )
        to_play = next_to_play
        for row in np.flatnonzero(terminated | truncated):
            finished.append(running[row])
            running[row] = []
    return segments, finished, running


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    batch_size=st.integers(1, 4),
    segment_length=st.integers(1, 9),
    head=st.integers(0, 3),
    tail=st.integers(1, 6),
    skip_first=st.integers(0, 4),
    mean_length=st.floats(1.0, 25.0),
)
def test_every_sampled_position_is_handed_out_once_with_its_context(
    seed, batch_size, segment_length, head, tail, skip_first, mean_length
):
    games = Games(np.random.default_rng(seed), batch_size, mean_length)
    recorder = Recorder(
        batch_size=batch_size,
        frame_shape=(1,),
        frame_dtype=np.dtype(np.float32),
        num_actions=NUM_ACTIONS,
        segment_length=segment_length,
        head=head,
        tail=tail,
        max_skipped=skip_first,
    )
    segments, finished, running = play(recorder, games, 60, skip_first)

    handed_out = [
        int(action)
        for segment in segments
        for action in segment.action[segment.first : segment.first + segment.count]
    ]
    assert len(set(handed_out)) == len(handed_out)
    expected = [number for episode in finished for number, sampled in episode if sampled]
    assert set(expected) <= set(handed_out)
    surplus = set(handed_out) - set(expected)
    assert surplus <= {number for episode in running for number, _ in episode}

    episode_of = {number: episode for episode in [*finished, *running] for number, _ in episode}
    for segment in segments:
        real = segment.action[segment.has_action]
        episode = [number for number, _ in episode_of[int(real[0])]]
        low = episode.index(int(real[0]))
        assert list(real) == episode[low : low + len(real)]  # contiguous, one episode
        assert segment.first == min(head, low + segment.first)
        assert segment.starts_episode == (low == 0)
        behind = len(episode) - (low + segment.first + segment.count)
        is_finished = any(episode_of[int(real[0])] is known for known in finished)
        carried = len(real) - segment.first - segment.count
        assert carried == min(tail, behind) if is_finished else carried == tail
        np.testing.assert_array_equal(segment.reward[segment.has_action], real * 2.0)
        np.testing.assert_array_equal(segment.root_value[segment.has_action], real * 0.5)
        np.testing.assert_array_equal(segment.has_policy[segment.has_action], real % 3 > 0)
        assert not segment.has_policy[~segment.has_action].any()


def make_recorder(**changes) -> Recorder:
    options = {
        "batch_size": 1,
        "frame_shape": (1,),
        "frame_dtype": np.dtype(np.float32),
        "num_actions": NUM_ACTIONS,
        "segment_length": 10,
        "head": 0,
        "tail": 4,
    }
    return Recorder(**(options | changes))


def one_move(recorder: Recorder, number: int, **outcome) -> list[Segment]:
    recorder.record(
        frame=np.full((1, 1), number, np.float32),
        legal=np.ones((1, NUM_ACTIONS), bool),
        to_play=np.array([outcome.pop("to_play", 0)]),
        action=np.array([number % NUM_ACTIONS]),
        policy=np.full((1, NUM_ACTIONS), 1 / NUM_ACTIONS),
        has_policy=np.array([True]),
        root_value=np.array([0.25]),
        version=3,
        sampled=np.array([True]),
    )
    defaults = {
        "reward": np.array([1.0]),
        "next_to_play": np.array([0]),
        "terminated": np.array([False]),
        "truncated": np.array([False]),
        "final_frame": None,
        "final_value": None,
    }
    return recorder.outcome(**(defaults | outcome))


def test_signs_of_edges_and_the_state_behind_a_cut():
    recorder = make_recorder()
    assert one_move(recorder, 0, next_to_play=np.array([1])) == []  # the other moves next
    assert one_move(recorder, 1, to_play=1, next_to_play=np.array([1])) == []  # moves twice
    [segment] = one_move(
        recorder,
        2,
        to_play=1,
        next_to_play=np.array([0]),
        truncated=np.array([True]),
        final_frame=np.array([[9.0]], np.float32),
        final_value=np.array([-0.5]),
    )
    assert segment.turn.tolist() == [-1, 1, -1, 0]
    assert segment.has_action.tolist() == [True, True, True, False]
    assert segment.frame[:, 0].tolist() == [0.0, 1.0, 2.0, 9.0]
    assert segment.root_value[-1] == -0.5
    assert segment.to_play[-1] == 0
    assert segment.count == 3


def test_a_terminal_edge_has_turn_zero_and_no_state_behind_it():
    recorder = make_recorder()
    [segment] = one_move(recorder, 0, terminated=np.array([True]))
    assert segment.turn.tolist() == [0]
    assert len(segment) == segment.count == 1


def test_a_cut_without_its_final_frame_is_refused():
    with pytest.raises(AssertionError, match="final frame"):
        one_move(make_recorder(), 0, truncated=np.array([True]))


def test_restore_continues_with_the_same_segments():
    def fresh():
        return make_recorder(batch_size=2, segment_length=5, head=2, tail=3, max_skipped=1)

    games = Games(np.random.default_rng(5), 2, 12.0)
    recorder = fresh()
    play(recorder, games, 17, 1)
    copy = fresh()
    copy.restore(recorder.state())
    seeds = np.random.default_rng(6), np.random.default_rng(6)
    ours, theirs = (
        play(each, Games(rng, 2, 12.0), 40, 1)[0]
        for each, rng in zip((recorder, copy), seeds, strict=True)
    )
    assert len(ours) == len(theirs) > 3
    for left, right in zip(ours, theirs, strict=True):
        for name in ("frame", "action", "reward", "turn", "has_policy", "root_value", "has_action"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
        assert (left.first, left.count, left.starts_episode) == (
            right.first,
            right.count,
            right.starts_episode,
        )
