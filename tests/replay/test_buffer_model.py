"""The buffer against a plain-Python model, through random lives: adding, sampling, priorities, refreshing, saving."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muzero.config.schema import ReplayConfig, TargetsConfig
from muzero.replay import Batch, ReplayBuffer, RootPositions
from muzero.replay.priorities import EPSILON
from tests.oracles.games import Game, games, lambda_mix, segment_of, spec_of, stacked_frames
from tests.oracles.replay_model import ReplayModel

STACK = 3
K = 4
GAMMA = 0.75
LAMBDA = 0.5


class BufferLife(RuleBasedStateMachine):
    @initialize(
        capacity=st.integers(9, 40),
        prioritized=st.booleans(),
        initial=st.sampled_from(["error", "max"]),
        exponent=st.sampled_from([0.0, 0.5, 1.0]),
        n=st.integers(1, 6),
    )
    def begin(
        self, capacity: int, prioritized: bool, initial: str, exponent: float, n: int
    ) -> None:
        self.config = ReplayConfig(
            capacity=capacity,
            min_size=1,
            prioritized=prioritized,
            priority_exponent=exponent,
            importance_exponent=0.5,
            initial_priority=initial,
        )
        self.targets = TargetsConfig(discount=GAMMA, td_steps=n, td_lambda=LAMBDA)
        self.buffer = self.new_buffer()
        self.model = ReplayModel(capacity)
        self.highest = 1.0
        self.batches: list[Batch] = []
        self.roots: list[tuple[np.ndarray, RootPositions]] = []

    def new_buffer(self) -> ReplayBuffer:
        return ReplayBuffer(
            spec_of(STACK),
            self.config,
            self.targets,
            num_unroll_steps=K,
            with_next_observation=True,
            batch_size=5,
            insert_quantum=10,
            generator=np.random.default_rng(0),
        )

    def weight(self, error: float) -> float:
        if not self.config.prioritized:
            return 1.0
        self.highest = max(self.highest, error)
        return (error + EPSILON) ** self.config.priority_exponent

    @rule(game=games(max_length=8), version=st.integers(0, 5))
    def add(self, game: Game, version: int) -> None:
        game.name = self.model.num_added
        z = [lambda_mix(game, t, GAMMA, self.targets.td_steps, LAMBDA) for t in range(game.length)]
        errors = [abs(v - target) for v, target in zip(game.values, z, strict=False)]
        if self.config.initial_priority == "max":
            errors = [self.highest] * game.length
        self.buffer.add(segment_of(game, version=version))
        self.model.add(game, version, [self.weight(e) for e in errors], game.values)

    @rule(batch_size=st.integers(1, 9))
    def sample(self, batch_size: int) -> None:
        if not self.model.at:
            with pytest.raises(ValueError, match="empty"):
                self.buffer.sample(batch_size)
            return
        batch = self.buffer.sample(batch_size)
        probability = self.model.probabilities()[batch.slot]
        assert (probability > 0).all()
        importance = (len(self.model.at) * probability) ** -0.5
        np.testing.assert_allclose(batch.weight, importance / importance.max(), rtol=1e-4)
        for i in range(batch_size):
            self.check_sample(batch, i)
        self.batches = [*self.batches[-3:], batch]
        self.model.counts["sampled"] += batch_size

    def check_sample(self, batch: Batch, i: int) -> None:
        position = self.model.at[batch.slot[i]]
        position.times_sampled += 1
        game, t = position.game, position.t
        assert batch.generation[i] == position.generation
        assert batch.root_value[i] == pytest.approx(position.root_value)
        assert batch.behaviour_version[i] == position.behaviour_version
        assert batch.target_version[i] == position.target_version
        assert batch.observation[i].tolist() == stacked_frames(game, t, STACK).tolist()
        last_seen = game.length - 1 + game.truncated
        for k in range(1, K + 1):
            seen = stacked_frames(game, min(t + k, last_seen), STACK)
            assert batch.next_observation[i, k - 1].tolist() == seen.tolist()
        slots = [(batch.slot[i] + k) % self.config.capacity for k in range(K + 1)]
        for k in range(min(K + 1, game.length - t)):
            stored = self.model.at[slots[k]]
            assert batch.policy[i, k].tolist() == stored.policy
            assert batch.policy_mask[i, k] == stored.has_policy
            if k < K:
                assert batch.action[i, k] == game.action(t + k)
        # values as they are stored now, refreshed ones included
        now = [*game.values]
        for slot, stored in self.model.at.items():
            if stored.generation == position.generation:
                now[stored.t] = self.model.at[slot].root_value
        refreshed = Game(game.players, game.rewards, now, game.truncated)
        for k in range(min(K + 1, game.length - t)):
            z = lambda_mix(refreshed, t + k, GAMMA, self.targets.td_steps, LAMBDA)
            assert batch.value[i, k] == pytest.approx(z, abs=1e-4)

    @rule(which=st.integers(0, 3), errors=st.lists(st.integers(0, 40), min_size=9, max_size=9))
    def update_priorities(self, which: int, errors: list[int]) -> None:
        if which >= len(self.batches):
            return
        batch = self.batches[which]
        priority = np.array(errors[: len(batch.slot)], np.float32) / 8
        dropped = 0
        for slot, generation, error in zip(batch.slot, batch.generation, priority, strict=True):
            if self.model.alive(slot, generation):
                self.model.at[slot].priority = self.weight(float(error))
            else:
                dropped += 1
        assert self.buffer.update_priorities(batch.slot, batch.generation, priority) == dropped
        self.model.counts["dropped_priorities"] += dropped

    @rule(count=st.integers(0, 8), newest=st.integers(0, 7))
    def ask_for_stale(self, count: int, newest: int) -> None:
        slots = self.buffer.stalest(count, newest)
        assert slots.tolist() == self.model.stalest(count, newest)
        roots = self.buffer.roots(slots)
        for i, slot in enumerate(slots):
            position = self.model.at[slot]
            game, t = position.game, position.t
            assert roots.observation[i].tolist() == stacked_frames(game, t, STACK).tolist()
            assert roots.legal[i].tolist() == [(t + a) % 4 != 0 for a in range(3)]
            assert roots.to_play[i] == game.players[t]
            assert roots.target_version[i] == position.target_version
            assert roots.has_policy[i] == position.has_policy
        self.roots = [*self.roots[-3:], (slots, roots)]

    @rule(which=st.integers(0, 3), version=st.integers(0, 7), value=st.integers(-8, 8))
    def write_back(self, which: int, version: int, value: int) -> None:
        if which >= len(self.roots):
            return
        slots, roots = self.roots[which]
        policy = np.full((len(slots), 3), value, np.float32)
        values = np.full(len(slots), value / 4, np.float32)
        written = 0
        for slot, generation in zip(slots, roots.generation, strict=True):
            if not self.model.alive(slot, generation):
                continue
            position = self.model.at[slot]
            position.in_flight = False
            if version > position.target_version:
                position.policy, position.root_value = [float(value)] * 3, value / 4
                position.target_version, position.has_policy = version, True
                written += 1
        result = self.buffer.write_back(slots, roots.generation, policy, values, version)
        assert result == (written, len(slots) - written)
        self.model.counts["written_back"] += written
        self.model.counts["dropped_write_backs"] += len(slots) - written

    @rule(which=st.integers(0, 3))
    def release(self, which: int) -> None:
        if which >= len(self.roots):
            return
        slots, roots = self.roots[which]
        self.buffer.release(slots, roots.generation)
        for slot, generation in zip(slots, roots.generation, strict=True):
            if self.model.alive(slot, generation):
                self.model.at[slot].in_flight = False

    @rule()
    def save_and_restore(self) -> None:
        arrays, meta = self.buffer.state()
        arrays = {name: array.copy() for name, array in arrays.items()}
        self.buffer = self.new_buffer()
        self.buffer.restore(arrays, meta)
        for position in self.model.at.values():
            position.in_flight = False

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        model, buffer = self.model, self.buffer
        assert buffer.size == len(model.at)
        assert buffer.num_segments == len(model.games)
        statistics = buffer.statistics()
        for name, count in model.counts.items():
            assert statistics[f"replay/{name}"] == count
        if model.evicted_times:
            times = np.array(model.evicted_times)
            assert statistics["replay/reuse"] == pytest.approx(times.mean())
            assert statistics["replay/never_sampled_fraction"] == pytest.approx((times == 0).mean())
        assert buffer.limiter.inserts == model.counts["inserted"]
        assert buffer.limiter.samples == model.counts["sampled"]
        fresh = 0.0
        if model.at:
            fresh = sum(
                probability
                for slot, probability in enumerate(model.probabilities())
                if slot in model.at and model.at[slot].target_version >= 6 - 3
            )
        assert buffer.fresh_fraction(6, 3) == pytest.approx(fresh, abs=1e-5)


TestBufferLife = BufferLife.TestCase
TestBufferLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
