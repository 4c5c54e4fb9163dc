"""Settings of the networks."""

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass(kw_only=True, slots=True)
class NetworkConfig:
    """Settings that every network has."""

    kind: str = MISSING
    """`mlp` or `resnet`."""
    value_support_max: float | None = None
    """The value support spans [-max, max], in transformed units if `support_transform` is on; null fits the environment's return bounds (300 where they are unknown)."""
    value_support_size: int | None = None
    """Atoms of the value support, odd and at least 3; null takes one per unit."""
    reward_support_max: float | None = None
    """Like `value_support_max`, of rewards; null takes a reward to be no larger than a return."""
    reward_support_size: int | None = None
    """Atoms of the reward support, odd and at least 3; null takes one per unit."""
    support_transform: bool | None = None
    """Whether values and rewards are squashed by h(x) = sign(x)(sqrt(|x|+1)-1) + 0.001x (MuZero, appendix F); null does it for returns beyond 10."""
    projection_size: int = 0
    """Width of the SimSiam projection for the consistency loss; 0 builds none."""
    turn_head: bool | None = None
    """Predict who moves next; null builds it where the game needs it."""
    num_chance_codes: int = 0
    """Chance codes of Stochastic MuZero, at least 2: what chance did after a move is learned as one of so many codes, and searches have chance nodes (the paper has 32); 0 is MuZero's deterministic dynamics."""


@dataclass(kw_only=True, slots=True)
class MLPConfig(NetworkConfig):
    """Fully connected networks, for flat and small observations."""

    kind: str = "mlp"
    latent_size: int = 64
    """Units of the hidden state."""
    hidden_sizes: list[int] = field(default_factory=lambda: [128])
    """Widths of the hidden layers of each function."""
    residual_dynamics: bool = False
    """Add the previous hidden state to the dynamics' output before it is scaled."""


@dataclass(kw_only=True, slots=True)
class ResNetConfig(NetworkConfig):
    """Convolutional residual networks, for boards and images."""

    kind: str = "resnet"
    num_channels: int = 64
    """Channels of the hidden state."""
    num_blocks: int = 4
    """Residual blocks of the representation."""
    num_dynamics_blocks: int | None = None
    """Residual blocks of the dynamics; null takes `num_blocks`."""
    downsample: int = 1
    """Factor by which the representation shrinks the image: 1 (boards), 2, 4, 8 or 16 (Atari: 16)."""
    head_channels: int = 8
    """Channels of the 1x1 convolution that opens each head."""
    head_hidden_size: int = 64
    """Units of each head's hidden layer."""
    norm: str = "batch"
    """`batch` (folded for inference), `group` (no batch statistics) or `none`."""
