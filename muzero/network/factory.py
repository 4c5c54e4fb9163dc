"""Network settings and an environment's spec -> an initialised network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from muzero.config.networks import MLPConfig, NetworkConfig, ResNetConfig
from muzero.config.supports import fit_supports
from muzero.network.base import MuZeroNetwork, NetworkSpec
from muzero.network.layers import NORMS
from muzero.network.mlp import MLPNetwork
from muzero.network.resnet import ResNetNetwork
from muzero.network.stochastic_mlp import StochasticMLP
from muzero.network.stochastic_resnet import StochasticResNet
from muzero.network.support import Support

DOWNSAMPLE_FACTORS = (1, 2, 4, 8, 16)

Refuse = Callable[[str, object, str], None]
"""Notes a problem: name of the setting, its value, what is allowed."""


def make_network(config: NetworkConfig, spec: NetworkSpec, seed: int) -> MuZeroNetwork:
    """A new network on the CPU, initialised from `seed` alone; torch's global generator is left as it was.

    Value, reward and turn read exactly 0 and the policy is uniform until something has been learned.
    Raises ValueError that names every setting that does not fit.
    """
    problems = network_problems(config, spec)
    if problems:
        raise ValueError("\n".join(problems))
    if config.turn_head is not None:
        spec = replace(spec, has_turn_head=config.turn_head)
    value_support, reward_support = supports(config, spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shared: dict[str, Any] = {
            "value_support": value_support,
            "reward_support": reward_support,
            "projection_size": config.projection_size,
        }
        num_codes = config.num_chance_codes
        if num_codes > 0:
            shared["num_chance_codes"] = num_codes
        if isinstance(config, MLPConfig):
            mlp = StochasticMLP if num_codes > 0 else MLPNetwork
            return mlp(
                spec,
                latent_size=config.latent_size,
                hidden_sizes=list(config.hidden_sizes),
                residual_dynamics=config.residual_dynamics,
                **shared,
            )
        assert isinstance(config, ResNetConfig)
        dynamics_blocks = config.num_dynamics_blocks
        resnet = StochasticResNet if num_codes > 0 else ResNetNetwork
        return resnet(
            spec,
            num_channels=config.num_channels,
            num_blocks=config.num_blocks,
            num_dynamics_blocks=config.num_blocks if dynamics_blocks is None else dynamics_blocks,
            downsample=config.downsample,
            head_channels=config.head_channels,
            head_hidden_size=config.head_hidden_size,
            norm=config.norm,
            **shared,
        )


def supports(config: NetworkConfig, spec: NetworkSpec) -> tuple[Support, Support]:
    """The value support and the reward support of `config`; what it leaves open fits the returns of `spec`."""
    value, reward = fit_supports(config, spec.return_bounds)
    return Support(*value), Support(*reward)


def network_problems(config: NetworkConfig, spec: NetworkSpec) -> list[str]:
    """All that keeps `config` from fitting `spec`, one sentence each, settings named; empty if it fits."""
    problems: list[str] = []

    def refuse(name: str, value: object, allowed: str) -> None:
        problems.append(f"network.{name} is {value!r}; {allowed}")

    fitted = fit_supports(config, spec.return_bounds)
    for name, (largest, size, _) in zip(("value_support", "reward_support"), fitted, strict=True):
        if size < 3 or size % 2 == 0:
            refuse(f"{name}_size", size, "it has to be odd and at least 3, so that 0 is an atom")
        if not 0.0 < largest < float("inf"):
            refuse(f"{name}_max", largest, "it has to be a positive number")
    if config.projection_size < 0:
        refuse("projection_size", config.projection_size, "use 0 to build no projection")
    if config.num_chance_codes < 0 or config.num_chance_codes == 1:
        refuse(
            "num_chance_codes",
            config.num_chance_codes,
            "use at least 2 codes, or 0 for deterministic dynamics",
        )
    if config.turn_head is False and spec.has_turn_head:
        refuse(
            "turn_head", False, "in this game a player may move twice in a row: use null or true"
        )
    if config.turn_head and spec.num_players == 1:
        refuse("turn_head", True, "the environment has one player: use null or false")
    if isinstance(config, MLPConfig):
        _check_mlp(config, refuse)
    elif isinstance(config, ResNetConfig):
        _check_resnet(config, spec, refuse)
    else:
        refuse("kind", config.kind, "choose mlp or resnet")
    return problems


def _check_mlp(config: MLPConfig, refuse: Refuse) -> None:
    if config.latent_size < 1:
        refuse("latent_size", config.latent_size, "it has to be at least 1")
    if not config.hidden_sizes or min(config.hidden_sizes) < 1:
        refuse("hidden_sizes", list(config.hidden_sizes), "give at least one positive width")


def _check_resnet(config: ResNetConfig, spec: NetworkSpec, refuse: Refuse) -> None:
    for name, least in (
        ("num_channels", 1),
        ("num_blocks", 0),
        ("num_dynamics_blocks", 0),
        ("head_channels", 1),
        ("head_hidden_size", 1),
    ):
        value = getattr(config, name)
        if value is not None and value < least:
            refuse(name, value, f"it has to be at least {least}")
    if config.downsample not in DOWNSAMPLE_FACTORS:
        refuse("downsample", config.downsample, f"choose one of {DOWNSAMPLE_FACTORS}")
    if config.norm not in NORMS:
        refuse("norm", config.norm, f"choose one of {', '.join(NORMS)}")
    if len(spec.observation_shape) != 3:
        refuse(
            "kind",
            config.kind,
            f"it needs observations [channels, height, width], this environment's are {list(spec.observation_shape)}: "
            "use network=mlp, or give env.frame_shape",
        )
