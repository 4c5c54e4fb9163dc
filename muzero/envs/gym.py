"""Batches of Gymnasium environments: discrete actions, box observations, one player or two.

Letters: `B` rows (games), `A` actions, `*F` shape of one frame.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.config.environments import GymConfig
from muzero.envs.base import BoolArray, EnvSpec, TimeStep
from muzero.envs.gym_row import Row, make_row, not_deterministic
from muzero.envs.gym_rows import AsyncRows, LoopRows, Positions, Rows
from muzero.envs.rules import (
    MAX_PROBE_STEPS,
    NUM_PROBE_GAMES,
    check_actions,
    check_batch_size,
    check_turns,
    resolve_turn_order,
)

__all__ = ["GymEnv", "make_spec"]

_ROWS: dict[str, Callable[[GymConfig, int], Rows]] = {"sync": LoopRows, "async": AsyncRows}


def make_spec(config: GymConfig) -> EnvSpec:
    """The spec of `config`'s environment; raises ValueError for one that is not supported."""
    _check_settings(config)
    env = make_row(config)
    limits = [
        limit for limit in (config.max_episode_steps, env.max_episode_steps) if limit is not None
    ]
    bounds = config.return_bounds
    try:
        turn_order = _turn_order(config, env)
    finally:
        env.close()
    return EnvSpec(
        name=config.name,
        frame_shape=env.frame_shape,
        frame_dtype=env.frame_dtype,
        num_stacked_frames=config.num_stacked_frames,
        num_actions=env.num_actions,
        num_players=config.num_players,
        turn_order=turn_order,
        return_bounds=None
        if bounds is None
        else (bounds[0] * config.reward_scale, bounds[1] * config.reward_scale),
        max_episode_steps=min(limits, default=None),
    )


class GymEnv:
    """`B` environments of one id.

    Every episode is started with a seed of its own, made of `reset`'s seed, the row and the episode's number. So the
    state of a row is its episode and the actions since it began, and `restore` plays them again.
    """

    def __init__(self, config: GymConfig, batch_size: int):
        """Raises ValueError for an environment that is not supported, or settings that do not fit it."""
        self.spec = make_spec(config)
        self.batch_size = batch_size
        self._reward_scale = config.reward_scale
        self._max_steps = config.max_episode_steps
        self._rows = _ROWS[config.vectorization](config, batch_size)
        self._seed = 0
        self._episodes = [0] * batch_size
        self._actions: list[list[int]] = [[] for _ in range(batch_size)]
        self._num_steps = np.zeros(batch_size, np.int64)
        self._now: Positions

    def reset(self, seed: int) -> TimeStep:
        """Starts a new episode in every row."""
        self._seed = seed
        self._episodes = [0] * self.batch_size
        self._actions = [[] for _ in range(self.batch_size)]
        self._num_steps[:] = 0
        self._now = self._checked(self._rows.reset(self._seeds(range(self.batch_size))))
        return self._standing()

    def step(self, actions: npt.NDArray[np.integer]) -> TimeStep:
        """Plays `actions[B]` and starts new episodes in the rows whose episode ended.

        Raises ValueError for an illegal action, and where the environment returns what it should not.
        """
        before, actions = self._now, np.asarray(actions)
        check_actions(self.spec, before.legal, actions)
        after, moves = self._rows.step(actions)
        self._checked(after)
        for played, action in zip(self._actions, actions.tolist(), strict=True):
            played.append(action)
        self._num_steps += 1
        terminated = moves.terminated
        truncated = moves.truncated
        if self._max_steps is not None:
            truncated = truncated | (self._num_steps >= self._max_steps)
        truncated = truncated & ~terminated
        ended = terminated | truncated
        check_turns(self.spec, before.to_play, after.to_play, ended)
        self._now = self._restart(after, ended) if ended.any() else after
        score = moves.reward.astype(np.float32)
        if not np.isfinite(score).all():
            raise ValueError(f"{self.spec.name}: a reward is not finite")
        return TimeStep(
            frame=self._now.frame.copy(),
            legal=self._now.legal.copy(),
            to_play=self._now.to_play.copy(),
            reward=score * np.float32(self._reward_scale),
            score=score,
            terminated=terminated,
            truncated=truncated,
            final_frame=after.frame if truncated.any() else None,
            final_to_play=after.to_play if truncated.any() else None,
        )

    def state(self) -> dict[str, Any]:
        """The seed, each row's episode and actions since it began, and a digest of its frame to verify them by."""
        return {
            "seed": self._seed,
            "episodes": list(self._episodes),
            "actions": [list(actions) for actions in self._actions],
            "digests": [_digest(frame) for frame in self._now.frame],
        }

    def restore(self, state: dict[str, Any]) -> TimeStep:
        """Goes back to `state` by playing its actions.

        Raises ValueError if it is of another batch size, or if the environment turns out not to be deterministic.
        """
        check_batch_size(self.spec, len(state["actions"]), self.batch_size)
        self._seed = state["seed"]
        self._episodes = list(state["episodes"])
        self._actions = [list(actions) for actions in state["actions"]]
        self._num_steps[:] = [len(actions) for actions in self._actions]
        seeds = self._seeds(range(self.batch_size))
        self._now = self._checked(self._rows.reset(seeds, dict(enumerate(self._actions))))
        if [_digest(frame) for frame in self._now.frame] != state["digests"]:
            raise ValueError(
                not_deterministic(self.spec.name, "a replayed episode came to another observation")
            )
        return self._standing()

    def close(self) -> None:
        """Closes the environments."""
        self._rows.close()

    def _standing(self) -> TimeStep:
        """The positions to be played now, after no move."""
        zeros = np.zeros(self.batch_size, np.float32)
        no = np.zeros(self.batch_size, np.bool_)
        return TimeStep(
            frame=self._now.frame.copy(),
            legal=self._now.legal.copy(),
            to_play=self._now.to_play.copy(),
            reward=zeros,
            score=zeros.copy(),
            terminated=no,
            truncated=no.copy(),
        )

    def _restart(self, after: Positions, ended: BoolArray) -> Positions:
        """`after` with new episodes in the rows that `ended`."""
        rows = np.flatnonzero(ended).tolist()
        for row in rows:
            self._episodes[row] += 1
            self._actions[row] = []
        self._num_steps[rows] = 0
        fresh = self._checked(self._rows.reset(self._seeds(rows)))
        now = Positions(after.frame.copy(), after.legal.copy(), after.to_play.copy())
        for array, fresh_array in zip(now, fresh, strict=True):
            array[rows] = fresh_array[rows]
        return now

    def _seeds(self, rows: Iterable[int]) -> dict[int, int]:
        """Seeds of the rows' present episodes, by row."""
        return {
            row: int(
                np.random.SeedSequence(
                    self._seed, spawn_key=(row, self._episodes[row])
                ).generate_state(1)[0]
            )
            for row in rows
        }

    def _checked(self, positions: Positions) -> Positions:
        if not np.isfinite(positions.frame).all():
            raise ValueError(f"{self.spec.name}: an observation holds a value that is not finite")
        return positions


def _digest(frame: npt.NDArray[Any]) -> str:
    return hashlib.blake2b(frame.tobytes(), digest_size=8).hexdigest()


def _check_settings(config: GymConfig) -> None:
    if config.vectorization not in _ROWS:
        raise ValueError(
            f"env.vectorization={config.vectorization!r} must be one of {', '.join(_ROWS)}"
        )
    if config.num_players not in (1, 2):
        raise ValueError(f"env.num_players={config.num_players} must be 1 or 2")
    if not (math.isfinite(config.reward_scale) and config.reward_scale > 0):
        raise ValueError(f"env.reward_scale={config.reward_scale} must be positive")
    bounds = config.return_bounds
    if bounds is not None and (len(bounds) != 2 or not bounds[0] <= bounds[1]):
        raise ValueError(f"env.return_bounds={bounds} must be [lowest, highest] or null")


def _turn_order(config: GymConfig, env: Row) -> str:
    return resolve_turn_order(config.turn_order, config.num_players, lambda: _repeats_turns(env))


def _repeats_turns(env: Row) -> bool:
    """Whether a player moves twice in a row in random games, always the same ones."""
    rng = np.random.default_rng(0)
    everything = np.ones(env.num_actions, np.bool_)
    for game in range(NUM_PROBE_GAMES):
        _, info = env.reset(seed=game)
        for _ in range(MAX_PROBE_STEPS):
            mover = info["to_play"]
            _, _, terminated, truncated, info = env.step(
                int(rng.choice(np.flatnonzero(info.get("action_mask", everything))))
            )
            if terminated or truncated:
                break
            if info["to_play"] == mover:
                return True
    return False
