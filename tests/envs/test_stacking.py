import numpy as np
import pytest

from muzero.envs.base import EnvSpec
from muzero.envs.stacking import FrameStack


def spec(num_stacked_frames, frame_shape=(1, 2, 2), dtype=np.uint8):
    return EnvSpec(
        name="stack",
        frame_shape=frame_shape,
        frame_dtype=np.dtype(dtype),
        num_stacked_frames=num_stacked_frames,
        num_actions=2,
    )


def frames(*values, shape=(1, 2, 2)):
    """One constant frame per row."""
    return np.stack([np.full(shape, value, np.uint8) for value in values])


def channels(stack):
    """`[B, channels]` value of each constant channel."""
    return stack.observation.reshape(2, -1, 4)[:, :, 0].tolist()


def test_oldest_first_and_the_first_frame_repeated():
    stack = FrameStack(spec(3), 2)
    stack.reset_rows(np.array([True, True]), frames(1, 10))
    assert channels(stack) == [[1, 1, 1], [10, 10, 10]]
    stack.push(frames(2, 20))
    stack.push(frames(3, 30))
    assert channels(stack) == [[1, 2, 3], [10, 20, 30]]
    stack.push(frames(4, 40))
    stack.reset_rows(np.array([False, True]), frames(4, 40))
    assert channels(stack) == [[2, 3, 4], [40, 40, 40]]


def test_channels_of_a_frame_stay_together():
    stack = FrameStack(spec(2, (2, 1, 1)), 1)
    stack.reset_rows(np.array([True]), np.array([[[[1]], [[2]]]]))
    stack.push(np.array([[[[3]], [[4]]]]))
    assert stack.observation.ravel().tolist() == [1, 2, 3, 4]
    assert stack.observation.shape == (1, *spec(2, (2, 1, 1)).observation_shape)


def test_flat_frames_and_dtype():
    stack = FrameStack(spec(4, (3,), np.float32), 2)
    stack.push(np.ones((2, 3), np.float32))
    assert stack.observation.shape == (2, 12) and stack.observation.dtype == np.float32


def test_observations_are_the_callers():
    stack = FrameStack(spec(2), 2)
    held = stack.observation
    stack.push(frames(7, 8))
    assert not held.any()
    held[:] = 9
    assert channels(stack) == [[0, 7], [0, 8]]


def test_restores():
    stack, other = FrameStack(spec(3), 2), FrameStack(spec(3), 2)
    for value in range(5):
        stack.push(frames(value, 10 + value))
    other.restore(stack.state())
    stack.push(frames(5, 15))
    other.push(frames(5, 15))
    assert channels(other) == channels(stack) == [[3, 4, 5], [13, 14, 15]]
    with pytest.raises(ValueError, match="cannot be restored"):
        other.restore(np.zeros((2, 2, 2, 2), np.uint8))
