import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.config.schema import ReplayConfig, TargetsConfig
from muzero.envs.base import EnvSpec
from muzero.replay import ReplayBuffer, Segment
from muzero.replay.refresh import oldest_targets
from tests.oracles.games import Game, n_step, segment_of, spec_of, stacked_frames


def make_buffer(
    spec: EnvSpec | None = None,
    *,
    seed: int = 0,
    targets: TargetsConfig | None = None,
    next_observation: bool = False,
    K: int = 3,
    **settings: object,
) -> ReplayBuffer:
    defaults: dict = {"capacity": 100, "min_size": 1}
    return ReplayBuffer(
        spec or spec_of(),
        ReplayConfig(**(defaults | settings)),
        targets or TargetsConfig(discount=0.9, td_steps=5),
        num_unroll_steps=K,
        with_next_observation=next_observation,
        batch_size=8,
        insert_quantum=8,
        generator=np.random.default_rng(seed),
    )


def random_game(rng: np.random.Generator, length: int, name: int = 0) -> Game:
    return Game(
        rng.integers(0, 2, length + 1).tolist(),
        rng.normal(size=length).tolist(),
        rng.normal(size=length + 1).tolist(),
        bool(rng.integers(2)),
        name,
    )


def image_segment(spec: EnvSpec, rng: np.random.Generator, length: int) -> Segment:
    shape = (length, *spec.frame_shape)
    return Segment(
        frame=rng.integers(0, 2 if spec.frame_dtype.kind == "b" else 256, shape).astype(
            spec.frame_dtype
        ),
        action=rng.integers(0, spec.num_actions, length, dtype=np.int32),
        reward=rng.normal(size=length).astype(np.float32),
        turn=np.array([1] * (length - 1) + [0], np.int8),
        to_play=np.zeros(length, np.int8),
        legal=rng.integers(0, 2, (length, spec.num_actions)).astype(bool),
        policy=rng.random((length, spec.num_actions), np.float32),
        has_policy=np.ones(length, bool),
        root_value=rng.normal(size=length).astype(np.float32),
        has_action=np.ones(length, bool),
        version=np.zeros(length, np.int32),
        first=0,
        count=length,
        starts_episode=True,
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float32])
def test_images_are_stacked_oldest_first_along_the_channels(dtype: type) -> None:
    spec = EnvSpec(
        name="images",
        frame_shape=(2, 5, 4),
        frame_dtype=np.dtype(dtype),
        num_stacked_frames=3,
        num_actions=300,
    )
    buffer, rng = make_buffer(spec, next_observation=True), np.random.default_rng(1)
    segment = image_segment(spec, rng, 9)
    buffer.add(segment)
    batch = buffer.sample(9)
    assert batch.observation.dtype == dtype and batch.observation.shape == (9, 6, 5, 4)
    assert batch.next_observation is not None and batch.next_observation.shape == (9, 3, 6, 5, 4)
    for i, slot in enumerate(batch.slot):
        frames = [segment.frame[max(0, slot - back)] for back in (2, 1, 0)]
        assert np.array_equal(batch.observation[i], np.concatenate(frames))
        real = batch.policy_mask[i, :3] > 0
        assert batch.action[i][real].tolist() == segment.action[slot : slot + real.sum()].tolist()
    roots = buffer.roots(batch.slot)
    assert np.array_equal(roots.legal, segment.legal[batch.slot])  # 300 actions: not a whole byte
    assert np.array_equal(roots.observation, batch.observation)


def test_shapes_and_dtypes_are_the_contract() -> None:
    targets = TargetsConfig(bootstrap="target_network")
    buffer = make_buffer(spec_of(2), targets=targets, next_observation=True)
    buffer.add(segment_of(random_game(np.random.default_rng(0), 7)))
    batch = buffer.sample(5)
    expected = {
        "observation": ((5, 4), np.float32),
        "next_observation": ((5, 3, 4), np.float32),
        "action": ((5, 3), np.int64),
        "reward": ((5, 3), np.float32),
        "reward_mask": ((5, 3), np.float32),
        "value": ((5, 4), np.float32),
        "value_mask": ((5, 4), np.float32),
        "policy": ((5, 4, 3), np.float32),
        "policy_mask": ((5, 4), np.float32),
        "turn": ((5, 3), np.float32),
        "turn_mask": ((5, 3), np.float32),
        "observation_mask": ((5, 3), np.float32),
        "bootstrap_observation": ((5, 4, 4), np.float32),
        "bootstrap_discount": ((5, 4), np.float32),
        "weight": ((5,), np.float32),
        "slot": ((5,), np.int64),
        "generation": ((5,), np.int64),
        "root_value": ((5,), np.float32),
        "behaviour_version": ((5,), np.int32),
        "target_version": ((5,), np.int32),
    }
    for name, (shape, dtype) in expected.items():
        array = getattr(batch, name)
        assert (array.shape, array.dtype) == (shape, dtype), name
    plain = make_buffer()
    plain.add(segment_of(random_game(np.random.default_rng(0), 7)))
    batch = plain.sample(5)
    assert batch.next_observation is batch.bootstrap_observation is batch.bootstrap_discount is None


def test_batches_are_not_views_of_the_ring() -> None:
    buffer = make_buffer(capacity=10)
    buffer.add(segment_of(Game([0] * 6, [1.0] * 5, [0.5] * 6)))
    batch = buffer.sample(5)
    before = [batch.observation.copy(), batch.root_value.copy(), batch.policy.copy()]
    for name in range(1, 4):
        buffer.add(segment_of(Game([0] * 6, [2.0] * 5, [0.7] * 6, name=name)))
    for old, now in zip(before, (batch.observation, batch.root_value, batch.policy), strict=True):
        assert np.array_equal(old, now)


def test_actions_behind_an_end_are_random() -> None:
    buffer = make_buffer(K=9)
    buffer.add(segment_of(Game([0, 0], [1.0], [0.0, 0.0])))
    actions = np.concatenate([buffer.sample(50).action for _ in range(20)])
    assert (actions[:, 0] == 0).all()  # the move itself
    counts = np.bincount(actions[:, 1:].ravel(), minlength=3)
    assert counts.min() > 0.3 * counts.sum()


def test_segments_are_evicted_whole_and_in_order() -> None:
    buffer = make_buffer(capacity=10)
    for name, length in enumerate((4, 4, 2)):
        buffer.add(segment_of(Game([0] * (length + 1), [0.0] * length, [0.0] * 9, name=name)))
    assert (buffer.size, buffer.num_segments) == (10, 3)
    buffer.add(segment_of(Game([0, 0], [0.0], [0.0] * 9, name=3)))
    batch = buffer.sample(buffer.size)
    assert sorted(batch.observation[:, 0].tolist()) == [1, 1, 1, 1, 2, 2, 3]
    assert len(np.unique(batch.generation)) == 3


def test_segment_may_fill_the_ring_but_not_more() -> None:
    buffer = make_buffer(capacity=10)
    buffer.add(segment_of(Game([0] * 4, [0.0] * 3, [0.0] * 9)))
    buffer.add(segment_of(Game([0] * 11, [0.0] * 10, [0.0] * 11, name=1)))
    assert buffer.size == 10 and set(buffer.sample(10).observation[:, 0]) == {1}
    with pytest.raises(ValueError, match=r"11 positions does not fit replay.capacity=10"):
        buffer.add(segment_of(Game([0] * 12, [0.0] * 11, [0.0] * 12)))
    assert buffer.size == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_size": 101}, "min_size is 101, more than replay.capacity=100"),
        ({"initial_priority": "mean"}, "initial_priority is 'mean'"),
        ({"error_buffer": 1.0}, "replay.error_buffer is 1.0"),
        ({"targets": TargetsConfig(bootstrap="network")}, "bootstrap is 'network'"),
        (
            {"targets": TargetsConfig(bootstrap="target_network", td_lambda=0.9)},
            "td_lambda is 0.9.*set td_lambda=1",
        ),
    ],
)
def test_contradicting_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_buffer(**settings)


def test_a_ring_with_much_context_still_leaves_the_filling_stage() -> None:
    """Context rows may leave fewer than `min_size` positions in a full ring."""
    buffer = make_buffer(capacity=10, min_size=10)
    for name in range(4):
        buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5, True, name)))
    assert buffer.size < 10 and buffer.limiter.can_sample(8)


def test_memory_per_position() -> None:
    """Frames once, one byte per small number, one bit per legal action."""
    spec = EnvSpec(
        name="go",
        frame_shape=(4, 9, 9),
        frame_dtype=np.dtype(np.bool_),
        num_actions=82,
        num_stacked_frames=8,
    )
    buffer = make_buffer(spec, capacity=1 << 12, min_size=1)
    frame, policy, legal, tree = 4 * 81, 4 * 82, 11, 16
    small = 7  # action, turn, to_play, has_policy, has_action, starts_episode, sampleable
    floats, versions, generation, times, in_flight = 8, 8, 8, 4, 1
    per_position = sum(
        (frame, policy, legal, tree, small, floats, versions, generation, times, in_flight)
    )
    assert buffer.bytes == per_position << 12


def test_positions_searched_fast_have_value_targets_and_get_policies_by_a_refresh() -> None:
    buffer = make_buffer(capacity=10)
    game = Game([0] * 6, [1.0] * 5, [0.5] * 6, fast=frozenset({1, 2, 4}))
    buffer.add(segment_of(game))
    batch = buffer.sample(40)
    for i, slot in enumerate(batch.slot):
        steps = range(slot, min(slot + 4, 5))
        masks = [float(t not in game.fast) for t in steps] + [0.0] * (4 - len(steps))
        assert batch.policy_mask[i].tolist() == masks
        assert batch.value_mask[i].tolist() == [1.0] * 4
        real = len(steps) - (len(steps) == 4)
        assert batch.action[i, :real].tolist() == [game.action(t) for t in steps][:real]
    slots = np.array([1, 2])
    roots = buffer.roots(slots)
    assert roots.has_policy.tolist() == [False, False] and not roots.policy.any()
    policy, value = np.full((2, 3), 0.25, np.float32), np.zeros(2, np.float32)
    assert buffer.write_back(slots, roots.generation, policy, value, 0) == (0, 2)  # not newer
    assert not buffer.roots(slots).has_policy.any()
    assert buffer.write_back(slots, roots.generation, policy, value, 1) == (2, 0)
    assert buffer.roots(np.arange(5)).has_policy.tolist() == [True, True, True, True, False]
    batch = buffer.sample(40)
    assert (batch.policy_mask[:, 0] == (batch.slot != 4)).all()


def test_a_replay_saved_before_there_were_fast_searches_has_policy_targets_everywhere() -> None:
    saved = make_buffer(capacity=20)
    saved.add(segment_of(Game([0] * 6, [1.0] * 5, [0.5] * 6, True)))
    arrays, meta = saved.state()
    old = {name: array.copy() for name, array in arrays.items() if name != "has_policy"}
    buffer = make_buffer(capacity=20)
    buffer.restore(old, meta)
    restored, _ = buffer.state()
    np.testing.assert_array_equal(restored["has_policy"], arrays["has_policy"])
    assert restored["has_policy"].tolist() == [True] * 5 + [False]


def test_reuse_and_never_sampled_are_told_at_eviction() -> None:
    buffer = make_buffer(capacity=4)
    buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5)))
    drawn = np.concatenate([buffer.sample(1).slot for _ in range(3)])
    buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5)))
    statistics = buffer.statistics()
    assert statistics["replay/reuse"] == 0.75
    assert statistics["replay/never_sampled_fraction"] == 1 - len(np.unique(drawn)) / 4
    assert all(isinstance(x, float) and math.isfinite(x) for x in statistics.values())


@pytest.mark.parametrize("prioritized", [False, True])
def test_restored_buffer_continues_bit_for_bit(prioritized: bool) -> None:
    rng = np.random.default_rng(2)
    games = [random_game(rng, int(rng.integers(1, 9)), name) for name in range(60)]

    def go_on(buffer: ReplayBuffer, some: list[Game], version: int) -> list[np.ndarray]:
        seen = []
        for game in some:
            buffer.add(segment_of(game, version=version))
            batch = buffer.sample(6)
            buffer.update_priorities(batch.slot, batch.generation, np.abs(batch.value[:, 0]))
            stale = buffer.stalest(2, version)
            roots = buffer.roots(stale)
            policy = np.full((len(stale), 3), version, np.float32)
            buffer.write_back(
                stale, roots.generation, policy, roots.to_play.astype(np.float32), version
            )
            seen += [batch.slot, batch.action, batch.value, batch.weight, batch.generation, stale]
        return seen

    settings = {"capacity": 50, "prioritized": prioritized, "initial_priority": "max"}
    straight = make_buffer(seed=4, **settings)
    go_on(straight, games[:30], 1)
    arrays, meta = straight.state()
    arrays = {name: array.copy() for name, array in arrays.items()}
    expected = go_on(straight, games[30:], 2)
    resumed = make_buffer(seed=99, **settings)
    resumed.restore(arrays, meta)
    for ours, theirs in zip(go_on(resumed, games[30:], 2), expected, strict=True):
        assert np.array_equal(ours, theirs)
    assert resumed.statistics() == straight.statistics()


def test_state_holds_only_rows_that_were_used() -> None:
    buffer = make_buffer(capacity=100)
    buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5)))
    arrays, _ = buffer.state()
    assert {len(array) for name, array in arrays.items() if name != "segments"} == {4}


def test_restore_without_positions_fills_again() -> None:
    buffer = make_buffer(min_size=4)
    for name in range(3):
        buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5, name=name)))
    buffer.sample(8)
    _, meta = buffer.state()
    expected = np.random.default_rng(0)
    expected.bit_generator.state = meta["generator"]
    resumed = make_buffer(seed=1, min_size=4)
    resumed.restore(None, meta)
    assert resumed.size == 0 and resumed.statistics()["replay/inserted"] == 12
    assert not resumed.limiter.can_sample(1) and resumed.limiter.can_insert(4)
    resumed.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5)))
    assert resumed.limiter.can_sample(8)
    slots = np.floor((np.arange(4) + expected.random(4)) / 4 * 4)
    assert resumed.sample(4).slot.tolist() == slots.tolist()


def test_unfitting_state_is_refused() -> None:
    buffer = make_buffer(capacity=20)
    buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5)))
    arrays, meta = buffer.state()
    table = np.array([[0, 5, 0, 4]])
    other = make_buffer(capacity=30)
    with pytest.raises(ValueError, match=r"saved replay has 20 .* set replay.capacity=20"):
        other.restore(arrays, meta)
    other = make_buffer(capacity=20)
    for wrong, message in (
        (
            {"policy": arrays["policy"][:, :2]},
            r"column policy is float32\[4, 2\], expected float32",
        ),
        ({"frame": arrays["frame"].astype(np.uint8)}, "column frame is uint8"),
        ({"segments": table}, "inconsistent"),
        ({"weight": arrays["weight"][:2]}, "no sampling weight per position"),
        ({"weight": arrays["weight"] * np.nan}, "sampling weights are impossible"),
    ):
        with pytest.raises(ValueError, match=message):
            other.restore(arrays | wrong, meta)
    with pytest.raises(ValueError, match="column reward is missing"):
        other.restore({k: v for k, v in arrays.items() if k != "reward"}, meta)
    # longer targets would read behind the ends of the saved segments
    longer = make_buffer(capacity=20, targets=TargetsConfig(td_steps=6))
    with pytest.raises(ValueError, match=r"holds 0 .* 8 behind .* need 0 and 9"):
        longer.restore(arrays, meta)


def test_changed_priorities_count_restored_positions_as_new() -> None:
    values = [0.0, 1.0, 3.0, 0.0]
    saved = make_buffer(prioritized=False)
    saved.add(segment_of(Game([0] * 5, [0.0] * 4, [*values, 0.0])))
    prioritised = make_buffer(prioritized=True, targets=TargetsConfig(discount=0.0, td_steps=5))
    prioritised.restore(*saved.state())
    assert np.bincount(prioritised.sample(4000).slot).tolist()[1:3] == [1000, 3000]
    uniform = make_buffer(prioritized=False)
    uniform.restore(*prioritised.state())
    batch = uniform.sample(4)
    assert batch.slot.tolist() == [0, 1, 2, 3] and (batch.weight == 1).all()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 6), st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 20),
    st.integers(-1, 8),
)
def test_oldest_targets_are_the_head_of_a_sort(
    rows: list[tuple[int, bool, bool]], count: int, newest: int
) -> None:
    version = np.array([v for v, _, _ in rows], np.int32)
    sampleable = np.array([s for _, s, _ in rows])
    in_flight = np.array([f for _, _, f in rows])
    expected = sorted((v, row) for row, (v, s, f) in enumerate(rows) if s and not f and v < newest)[
        :count
    ]
    arguments = (version, sampleable, in_flight, count, newest)
    assert oldest_targets(*arguments).tolist() == [row for _, row in expected]
    assert oldest_targets.py_func(*arguments).tolist() == [row for _, row in expected]


def test_positions_being_refreshed_are_not_given_twice() -> None:
    buffer = make_buffer()
    buffer.add(segment_of(Game([0] * 7, [0.0] * 6, [0.0] * 7), version=1))
    buffer.add(segment_of(Game([0] * 4, [0.0] * 3, [0.0] * 4), version=0))
    assert buffer.stalest(4, 5).tolist() == [6, 7, 8, 0]
    second = buffer.stalest(4, 6)
    assert second.tolist() == [1, 2, 3, 4]
    generation = buffer.roots(second).generation
    buffer.release(second[:1], generation[:1])
    policy, value = np.ones((3, 3), np.float32), np.ones(3, np.float32)
    assert buffer.write_back(second[1:], generation[1:], policy, value, 6) == (3, 0)
    assert buffer.stalest(9, 7).tolist() == [1, 5, 2, 3, 4]


def test_older_results_are_dropped() -> None:
    buffer = make_buffer()
    buffer.add(segment_of(Game([0] * 3, [0.0] * 2, [0.0] * 3), version=3))
    slots = np.array([0, 1])
    generation = buffer.roots(slots).generation
    policy, value = np.full((2, 3), 0.5, np.float32), np.full(2, 7, np.float32)
    assert buffer.write_back(slots, generation, policy, value, 3) == (0, 2)
    assert buffer.write_back(slots, generation + 1, policy, value, 4) == (0, 2)
    assert buffer.write_back(slots, generation, policy, value, 4) == (2, 0)
    assert buffer.write_back(slots[[0, 0]], generation[[0, 0]], policy, value, 5) == (1, 1)
    statistics = buffer.statistics()
    assert statistics["replay/written_back"] == 3
    assert statistics["replay/dropped_write_backs"] == 5
    batch = buffer.sample(2)
    assert batch.root_value.tolist() == [7, 7]
    assert batch.target_version.tolist() == [5, 4]
    assert batch.behaviour_version.tolist() == [3, 3]


def test_fresh_fraction_is_the_probability_of_sampling() -> None:
    buffer = make_buffer(prioritized=True)
    assert buffer.fresh_fraction(9, 1) == 0.0
    buffer.add(segment_of(Game([0] * 4, [0.0] * 3, [1.0] * 4), version=2))
    buffer.add(segment_of(Game([0] * 2, [0.0], [6.0, 0.0]), version=8))
    assert buffer.fresh_fraction(9, 1) == pytest.approx(6 / 9, rel=1e-5)
    assert buffer.fresh_fraction(9, 0) == 0.0
    assert buffer.fresh_fraction(9, 7) == pytest.approx(1.0)


def test_position_in_the_place_of_one_being_refreshed_can_be_refreshed() -> None:
    buffer = make_buffer(capacity=4)
    buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5)))
    slots = buffer.stalest(4, 9)
    generation = buffer.roots(slots).generation
    buffer.add(segment_of(Game([0] * 5, [0.0] * 4, [0.0] * 5)))
    assert buffer.stalest(1, 9).tolist() == [0]
    buffer.release(slots, generation)  # of the old ones: the new one stays in flight
    assert buffer.stalest(9, 9).tolist() == [1, 2, 3]


def test_learner_finds_the_observation_that_it_is_to_value() -> None:
    """`value + bootstrap_discount * v(bootstrap_observation)` is the n-step return with the learner's own `v`."""
    rng = np.random.default_rng(8)
    games = [random_game(rng, length, name) for name, length in enumerate((1, 4, 9, 6))]
    targets = TargetsConfig(discount=0.9, td_steps=3, bootstrap="target_network")
    buffer = make_buffer(spec_of(2), targets=targets, capacity=30)
    for game in games:
        buffer.add(segment_of(game))
    batch = buffer.sample(buffer.size)
    assert batch.bootstrap_observation is not None and batch.bootstrap_discount is not None
    for i in range(buffer.size):
        name, t = (int(x) for x in batch.observation[i, 2:])
        game = games[name]
        for k in range(4):
            value = batch.value[i, k]
            if batch.bootstrap_discount[i, k] != 0:
                last = int(batch.bootstrap_observation[i, k, 3])
                seen = stacked_frames(game, last, 2)
                assert np.array_equal(batch.bootstrap_observation[i, k], seen)
                value += batch.bootstrap_discount[i, k] * game.values[last]
            expected = n_step(game, t + k, 0.9, 3) if t + k < game.length else 0.0
            assert value == pytest.approx(expected, abs=1e-5)
