"""One Gymnasium environment, checked and brought to the trainer's form.

Letters: `A` actions, `*F` shape of one frame.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from muzero.config.environments import GymConfig

Observation = npt.NDArray[Any]
Info = dict[str, Any]


def make_row(config: GymConfig, index: int = 0) -> "Row":
    """Environment number `index` of `config`; raises ValueError if it cannot be made or is of an unsupported kind."""
    try:
        env = gymnasium.make(config.id, disable_env_checker=True, **config.kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        extra = " (pip install muzero-trainer[box2d])" if "box2d" in str(error).lower() else ""
        raise ValueError(
            f"env.id={config.id} needs a package that is missing{extra}: {error}"
        ) from error
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(
            f"cannot make env.id={config.id} with env.kwargs={config.kwargs}: {error}"
        ) from error
    try:
        return Row(env, config, index)
    except ValueError:
        env.close()
        raise


class Row(gymnasium.Wrapper[Observation, Any, Any, Any]):
    """`env` with frames `[*F]` as observations and actions `0 <= a < A`; what it returns has been checked.

    `info` keeps two entries, where the environment gives them: `action_mask`, `[A]` bool, and `to_play`, 0 or 1.
    Frames are uint8 where the observations are, float32 otherwise; images get their channels first, a
    two-dimensional observation gets one channel. In two-player games one more channel (or feature) is constantly the
    player to move.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], config: GymConfig, index: int):
        """Raises ValueError if the spaces of `env` are not supported."""
        super().__init__(env)
        self.name = config.id
        self._index = index
        self._two_players = config.num_players == 2
        self.num_actions, self._first_action = _discrete(config.id, env.action_space)
        self._space = _box(config.id, env.observation_space)
        shape = self._space.shape
        self._is_image = self._space.dtype == np.uint8
        self._channels_last = self._is_image and len(shape) == 3 and shape[2] in (1, 3, 4)
        if self._channels_last:
            shape = (shape[2], shape[0], shape[1])
        elif len(shape) == 2:
            shape = (1, *shape)
        elif len(shape) == 0:
            shape = (1,)
        self._observed_shape = shape
        self.frame_shape = (shape[0] + self._two_players, *shape[1:])
        self.frame_dtype = np.dtype(np.uint8 if self._is_image else np.float32)
        low, high = (0.0, 255.0) if self._is_image else (-np.inf, np.inf)
        self.observation_space = gymnasium.spaces.Box(
            low, high, self.frame_shape, dtype=self.frame_dtype
        )
        self.action_space = gymnasium.spaces.Discrete(self.num_actions)

    @property
    def max_episode_steps(self) -> int | None:
        """Steps after which the environment itself cuts an episode; None if it never does."""
        return None if self.spec is None else self.spec.max_episode_steps

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Starts an episode; `options["replay"]` maps rows to actions to be played at once.

        Raises ValueError if the environment returns what it should not, or an episode that is replayed ends.
        """
        observation, info = self.env.reset(seed=seed)
        kept = self._kept(info, ended=False)
        for action in (options or {}).get("replay", {}).get(self._index, ()):
            observation, _, terminated, truncated, info = self.env.step(self._first_action + action)
            if terminated or truncated:
                raise ValueError(not_deterministic(self.name, "a replayed episode ended early"))
            kept = self._kept(info, ended=False)
        return self._frame(observation, kept), kept

    def step(self, action: int) -> tuple[Observation, float, bool, bool, Info]:
        """Plays `action`; raises ValueError if the environment returns what it should not."""
        observation, reward, terminated, truncated, info = self.env.step(
            self._first_action + int(action)
        )
        terminated, truncated = bool(terminated), bool(truncated)
        kept = self._kept(info, ended=terminated or truncated) if info or self._two_players else {}
        return self._frame(observation, kept), self._reward(reward), terminated, truncated, kept

    def _frame(self, observation: Any, info: Info) -> Observation:
        array = np.asarray(observation)
        space = self._space
        if array.shape != space.shape:
            raise ValueError(
                f"{self.name}: an observation has the shape {array.shape}, its space says {space.shape}"
            )
        if array.dtype != space.dtype and not np.can_cast(array.dtype, space.dtype, "same_kind"):
            raise ValueError(
                f"{self.name}: an observation is of dtype {array.dtype}, its space says {space.dtype}"
            )
        if self._channels_last:
            array = array.transpose(2, 0, 1)
        if not self._two_players:
            return array.reshape(self._observed_shape)
        frame = np.empty(self.frame_shape, self.frame_dtype)
        frame[:-1] = array.reshape(self._observed_shape)
        frame[-1] = info.get("to_play", 0) * (255 if self._is_image else 1)
        return frame

    def _kept(self, info: Info, *, ended: bool) -> Info:
        kept: Info = {}
        if "action_mask" in info:
            mask = np.asarray(info["action_mask"])
            if mask.shape != (self.num_actions,):
                raise ValueError(
                    f'{self.name}: info["action_mask"] has the shape {mask.shape}, '
                    f"there are {self.num_actions} actions"
                )
            kept["action_mask"] = mask = mask.astype(np.bool_)
            if not ended and not mask.any():
                raise ValueError(
                    f'{self.name}: info["action_mask"] allows no action though the episode goes on'
                )
        player = info.get("to_play")
        if player is not None:
            if int(player) not in range(1 + self._two_players):
                hint = "must be 0 or 1" if self._two_players else "needs env.num_players=2"
                raise ValueError(f'{self.name}: info["to_play"]={player} {hint}')
            kept["to_play"] = int(player)
        elif self._two_players and not ended:
            raise ValueError(
                f'{self.name}: env.num_players=2 needs info["to_play"] (0 or 1) at every reset and step'
            )
        return kept

    def _reward(self, reward: Any) -> float:
        if type(reward) is float:
            return reward
        array = np.asarray(reward)
        if array.size != 1 or array.dtype.kind not in "fiub":
            raise ValueError(f"{self.name}: a reward is {reward!r}, it must be one number")
        return float(array.item())


def not_deterministic(name: str, what: str) -> str:
    """The message for an environment that did not repeat itself."""
    return (
        f"{name}: {what}, so the environment does not repeat itself when reset with the same seed and given the same "
        "actions; it must draw its randomness from self.np_random alone (see gymnasium.Env.reset)"
    )


def _discrete(name: str, space: gymnasium.Space[Any]) -> tuple[int, int]:
    """Number of actions and the first one."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.n), int(space.start)
    reason = (
        "continuous actions are not supported"
        if isinstance(space, gymnasium.spaces.Box)
        else ("number the combinations of its actions by one Discrete space")
    )
    raise ValueError(f"env.id={name} has the action space {space}; it must be Discrete: {reason}")


def _box(name: str, space: gymnasium.Space[Any]) -> gymnasium.spaces.Box:
    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError(
            f"env.id={name} has the observation space {space}; it must be a Box: register it wrapped in "
            "gymnasium.wrappers.FlattenObservation"
        )
    if len(space.shape) > 3:
        raise ValueError(
            f"env.id={name} has observations of the shape {space.shape}; they must be flat or [channels, height, width]"
        )
    return space
