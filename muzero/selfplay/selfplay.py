"""Self-play: `B` games in lock step, each move searched with the current weights, segments out.

Letters: `B` games, `A` actions.
"""

from bisect import bisect_right
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from mcts import Search, SearchSettings
from mcts.pipeline import SearchPair
from muzero.config.schema import SelfPlayConfig
from muzero.envs.base import BatchedEnv, TimeStep
from muzero.envs.stacking import FrameStack
from muzero.envs.states import State, states_of
from muzero.inference.pair import ModelPair
from muzero.inference.rules import RulesModel, SearchModel
from muzero.replay.episode import Segment
from muzero.replay.recorder import Recorder
from muzero.selfplay.openings import Openings
from muzero.selfplay.searching import MoveSearcher
from muzero.selfplay.tally import Tally, Totals


class SelfPlay:
    """Plays `B` games in lock step and records them.

    Opening moves (see `Openings`) are played without a search; their rows are left out of the search batch (see
    `MoveSearcher`), so they cost nothing.

    Example:
        >>> segments = selfplay.play(learner_step=0)   # one move in every game

    Args:
        search: Has room for `B` rows; its settings carry noise and number of simulations.
        root_value: `mean` or `best`, see `SearchConfig.root_value`.
        head, tail: Context of a segment, see `Recorder`.
    """

    def __init__(
        self,
        env: BatchedEnv,
        model: SearchModel | ModelPair,
        search: Search | SearchPair,
        settings: SearchSettings,
        config: SelfPlayConfig,
        *,
        head: int,
        tail: int,
        root_value: str,
        seed: np.random.SeedSequence,
    ) -> None:
        self.env, self.model, self.search = env, model, search
        self._settings, self._config = settings, config
        self._searcher = MoveSearcher(model, search, settings, config, root_value=root_value)
        env_seed, own_seed = seed.spawn(2)
        self._rng = np.random.default_rng(own_seed)
        spec = env.spec
        self._recorder = Recorder(
            batch_size=env.batch_size,
            frame_shape=spec.frame_shape,
            frame_dtype=spec.frame_dtype,
            num_actions=spec.num_actions,
            segment_length=config.segment_length,
            head=head,
            tail=tail,
            max_skipped=Openings.most_moves(config),
        )
        self._stack = FrameStack(spec, env.batch_size)
        self._time_step = env.reset(int(env_seed.generate_state(1)[0]))
        everyone = np.ones(env.batch_size, np.bool_)
        self._stack.reset_rows(everyone, self._time_step.frame)
        self._openings = Openings(env.batch_size, config)
        self._moves = np.zeros(env.batch_size, np.int64)  # of the running episodes
        self._scores = np.zeros(env.batch_size, np.float64)  # of player 0
        self.totals = Totals()
        self._tally = Tally()
        self._openings.draw(everyone, self._rng)

    @property
    def observation(self) -> npt.NDArray[Any]:
        """`[B, *O]` observations of the positions to be played now."""
        return self._stack.observation

    @property
    def legal(self) -> npt.NDArray[np.bool_]:
        """`[B, A]` legal actions of the positions to be played now."""
        return self._time_step.legal

    def play(self, learner_step: int) -> list[Segment]:
        """Make one move in every game; returns the segments that are complete."""
        step, observation = self._time_step, self._stack.observation
        is_opening = self._openings.running
        rows = np.flatnonzero(~is_opening)
        action = np.zeros(len(is_opening), np.int32)
        policy = np.zeros(step.legal.shape, np.float32)
        has_policy = np.zeros(len(is_opening), np.bool_)
        root_value = np.zeros(len(is_opening), np.float32)
        if is_opening.any():
            action[is_opening] = self._openings.actions(
                step.legal[is_opening], self._moves, self._rng
            )
        if len(rows) > 0:
            temperature = self._temperature(learner_step, rows)
            decision = self._searcher.decide(
                rows,
                observation,
                step.legal,
                self._states,
                temperature,
                self._rng,
                simulations_at(self._config, learner_step, self._settings.num_simulations),
            )
            action[rows], policy[rows] = decision.action, decision.policy
            has_policy[rows], root_value[rows] = decision.has_policy, decision.root_value
            self._tally.note_searches(decision)
            self._tally.note_calls(*self._searcher.network_calls)
            self.totals.simulations += self._searcher.num_simulations_made
        self._recorder.record(
            frame=step.frame,
            legal=step.legal,
            to_play=step.to_play,
            action=action,
            policy=policy,
            has_policy=has_policy,
            root_value=root_value,
            version=self.model.version,
            sampled=~is_opening,
        )
        self.totals.env_steps += len(rows)
        self.totals.opening_steps += len(is_opening) - len(rows)
        after = self.env.step(action)
        if len(rows) > 0:
            ended = after.terminated | after.truncated
            self._searcher.follow(action, goes_on=~is_opening & ~ended)
        return self._advance(step, action, after, observation)

    def _states(self, rows: npt.NDArray[np.integer]) -> list[State] | None:
        """States of `rows`, where the model plays the rules."""
        return states_of(self.env, rows.tolist()) if isinstance(self.model, RulesModel) else None

    def report(self) -> dict[str, float]:
        """Means since the last report, under the names of the metrics reference."""
        return {
            "selfplay/games": self.totals.games,
            "selfplay/env_steps": self.totals.env_steps,
            "selfplay/opening_steps": self.totals.opening_steps,
        } | self._tally.report(self.env.spec.num_players)

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON that `restore` continues from, bit for bit."""
        trees, tree_kind = self._searcher.state()
        arrays = self._recorder.state() | trees
        arrays |= {
            "observation": self._stack.state(),
            "moves": self._moves.copy(),
            "scores": self._scores.copy(),
        }
        arrays |= self._openings.state()
        meta = {
            "env": self.env.state(),
            "rng": self._rng.bit_generator.state,
            "totals": asdict(self.totals),
            "sums": self._tally.state(),
            "trees": tree_kind,
        }
        return arrays, meta

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._time_step = self.env.restore(meta["env"])
        self._recorder.restore(arrays)
        self._stack.restore(arrays["observation"])
        self._openings.restore(arrays)
        self._moves[:] = arrays["moves"]
        self._scores[:] = arrays["scores"]
        self._rng.bit_generator.state = meta["rng"]
        self.totals = Totals(**meta["totals"])
        self._tally.restore(meta["sums"])
        self._searcher.restore(arrays, meta.get("trees"), self._stack.observation, self._states)

    def _advance(
        self,
        before: TimeStep,
        action: npt.NDArray[np.int32],
        after: TimeStep,
        observation: npt.NDArray[Any],
    ) -> list[Segment]:
        """Record what the moves brought, and move on to the next positions."""
        ended = after.terminated | after.truncated
        next_to_play, final_value = after.to_play, None
        if after.truncated.any():
            final_value, next_to_play = self._value_behind_cut(after, observation)
        segments = self._recorder.outcome(
            reward=after.reward,
            next_to_play=next_to_play,
            terminated=after.terminated,
            truncated=after.truncated,
            final_frame=after.final_frame,
            final_value=final_value,
        )
        self._openings.advance(action, self._moves, ended)
        self._moves += 1
        self._scores += np.where(before.to_play == 0, after.score, -after.score)
        self._stack.push(after.frame)
        if ended.any():
            self._note_episodes(ended)
            self._stack.reset_rows(ended, after.frame)
            self._moves[ended] = 0
            self._scores[ended] = 0.0
            self._openings.draw(ended, self._rng)
        self._time_step = after
        return segments

    def _value_behind_cut(
        self, after: TimeStep, observation: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """`[B]` network value of the states that were cut off, and who moves there."""
        if after.final_frame is None or after.final_to_play is None:
            raise AssertionError(f"{self.env.spec.name}: truncated rows without their final frame")
        cut = np.flatnonzero(after.truncated)
        channels = self.env.spec.frame_shape[0]
        behind = np.concatenate([observation[cut][:, channels:], after.final_frame[cut]], axis=1)
        value = np.zeros(len(after.truncated), np.float32)
        value[cut] = self.model.values(behind)
        return value, np.where(after.truncated, after.final_to_play, after.to_play)

    def _temperature(
        self, learner_step: int, rows: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.float64]:
        config = self._config
        if self._settings.kind == "gumbel":
            # Gumbel's own choice is already a sample of the improved policy (Danihelka et al., section 3).
            return np.zeros(len(rows))
        stage = bisect_right(config.temperature_steps, learner_step)
        temperature = np.full(len(rows), config.temperatures[stage])
        if config.temperature_drop_move is not None:
            temperature[self._moves[rows] >= config.temperature_drop_move] = 0.0
        return temperature

    def _note_episodes(self, ended: npt.NDArray[np.bool_]) -> None:
        self.totals.games += int(ended.sum())
        self._tally.note_games(self._moves[ended], self._scores[ended])


def simulations_at(config: SelfPlayConfig, learner_step: int, num_simulations: int) -> int:
    """Simulations of a full search of self-play at a learner step.

    Args:
        num_simulations: What holds behind the last stage of `selfplay.progressive_simulations`.
    """
    stages = (*config.progressive_simulations, num_simulations)
    return stages[bisect_right(config.progressive_steps, learner_step)]
