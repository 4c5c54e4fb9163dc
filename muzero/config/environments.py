"""Settings of the environments."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass(kw_only=True, slots=True)
class EnvConfig:
    """Settings that every environment has."""

    kind: str = MISSING
    """Adapter: `open_spiel`, `gym` or `atari`."""
    name: str = MISSING
    """Names the run folder."""
    num_stacked_frames: int = 1
    """Newest frames that make one observation."""
    max_episode_steps: int | None = None
    """Cut episodes after so many steps (a truncation, not an end); null leaves it to the environment."""


@dataclass(kw_only=True, slots=True)
class OpenSpielConfig(EnvConfig):
    """Any perfect-information game that OpenSpiel lists."""

    kind: str = "open_spiel"
    name: str = "${env.game}"
    """Names the run folder."""
    game: str = MISSING
    """OpenSpiel's name of the game, such as connect_four."""
    parameters: dict[str, int | float | bool | str] = field(default_factory=dict)
    """OpenSpiel's parameters of the game, such as `env.parameters.board_size=5`."""
    turn_order: str = "auto"
    """`alternating`, `repeated` (a player may move twice in a row) or `auto` (found out by random games)."""
    frame_shape: list[int] | None = None
    """Shape to give the observation tensor, `[channels, height, width]` or `[features]`; null keeps OpenSpiel's."""
    encoding: str = "tensor"
    """What the network sees: `tensor` (OpenSpiel's observation tensor) or `features` (2048: one plane per power of two; backgammon: checkers in units of TD-Gammon, dice one-hot, and whether half of a double has been played)."""


@dataclass(kw_only=True, slots=True)
class GymConfig(EnvConfig):
    """Any Gymnasium environment with discrete actions and box observations."""

    kind: str = "gym"
    name: str = "${env.id}"
    """Names the run folder."""
    id: str = MISSING
    """Gymnasium id, such as CartPole-v1, or `module:Id` for an environment of your own."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    vectorization: str = "sync"
    """`sync` steps the games in this process, `async` in one process each."""
    num_players: int = 1
    """1, or 2 for your own zero-sum game that tells `to_play` in its info."""
    turn_order: str = "auto"
    """`alternating` or `repeated` for two players; `auto` is found out by random games."""
    return_bounds: list[float] | None = None
    """Lowest and highest return, checked against the value support; null where unknown."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this for training; reported scores are not."""


@dataclass(kw_only=True, slots=True)
class AtariConfig(EnvConfig):
    """Any game that ale-py ships, with the standard preprocessing."""

    kind: str = "atari"
    name: str = "${env.game}"
    """Names the run folder."""
    num_stacked_frames: int = 4
    """Newest frames that make one observation."""
    game: str = MISSING
    """ale-py's name of the game, such as pong."""
    frame_skip: int = 4
    """Emulator frames per action; the last two are maximised over."""
    repeat_action_probability: float = 0.0
    """Probability that the emulator repeats the last action (sticky actions: 0.25)."""
    noop_max: int = 30
    """Up to so many no-ops at the start of an episode."""
    screen_size: int = 84
    """Height and width of a frame after resizing."""
    grayscale: bool = True
    """Gray frames (1 channel) instead of colour (3)."""
    episodic_life: bool = False
    """Whether losing a life ends the episode for the learner."""
    clip_reward: bool = True
    """Whether rewards are clipped to [-1, 1] for training; reported scores are not."""
    full_action_space: bool = False
    """All 18 actions instead of the game's own."""
    max_frames: int = 108_000
    """Emulator frames after which an episode is truncated."""
