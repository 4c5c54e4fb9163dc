"""Batches of Atari games: ale-py's vector environment, which steps and preprocesses all rows in C++ threads.

Letters: `B` rows (games), `A` actions, `*F` shape of one frame.
"""

import difflib
import hashlib
import logging
from typing import Any

import numpy as np
import numpy.typing as npt
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.random import SeedSequence

from muzero.config.environments import AtariConfig
from muzero.envs.base import BoolArray, EnvSpec, TimeStep
from muzero.envs.rules import check_actions, check_batch_size

__all__ = ["AtariEnv", "make_spec"]

_NO_LIMIT = 2**30
# A seeded reset loads the ROM again: 0.1 s, as long as some hundred steps. So a row is seeded anew only at the first
# game that begins so many steps after its last seeding; the generators that it starts games by run on in between.
_RESEED_STEPS = 5_000
_logger = logging.getLogger(__name__)


def make_spec(config: AtariConfig) -> EnvSpec:
    """The spec of `config`'s game; raises ValueError for a setting that is wrong."""
    return _spec(config, _make(config, 1))


class AtariEnv:
    """`B` games of one ROM. A row is seeded by `reset`'s seed, the row and how often it has been seeded before.

    `score` is the game's own reward, `reward` is clipped if `clip_reward` says so. With `episodic_life` a lost life
    is a termination, and the next episode begins where the game stands.
    """

    def __init__(self, config: AtariConfig, batch_size: int):
        """Raises ValueError for a setting that is wrong."""
        self._env = _make(config, batch_size)
        self.spec = _spec(config, self._env)
        self.batch_size = batch_size
        self._config = config
        self._max_steps = config.max_episode_steps or _NO_LIMIT
        self._max_game_steps = _max_game_steps(config)
        self._legal = np.ones((batch_size, self.spec.num_actions), np.bool_)
        self._seed = 0
        self._seedings = np.zeros(batch_size, np.int64)
        # Since each row was seeded: its actions, and how many of them had been played at each start of a game.
        self._actions: list[list[int]] = [[] for _ in range(batch_size)]
        self._starts: list[list[int]] = [[] for _ in range(batch_size)]
        self._num_steps = np.zeros(batch_size, np.int64)
        self._num_game_steps = np.zeros(batch_size, np.int64)
        self._lives = np.zeros(batch_size, np.int64)
        self._frame = np.zeros((batch_size, *self.spec.frame_shape), np.uint8)

    def reset(self, seed: int) -> TimeStep:
        """Starts a new game in every row."""
        self._seed = seed
        self._seedings[:] = 0
        self._num_steps[:] = 0
        self._num_game_steps[:] = 0
        self._actions = [[] for _ in range(self.batch_size)]
        self._starts = [[] for _ in range(self.batch_size)]
        self._begin(seeded=np.ones(self.batch_size, np.bool_))
        return self._standing()

    def step(self, actions: npt.NDArray[np.integer]) -> TimeStep:
        """Plays `actions[B]`, each for `frame_skip` frames, and starts new games in the rows whose game is over.

        Raises ValueError for an action that does not exist.
        """
        actions = np.asarray(actions)
        check_actions(self.spec, self._legal, actions)
        score, over, life_lost = self._play(actions)
        for played, action in zip(self._actions, actions.tolist(), strict=True):
            played.append(action)
        self._num_steps += 1
        self._num_game_steps += 1
        cut = (self._num_game_steps >= self._max_game_steps) | (self._num_steps >= self._max_steps)
        terminated = over | life_lost if self._config.episodic_life else over
        truncated = cut & ~terminated
        final_frame = self._frame.copy() if truncated.any() else None
        self._num_steps[terminated | truncated] = 0
        if (over | cut).any():
            self._start_games(over | cut)
        return TimeStep(
            frame=self._frame.copy(),
            legal=self._legal.copy(),
            to_play=np.zeros(self.batch_size, np.int32),
            reward=np.clip(score, -1, 1) if self._config.clip_reward else score.copy(),
            score=score,
            terminated=terminated,
            truncated=truncated,
            final_frame=final_frame,
            final_to_play=None if final_frame is None else np.zeros(self.batch_size, np.int32),
        )

    def state(self) -> dict[str, Any]:
        """The seed, each row's moves since it was seeded, and a digest of its frame to verify them by."""
        return {
            "seed": self._seed,
            "seedings": self._seedings.tolist(),
            "actions": [list(actions) for actions in self._actions],
            "starts": [list(starts) for starts in self._starts],
            "num_steps": self._num_steps.tolist(),
            "num_game_steps": self._num_game_steps.tolist(),
            "digests": self._digests(),
        }

    def restore(self, state: dict[str, Any]) -> TimeStep:
        """Goes back to `state` by playing its moves, all rows together: at most some thousand steps.

        Raises ValueError if it is of another batch size, or if the games came out otherwise.
        """
        check_batch_size(self.spec, len(state["actions"]), self.batch_size)
        self._seed = state["seed"]
        self._seedings[:] = state["seedings"]
        self._num_steps[:] = state["num_steps"]
        self._num_game_steps[:] = state["num_game_steps"]
        self._actions = [list(actions) for actions in state["actions"]]
        self._starts = [list(starts) for starts in state["starts"]]
        self._replay()
        if self._digests() != state["digests"]:
            raise ValueError(
                f"{self.spec.name}: the saved games came out otherwise when played again; "
                "restore them with the version of ale-py and the env settings that they were saved with"
            )
        return self._standing()

    def close(self) -> None:
        """Ends the threads."""
        self._env.close()

    def _replay(self) -> None:
        lengths = np.array([len(actions) for actions in self._actions])
        num_steps = int(lengths.max())
        _logger.info(
            "%s: playing %d steps again to restore %d games",
            self.spec.name,
            num_steps,
            self.batch_size,
        )
        # The vector environment steps all rows at once. So that all arrive together, rows with fewer actions play
        # on with action 0 until it is their turn to be seeded.
        self._begin(seeded=np.ones(self.batch_size, np.bool_))
        for step in range(num_steps + 1):
            played = step - num_steps + lengths
            starts = zip(played.tolist(), self._starts, strict=True)
            self._begin(
                seeded=(played == 0), unseeded=np.array([count in marks for count, marks in starts])
            )
            if step < num_steps:
                moves = zip(played.tolist(), self._actions, strict=True)
                self._play(np.array([row[count] if count >= 0 else 0 for count, row in moves]))

    def _start_games(self, rows: BoolArray) -> None:
        """Starts new games in `rows[B]`, with a new seed where the last one is long ago."""
        seeded = rows & (np.array([len(actions) for actions in self._actions]) >= _RESEED_STEPS)
        self._num_steps[rows] = 0
        self._num_game_steps[rows] = 0
        self._seedings[seeded] += 1
        for row in np.flatnonzero(rows):
            if seeded[row]:
                self._actions[row], self._starts[row] = [], []
            else:
                self._starts[row].append(len(self._actions[row]))
        self._begin(seeded=seeded, unseeded=rows & ~seeded)

    def _begin(self, *, seeded: BoolArray, unseeded: BoolArray | None = None) -> None:
        """Resets the games of `seeded[B]` and `unseeded[B]`."""
        rows = seeded if unseeded is None else seeded | unseeded
        if not rows.any():
            return
        # 31 bits, as the seeds are ints in C++; -1 lets a row's generators run on.
        seeds = np.array(
            [
                SeedSequence(self._seed, spawn_key=(row, int(self._seedings[row]))).generate_state(
                    1
                )[0]
                >> 1
                if seeded[row]
                else -1
                for row in np.flatnonzero(rows).tolist()
            ],
            np.int64,
        )
        self._note(*self._env.reset(seed=seeds, options={"reset_mask": rows}))

    def _play(
        self, actions: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.float32], BoolArray, BoolArray]:
        """Score, whether the game is over and whether a life was lost, `[B]` each."""
        lives = self._lives
        observation, reward, over, _, info = self._env.step(actions.astype(np.int64))
        self._note(observation, info)
        return (
            np.asarray(reward, np.float32),
            np.asarray(over, np.bool_),
            (self._lives < lives) & (self._lives > 0),
        )

    def _note(self, observation: npt.NDArray[np.uint8], info: dict[str, Any]) -> None:
        frame = observation[:, 0]
        self._frame = frame[:, None] if self._config.grayscale else frame.transpose(0, 3, 1, 2)
        self._lives = np.array(info["lives"], np.int64)

    def _standing(self) -> TimeStep:
        """The positions to be played now, after no move."""
        zeros = np.zeros(self.batch_size, np.float32)
        no = np.zeros(self.batch_size, np.bool_)
        return TimeStep(
            frame=self._frame.copy(),
            legal=self._legal.copy(),
            to_play=np.zeros(self.batch_size, np.int32),
            reward=zeros,
            score=zeros.copy(),
            terminated=no,
            truncated=no.copy(),
        )

    def _digests(self) -> list[str]:
        return [
            hashlib.blake2b(frame.tobytes(), digest_size=8).hexdigest() for frame in self._frame
        ]


def _make(config: AtariConfig, batch_size: int) -> AtariVectorEnv:
    games = roms.get_all_rom_ids()
    if config.game not in games:
        close = difflib.get_close_matches(config.game, games, n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise ValueError(f"env.game={config.game} is not a game of ale-py{hint}")
    for name, lowest in (("frame_skip", 1), ("noop_max", 0), ("screen_size", 1), ("max_frames", 1)):
        if getattr(config, name) < lowest:
            raise ValueError(f"env.{name}={getattr(config, name)} must be at least {lowest}")
    if not 0 <= config.repeat_action_probability < 1:
        raise ValueError(
            f"env.repeat_action_probability={config.repeat_action_probability} must be in [0, 1)"
        )
    return AtariVectorEnv(
        config.game,
        batch_size,
        # Rows are reset by us right after their end, before this mode would do it. Its same-step mode costs a second
        # observation, and its own cut of episodes returns a final frame that is mixed with the frame before.
        autoreset_mode=AutoresetMode.NEXT_STEP,
        max_num_frames_per_episode=_NO_LIMIT,
        img_height=config.screen_size,
        img_width=config.screen_size,
        grayscale=config.grayscale,
        stack_num=1,
        frameskip=config.frame_skip,
        maxpool=config.frame_skip > 1,
        noop_max=config.noop_max + 1,  # exclusive there
        repeat_action_probability=config.repeat_action_probability,
        full_action_space=config.full_action_space,
        # Its own form of episodic lives starts the whole game again at every lost life.
        episodic_life=False,
        reward_clipping=False,
        use_fire_reset=False,
    )


def _max_game_steps(config: AtariConfig) -> int:
    return -(-config.max_frames // config.frame_skip)


def _spec(config: AtariConfig, env: AtariVectorEnv) -> EnvSpec:
    game_steps = _max_game_steps(config)
    return EnvSpec(
        name=config.name,
        frame_shape=(1 if config.grayscale else 3, config.screen_size, config.screen_size),
        frame_dtype=np.dtype(np.uint8),
        num_stacked_frames=config.num_stacked_frames,
        num_actions=len(env.ale.get_action_set()),
        max_episode_steps=min(config.max_episode_steps or game_steps, game_steps),
    )
