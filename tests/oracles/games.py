"""Games written down by hand or drawn at random, and their targets by the papers' formulas, one position at a time."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from muzero.envs.base import EnvSpec
from muzero.replay.episode import Segment


@dataclass
class Game:
    """`T` moves. `players`, `values` and `frames` have an entry `T` besides, of the state behind the last move."""

    players: list[int]
    rewards: list[float]
    values: list[float]
    truncated: bool = False
    name: int = 0
    fast: frozenset[int] = frozenset()
    """Moves whose search makes no policy target."""

    @property
    def length(self) -> int:
        return len(self.rewards)

    def sign(self, t: int, s: int) -> int:
        return 1 if self.players[t] == self.players[s] else -1

    def frame(self, t: int) -> np.ndarray:
        return np.array([self.name, t], np.float32)

    def policy(self, t: int) -> np.ndarray:
        if t in self.fast or t == self.length:
            return np.zeros(3, np.float32)
        return np.array([t % 3, 1 + self.name % 5, 2], np.float32)

    def action(self, t: int) -> int:
        return (t + self.name) % 3


def n_step(game: Game, t: int, gamma: float, n: int) -> float:
    """sum_{i<n} s(t,t+i) gamma^i u_{t+i} + s(t,t+n) gamma^n v_{t+n}, stopped at the end; nothing behind a terminal."""
    z = 0.0
    for i in range(n):
        if t + i == game.length:
            break
        z += game.sign(t, t + i) * gamma**i * game.rewards[t + i]
    last = min(t + n, game.length)
    if last < game.length or game.truncated:
        z += game.sign(t, last) * gamma ** (last - t) * game.values[last]
    return z


def lambda_mix(game: Game, t: int, gamma: float, n: int, lam: float) -> float:
    """(1 - lambda) sum_{m=1}^{n-1} lambda^(m-1) z[m] + lambda^(n-1) z[n]."""
    mix = sum((1 - lam) * lam ** (m - 1) * n_step(game, t, gamma, m) for m in range(1, n))
    return mix + lam ** (n - 1) * n_step(game, t, gamma, n)


def segment_of(game: Game, *, first: int = 0, version: int = 0) -> Segment:
    """The whole game; positions before `first` are context."""
    moves, length = game.length, game.length + game.truncated
    turn = [1 if game.players[t] == game.players[t + 1] else -1 for t in range(moves)]
    if not game.truncated:
        turn[-1] = 0
    return Segment(
        frame=np.stack([game.frame(t) for t in range(length)]),
        action=np.array([game.action(t) for t in range(length)], np.int32),
        reward=np.array([*game.rewards, 99.0][:length], np.float32),
        turn=np.array([*turn, 1][:length], np.int8),
        to_play=np.array(game.players[:length], np.int8),
        legal=np.array([[(t + a) % 4 != 0 for a in range(3)] for t in range(length)], bool),
        policy=np.stack([game.policy(t) for t in range(length)]),
        has_policy=np.array([t < moves and t not in game.fast for t in range(length)]),
        root_value=np.array(game.values[:length], np.float32),
        has_action=np.array([True] * moves + [False] * game.truncated),
        version=np.full(length, version, np.int32),
        first=first,
        count=moves - first,
        starts_episode=True,
    )


def spec_of(num_stacked_frames: int = 1) -> EnvSpec:
    """What these games look like to a replay buffer."""
    return EnvSpec(
        name="games",
        frame_shape=(2,),
        frame_dtype=np.dtype(np.float32),
        num_stacked_frames=num_stacked_frames,
        num_actions=3,
        num_players=2,
        turn_order="repeated",
    )


def stacked_frames(game: Game, t: int, num_frames: int) -> np.ndarray:
    """Observation at `t`: the first frame is repeated before the start."""
    return np.concatenate([game.frame(max(0, s)) for s in range(t - num_frames + 1, t + 1)])


@st.composite
def games(draw: st.DrawFn, max_length: int = 12, name: int = 0) -> Game:
    """Random turns, rewards, values and kind of end."""
    length = draw(st.integers(1, max_length))
    number = st.integers(-8, 8).map(lambda x: x / 4)
    return Game(
        players=draw(st.lists(st.integers(0, 1), min_size=length + 1, max_size=length + 1)),
        rewards=draw(st.lists(number, min_size=length, max_size=length)),
        values=draw(st.lists(number, min_size=length + 1, max_size=length + 1)),
        truncated=draw(st.booleans()),
        name=name,
        fast=frozenset(draw(st.lists(st.integers(0, length - 1), max_size=3))),
    )
