"""Replay: segments of episodes in, batches with targets out."""

from muzero.replay.batch import Batch
from muzero.replay.buffer import ReplayBuffer
from muzero.replay.episode import TURN_OTHER, TURN_SAME, TURN_TERMINAL, Segment
from muzero.replay.limiter import RateLimiter, default_error_buffer, smallest_error_buffer
from muzero.replay.segments import cut, ends_episode, head_length, tail_length
from muzero.replay.storage import RootPositions

__all__ = [
    "TURN_OTHER",
    "TURN_SAME",
    "TURN_TERMINAL",
    "Batch",
    "RateLimiter",
    "ReplayBuffer",
    "RootPositions",
    "Segment",
    "cut",
    "default_error_buffer",
    "ends_episode",
    "head_length",
    "smallest_error_buffer",
    "tail_length",
]
