"""Games of one's own: two players, masks, and the examples of the documentation."""

import re
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from muzero.envs.check import check_env
from muzero.envs.gym import GymEnv, make_spec
from tests.envs.scripted_envs import config, play, register

register()

DOCS = Path(__file__).parents[2] / "docs" / "environments.md"


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
