"""From an environment's settings to the environment. Only the adapter that is asked for is imported."""

import importlib
from typing import Any

from muzero.config.environments import EnvConfig, OpenSpielConfig
from muzero.envs.base import BatchedEnv, EnvSpec
from muzero.envs.states import GameRules

# kind -> module, class, package it needs, how to install that
_ADAPTERS = {
    "open_spiel": ("muzero.envs.open_spiel", "OpenSpielEnv", "pyspiel", "pip install open-spiel"),
    "gym": ("muzero.envs.gym", "GymEnv", "gymnasium", "pip install gymnasium"),
    "atari": ("muzero.envs.atari", "AtariEnv", "ale_py", "pip install muzero-trainer[atari]"),
}


def make_env(config: EnvConfig, batch_size: int) -> BatchedEnv:
    """`batch_size` games of `config`, to be `reset` first.

    Raises:
        ValueError: if a setting is wrong, the game is of a kind that cannot be learned, or a package is missing.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1")
    module, class_name = _adapter(config)
    env: BatchedEnv = getattr(module, class_name)(config, batch_size)
    return env


def make_spec(config: EnvConfig) -> EnvSpec:
    """The spec of `config`'s environment; keeps no environment. Raises ValueError as `make_env` does."""
    module, _ = _adapter(config)
    spec: EnvSpec = module.make_spec(config)
    return spec


def make_rules(config: EnvConfig) -> GameRules:
    """The rules of `config`'s game, for `search.dynamics=rules`.

    Raises ValueError as `make_env` does, and for an environment whose states cannot be copied or that has chance events.
    """
    if not isinstance(config, OpenSpielConfig):
        raise ValueError(
            f"search.dynamics=rules needs states that can be copied, which only OpenSpiel's games have; env.kind is "
            f"{config.kind!r}: set search.dynamics=learned"
        )
    _adapter(config)  # names what is missing
    from muzero.envs.open_spiel_rules import OpenSpielRules

    return OpenSpielRules(config)


def _adapter(config: EnvConfig) -> tuple[Any, str]:
    if config.kind not in _ADAPTERS:
        raise ValueError(f"env.kind={config.kind!r} must be one of {', '.join(_ADAPTERS)}")
    module, class_name, package, install = _ADAPTERS[config.kind]
    if config.num_stacked_frames < 1:
        raise ValueError(f"env.num_stacked_frames={config.num_stacked_frames} must be at least 1")
    if config.max_episode_steps is not None and config.max_episode_steps < 1:
        raise ValueError(
            f"env.max_episode_steps={config.max_episode_steps} must be at least 1, or null for no cut of ours"
        )
    try:
        return importlib.import_module(module), class_name
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ValueError(
            f"env.kind={config.kind} needs the package {package}, which is missing: {install}"
        ) from error
