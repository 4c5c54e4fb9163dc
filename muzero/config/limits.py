"""What a single setting may be: choices of strings and ranges of numbers, by the setting's dotted name."""

import math
from typing import NamedTuple


class Range(NamedTuple):
    """An interval of finite numbers."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def holds(self, number: float) -> bool:
        """Whether `number` is finite and inside."""
        above = number > self.low if self.low_open else number >= self.low
        below = number < self.high if self.high_open else number <= self.high
        return math.isfinite(number) and above and below

    def __str__(self) -> str:
        low = (
            ""
            if self.low == -math.inf
            else f"{'above' if self.low_open else 'at least'} {self.low:g}"
        )
        high = (
            ""
            if self.high == math.inf
            else f"{'below' if self.high_open else 'at most'} {self.high:g}"
        )
        return " and ".join(filter(None, (low, high))) or "a finite number"


_POSITIVE = Range(0, low_open=True)
_AT_LEAST_0 = Range(0)
_AT_LEAST_1 = Range(1)
_FRACTION = Range(0, 1)
_FINITE = Range()

RANGES: dict[str, Range] = {
    "seed": _AT_LEAST_0,
    "env.num_stacked_frames": _AT_LEAST_1,
    "env.max_episode_steps": _AT_LEAST_1,
    "env.frame_shape": _AT_LEAST_1,
    "env.num_players": Range(1, 2),
    "env.return_bounds": _FINITE,
    "env.reward_scale": _POSITIVE,
    "env.frame_skip": _AT_LEAST_1,
    "env.repeat_action_probability": Range(0, 1, high_open=True),
    "env.noop_max": _AT_LEAST_0,
    "env.screen_size": Range(16),
    "env.max_frames": _AT_LEAST_1,
    "network.value_support_max": _POSITIVE,
    "network.value_support_size": Range(3),
    "network.reward_support_max": _POSITIVE,
    "network.reward_support_size": Range(3),
    "network.projection_size": _AT_LEAST_0,
    "network.num_chance_codes": _AT_LEAST_0,
    "network.latent_size": _AT_LEAST_1,
    "network.hidden_sizes": _AT_LEAST_1,
    "network.num_channels": _AT_LEAST_1,
    "network.num_blocks": _AT_LEAST_0,
    "network.num_dynamics_blocks": _AT_LEAST_0,
    "network.downsample": Range(1, 16),
    "network.head_channels": _AT_LEAST_1,
    "network.head_hidden_size": _AT_LEAST_1,
    "search.num_simulations": _AT_LEAST_1,
    "search.max_depth": _AT_LEAST_1,
    "search.value_min": _FINITE,
    "search.value_max": _FINITE,
    "search.min_value_range": _AT_LEAST_0,
    "search.pb_c_init": _AT_LEAST_0,
    "search.pb_c_base": _POSITIVE,
    "search.root_dirichlet_alpha": _POSITIVE,
    "search.root_exploration_fraction": _FRACTION,
    "search.forced_playouts": _AT_LEAST_0,
    "search.max_num_considered_actions": _AT_LEAST_1,
    "search.gumbel_scale": _AT_LEAST_0,
    "search.value_scale": _AT_LEAST_0,
    "search.maxvisit_init": _AT_LEAST_0,
    "search.num_threads": _AT_LEAST_1,
    "selfplay.num_games": _AT_LEAST_1,
    "selfplay.num_simulations": _AT_LEAST_1,
    "selfplay.progressive_simulations": _AT_LEAST_1,
    "selfplay.progressive_steps": _AT_LEAST_1,
    "selfplay.full_search_fraction": Range(0, 1, low_open=True),
    "selfplay.fast_simulations": _AT_LEAST_1,
    "selfplay.temperatures": _AT_LEAST_0,
    "selfplay.temperature_steps": _AT_LEAST_1,
    "selfplay.temperature_drop_move": _AT_LEAST_0,
    "selfplay.opening_fraction": _FRACTION,
    "selfplay.max_opening_moves": _AT_LEAST_0,
    "selfplay.fork_fraction": _FRACTION,
    "selfplay.max_fork_moves": _AT_LEAST_0,
    "selfplay.segment_length": _AT_LEAST_1,
    "selfplay.weights_interval": _AT_LEAST_1,
    "replay.capacity": _AT_LEAST_1,
    "replay.min_size": _AT_LEAST_1,
    "replay.samples_per_insert": _POSITIVE,
    "replay.error_buffer": _POSITIVE,
    "replay.max_times_sampled": _AT_LEAST_1,
    "replay.max_behaviour_age": _AT_LEAST_1,
    "replay.priority_exponent": _AT_LEAST_0,
    "replay.importance_exponent": _AT_LEAST_0,
    "targets.discount": Range(0, 1, low_open=True),
    "targets.td_steps": _AT_LEAST_1,
    "targets.td_lambda": _FRACTION,
    "learner.num_steps": _AT_LEAST_1,
    "learner.batch_size": _AT_LEAST_1,
    "learner.num_unroll_steps": _AT_LEAST_1,
    "learner.learning_rate": _POSITIVE,
    "learner.warmup_steps": _AT_LEAST_0,
    "learner.final_learning_rate_fraction": _FRACTION,
    "learner.decay_steps": _AT_LEAST_1,
    "learner.decay_rate": Range(0, 1, low_open=True),
    "learner.weight_decay": _AT_LEAST_0,
    "learner.max_gradient_norm": _AT_LEAST_0,
    "learner.value_loss_weight": _AT_LEAST_0,
    "learner.reward_loss_weight": _AT_LEAST_0,
    "learner.policy_loss_weight": _AT_LEAST_0,
    "learner.consistency_loss_weight": _AT_LEAST_0,
    "learner.turn_loss_weight": _AT_LEAST_0,
    "learner.afterstate_value_loss_weight": _AT_LEAST_0,
    "learner.chance_loss_weight": _AT_LEAST_0,
    "learner.commitment_loss_weight": _AT_LEAST_0,
    "learner.target_network_interval": _AT_LEAST_1,
    "learner.average_decay": Range(0, 1, high_open=True),
    "learner.max_nonfinite_steps": _AT_LEAST_1,
    "reanalyze.fresh_fraction": _FRACTION,
    "reanalyze.max_target_age": _AT_LEAST_0,
    "reanalyze.batch_size": _AT_LEAST_1,
    "reanalyze.num_simulations": _AT_LEAST_1,
    "reanalyze.max_share": Range(0, 1, high_open=True),
    "runtime.learner_threads": _AT_LEAST_1,
    "runtime.checkpoint_interval": _AT_LEAST_1,
    "runtime.checkpoints_kept": _AT_LEAST_1,
    "runtime.checkpoint_keep_interval": _AT_LEAST_0,
    "runtime.log_interval": _AT_LEAST_1,
    "runtime.memory_limit_gb": Range(0, low_open=True),
    "runtime.num_replay_shards": _AT_LEAST_1,
    "runtime.num_inference_servers": _AT_LEAST_1,
    "runtime.lease_seconds": _POSITIVE,
    "runtime.publish_seconds": _AT_LEAST_0,
    "runtime.prefetch": _AT_LEAST_1,
    "runtime.controller_seconds": _POSITIVE,
    "runtime.heartbeat_seconds": _POSITIVE,
    "runtime.deadline_seconds": _POSITIVE,
    "runtime.max_failures": _AT_LEAST_1,
    "runtime.watchdog_seconds": _POSITIVE,
    "gatekeeping.interval": _AT_LEAST_0,
    "gatekeeping.games": Range(2),
    "gatekeeping.threshold": _FRACTION,
    "gatekeeping.num_simulations": _AT_LEAST_0,
    "gatekeeping.max_opening_moves": _AT_LEAST_0,
    "evaluation.interval": _AT_LEAST_0,
    "evaluation.games": _AT_LEAST_0,
    "evaluation.num_simulations": _AT_LEAST_0,
    "evaluation.max_opening_moves": _AT_LEAST_0,
    "evaluation.min_distinct_games": _AT_LEAST_1,
    "evaluation.max_episode_steps": _AT_LEAST_1,
    "logger.progress_interval_seconds": _POSITIVE,
}
"""Ranges of all numbers; of a list, those of its elements."""

CHOICES: dict[str, tuple[str, ...]] = {
    "env.kind": ("open_spiel", "gym", "atari"),
    "env.turn_order": ("auto", "alternating", "repeated"),
    "env.encoding": ("tensor", "features"),
    "env.vectorization": ("sync", "async"),
    "network.kind": ("mlp", "resnet"),
    "network.norm": ("batch", "group", "none"),
    "search.kind": ("puct", "gumbel"),
    "search.dynamics": ("learned", "rules"),
    "search.normalization": ("tree", "siblings", "bounds", "none"),
    "search.first_play_urgency": ("minimum", "parent", "mean"),
    "search.root_value": ("mean", "best"),
    "replay.initial_priority": ("error", "max"),
    "targets.bootstrap": ("search", "target_network"),
    "learner.optimizer": ("adam", "adamw", "sgd"),
    "learner.schedule": ("constant", "cosine", "step"),
    "runtime.kind": ("local", "ray"),
    "runtime.inference": ("local", "central"),
    "runtime.on_lost_server": ("local", "wait"),
    "logger.wandb_mode": ("offline", "online"),
    "logger.progress": ("auto", "live", "plain", "none"),
}
"""Strings that are one of a few."""

FREE_TEXT = {
    "env.name",
    "env.game",
    "env.id",
    "runtime.device",
    "runtime.address",
    "runtime.num_workers",
    "evaluation.opponents",
    "logger.wandb_project",
    "run_dir",
    "resume",
}
"""Strings that have a form of their own, or none."""
