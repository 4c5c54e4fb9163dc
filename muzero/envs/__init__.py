"""Environments: OpenSpiel, Gymnasium and Atari behind one batched interface."""

from muzero.envs.base import BatchedEnv, EnvSpec, TimeStep
from muzero.envs.registry import make_env, make_spec
from muzero.envs.stacking import FrameStack

__all__ = ["BatchedEnv", "EnvSpec", "FrameStack", "TimeStep", "make_env", "make_spec"]
