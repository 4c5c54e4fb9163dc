"""Settings that are legal and do nothing, or not what they seem to."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from muzero.config.schema import Config
from muzero.config.validate import Facts

_PUCT_ONLY = (
    "search.pb_c_init",
    "search.pb_c_base",
    "search.first_play_urgency",
    "search.root_dirichlet_alpha",
    "search.root_exploration_fraction",
    "selfplay.temperatures",
    "selfplay.temperature_steps",
    "selfplay.temperature_drop_move",
)
_GUMBEL_ONLY = (
    "search.max_num_considered_actions",
    "search.gumbel_scale",
    "search.value_scale",
    "search.maxvisit_init",
    "search.use_mixed_value",
)
_PER_ONLY = ("replay.priority_exponent", "replay.importance_exponent", "replay.initial_priority")
_REANALYZE_ONLY = ("reanalyze.max_target_age", "reanalyze.num_simulations", "reanalyze.max_share")
_GATE_ONLY = tuple(
    f"gatekeeping.{name}" for name in ("games", "threshold", "num_simulations", "max_opening_moves")
)
_CODES_ONLY = (
    "learner.afterstate_value_loss_weight",
    "learner.chance_loss_weight",
    "learner.commitment_loss_weight",
)
_OPENINGS = (
    ("selfplay.opening_fraction", "selfplay.max_opening_moves"),
    ("selfplay.fork_fraction", "selfplay.max_fork_moves"),
)
_STEP_ONLY = ("learner.decay_steps", "learner.decay_rate")
_BOARD_ONLY = (
    "evaluation.opponents",
    "evaluation.exhaustive",
    "evaluation.max_opening_moves",
    "evaluation.min_distinct_games",
)


def warnings(
    config: Config,
    *,
    num_players: int | None = None,
    return_bounds: tuple[float, float] | None = None,
    max_episode_steps: int | None = None,
    turn_order: str | None = None,
) -> list[str]:
    """One sentence per setting that was changed without effect, and per likely slip. Arguments as in `check`."""
    facts = Facts(
        num_players=num_players,
        return_bounds=return_bounds,
        max_episode_steps=max_episode_steps,
        turn_order=turn_order,
    )
    idle = [
        f"{name}={_value(config, name)} has no effect: {reason}"
        for names, reason in _unused(config, facts)
        for name in names
        if _is_changed(config, name)
    ]
    return idle + list(_slips(config, facts))


def _unused(config: Config, facts: Facts) -> Iterator[tuple[tuple[str, ...], str]]:
    """Settings that nothing reads under this config, and why."""
    search, learner = config.search, config.learner
    if search.kind == "gumbel":
        yield _PUCT_ONLY, "search.kind is gumbel, which samples by its own noise"
    else:
        yield _GUMBEL_ONLY, f"search.kind is {search.kind}"
    if search.normalization != "bounds":
        yield (
            ("search.value_min", "search.value_max"),
            f"search.normalization is {search.normalization}",
        )
    if search.normalization in ("bounds", "none"):
        yield ("search.min_value_range",), f"search.normalization is {search.normalization}"
    if config.runtime.device == "cpu":
        yield ("search.cuda_graph",), "runtime.device is cpu"
    if not config.replay.prioritized:
        yield _PER_ONLY, "replay.prioritized is false"
    if learner.schedule != "step":
        yield _STEP_ONLY, f"learner.schedule is {learner.schedule}"
    if learner.schedule != "cosine":
        yield ("learner.final_learning_rate_fraction",), f"learner.schedule is {learner.schedule}"
    if config.targets.bootstrap != "target_network":
        yield (
            ("learner.target_network_interval",),
            f"targets.bootstrap is {config.targets.bootstrap}",
        )
    if learner.consistency_loss_weight == 0:
        yield ("network.projection_size",), "learner.consistency_loss_weight is 0"
    if config.network.num_chance_codes == 0:
        yield _CODES_ONLY, "network.num_chance_codes is 0"
    elif config.runtime.device != "cpu":
        yield ("search.cuda_graph",), "a step of a network with chance codes is not captured"
    if config.reanalyze.fresh_fraction == 0:
        yield _REANALYZE_ONLY, "reanalyze.fresh_fraction is 0"
    if config.gatekeeping.interval == 0:
        yield _GATE_ONLY, "gatekeeping.interval is 0"
    else:
        yield (
            ("selfplay.weights_interval",),
            f"gatekeeping.interval is {config.gatekeeping.interval}, and self-play takes weights when they are accepted",
        )
    if config.selfplay.full_search_fraction == 1:
        yield ("selfplay.fast_simulations",), "selfplay.full_search_fraction is 1"
    if config.evaluation.num_simulations == 0:
        yield ("evaluation.stop_early",), "evaluation.num_simulations is 0"
    for pair in _OPENINGS:
        for name, other in (pair, pair[::-1]):
            if _value(config, name) == 0:
                yield (other,), f"{name} is 0"
    if not config.logger.wandb:
        yield ("logger.wandb_project", "logger.wandb_mode"), "logger.wandb is false"
    if facts.num_players == 1:
        # With its default, evaluation.opponents was not asked for; an empty list is what one player wants.
        yield (
            tuple(name for name in _BOARD_ONLY if _value(config, name)),
            "the environment has one player",
        )
    if facts.turn_order in ("single", "alternating") and not config.network.turn_head:
        yield ("learner.turn_loss_weight",), "there is no turn head: nobody moves twice in a row"


def _slips(config: Config, facts: Facts) -> Iterator[str]:
    """What is legal but hardly meant."""
    search, selfplay, replay = config.search, config.selfplay, config.replay
    if search.kind == "gumbel":
        for name, own in (
            ("search", search.num_simulations),
            ("selfplay", selfplay.num_simulations),
        ):
            if own is not None and own < search.max_num_considered_actions:
                yield (
                    f"{name}.num_simulations={own} is below search.max_num_considered_actions="
                    f"{search.max_num_considered_actions}: only {own} actions can be considered at the root"
                )
    for share, moves in _OPENINGS:
        if facts.num_players == 1 and _value(config, share) > 0 and _value(config, moves) > 0:
            yield (
                f"{share} and {moves} begin episodes with random actions, which is meant "
                "for two-player games; this environment has one player"
            )
    if facts.num_players == 2 and not config.evaluation.opponents and config.evaluation.games > 0:
        yield "evaluation.opponents is empty: a two-player game is evaluated against nobody; try evaluation=board"
    if config.gatekeeping.interval > config.learner.num_steps:
        yield (
            f"gatekeeping.interval={config.gatekeeping.interval} is above learner.num_steps={config.learner.num_steps}: "
            "newer weights are never judged, and self-play keeps the weights that it began with"
        )
    if config.learner.batch_size > replay.min_size:
        yield (
            f"learner.batch_size={config.learner.batch_size} is above replay.min_size={replay.min_size}: the first "
            "batches hold positions more than once"
        )
    context = config.targets.td_steps + config.learner.num_unroll_steps
    unending = facts.max_episode_steps is None or facts.max_episode_steps > selfplay.segment_length
    if facts.num_players is not None and unending and context > selfplay.segment_length:
        yield (
            f"selfplay.segment_length={selfplay.segment_length} is below its context of {context} positions "
            "(targets.td_steps + learner.num_unroll_steps): long episodes are stored several times over; lengthen it"
        )


def _value(config: Config, name: str) -> Any:
    section, _, leaf = name.partition(".")
    return getattr(getattr(config, section), leaf)


def _is_changed(config: Config, name: str) -> bool:
    """Whether a setting differs from its schema's value."""
    section, _, leaf = name.partition(".")
    part = getattr(config, section)
    field = next(field for field in dataclasses.fields(part) if field.name == leaf)
    if field.default_factory is not dataclasses.MISSING:
        return bool(getattr(part, leaf) != field.default_factory())
    return bool(getattr(part, leaf) != field.default)
