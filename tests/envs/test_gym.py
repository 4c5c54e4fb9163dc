import json
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from muzero.config.schema import GymConfig
from muzero.envs.check import check_env
from muzero.envs.gym import GymEnv, make_spec
from muzero.envs.registry import make_env

DOCS = Path(__file__).parents[2] / "docs" / "environments.md"


class Scripted(gymnasium.Env):
    """Counts its steps; every answer can be replaced."""

    def __init__(self, length=6, space=None, actions=None, **answers):
        self.length = length
        self.observation_space = space or spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = actions or spaces.Discrete(3)
        self.answers = {
            "observation": None,
            "reward": 1.0,
            "info": {},
            "truncates": False,
        } | answers

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.start = 0, float(self.np_random.random())
        return self.observation(), dict(self.answers["info"])

    def step(self, action):
        self.count += 1
        self.last_action = action
        over = self.count >= self.length
        truncates = self.answers["truncates"]
        return (
            self.observation(),
            self.answers["reward"],
            over and not truncates,
            over and truncates,
            dict(self.answers["info"]),
        )

    def observation(self):
        if self.answers["observation"] is not None:
            return self.answers["observation"]
        return np.array([self.start, self.count, 0], np.float32)


class TwoPlayers(Scripted):
    """Turns given by a pattern; action 2 is illegal for player 1."""

    def __init__(self, pattern=(0, 1), **answers):
        super().__init__(**answers)
        self.pattern = pattern

    def reset(self, **kwargs):
        observation, _ = super().reset(**kwargs)
        return observation, self.info()

    def step(self, action):
        observation, _, terminated, truncated, _ = super().step(action)
        return observation, 1.0 if terminated else 0.0, terminated, truncated, self.info()

    def info(self):
        player = self.pattern[self.count % len(self.pattern)]
        return {"to_play": player, "action_mask": [1, 1, 1 - player]}


@pytest.fixture(autouse=True, scope="module")
def _registered():
    gymnasium.register("Scripted-v0", Scripted)
    gymnasium.register("TwoPlayers-v0", TwoPlayers)
    yield
    del gymnasium.registry["Scripted-v0"], gymnasium.registry["TwoPlayers-v0"]


def config(id="Scripted-v0", *, settings=None, **kwargs):
    return GymConfig(id=id, name=id, kwargs=kwargs, **(settings or {}))


def play(env, step, num_steps, seed):
    rng, steps = np.random.default_rng(seed), []
    for _ in range(num_steps):
        step = env.step(np.argmax(rng.random(step.legal.shape) * step.legal, axis=1))
        steps.append(step)
    return steps


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        for name in ("frame", "legal", "to_play", "reward", "score", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


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


def test_two_players_masks_and_the_plane_of_the_player():
    settings = {"num_players": 2}
    env = GymEnv(config("TwoPlayers-v0", settings=settings), 2)
    assert env.spec.turn_order == "alternating" and env.spec.frame_shape == (4,)
    step, players = env.reset(0), []
    for _ in range(12):
        players.append(step.to_play.tolist())
        np.testing.assert_array_equal(step.frame[:, -1], step.to_play)
        np.testing.assert_array_equal(step.legal[:, 2], step.to_play == 0)
        step = env.step(np.array([0, 1]))
    assert players == [[0, 0], [1, 1]] * 6
    assert step.reward.tolist() == [1, 1] and step.terminated.all()
    env.step(np.array([2, 2]))
    with pytest.raises(ValueError, match=r"action 2 is illegal in row 0; legal: \[0, 1\]"):
        env.step(np.array([2, 0]))


def test_two_players_image_plane_is_0_or_255():
    space = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    kwargs = {"space": space, "observation": np.full((4, 4, 3), 9, np.uint8)}
    env = GymEnv(config("TwoPlayers-v0", settings={"num_players": 2}, **kwargs), 1)
    assert env.reset(0).frame[0, :, 0, 0].tolist() == [9, 9, 9, 0]
    assert env.step(np.array([0])).frame[0, :, 0, 0].tolist() == [9, 9, 9, 255]


def test_repeated_turns_are_found_out():
    settings = {"num_players": 2}
    assert (
        make_spec(config("TwoPlayers-v0", settings=settings, pattern=(0, 0, 1))).turn_order
        == "repeated"
    )
    with pytest.raises(ValueError, match=r"env.turn_order=alternating, but in this game"):
        make_spec(
            config(
                "TwoPlayers-v0",
                settings=settings | {"turn_order": "alternating"},
                pattern=(0, 0, 1),
            )
        )


def test_a_truncated_game_of_two_tells_its_final_player():
    settings = {"num_players": 2, "max_episode_steps": 3}
    env = GymEnv(config("TwoPlayers-v0", settings=settings), 1)
    step = play(env, env.reset(0), 3, 0)[-1]
    assert (
        step.truncated.all() and step.final_to_play.tolist() == [1] and step.to_play.tolist() == [0]
    )
    assert step.final_frame[0].tolist()[1:] == [3, 0, 1] and step.frame[0].tolist()[1:] == [0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "info", "message"),
    [
        ({}, {"to_play": 1}, r'info\["to_play"\]=1 needs env.num_players=2'),
        ({"num_players": 2}, {"to_play": 2}, r'info\["to_play"\]=2 must be 0 or 1'),
        ({"num_players": 2}, {}, r'env.num_players=2 needs info\["to_play"\]'),
        (
            {},
            {"action_mask": [1, 1]},
            r'info\["action_mask"\] has the shape \(2,\), there are 3 actions',
        ),
        ({}, {"action_mask": [0, 0, 0]}, "allows no action though the episode goes on"),
    ],
)
def test_wrong_infos_are_told(settings, info, message):
    assert [
        line for line in check_env(config(settings=settings, info=info)) if re.search(message, line)
    ]


def examples():
    return "\n\n".join(
        re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    )


def test_examples_of_the_documentation_work(tmp_path, monkeypatch):
    (tmp_path / "my_games.py").write_text(examples())
    monkeypatch.syspath_prepend(tmp_path)
    walk = config("my_games:Walk-v0")
    assert check_env(walk) == []
    assert make_spec(walk).max_episode_steps == 50 and make_spec(
        config("my_games:Walk-v0", length=9)
    ).frame_shape == (9,)
    stones = config("my_games:Stones-v0", settings={"num_players": 2, "return_bounds": [-1, 1]})
    assert check_env(stones) == []
    spec = make_spec(stones)
    assert (spec.frame_shape, spec.num_actions, spec.turn_order) == ((12,), 3, "alternating")


def test_lunarlander_passes_the_check():
    pytest.importorskip("Box2D")
    assert check_env(config("LunarLander-v3"), num_steps=120, batch_size=2) == []
