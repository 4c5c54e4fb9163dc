"""Evaluation through `BatchedEnv`: episodes of one player, and games against random moves.

Every row has its quota of episodes, so short ones do not count more; a row that has met it is no longer searched.
Letters: `B` rows.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.envs.base import BatchedEnv
from muzero.envs.stacking import FrameStack
from muzero.envs.states import states_of
from muzero.evaluation.agent import BatchedAgent
from muzero.evaluation.statistics import (
    bootstrap_interval,
    first_of_each,
    interquartile_mean,
    tally,
)

_OPPONENT_STREAM, _BOOTSTRAP_STREAM = 5, 6


def evaluate_episodes(
    env: BatchedEnv, agent: BatchedAgent, *, episodes: int, seed: int
) -> dict[str, Any]:
    """Play `episodes` episodes of a single-agent environment and report the environment's own scores.

    Episode `k * B + i` is the `k`-th of row `i` and the scores come in that order. With `B = episodes` each is the first of its
    row, so it hangs on the seed and its own number alone.
    """
    if env.spec.num_players != 1:
        raise ValueError(
            f"{env.spec.name} has {env.spec.num_players} players, episodes of one player are asked for"
        )
    played = _play(env, agent, _Quota(env.batch_size, episodes), seed)
    scores = np.array([played[number].scores[0] for number in range(episodes)])
    lengths = np.array([len(played[number].actions) for number in range(episodes)])
    interval = bootstrap_interval(scores, np.random.default_rng([seed, _BOOTSTRAP_STREAM]))
    return {
        "episodes": episodes,
        "mean": float(scores.mean()),
        "std": float(scores.std()),
        "min": float(scores.min()),
        "max": float(scores.max()),
        "iqm": interquartile_mean(scores),
        "iqm_interval": list(interval),
        "length_mean": float(lengths.mean()),
        "truncated": sum(played[number].truncated for number in range(episodes)),
        "scores": scores.tolist(),
    }


def evaluate_versus_random(
    env: BatchedEnv, agent: BatchedAgent, *, games: int, seed: int
) -> dict[str, Any]:
    """Play `games` games of a two-player environment against random moves; the agent's seat alternates from game to game.

    A game that was cut counts by the scores so far, and in `cut_games`. Of games that are equal move for move, seats
    included, one counts; see `MatchResult.summary`.
    """
    if env.spec.num_players != 2:
        raise ValueError(
            f"{env.spec.name} has {env.spec.num_players} player, a game of two is asked for"
        )
    played = _play(env, agent, _Quota(env.batch_size, games), seed)
    every = [(number % 2, played[number]) for number in range(games)]
    results = first_of_each(every, [(seat, tuple(episode.actions)) for seat, episode in every])
    outcomes = [
        (seat, episode.scores[seat] - episode.scores[1 - seat]) for seat, episode in results
    ]
    return {
        "opponent": "random",
        **tally([score for _, score in outcomes]),
        "as_first": tally([score for seat, score in outcomes if seat == 0]),
        "as_second": tally([score for seat, score in outcomes if seat == 1]),
        "games_played": games,
        "duplicate_games": games - len(results),
        "cut_games": sum(episode.truncated for _, episode in results),
    }


class _Quota:
    """Which episode each row is at, and which rows still have one to play."""

    def __init__(self, batch_size: int, episodes: int) -> None:
        if episodes < 1:
            raise ValueError(f"evaluation.games={episodes} must be at least 1")
        self._batch_size = batch_size
        self._quota = episodes // batch_size + (np.arange(batch_size) < episodes % batch_size)
        self._done = np.zeros(batch_size, np.int64)

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """`[B]` rows below their quota."""
        return self._done < self._quota

    def number(self, row: int) -> int:
        """Number of the episode that `row` plays now."""
        return int(self._done[row]) * self._batch_size + row

    def finish(self, row: int) -> None:
        """Count the episode of `row`."""
        self._done[row] += 1


class _Episode:
    """Actions of an episode, and for each seat the sum of the scores of its own moves."""

    __slots__ = ("actions", "scores", "truncated")

    def __init__(self) -> None:
        self.actions: list[int] = []
        self.scores = [0.0, 0.0]
        self.truncated = False

    def add(self, action: int, mover: int, score: float) -> None:
        self.actions.append(action)
        self.scores[mover] += score


def _play(env: BatchedEnv, agent: BatchedAgent, quota: _Quota, seed: int) -> dict[int, _Episode]:
    """Episodes by number. In games of two the agent has seat `number % 2` and the other seat moves at random."""
    episodes: dict[int, _Episode] = {}
    stack = FrameStack(env.spec, env.batch_size)
    step = env.reset(seed)
    stack.reset_rows(np.ones(env.batch_size, np.bool_), step.frame)
    while quota.active.any():
        active = np.flatnonzero(quota.active)
        # Rows that are done go on with any legal move: an environment has no other way of standing still.
        actions = step.legal.argmax(axis=1).astype(np.int32)
        searched = []
        for row in active.tolist():
            number = quota.number(row)
            episode = episodes.setdefault(number, _Episode())
            if env.spec.num_players == 1 or step.to_play[row] == number % 2:
                searched.append(row)
            else:
                rng = np.random.default_rng([seed, number, len(episode.actions), _OPPONENT_STREAM])
                actions[row] = rng.choice(np.flatnonzero(step.legal[row]))
        if searched:
            actions[searched] = agent.act(
                stack.observation[searched], step.legal[searched], states_of(env, searched)
            )
        movers = step.to_play
        step = env.step(actions)
        ended = step.terminated | step.truncated
        for row in active.tolist():
            episode = episodes[quota.number(row)]
            episode.add(int(actions[row]), int(movers[row]), float(step.score[row]))
            if ended[row]:
                episode.truncated = bool(step.truncated[row])
                quota.finish(row)
        stack.push(step.frame)
        stack.reset_rows(ended, step.frame)
    return episodes
