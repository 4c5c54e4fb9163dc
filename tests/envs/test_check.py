"""The checker finds every kind of fault, planted into a correct environment."""

import dataclasses
import re

import numpy as np
import pytest

from muzero.config.environments import GymConfig, OpenSpielConfig
from muzero.envs import check
from muzero.envs.check import check_env
from muzero.envs.open_spiel import OpenSpielEnv


class Faulty:
    """An OpenSpiel environment whose time steps pass through `spoil`."""

    def __init__(self, config, batch_size, spoil, state=None, restores=True):
        self.env, self.spoil = OpenSpielEnv(config, batch_size), spoil
        self.saved, self.restores = state, restores
        self.spec, self.batch_size = self.env.spec, batch_size

    def reset(self, seed):
        self.seed = seed
        return self.spoil(self, self.env.reset(seed), None)

    def step(self, actions):
        before = self.env._to_play.copy()
        return self.spoil(self, self.env.step(actions), before)

    def state(self):
        return self.env.state() if self.saved is None else self.saved

    def restore(self, state):
        return self.env.restore(state if self.restores else self.env.state())

    def close(self):
        pass


def problems(monkeypatch, spoil, game="connect_four", **kwargs):
    monkeypatch.setattr(
        check, "make_env", lambda config, size: Faulty(config, size, spoil, **kwargs)
    )
    return check_env(OpenSpielConfig(game=game, name=game), num_steps=150)


def change(**changes):
    """A `spoil` that sets fields, values may depend on the step and on who moved (None after a reset)."""

    def spoil(env, step, mover):
        return dataclasses.replace(
            step, **{name: value(step, mover) for name, value in changes.items()}
        )

    return spoil


def unchanged(env, step, mover):
    return step


@pytest.mark.parametrize(
    "game",
    [
        "tic_tac_toe",
        "connect_four",
        "chess",
        "amazons",
        "2048",
        "backgammon",
        "cliff_walking",
        "catch",
    ],
)
def test_openspiel_has_no_problem(game):
    assert (
        check_env(OpenSpielConfig(game=game, name=game, max_episode_steps=60), num_steps=150) == []
    )


def test_the_planted_environment_is_correct_without_a_fault(monkeypatch):
    assert problems(monkeypatch, unchanged) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"frame": lambda step, _: step.frame.astype(np.float32)}, "frame is float32"),
        (
            {"frame": lambda step, _: step.frame[:, :3]},
            r"frame is bool \(4, 3, 6, 7\), it must be bool \(4, 4, 6, 7\)",
        ),
        ({"reward": lambda step, _: step.reward.astype(np.float64)}, "reward is float64"),
        (
            {"reward": lambda step, _: step.reward + np.float32(np.nan)},
            "reward holds a value that is not finite",
        ),
        (
            {"to_play": lambda step, _: step.to_play + np.int32(1)},
            "to_play is not below the number of players, 2",
        ),
        ({"truncated": lambda step, _: step.terminated}, "both terminated and truncated"),
        ({"truncated": lambda step, _: ~step.terminated}, "truncated without its final frame"),
        ({"score": lambda step, _: np.zeros(4, np.float64)}, "score is float64"),
        (
            {"reward": lambda step, _: 3 * step.reward},
            r"returned -?3, outside of its bounds \[-1, 1\]",
        ),
        ({"reward": lambda step, _: step.reward + 1}, "a reset reports a reward or an end"),
        (
            {
                "reward": lambda step, mover: (
                    step.reward
                    if mover is None
                    else np.where(mover == 0, step.reward, -step.reward)
                )
            },
            "the reward is not the mover's own",
        ),
    ],
)
def test_faults_of_time_steps_are_told(monkeypatch, changes, problem):
    found = problems(monkeypatch, change(**changes))
    assert [line for line in found if re.search(problem, line)], found


def test_a_position_without_legal_action_is_told(monkeypatch):
    def spoil(env, step, mover):
        legal = step.legal.copy()
        legal[1] = False
        return dataclasses.replace(step, legal=legal)

    assert "connect_four: a position has no legal action" in problems(monkeypatch, spoil)


def test_an_environment_that_writes_to_returned_arrays_is_told(monkeypatch):
    shared = np.zeros((4, 4, 6, 7), np.bool_)

    def spoil(env, step, mover):
        if len(step.frame) == 1:
            return step
        shared[:] = step.frame
        return dataclasses.replace(step, frame=shared)

    assert any(
        "wrote to arrays that an earlier step had returned" in line
        for line in problems(monkeypatch, spoil)
    )


def test_too_long_episodes_are_told(monkeypatch):
    env = OpenSpielEnv(OpenSpielConfig(game="connect_four", name="x"), 4)
    env.spec = dataclasses.replace(env.spec, max_episode_steps=5)
    monkeypatch.setattr(check, "make_env", lambda config, size: env)
    assert "x: an episode is longer than its 5 steps at most" in check_env(
        OpenSpielConfig(game="x", name="x")
    )


def test_games_that_do_not_repeat_are_told(monkeypatch):
    rng = np.random.default_rng(0)

    def spoil(env, step, mover):
        return dataclasses.replace(step, score=rng.random(env.batch_size, np.float32))

    assert any(
        "same seed and actions gave different games" in line
        for line in problems(monkeypatch, spoil)
    )


def test_rows_that_play_the_same_game_are_told(monkeypatch):
    def spoil(env, step, mover):
        return dataclasses.replace(step, frame=np.repeat(step.frame[:1], env.batch_size, axis=0))

    found = problems(monkeypatch, spoil, game="2048")
    assert "2048: all rows play the same game though other seeds give other games" in found
    assert not any("all rows" in line for line in problems(monkeypatch, spoil, game="connect_four"))


def test_rows_that_depend_on_each_other_are_told(monkeypatch):
    def spoil(env, step, mover):
        return dataclasses.replace(step, frame=np.ascontiguousarray(step.frame[::-1]))

    assert "2048: row 0 depends on the other rows of its batch" in problems(
        monkeypatch, spoil, game="2048"
    )


def test_a_state_that_is_not_json_is_told(monkeypatch):
    assert any(
        "cannot be written as JSON" in line
        for line in problems(monkeypatch, unchanged, state={"x": np.zeros(2)})
    )


def test_a_state_that_restores_other_positions_is_told(monkeypatch):
    found = problems(monkeypatch, unchanged, restores=False)
    assert found == ["connect_four: a restored state shows other positions than were saved"]


def test_a_state_that_forgets_generators_is_told(monkeypatch):
    def spoil(env, step, mover):
        env.env._rngs = (
            [np.random.default_rng() for _ in range(env.batch_size)]
            if mover is not None
            else env.env._rngs
        )
        return step

    found = problems(monkeypatch, spoil, game="2048")
    assert "2048: games that go on from a restored state differ from those that were saved" in found


def test_factors_that_do_not_make_the_actions_are_refused():
    spec = OpenSpielEnv(OpenSpielConfig(game="connect_four", name="own"), 1).spec
    assert dataclasses.replace(spec, action_factors=(7,)).action_factors == (7,)
    with pytest.raises(ValueError, match=r"own: action_factors=\(2, 3\) make 6 actions, and num_"):
        dataclasses.replace(spec, action_factors=(2, 3))


@pytest.mark.parametrize("channels", [(0, 0), (-1,), (99,)])
def test_chances_channels_have_to_be_a_frames(channels: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"chance_channels=\(.*\) must be different places of a"):
        dataclasses.replace(
            OpenSpielEnv(OpenSpielConfig(game="connect_four", name="own"), 1).spec,
            chance_channels=channels,
        )


def test_chances_channels_are_those_of_the_newest_of_stacked_frames() -> None:
    spec = dataclasses.replace(
        OpenSpielEnv(OpenSpielConfig(game="connect_four", name="own"), 1).spec,
        num_stacked_frames=3,
        chance_channels=(0, 2),
    )
    assert spec.newest_chance_channels == (2 * spec.frame_shape[0], 2 * spec.frame_shape[0] + 2)


def test_what_cannot_be_made_is_the_only_problem():
    (problem,) = check_env(OpenSpielConfig(game="connect4", name="x"))
    assert "did you mean connect_four" in problem
    (problem,) = check_env(GymConfig(id="Pendulum-v1", name="x"))
    assert "continuous actions are not supported" in problem
