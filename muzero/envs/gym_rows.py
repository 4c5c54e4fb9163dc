"""`B` Gymnasium environments stepped together, in this process or in one each.

Letters: `B` rows, `A` actions, `*F` shape of one frame.
"""

import functools
import multiprocessing
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from muzero.config.environments import GymConfig
from muzero.envs.base import BoolArray, IntArray
from muzero.envs.gym_row import make_row


class Positions(NamedTuple):
    """Where the rows stand. After a reset of some rows only these are meaningful."""

    frame: npt.NDArray[Any]
    """`[B, *F]`."""
    legal: BoolArray
    """`[B, A]`; all True where the environment gives no mask."""
    to_play: IntArray
    """`[B]`."""


class Moves(NamedTuple):
    """What the moves just made brought."""

    reward: npt.NDArray[np.float64]
    """`[B]`."""
    terminated: BoolArray
    """`[B]`."""
    truncated: BoolArray
    """`[B]`."""


class Rows(Protocol):
    """`B` environments that do not reset themselves."""

    def reset(
        self, seeds: dict[int, int], replays: dict[int, list[int]] | None = None
    ) -> Positions:
        """Starts episodes in the rows of `seeds`, and plays the actions of `replays` in them."""
        ...

    def step(self, actions: npt.NDArray[np.integer]) -> tuple[Positions, Moves]:
        """Plays `actions[B]`."""
        ...

    def close(self) -> None:
        """Closes the environments."""
        ...


class LoopRows:
    """All rows in this process.

    A plain loop: gymnasium's SyncVectorEnv spends 4 us per row and step on copies and info dictionaries, as much as a
    cheap environment takes for its step.
    """

    def __init__(self, config: GymConfig, batch_size: int):
        """Raises ValueError if the environments cannot be made."""
        self._rows = [make_row(config, row) for row in range(batch_size)]

    def reset(
        self, seeds: dict[int, int], replays: dict[int, list[int]] | None = None
    ) -> Positions:
        """Starts episodes in the rows of `seeds`, and plays the actions of `replays` in them."""
        positions = self._positions()
        for row, seed in seeds.items():
            frame, info = self._rows[row].reset(seed=seed, options={"replay": replays or {}})
            _write(positions, row, frame, info)
        return positions

    def step(self, actions: npt.NDArray[np.integer]) -> tuple[Positions, Moves]:
        """Plays `actions[B]`."""
        positions, num_rows = self._positions(), len(self._rows)
        moves = Moves(
            np.empty(num_rows), np.empty(num_rows, np.bool_), np.empty(num_rows, np.bool_)
        )
        for row, (env, action) in enumerate(zip(self._rows, actions.tolist(), strict=True)):
            frame, reward, terminated, truncated, info = env.step(action)
            moves.reward[row], moves.terminated[row], moves.truncated[row] = (
                reward,
                terminated,
                truncated,
            )
            _write(positions, row, frame, info)
        return positions, moves

    def close(self) -> None:
        """Closes the environments."""
        for row in self._rows:
            row.close()

    def _positions(self) -> Positions:
        num_rows, env = len(self._rows), self._rows[0]
        return Positions(
            np.zeros((num_rows, *env.frame_shape), env.frame_dtype),
            np.ones((num_rows, env.num_actions), np.bool_),
            np.zeros(num_rows, np.int32),
        )


class AsyncRows:
    """Each row in a process of its own."""

    def __init__(self, config: GymConfig, batch_size: int):
        """Raises ValueError if the environments cannot be made."""
        # Not fork: this process has threads (torch, numba), whose locks a forked child would inherit held.
        methods = multiprocessing.get_all_start_methods()
        self._envs = AsyncVectorEnv(
            [functools.partial(make_row, config, row) for row in range(batch_size)],
            context="forkserver" if "forkserver" in methods else "spawn",
            autoreset_mode=AutoresetMode.DISABLED,
        )
        space = self._envs.single_action_space
        assert isinstance(space, Discrete)  # as `Row` sees to
        self._num_actions = int(space.n)

    def reset(
        self, seeds: dict[int, int], replays: dict[int, list[int]] | None = None
    ) -> Positions:
        """Starts episodes in the rows of `seeds`, and plays the actions of `replays` in them."""
        num_rows = self._envs.num_envs
        mask = np.zeros(num_rows, np.bool_)
        mask[list(seeds)] = True
        frame, infos = self._envs.reset(
            seed=[seeds.get(row) for row in range(num_rows)],
            options={"reset_mask": mask, "replay": replays or {}},
        )
        return self._positions(frame, infos)

    def step(self, actions: npt.NDArray[np.integer]) -> tuple[Positions, Moves]:
        """Plays `actions[B]`."""
        frame, reward, terminated, truncated, infos = self._envs.step(actions)
        return self._positions(frame, infos), Moves(reward, terminated, truncated)

    def close(self) -> None:
        """Closes the environments and ends their processes."""
        self._envs.close()

    def _positions(self, frame: npt.NDArray[Any], infos: dict[str, Any]) -> Positions:
        num_rows = self._envs.num_envs
        legal = np.ones((num_rows, self._num_actions), np.bool_)
        if "action_mask" in infos:
            legal[infos["_action_mask"]] = infos["action_mask"][infos["_action_mask"]]
        to_play = infos.get("to_play", np.zeros(num_rows)).astype(np.int32)
        return Positions(frame, legal, to_play)


def _write(positions: Positions, row: int, frame: npt.NDArray[Any], info: dict[str, Any]) -> None:
    positions.frame[row] = frame
    if "action_mask" in info:
        positions.legal[row] = info["action_mask"]
    if "to_play" in info:
        positions.to_play[row] = info["to_play"]
