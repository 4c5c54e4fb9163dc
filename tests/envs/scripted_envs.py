"""Gymnasium environments whose answers tests choose, and what tests do with any environment."""

import gymnasium
import numpy as np
from gymnasium import spaces

from muzero.config.environments import GymConfig


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


def register():
    """Makes the classes known to gymnasium; again does no harm."""
    for name, kind in (("Scripted-v0", Scripted), ("TwoPlayers-v0", TwoPlayers)):
        if name not in gymnasium.registry:
            gymnasium.register(name, kind)


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
