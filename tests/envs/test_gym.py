import json
import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from muzero.envs.check import check_env
from muzero.envs.gym import GymEnv, make_spec
from muzero.envs.registry import make_env
from tests.envs.scripted_envs import Scripted, assert_same, config, play, register

register()


@pytest.mark.parametrize("settings", [{}, {"max_episode_steps": 7}])
def test_cartpole_equals_gymnasium_step_by_step(settings):
    env = GymEnv(config("CartPole-v1", settings=settings), 2)
    plain = [gymnasium.make("CartPole-v1") for _ in range(2)]
    step, rng = env.reset(11), np.random.default_rng(0)
    episodes, lengths = [0, 0], [0, 0]

    def seed(row):
        sequence = np.random.SeedSequence(11, spawn_key=(row, episodes[row]))
        return int(sequence.generate_state(1)[0])

    for row in range(2):
        np.testing.assert_array_equal(step.frame[row], plain[row].reset(seed=seed(row))[0])
    ends = []
    for _ in range(120):
        actions = rng.integers(2, size=2)
        step = env.step(actions)
        for row in range(2):
            observation, reward, terminated, truncated, _ = plain[row].step(int(actions[row]))
            lengths[row] += 1
            truncated = (
                truncated or lengths[row] == settings.get("max_episode_steps")
            ) and not terminated
            assert (step.reward[row], step.terminated[row], step.truncated[row]) == (
                reward,
                terminated,
                truncated,
            )
            if truncated:
                np.testing.assert_array_equal(step.final_frame[row], observation)
            if terminated or truncated:
                ends.append("truncated" if truncated else "terminated")
                episodes[row] += 1
                lengths[row] = 0
                observation, _ = plain[row].reset(seed=seed(row))
            np.testing.assert_array_equal(step.frame[row], observation)
    assert set(ends) == ({"truncated"} if settings else {"terminated"})
    assert env.spec.max_episode_steps == settings.get("max_episode_steps", 500)
    env.close()


@pytest.mark.parametrize("settings", [{}, {"max_episode_steps": 9}])
def test_cartpole_restores_bit_for_bit(settings):
    env = GymEnv(config("CartPole-v1", settings=settings), 3)
    steps = play(env, env.reset(1), 50, 0)
    saved = json.loads(json.dumps(env.state()))
    expected = play(env, steps[-1], 50, 1)
    other = GymEnv(config("CartPole-v1", settings=settings), 3)
    restored = other.restore(saved)
    np.testing.assert_array_equal(restored.frame, steps[-1].frame)
    assert_same(expected, play(other, restored, 50, 1))
    with pytest.raises(ValueError, match="3 games, this environment has 1"):
        GymEnv(config("CartPole-v1"), 1).restore(saved)


def test_processes_give_the_same_games_as_one_process():
    sync = GymEnv(config("CartPole-v1", settings={"max_episode_steps": 15}), 2)
    several = GymEnv(
        config("CartPole-v1", settings={"max_episode_steps": 15, "vectorization": "async"}), 2
    )
    try:
        expected, found = play(sync, sync.reset(4), 40, 0), play(several, several.reset(4), 40, 0)
        assert_same(expected, found)
        saved = several.state()
        assert saved == sync.state()
        onwards = play(several, found[-1], 10, 1)
        assert_same(onwards, play(several, several.restore(saved), 10, 1))
    finally:
        several.close()


def test_rows_and_episodes_have_seeds_of_their_own():
    env = GymEnv(config(length=6), 3)
    first = env.reset(0)
    starts = np.array([step.frame[:, 0] for step in [first, *play(env, first, 24, 0)]])
    assert len(np.unique(starts)) == 3 * 5
    assert not np.isin(env.reset(1).frame[:, 0], starts).any()


def test_an_environment_that_does_not_repeat_itself_is_named():
    class Drifting(Scripted):
        total = 0.0

        def observation(self):
            Drifting.total += 1
            return np.array([Drifting.total, 0, 0], np.float32)

    gymnasium.register("Drifting-v0", Drifting)
    env = GymEnv(config("Drifting-v0"), 2)
    play(env, env.reset(0), 4, 0)
    with pytest.raises(
        ValueError, match=r"Drifting-v0: a replayed episode came to another observation.*np_random"
    ):
        env.restore(env.state())
    assert any(
        "same seed and actions gave different games" in line
        for line in check_env(config("Drifting-v0"))
    )


def test_rewards_are_scaled_and_scores_are_not():
    env = GymEnv(config(settings={"reward_scale": 0.1, "return_bounds": [-120, 0]}, reward=-20), 2)
    step = play(env, env.reset(0), 1, 0)[0]
    assert step.reward.tolist() == [-2, -2] and step.score.tolist() == [-20, -20]
    assert env.spec.return_bounds == (-12, 0)


@pytest.mark.parametrize("reward", [1, np.float64(1), np.array([1.0]), np.array(1), True])
def test_rewards_of_any_numeric_type_become_numbers(reward):
    env = GymEnv(config(reward=reward), 1)
    assert play(env, env.reset(0), 1, 0)[0].reward.tolist() == [1.0]


@pytest.mark.parametrize("reward", [np.array([1.0, 2.0]), "one", None])
def test_other_rewards_are_refused_by_name(reward):
    env = GymEnv(config(reward=reward), 1)
    with pytest.raises(ValueError, match=r"Scripted-v0: a reward is .*, it must be one number"):
        play(env, env.reset(0), 1, 0)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (
            np.zeros(4, np.float32),
            r"Scripted-v0: an observation has the shape \(4,\), its space says \(3,\)",
        ),
        (np.zeros((1, 3), np.float32), "has the shape"),
        (
            np.full(3, np.nan, np.float32),
            "Scripted-v0: an observation holds a value that is not finite",
        ),
    ],
)
def test_observations_outside_of_their_space_are_refused_by_name(observation, message):
    with pytest.raises(ValueError, match=message):
        GymEnv(config(observation=observation), 1).reset(0)


def test_an_image_of_floats_is_refused():
    space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match="is of dtype float64, its space says uint8"):
        GymEnv(config(space=space, observation=np.zeros((8, 8, 3))), 1).reset(0)


@pytest.mark.parametrize(
    ("space", "frame_shape", "dtype"),
    [
        (spaces.Box(0, 255, (8, 9, 3), np.uint8), (3, 8, 9), np.uint8),
        (spaces.Box(0, 255, (8, 9), np.uint8), (1, 8, 9), np.uint8),
        (spaces.Box(-1, 1, (2, 8, 9), np.float64), (2, 8, 9), np.float32),
        (spaces.Box(-1, 1, (3, 3), np.int8), (1, 3, 3), np.float32),
        (spaces.Box(-1, 1, (), np.float64), (1,), np.float32),
    ],
)
def test_frames_of_all_kinds_of_boxes(space, frame_shape, dtype):
    observation = space.sample()
    env = GymEnv(config(space=space, observation=observation), 2)
    step = env.reset(0)
    assert env.spec.frame_shape == frame_shape
    assert (
        step.frame.shape == (2, *frame_shape) and step.frame.dtype == env.spec.frame_dtype == dtype
    )
    expected = observation.transpose(2, 0, 1) if observation.shape == (8, 9, 3) else observation
    np.testing.assert_array_equal(step.frame[1].ravel(), expected.astype(dtype).ravel())


def test_actions_may_start_elsewhere():
    env = GymEnv(config(actions=spaces.Discrete(3, start=5)), 1)
    env.reset(0)
    env.step(np.array([2]))
    assert env._rows._rows[0].unwrapped.last_action == 7


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"actions": spaces.Box(-1, 1, (2,))},
            "it must be Discrete: continuous actions are not supported",
        ),
        (
            {"actions": spaces.MultiDiscrete([2, 3])},
            "number the combinations of its actions by one Discrete",
        ),
        ({"actions": spaces.MultiBinary(4)}, "number the combinations"),
        ({"space": spaces.Dict(x=spaces.Discrete(2))}, r"it must be a Box: .*FlattenObservation"),
        ({"space": spaces.MultiBinary(4)}, "FlattenObservation"),
        ({"space": spaces.Discrete(4)}, "FlattenObservation"),
        ({"space": spaces.Box(0, 1, (2, 2, 2, 2))}, "flat or"),
    ],
)
def test_unsupported_spaces_are_refused_with_the_reason(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_spec(config(**kwargs))


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("CartPol-v1", "Did you mean: `CartPole`"),
        ("no_such_module:Game-v0", "No module named 'no_such_module'"),
    ],
)
def test_unknown_ids_are_told(id, message):
    with pytest.raises(ValueError, match=message):
        make_spec(config(id))


def test_unknown_keyword_arguments_are_told():
    with pytest.raises(ValueError, match="unexpected keyword argument 'gravitas'"):
        make_spec(config("CartPole-v1", gravitas=3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vectorization": "threads"}, "env.vectorization='threads' must be one of sync, async"),
        ({"num_players": 3}, "env.num_players=3 must be 1 or 2"),
        ({"reward_scale": 0.0}, "env.reward_scale=0.0 must be positive"),
        ({"return_bounds": [1, 0]}, "env.return_bounds"),
        ({"max_episode_steps": 0}, "env.max_episode_steps=0 must be at least 1"),
        ({"num_stacked_frames": 0}, "env.num_stacked_frames=0 must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make_env(config(settings=settings), 1)


def test_rewards_that_are_not_finite_are_refused_by_name():
    env = GymEnv(config(reward=float("nan")), 1)
    env.reset(0)
    with pytest.raises(ValueError, match="Scripted-v0: a reward is not finite"):
        env.step(np.array([0]))
