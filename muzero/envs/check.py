"""Plays random games against an environment and tells in plain sentences what is wrong with it.

Letters: `B` rows (games), `A` actions, `*F` shape of one frame.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.config.environments import EnvConfig
from muzero.envs.base import BatchedEnv, EnvSpec, TimeStep
from muzero.envs.registry import make_env

_NUM_REPLAYED_STEPS = 20


def check_env(
    config: EnvConfig, *, num_steps: int = 300, batch_size: int = 4, seed: int = 0
) -> list[str]:
    """Problems found in `num_steps` steps of `batch_size` random games; empty if there are none."""
    try:
        env = make_env(config, batch_size)
    except ValueError as error:
        return [str(error)]
    problems: list[str] = []
    try:
        _check_games(env, num_steps, seed, problems)
        _check_repeats(env, min(num_steps, 100), seed, problems)
        _check_rows(env, config, min(num_steps, 100), seed, problems)
        _check_restore(env, min(num_steps, 50), seed, problems)
    except (ValueError, AssertionError) as error:  # what the adapters refuse, told by them
        problems.append(str(error))
    finally:
        env.close()
    return list(dict.fromkeys(problems))


def _random_actions(step: TimeStep, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """`[B]` legal actions, each equally likely."""
    return np.argmax(rng.random(step.legal.shape) * step.legal, axis=1)


def _check_games(env: BatchedEnv, num_steps: int, seed: int, problems: list[str]) -> None:
    """Shapes, dtypes, ranges, ends, and returns of random games."""
    spec, rng = env.spec, np.random.default_rng(seed)
    now = env.reset(seed)
    problems += _faults(spec, env.batch_size, now)
    if now.reward.any() or now.terminated.any() or now.truncated.any():
        problems.append(f"{spec.name}: a reset reports a reward or an end")
    returns = np.zeros(env.batch_size)
    lengths = np.zeros(env.batch_size, np.int64)
    by_mover: tuple[list[float], list[float]] = ([], [])
    for _ in range(num_steps):
        held = {name: value.copy() for name, value in _arrays(now).items()}
        mover, before = now.to_play, now
        now = env.step(_random_actions(now, rng))
        problems += _faults(spec, env.batch_size, now)
        if any(not np.array_equal(getattr(before, name), value) for name, value in held.items()):
            problems.append(
                f"{spec.name}: a step wrote to arrays that an earlier step had returned"
            )
        returns += np.where(mover == 0, now.reward, -now.reward)
        lengths += 1
        for player in (0, 1):
            by_mover[player].extend(now.reward[(mover == player) & (now.reward != 0)].tolist())
        problems += _return_faults(spec, returns, now.terminated)
        if spec.max_episode_steps is not None and (lengths > spec.max_episode_steps).any():
            problems.append(
                f"{spec.name}: an episode is longer than its {spec.max_episode_steps} steps at most"
            )
        returns[now.terminated | now.truncated] = 0
        lengths[now.terminated | now.truncated] = 0
    first, second = by_mover
    if len(first) + len(second) >= 16 and first and second and min(first) > 0 > max(second):
        problems.append(
            f"{spec.name}: every reward was positive for a move of player 0 and negative for a move of player 1; "
            "unless player 0 wins all games of random players, the reward is not the mover's own, as it must be"
        )


def _arrays(step: TimeStep) -> dict[str, npt.NDArray[Any]]:
    values = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
    return {name: value for name, value in values.items() if value is not None}


def _faults(spec: EnvSpec, batch_size: int, step: TimeStep) -> list[str]:
    """What is wrong with the arrays of one time step."""
    frame = (batch_size, *spec.frame_shape), spec.frame_dtype
    row = (batch_size,)
    expected: dict[str, tuple[tuple[int, ...], Any]] = {
        "frame": frame,
        "legal": ((batch_size, spec.num_actions), np.bool_),
        "to_play": (row, np.int32),
        "reward": (row, np.float32),
        "score": (row, np.float32),
        "terminated": (row, np.bool_),
        "truncated": (row, np.bool_),
        "final_frame": frame,
        "final_to_play": (row, np.int32),
    }
    faults = []
    for name, array in _arrays(step).items():
        shape, dtype = expected[name]
        if array.shape != shape or array.dtype != dtype:
            faults.append(
                f"{name} is {array.dtype} {array.shape}, it must be {np.dtype(dtype)} {shape}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            faults.append(f"{name} holds a value that is not finite")
    if not step.legal.any(axis=-1).all():
        faults.append("a position has no legal action")
    if ((step.to_play < 0) | (step.to_play >= spec.num_players)).any():
        faults.append(f"to_play is not below the number of players, {spec.num_players}")
    if (step.terminated & step.truncated).any():
        faults.append("a move both terminated and truncated an episode")
    if step.truncated.any() and (step.final_frame is None or step.final_to_play is None):
        faults.append("an episode was truncated without its final frame")
    return [f"{spec.name}: {fault}" for fault in faults]


def _return_faults(
    spec: EnvSpec, returns: npt.NDArray[np.float64], ended: npt.NDArray[np.bool_]
) -> list[str]:
    if spec.return_bounds is None or not ended.any():
        return []
    lowest, highest = spec.return_bounds
    slack = 1e-3 * max(1.0, abs(lowest), abs(highest))
    outside = returns[ended][(returns[ended] < lowest - slack) | (returns[ended] > highest + slack)]
    if not outside.size:
        return []
    return [
        f"{spec.name}: an episode returned {outside[0]:g}, outside of its bounds [{lowest:g}, {highest:g}]"
    ]


def _trajectory(env: BatchedEnv, now: TimeStep, num_steps: int, seed: int) -> list[TimeStep]:
    """`now` and the steps that follow it under random actions of `seed`."""
    rng, steps = np.random.default_rng(seed), [now]
    for _ in range(num_steps):
        steps.append(env.step(_random_actions(steps[-1], rng)))
    return steps


def _same(left: list[TimeStep], right: list[TimeStep], skip: tuple[str, ...] = ()) -> bool:
    return all(
        a.keys() == b.keys()
        and all(np.array_equal(a[name], b[name]) for name in a if name not in skip)
        for a, b in zip(map(_arrays, left), map(_arrays, right), strict=True)
    )


def _check_repeats(env: BatchedEnv, num_steps: int, seed: int, problems: list[str]) -> None:
    first, second = (_trajectory(env, env.reset(seed), num_steps, seed) for _ in range(2))
    if not _same(first, second):
        problems.append(f"{env.spec.name}: the same seed and actions gave different games")


def _check_rows(
    env: BatchedEnv, config: EnvConfig, num_steps: int, seed: int, problems: list[str]
) -> None:
    """Rows differ from each other where seeds matter at all, and do not depend on the size of the batch."""
    runs = []
    for run_seed in (seed, seed + 1):
        step, frames = env.reset(run_seed), []
        for _ in range(num_steps):
            frames.append(step.frame)
            common = np.flatnonzero(step.legal.all(axis=0))
            if not common.size:
                break
            step = env.step(np.full(env.batch_size, common[len(frames) % common.size]))
        runs.append(np.stack(frames))
    length = min(map(len, runs))
    seeds_matter = not np.array_equal(runs[0][:length], runs[1][:length])
    if seeds_matter and any((run[:, 1:] == run[:, :1]).all() for run in runs):
        problems.append(
            f"{env.spec.name}: all rows play the same game though other seeds give other games"
        )

    single = make_env(config, 1)
    try:
        row, batch = single.reset(seed), env.reset(seed)
        rng = np.random.default_rng(seed)
        for _ in range(num_steps):
            if not (
                np.array_equal(row.frame[0], batch.frame[0])
                and np.array_equal(row.legal[0], batch.legal[0])
            ):
                problems.append(f"{env.spec.name}: row 0 depends on the other rows of its batch")
                break
            actions = _random_actions(batch, rng)
            row, batch = single.step(actions[:1]), env.step(actions)
    finally:
        single.close()


def _check_restore(env: BatchedEnv, num_steps: int, seed: int, problems: list[str]) -> None:
    name = env.spec.name
    now = _trajectory(env, env.reset(seed), num_steps, seed + 1)[-1]
    try:
        saved = json.loads(json.dumps(env.state()))
    except TypeError as error:
        problems.append(f"{name}: its state cannot be written as JSON: {error}")
        return
    onwards = _trajectory(env, now, _NUM_REPLAYED_STEPS, seed)
    again = env.restore(saved)
    if not _same(
        [now],
        [again],
        skip=("reward", "score", "terminated", "truncated", "final_frame", "final_to_play"),
    ):
        problems.append(f"{name}: a restored state shows other positions than were saved")
    elif not _same(onwards[1:], _trajectory(env, again, _NUM_REPLAYED_STEPS, seed)[1:]):
        problems.append(
            f"{name}: games that go on from a restored state differ from those that were saved"
        )
