"""Cutting episodes into segments without changing any target."""

from dataclasses import fields

import numpy as np

from muzero.envs.base import EnvSpec
from muzero.replay.episode import Segment

_COLUMNS = tuple(
    field.name
    for field in fields(Segment)
    if field.name not in ("first", "count", "starts_episode")
)


def tail_length(num_unroll_steps: int, td_steps: int) -> int:
    """Positions that a segment carries behind its last sampled one, unless its episode ends before.

    The last unrolled step is `num_unroll_steps` behind it, and that step's return bootstraps `td_steps` further on.
    """
    return num_unroll_steps + td_steps


def head_length(num_stacked_frames: int) -> int:
    """Positions that a segment carries before its first sampled one, unless its episode starts later."""
    return num_stacked_frames - 1


def ends_episode(segment: Segment) -> bool:
    """Whether the last position is the end of its episode: a move into a terminal state, or the state behind a cut."""
    return bool(segment.turn[-1] == 0 or not segment.has_action[-1])


def cut(episode: Segment, start: int, stop: int, *, head: int, tail: int) -> Segment:
    """Segment whose sampled positions are `[start, stop)` of `episode`, with `head` positions before and `tail` behind.

    The arrays are views of the episode's. Head and tail end where the episode does.
    Raises ValueError if `[start, stop)` is empty or not among the episode's sampled positions.
    """
    if not episode.first <= start < stop <= episode.first + episode.count:
        raise ValueError(
            f"positions [{start}, {stop}) are not among the sampled ones "
            f"[{episode.first}, {episode.first + episode.count}) of the episode"
        )
    begin, end = max(0, start - head), min(len(episode), stop + tail)
    columns = {name: getattr(episode, name)[begin:end] for name in _COLUMNS}
    return Segment(
        **columns,
        first=start - begin,
        count=stop - start,
        starts_episode=episode.starts_episode and begin == 0,
    )


def check_segment(segment: Segment, spec: EnvSpec, *, head: int, tail: int) -> None:
    """Raise ValueError if `segment` is inconsistent, does not fit `spec` or carries too little context."""
    length, num_actions = len(segment), spec.num_actions
    shapes = {
        "frame": (length, *spec.frame_shape),
        "legal": (length, num_actions),
        "policy": (length, num_actions),
    }
    for name in _COLUMNS:
        shape, expected = getattr(segment, name).shape, shapes.get(name, (length,))
        if shape != expected:
            raise ValueError(f"{name} of a segment has shape {shape}, expected {expected}")
    if segment.frame.dtype != spec.frame_dtype:
        raise ValueError(
            f"frames of a segment are {segment.frame.dtype}, expected {spec.frame_dtype} as {spec.name} promises"
        )
    for name in ("reward", "root_value", "policy"):
        if not np.isfinite(getattr(segment, name)).all():
            raise ValueError(f"{name} of a segment of {spec.name} is NaN or infinite somewhere")
    action = segment.action[segment.has_action]
    if ((action < 0) | (action >= num_actions)).any() or (np.abs(segment.turn) > 1).any():
        raise ValueError(
            f"a segment's actions must be in [0, {num_actions}) and its turns -1, 0 or 1"
        )
    last = segment.first + segment.count - 1
    if segment.first < 0 or segment.count < 1 or last >= length:
        raise ValueError(
            f"a segment of {length} positions cannot have the sampled positions "
            f"[{segment.first}, {segment.first + segment.count})"
        )
    if not segment.has_action[: max(last + 1, length - 1)].all():
        raise ValueError(
            "only the last position of a segment may be without action, and it is never sampled"
        )
    if (segment.has_policy & ~segment.has_action).any():
        raise ValueError("a position of a segment without action cannot have a policy target")
    if not ends_episode(segment) and length - 1 - last < tail:
        raise ValueError(
            f"a segment that does not end its episode has {length - 1 - last} positions behind the last sampled one, "
            f"expected at least {tail} (num_unroll_steps + td_steps)"
        )
    if not segment.starts_episode and segment.first < head:
        raise ValueError(
            f"a segment from the middle of an episode has {segment.first} positions before the first sampled one, "
            f"expected at least {head} (num_stacked_frames - 1)"
        )
