"""How the games of self-play begin: on the initial position, with random moves, or as forks of recent games.

Letters: `B` games, `n` of them in their opening, `A` actions, `K` moves that a fork may share, at most.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.config.schema import SelfPlayConfig

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
NUM_SOURCES = 1024
"""Newest games that forks are taken from."""
_PREFIX = "fork_"  # of the arrays in a checkpoint
_NOTHING = np.zeros(())


class Openings:
    """Chooses the opening moves of `B` games: those that are played without a search and not trained on.

    Random openings: with probability `opening_fraction` a game begins with 1 to `max_opening_moves` random moves.

    Forks (KataGo's game forking, Wu, 2019; one move off the path as in Go-Exploit, Trudeau and Bowling, 2023): with
    probability `fork_fraction` a game repeats a recent one up to one of its first `K` moves, plays another move there, at
    random, and is searched from then on. Sources are games that began on the initial position, forks of such games included,
    so that the moves that self-play has stopped playing are judged where it does play. A forced move is repeated. Where
    the environment draws chance events, a repeated move may be illegal: the opening ends there with a random one.

    The random numbers are drawn from the caller's generator, none for what is turned off.
    """

    def __init__(self, num_games: int, config: SelfPlayConfig) -> None:
        self._opening_fraction = config.opening_fraction if config.max_opening_moves > 0 else 0.0
        self._most_random = config.max_opening_moves
        self._fork_fraction = config.fork_fraction if config.max_fork_moves > 0 else 0.0
        self._left = np.zeros(num_games, np.int64)
        most = config.max_fork_moves if self._fork_fraction > 0 else 0
        self._forks: dict[str, npt.NDArray[Any]] = {
            "played": np.zeros((num_games, most), np.int32),  # first moves of the running games
            "script": np.zeros((num_games, most), np.int32),  # of the games that they fork
            "is_fork": np.zeros(num_games, np.bool_),
            "is_random": np.zeros(num_games, np.bool_),  # began with random moves
            "sources": np.zeros((NUM_SOURCES, most), np.int32),
            "lengths": np.zeros(NUM_SOURCES, np.int64),  # 0: no game there yet
            "count": np.zeros(1, np.int64),  # games that came into `sources` so far
        }

    @staticmethod
    def most_moves(config: SelfPlayConfig) -> int:
        """The longest opening that a config allows."""
        forked = config.max_fork_moves if config.fork_fraction > 0 else 0
        return max(config.max_opening_moves, forked)

    @property
    def running(self) -> BoolArray:
        """`[B]` games whose next move is one of their opening."""
        return self._left > 0

    def draw(self, fresh: BoolArray, rng: np.random.Generator) -> None:
        """Decide how the games of `fresh` `[B]`, which stand at their initial position, begin."""
        count, forks = int(fresh.sum()), self._forks
        self._left[fresh] = 0
        if self._most_random > 0 or self._fork_fraction > 0:
            coin = rng.random(count)
        if self._most_random > 0:
            opened = coin < self._opening_fraction
            self._left[fresh] = opened * rng.integers(1, self._most_random + 1, count)
        if self._fork_fraction == 0:
            return
        forks["is_random"][fresh] = self._left[fresh] > 0
        forks["is_fork"][fresh] = False
        num_sources = min(int(forks["count"][0]), NUM_SOURCES)
        border = self._opening_fraction + self._fork_fraction
        forked = np.flatnonzero(fresh)[(coin >= self._opening_fraction) & (coin < border)]
        if num_sources == 0 or len(forked) == 0:
            return
        source = rng.integers(num_sources, size=len(forked))
        forks["is_fork"][forked] = True
        forks["script"][forked] = forks["sources"][source]
        self._left[forked] = rng.integers(forks["lengths"][source]) + 1

    def actions(
        self, legal: BoolArray, moves: IntArray, rng: np.random.Generator
    ) -> npt.NDArray[np.intp]:
        """Moves of the games in their opening.

        Args:
            legal: `[n, A]` legal actions of the games that are `running`, in their order.
            moves: `[B]` moves made so far in every game.

        Returns:
            `[n]` legal actions.
        """
        allowed = legal
        if self._fork_fraction > 0:
            allowed = self._steer(legal, moves)
        return np.argmax(rng.random(legal.shape) * allowed, axis=1)

    def advance(self, action: npt.NDArray[np.integer], moves: IntArray, ended: BoolArray) -> None:
        """Note the move of every game, `action` `[B]` after `moves` `[B]` others, and which games `ended` `[B]` with it."""
        if self._fork_fraction > 0:
            played = self._forks["played"]
            noted = np.flatnonzero(moves < played.shape[1])
            played[noted, moves[noted]] = action[noted]
            over = np.flatnonzero(ended & ~self._forks["is_random"])
            self._keep_sources(over[-NUM_SOURCES:], moves + 1)
        self._left = np.maximum(self._left - 1, 0)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays that `restore` continues from."""
        arrays = {"opening_left": self._left.copy()}
        if self._fork_fraction > 0:
            arrays |= {_PREFIX + name: array.copy() for name, array in self._forks.items()}
        return arrays

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Continue from `state`.

        Where that was made without forks or with another `max_fork_moves`, the games that are running are neither forked nor
        forks any more, and sources are collected afresh.
        """
        self._left[:] = arrays["opening_left"]
        saved = {name: arrays.get(_PREFIX + name, _NOTHING) for name in self._forks}
        fits = all(saved[name].shape == array.shape for name, array in self._forks.items())
        for name, array in self._forks.items():
            array[:] = saved[name] if fits else 0
        if not fits:
            self._forks["is_random"][:] = True

    def _steer(self, legal: BoolArray, moves: IntArray) -> BoolArray:
        """`[n, A]` what the openings allow of `legal`: forks repeat their source, and at the end leave it."""
        forks, running = self._forks, np.flatnonzero(self.running)
        allowed = legal.copy()
        at = np.flatnonzero(forks["is_fork"][running])
        rows = running[at]
        repeated = forks["script"][rows, moves[rows]]
        possible = legal[at, repeated]
        repeats = possible & ((self._left[rows] > 1) | (legal[at].sum(axis=1) == 1))
        leaves = possible & ~repeats
        allowed[at[leaves], repeated[leaves]] = False
        allowed[at[repeats]] = False
        allowed[at[repeats], repeated[repeats]] = True
        self._left[rows[~possible]] = 1
        return allowed

    def _keep_sources(self, rows: npt.NDArray[np.intp], lengths: IntArray) -> None:
        """The games of `rows`, over after `lengths` `[B]` moves, may be forked from now on, in place of the oldest ones."""
        forks = self._forks
        slots = (int(forks["count"][0]) + np.arange(len(rows))) % NUM_SOURCES
        forks["sources"][slots] = forks["played"][rows]
        forks["lengths"][slots] = np.minimum(lengths[rows], forks["played"].shape[1])
        forks["count"][0] += len(rows)
