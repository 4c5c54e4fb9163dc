import json

import numpy as np
import pytest

from muzero.config.environments import AtariConfig
from muzero.envs.registry import make_env, make_spec
from muzero.envs.stacking import FrameStack

pytestmark = pytest.mark.atari


def config(game="breakout", **settings):
    return AtariConfig(game=game, name=game, **settings)


def play(env, num_steps, seed):
    rng = np.random.default_rng(seed)
    return [
        env.step(rng.integers(env.spec.num_actions, size=env.batch_size)) for _ in range(num_steps)
    ]


def spy(env):
    """Frame counters of the emulators, one array per call of ale-py's `step`."""
    counters, step = [], env._env.step

    def noting(actions):
        result = step(actions)
        counters.append(result[4]["frame_number"].copy())
        return result

    env._env.step = noting
    return counters


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        for name in ("frame", "reward", "score", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_spec_and_frames():
    env = make_env(config(), 2)
    step = env.reset(0)
    assert env.spec == make_spec(config())
    assert (env.spec.frame_shape, env.spec.observation_shape) == ((1, 84, 84), (4, 84, 84))
    assert env.spec.num_stacked_frames == 4 and env.spec.num_actions == 4
    assert env.spec.max_episode_steps == 27_000
    assert step.frame.shape == (2, 1, 84, 84) and step.frame.dtype == np.uint8
    assert step.legal.all() and not step.to_play.any()


def test_a_stacked_observation_shows_motion_and_is_full_after_a_reset():
    env = make_env(config(), 1)
    stack, step = FrameStack(env.spec, 1), env.reset(0)
    stack.reset_rows(np.array([True]), step.frame)
    assert all((frame == step.frame[0, 0]).all() for frame in stack.observation[0])
    for _ in range(8):
        step = env.step(np.array([1]))  # FIRE: the ball flies
        stack.push(step.frame)
    assert len({frame.tobytes() for frame in stack.observation[0]}) == 4


@pytest.mark.parametrize("frame_skip", [1, 4, 5])
def test_the_emulator_advances_by_exactly_frame_skip(frame_skip):
    env = make_env(config("pong", frame_skip=frame_skip), 2)
    env.reset(0)
    counters = spy(env)
    play(env, 12, 0)
    assert np.unique(np.diff(counters, axis=0)).tolist() == [frame_skip]


def test_colour_and_all_actions():
    env = make_env(config(grayscale=False, screen_size=96, full_action_space=True), 2)
    step = env.reset(0)
    assert step.frame.shape == (2, *env.spec.frame_shape) == (2, 3, 96, 96)
    assert env.spec.num_actions == 18
    assert step.frame[0].any(axis=(1, 2)).all()


def test_seeds():
    env = make_env(config("pong", repeat_action_probability=0.25), 3)
    first = [env.reset(0), *play(env, 40, 1)]
    assert_same(first, [env.reset(0), *play(env, 40, 1)])
    env.reset(0)
    same_actions = [env.step(np.full(3, 2)) for _ in range(40)][-1]
    assert len({frame.tobytes() for frame in same_actions.frame}) == 3
    single = make_env(config("pong", repeat_action_probability=0.25), 1)
    rng = np.random.default_rng(1)
    steps = [single.reset(0)] + [single.step(rng.integers(6, size=3)[:1]) for _ in range(40)]
    np.testing.assert_array_equal(steps[-1].frame[0], first[-1].frame[0])


def test_games_are_truncated_by_max_frames_with_their_final_frame():
    env, uncut = make_env(config(max_frames=39), 2), make_env(config(), 2)
    assert env.spec.max_episode_steps == 10
    env.reset(0)
    uncut.reset(0)
    steps, expected = play(env, 12, 0), play(uncut, 12, 0)
    assert [bool(step.truncated.all()) for step in steps] == [False] * 9 + [True, False, False]
    assert not any(step.terminated.any() for step in steps)
    np.testing.assert_array_equal(steps[9].final_frame, expected[9].frame)
    assert not np.array_equal(steps[9].frame, expected[9].frame)
    assert steps[8].final_frame is None


def test_scores_are_unclipped_and_rewards_are_not():
    clipped, plain = (
        make_env(config("ms_pacman"), 1),
        make_env(config("ms_pacman", clip_reward=False), 1),
    )
    clipped.reset(0)
    plain.reset(0)
    steps, others = play(clipped, 120, 3), play(plain, 120, 3)
    scores = np.array([step.score for step in steps])
    assert scores.max() > 1
    np.testing.assert_array_equal([step.reward for step in steps], np.clip(scores, -1, 1))
    np.testing.assert_array_equal([step.reward for step in others], scores)
    np.testing.assert_array_equal([step.score for step in others], scores)


def test_a_lost_life_ends_the_episode_but_not_the_game():
    lives, games = make_env(config(episodic_life=True), 1), make_env(config(), 1)
    lives.reset(0)
    games.reset(0)
    steps, others = play(lives, 350, 0), play(games, 350, 0)
    np.testing.assert_array_equal([step.frame for step in steps], [step.frame for step in others])
    by_life = np.sum([step.terminated for step in steps], axis=0)
    by_game = np.sum([step.terminated for step in others], axis=0)
    assert (by_game >= 1).all() and (by_life >= 5 * by_game).all()


@pytest.mark.parametrize("reseed_steps", [pytest.param(5_000, marks=pytest.mark.slow), 150])
def test_restores_bit_for_bit(reseed_steps, monkeypatch):
    """Also over the starts of games, with and without a new seed."""
    monkeypatch.setattr("muzero.envs.atari._RESEED_STEPS", reseed_steps)
    settings = config(repeat_action_probability=0.25, max_episode_steps=190)
    env = make_env(settings, 3)
    env.reset(2)
    steps = play(env, 400, 0)
    assert any(step.terminated.any() for step in steps)
    assert any(step.truncated.any() for step in steps)
    saved = json.loads(json.dumps(env.state()))
    assert (max(saved["seedings"]) > 0) == (reseed_steps == 150)
    assert max(map(len, saved["starts"])) > 0 or reseed_steps == 150
    expected = play(env, 60, 1)
    other = make_env(settings, 3)
    restored = other.restore(saved)
    np.testing.assert_array_equal(restored.frame, steps[-1].frame)
    assert_same(expected, play(other, 60, 1))


def test_a_state_of_other_settings_is_refused():
    env = make_env(config("pong"), 2)
    env.reset(0)
    play(env, 30, 0)
    with pytest.raises(ValueError, match="pong: the saved games came out otherwise"):
        make_env(config("pong", frame_skip=3), 2).restore(env.state())
    with pytest.raises(ValueError, match="2 games, this environment has 1"):
        make_env(config("pong"), 1).restore(env.state())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"game": "Pong"}, "env.game=Pong is not a game of ale-py; did you mean .*pong"),
        ({"game": "space_invader"}, "space_invaders"),
        ({"frame_skip": 0}, "env.frame_skip=0 must be at least 1"),
        ({"noop_max": -1}, "env.noop_max=-1 must be at least 0"),
        (
            {"repeat_action_probability": 1.5},
            r"env.repeat_action_probability=1.5 must be in \[0, 1\)",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make_env(config(**({"game": "pong"} | settings)), 1)


def test_noops_are_at_most_noop_max():
    env = make_env(config("pong", noop_max=3, max_episode_steps=1), 2)
    counts, reset = [], env._env.reset

    def noting(**kwargs):
        result = reset(**kwargs)
        counts.extend(result[1]["episode_frame_number"].tolist())
        return result

    env._env.reset = noting
    env.reset(0)
    play(env, 30, 0)
    assert set(counts) == {0, 1, 2, 3}
