"""Every setting of a run, typed, with one sentence each.

Plain dataclasses that hydra fills; `slots` turns a mistyped `+section.key=1` into an error. A class checks what it
can see by itself in `muzero.config.validate`; nothing here imports anything heavy. Sections of several kinds have
modules of their own: `environments`, `networks` and `runtime`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muzero.config.environments import AtariConfig, EnvConfig, GymConfig, OpenSpielConfig
from muzero.config.networks import MLPConfig, NetworkConfig, ResNetConfig
from muzero.config.runtime import RayRuntimeConfig, RuntimeConfig


@dataclass(kw_only=True, slots=True)
class SearchConfig:
    """Tree search: PUCT (MuZero) or Gumbel MuZero."""

    kind: str = "gumbel"
    """`puct` or `gumbel`."""
    num_simulations: int = 32
    """Simulations per move, unless a role sets its own."""
    dynamics: str = "learned"
    """Moves inside the tree: `learned` (the network's dynamics, MuZero) or `rules` (the game's own, AlphaZero; OpenSpiel's games without chance)."""
    max_depth: int | None = None
    """Deepest node in edges; null is no limit."""
    normalization: str = "tree"
    """How q is scaled to [0, 1]: `tree` (min and max of the tree), `siblings` (of one node), `bounds` (value_min, value_max), `none`."""
    value_min: float = -1.0
    """Lowest value, for `normalization=bounds`."""
    value_max: float = 1.0
    """Highest value, for `normalization=bounds`."""
    min_value_range: float = 0.01
    """Smallest range that normalisation stretches to [0, 1]; keeps noise between equal values small."""
    pb_c_init: float = 1.25
    """PUCT's c1."""
    pb_c_base: float = 19652.0
    """PUCT's c2."""
    first_play_urgency: str = "minimum"
    """q of an unvisited action under PUCT: `minimum` (0 after normalisation, the paper's), `parent` (the node's value), `mean` (of the visited)."""
    root_dirichlet_alpha: float = 0.3
    """Dirichlet noise at PUCT's root in self-play."""
    root_exploration_fraction: float = 0.25
    """Share of that noise in the root prior."""
    forced_playouts: float = 0.0
    """PUCT in self-play: a visited root action with fewer than sqrt(forced_playouts * prior * simulations so far) visits goes first, and what that cost is pruned from the policy target (KataGo, with 2); 0 is off."""
    max_num_considered_actions: int = 16
    """Gumbel: actions that sequential halving starts with."""
    gumbel_scale: float = 1.0
    """Gumbel: scale of the root noise in self-play."""
    value_scale: float = 0.1
    """Gumbel: c_scale of sigma(q) = (maxvisit_init + max visits) * value_scale * q."""
    maxvisit_init: float = 50.0
    """Gumbel: c_visit of sigma."""
    use_mixed_value: bool = True
    """Gumbel: complete unvisited q with the mixed value instead of the node's own value."""
    root_value: str = "mean"
    """Root value that becomes a target: `mean` (of network and backups) or `best` (q of the chosen action)."""
    num_threads: int = 1
    """Threads that share the rows of a batch; never changes a result."""
    pipelined: bool = False
    """Self-play searches in two halves, each in a thread of its own with its own copy of the network: for two idle CPU cores, or a GPU."""
    bfloat16: bool | None = False
    """Networks of searches multiply in bfloat16; null does where that is faster (processors with AMX or AVX512_BF16; CUDA from Ampere on). Checked by scripts/check_bfloat16.py."""
    cuda_graph: bool = True
    """On CUDA, a step of the network inside the tree is captured as a graph once and then replayed."""


@dataclass(kw_only=True, slots=True)
class SelfPlayConfig:
    """How games are played for training."""

    num_games: int = 64
    """Games in lock step."""
    num_simulations: int | None = None
    """Simulations per move; null takes `search.num_simulations`."""
    progressive_simulations: list[int] = field(default_factory=list)
    """Simulations per move in the stages of training before `num_simulations` holds, increasing (MiniZero's progressive simulation); empty is off."""
    progressive_steps: list[int] = field(default_factory=list)
    """Learner steps at which those stages end, one per entry of `progressive_simulations`."""
    full_search_fraction: float = 1.0
    """Share of the moves that are searched in full, with noise and for a policy target; the others get a fast search without noise, for a move and a value (KataGo's playout caps)."""
    fast_simulations: int | None = None
    """Simulations of a fast search; needed where `full_search_fraction` is below 1."""
    reuse_subtree: bool = False
    """Begin a search with the tree below the move played; its simulations count, so fewer are made anew."""
    temperatures: list[float] = field(default_factory=lambda: [1.0])
    """Visit-count temperatures, one per stage of training; 0 takes the search's own choice, as Gumbel always does."""
    temperature_steps: list[int] = field(default_factory=list)
    """Learner steps at which the next temperature begins, one fewer than `temperatures`."""
    temperature_drop_move: int | None = None
    """Moves of an episode after which the temperature is 0; null never."""
    opening_fraction: float = 0.0
    """Share of the episodes that begin with random moves, which are not trained on."""
    max_opening_moves: int = 0
    """Those episodes begin with 1 to so many random moves."""
    fork_fraction: float = 0.0
    """Share of the episodes that repeat a recent one, without a search, up to a move at which they play another one (KataGo's forks); not trained on before that."""
    max_fork_moves: int = 0
    """Those episodes leave the other one at one of its first so many moves."""
    segment_length: int = 200
    """Positions after which a running episode is handed to replay in a segment."""
    weights_interval: int = 1
    """Self-play takes new weights when they are so many learner steps newer."""


@dataclass(kw_only=True, slots=True)
class ReplayConfig:
    """The replay buffer and its rate limiter."""

    capacity: int = 100_000
    """Positions held."""
    min_size: int = 2_000
    """Positions inserted before learning starts."""
    samples_per_insert: float = 4.0
    """Positions sampled per position inserted: the only throttle between self-play and learner."""
    error_buffer: float | None = None
    """How many samples the ratio may be off, either way; null takes a width that fits batch and games."""
    prioritized: bool = False
    """Prioritised by value error (PER) instead of uniform sampling."""
    priority_exponent: float = 1.0
    """PER's alpha."""
    importance_exponent: float = 1.0
    """PER's beta."""
    use_symmetries: bool = True
    """Whether samples are turned by a random symmetry of the board, where the environment declares any."""
    max_times_sampled: int | None = None
    """A position sampled so often is not sampled again (within one batch it may come more often); null is no limit."""
    max_behaviour_age: int | None = None
    """Positions played with weights more than so many learner steps old are no longer sampled; null is no limit."""
    initial_priority: str = "error"
    """Priority of new positions: `error` (own value error) or `max` (highest so far)."""
    save_with_checkpoint: bool = True
    """Whether checkpoints hold the replay; without it a resumed run fills it again before it learns."""


@dataclass(kw_only=True, slots=True)
class TargetsConfig:
    """How value targets are made."""

    discount: float = 0.997
    """Discount per step, gamma."""
    td_steps: int = 10
    """Steps of rewards before the bootstrap; at least the game's length means the outcome."""
    td_lambda: float = 1.0
    """Mix of the shorter returns: 1 is the plain n-step return."""
    bootstrap: str = "search"
    """Value that ends the n-step return: `search` (stored root value) or `target_network` (computed by the learner)."""


@dataclass(kw_only=True, slots=True)
class LearnerConfig:
    """The learner: loss, optimiser, schedule."""

    num_steps: int = 10_000
    """Learner steps of the run."""
    batch_size: int = 256
    """Samples per step."""
    num_unroll_steps: int = 5
    """Unrolled steps K of the model."""
    optimizer: str = "adam"
    """`adam`, `adamw` or `sgd` (momentum 0.9)."""
    learning_rate: float = 1e-3
    """Highest learning rate."""
    schedule: str = "cosine"
    """`constant`, `cosine` (to `final_learning_rate_fraction`) or `step`."""
    warmup_steps: int = 0
    """Steps over which the rate rises linearly from 0."""
    final_learning_rate_fraction: float = 0.0
    """Share of the rate that the cosine ends at."""
    decay_steps: int = 100_000
    """`step` schedule: steps between two decays."""
    decay_rate: float = 0.1
    """`step` schedule: factor of each decay."""
    weight_decay: float = 1e-4
    """L2 weight (decoupled under `adamw`)."""
    max_gradient_norm: float = 5.0
    """Global norm that gradients are clipped to; 0 turns clipping off."""
    value_loss_weight: float = 0.25
    """Weight of the value loss."""
    reward_loss_weight: float = 1.0
    """Weight of the reward loss."""
    policy_loss_weight: float = 1.0
    """Weight of the policy loss."""
    consistency_loss_weight: float = 0.0
    """Weight of the SimSiam consistency loss; needs `network.projection_size`."""
    turn_loss_weight: float = 1.0
    """Weight of the turn head's loss, where there is one."""
    afterstate_value_loss_weight: float = 0.25
    """With `network.num_chance_codes`: weight of the loss of afterstates' values."""
    chance_loss_weight: float = 1.0
    """With `network.num_chance_codes`: weight of the cross-entropy between the chance distribution sigma and the code that came."""
    commitment_loss_weight: float = 0.25
    """With `network.num_chance_codes`: weight beta of the squared distance between the encoder's embedding and its code."""
    target_network_interval: int = 100
    """Steps between two copies of the weights into the target network, where one is used."""
    average_decay: float = 0.0
    """Exponential average of the weights that self-play, reanalyze and evaluation use; 0 uses the newest."""
    bfloat16: bool | None = False
    """Compute the networks in bfloat16 (softmax, losses and weights stay float32); null does where that is faster (residual networks on processors with AMX or AVX512_BF16; CUDA from Ampere on)."""
    compile: bool = False
    """Compile the learner's networks with torch.compile."""
    max_nonfinite_steps: int = 5
    """Steps in a row with a NaN or infinite loss or gradient (each skipped) after which the run stops."""


@dataclass(kw_only=True, slots=True)
class ReanalyzeConfig:
    """Refreshing of stored targets with newer weights."""

    fresh_fraction: float = 0.0
    """Wished share of sampled targets no older than `max_target_age`; 0 turns reanalyze off."""
    max_target_age: int = 1_000
    """Learner steps after which a target counts as stale."""
    batch_size: int = 256
    """Positions searched at once."""
    num_simulations: int | None = None
    """Simulations per position; null takes `search.num_simulations`."""
    max_share: float = 0.8
    """Most of the search work that reanalyze may take, self-play having the rest."""


@dataclass(kw_only=True, slots=True)
class GatekeepingConfig:
    """Matches that newer weights have to win before self-play and reanalyze use them (AlphaGo Zero)."""

    interval: int = 0
    """Learner steps between two matches of the newest weights against those in use; 0 is off: the newest always play."""
    games: int = 100
    """Games of a match, each opening once in each seat."""
    threshold: float = 0.55
    """Share of the points of a match, draws as halves, with which the newer weights are accepted."""
    num_simulations: int | None = None
    """Simulations per move of a match; null takes `search.num_simulations`, 0 plays by the network alone."""
    max_opening_moves: int = 4
    """Each pair of games begins with up to so many random moves, so that games differ."""


@dataclass(kw_only=True, slots=True)
class EvaluationConfig:
    """Evaluation during training and by `muzero-evaluate`."""

    interval: int = 1_000
    """Learner steps between evaluations; 0 turns them off. There is always one at the end."""
    games: int = 100
    """Games per opponent, or episodes of a single-agent environment; 0 evaluates nothing, not even at the end."""
    num_simulations: int | None = None
    """Simulations per move; null takes `search.num_simulations`, 0 plays by the network alone."""
    opponents: list[str] = field(default_factory=lambda: ["random"])
    """Opponents of two-player games: `random`, `rollout:<simulations>`, `alphabeta:<depth>`, `perfect` (small games; connect four with the extra `solver`), or a run folder."""
    max_opening_moves: int = 4
    """Each pair of games begins with up to so many random moves, so that games differ."""
    min_distinct_games: int | None = None
    """Games per opponent that have to differ: with fewer `muzero-evaluate` fails and training warns; null asks for none. Duplicates never count."""
    stop_early: bool = False
    """End a search as soon as no remaining simulation can change its move: the same play with fewer simulations."""
    exhaustive: bool = False
    """Small games: also `optimal_move_rate` and `losing_lines` over all positions."""
    max_episode_steps: int | None = None
    """Cut evaluation episodes after so many steps; null leaves it to the environment."""


@dataclass(kw_only=True, slots=True)
class LoggerConfig:
    """Where metrics go besides `metrics.jsonl`, which is always written."""

    tensorboard: bool | None = None
    """Write TensorBoard events; null does where tensorboard is installed."""
    wandb: bool = False
    """Log to Weights & Biases (extra `wandb`)."""
    wandb_project: str = "muzero"
    """Project there."""
    wandb_mode: str = "offline"
    """`offline` or `online`."""
    progress: str = "auto"
    """`live` display, `plain` lines, `none`, or `auto` (live on a terminal)."""
    progress_interval_seconds: float = 5.0
    """Seconds between two plain lines."""


@dataclass(kw_only=True, slots=True)
class Config:
    """A whole run."""

    seed: int = 0
    """Root of all randomness of the run."""
    env: EnvConfig = field(default_factory=EnvConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    selfplay: SelfPlayConfig = field(default_factory=SelfPlayConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    targets: TargetsConfig = field(default_factory=TargetsConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    reanalyze: ReanalyzeConfig = field(default_factory=ReanalyzeConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    gatekeeping: GatekeepingConfig = field(default_factory=GatekeepingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    run_dir: str = "${hydra:runtime.output_dir}"
    """Folder of the run; by default `runs/<env.name>/<time>`."""
    resume: str | None = None
    """Run folder to continue, with its saved config and this command's other settings (not those of `env` and `network`)."""


ENVS: dict[str, type[EnvConfig]] = {
    "open_spiel": OpenSpielConfig,
    "gym": GymConfig,
    "atari": AtariConfig,
}
NETWORKS: dict[str, type[NetworkConfig]] = {"mlp": MLPConfig, "resnet": ResNetConfig}
RUNTIMES: dict[str, type[RuntimeConfig]] = {"local": RuntimeConfig, "ray": RayRuntimeConfig}
VARIANTS: dict[str, Mapping[str, type[Any]]] = {
    "env": ENVS,
    "network": NETWORKS,
    "runtime": RUNTIMES,
}
"""Sections whose class depends on their `kind`."""
