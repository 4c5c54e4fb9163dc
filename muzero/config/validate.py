"""Checks of a whole config: all that is wrong with it, told together, and settings that have no effect."""

import dataclasses
import difflib
import math
from collections.abc import Iterator
from typing import Any

from muzero.config.gatekeeping import gatekeeping_problems
from muzero.config.limits import CHOICES, RANGES
from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.config.opponents import evaluation_problems
from muzero.config.runtime import RayRuntimeConfig
from muzero.config.runtime_checks import runtime_problems
from muzero.config.schema import VARIANTS, Config
from muzero.config.stages import simulation_problems, temperature_problems
from muzero.config.supports import fit_supports, transform


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the checks may know of the environment; None where unknown."""

    num_players: int | None = None
    """1 or 2."""
    return_bounds: tuple[float, float] | None = None
    """Lowest and highest undiscounted return in training units, that is with `env.reward_scale`."""
    max_episode_steps: int | None = None
    """Steps after which an episode is surely over."""
    turn_order: str | None = None
    """`single`, `alternating` or `repeated`."""


def check(
    config: Config,
    *,
    num_players: int | None = None,
    return_bounds: tuple[float, float] | None = None,
    max_episode_steps: int | None = None,
    turn_order: str | None = None,
) -> None:
    """Refuse a config that cannot work.

    The environment's facts are as in `EnvSpec`; without them the checks that need them are left out.
    Raises ValueError with all problems, one a line.
    """
    facts = Facts(
        num_players=num_players,
        return_bounds=return_bounds,
        max_episode_steps=max_episode_steps,
        turn_order=turn_order,
    )
    found = problems(config, facts)
    if len(found) == 1:
        raise ValueError(found[0])
    if found:
        raise ValueError(
            "\n".join([f"{len(found)} settings cannot work:", *(f"- {line}" for line in found)])
        )


def check_for_playing(config: Config) -> None:
    """Make a run's config one to play with, not to train, and `check` it.

    Reanalyze and the pipelined search are turned off: neither is of any use then, and `search.dynamics=rules`, which goes
    with neither, has to suit every run.
    """
    config.reanalyze.fresh_fraction, config.search.pipelined = 0.0, False
    check(config)


def problems(config: Config, facts: Facts | None = None) -> list[str]:
    """One sentence per problem: the setting, its value, what is allowed or what to change."""
    facts = facts or Facts()
    found = list(_single(config))
    for check_one in (
        _network,
        _chance_codes,
        _support,
        _search,
        _selfplay,
        _replay,
        _targets,
    ):
        found.extend(check_one(config, facts))
    found.extend(runtime_problems(config))
    found.extend(evaluation_problems(config))
    found.extend(gatekeeping_problems(config, facts.num_players))
    return found


def settings(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every single setting."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from settings(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def _single(config: Config) -> Iterator[str]:
    """Settings that are wrong whatever the others are."""
    for section, kinds in VARIANTS.items():
        part = getattr(config, section)
        expected = kinds.get(part.kind)
        if expected is not None and type(part) is not expected:
            yield f"{section}.kind is {part.kind!r}, but the section is a {type(part).__name__}; choose {section}=..."
    for name, value in settings(config):
        if name in CHOICES and value not in CHOICES[name]:
            near = difflib.get_close_matches(str(value), CHOICES[name], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f"{name} is {value!r}; it must be {_either(CHOICES[name])}{hint}"
        if name in RANGES:
            for number in value if isinstance(value, list) else [value]:
                if number is not None and not RANGES[name].holds(number):
                    yield f"{name} is {value}; it must be {RANGES[name]}"
                    break


def _network(config: Config, facts: Facts) -> Iterator[str]:
    network = config.network
    for name in ("value_support_size", "reward_support_size"):
        size = getattr(network, name)
        if size is not None and size % 2 == 0:
            yield f"network.{name} is {size}; it must be odd, so that 0 is an atom: take {size + 1}"
    if isinstance(network, MLPConfig) and not network.hidden_sizes:
        yield "network.hidden_sizes is empty; give at least one width, such as [128]"
    if isinstance(network, ResNetConfig) and network.downsample not in (1, 2, 4, 8, 16):
        yield f"network.downsample is {network.downsample}; it must be 1, 2, 4, 8 or 16"
    if config.learner.consistency_loss_weight > 0 and network.projection_size == 0:
        yield (
            f"learner.consistency_loss_weight is {config.learner.consistency_loss_weight:g}, but "
            "network.projection_size is 0, which builds no projection to compare; set it to 512 or so, or the weight to 0"
        )
    if facts.turn_order == "repeated" and network.turn_head is False:
        yield (
            "network.turn_head is false, but in this game a player may move twice in a row, so the network has to "
            "predict who moves next; set it to null or true"
        )


def _chance_codes(config: Config, facts: Facts) -> Iterator[str]:
    number = config.network.num_chance_codes
    if number == 1:
        yield "network.num_chance_codes is 1, which tells nothing apart; take at least 2, or 0 for deterministic dynamics"
    if number == 0:
        return
    ways = [
        (
            config.search.dynamics == "rules",
            "search.dynamics is 'rules', which has no chance nodes",
            "dynamics to learned",
        ),
        (
            config.selfplay.reuse_subtree,
            "selfplay.reuse_subtree is true, but which code a move really had is known in training only",
            "reuse_subtree to false",
        ),
        (
            isinstance(config.runtime, RayRuntimeConfig) and config.runtime.inference == "central",
            "runtime.inference is 'central', whose server has no afterstates",
            "runtime.inference to local",
        ),
    ]
    for is_set, reason, way_out in ways:
        if is_set:
            yield f"network.num_chance_codes is {number}, and {reason}; set {way_out}, or num_chance_codes to 0"


def _support(config: Config, facts: Facts) -> Iterator[str]:
    if facts.return_bounds is None:
        return
    value, _ = fit_supports(config.network, facts.return_bounds)
    furthest = max(map(abs, facts.return_bounds))
    if not math.isfinite(furthest) or furthest <= value.reach * (1 + 1e-6):
        return
    low, high = facts.return_bounds
    needed, unit = furthest, ""
    if value.transform:
        needed, unit = transform(furthest), ", in transformed units"
    yield (
        f"network.value_support_max is {value.max:g} and reaches returns of up to {value.reach:g}, but the "
        f"environment's lie between {low:g} and {high:g}; set it to at least {math.ceil(needed * 10) / 10:g}{unit}, "
        "or to null for what fits"
    )


def _search(config: Config, facts: Facts) -> Iterator[str]:
    search = config.search
    if search.forced_playouts > 0 and search.kind == "gumbel":
        yield (
            f"search.forced_playouts is {search.forced_playouts:g}, but search.kind is 'gumbel', whose sequential halving "
            "decides by itself how often a root action is visited; set forced_playouts to 0, or take search=puct"
        )
    if search.pipelined:
        if config.selfplay.num_games < 2:
            yield (
                f"search.pipelined is true, which needs two halves, but selfplay.num_games is {config.selfplay.num_games}; "
                "play at least 2 games, or set pipelined to false"
            )
        if search.dynamics == "rules":
            yield (
                "search.pipelined is true with search.dynamics='rules', whose moves are made by one thread at a time; set "
                "pipelined to false"
            )
    if search.dynamics == "rules":
        if config.env.kind != "open_spiel":
            yield (
                f"search.dynamics is 'rules', but env.kind is {config.env.kind!r}: only OpenSpiel's games have states that a "
                "search can copy and play on from; set search.dynamics to learned"
            )
        if config.reanalyze.fresh_fraction > 0:
            yield (
                f"reanalyze.fresh_fraction is {config.reanalyze.fresh_fraction:g} with search.dynamics='rules': replay holds "
                "observations, and the rules cannot play on from these; set fresh_fraction to 0, or dynamics to learned"
            )
    if search.value_min >= search.value_max:
        yield f"search.value_min is {search.value_min:g}; it must be below search.value_max, {search.value_max:g}"
    elif search.normalization == "bounds" and facts.return_bounds is not None:
        low, high = facts.return_bounds
        if low < search.value_min or high > search.value_max:
            yield (
                f"search.normalization is 'bounds' with search.value_min {search.value_min:g} and search.value_max "
                f"{search.value_max:g}, but the environment's returns lie between {low:g} and {high:g}; widen the "
                "two, or take normalization=tree"
            )


def _selfplay(config: Config, facts: Facts) -> Iterator[str]:
    selfplay = config.selfplay
    yield from temperature_problems(selfplay)
    yield from simulation_problems(selfplay, config.search)
    if selfplay.opening_fraction + selfplay.fork_fraction > 1:
        yield (
            f"selfplay.opening_fraction is {selfplay.opening_fraction:g} and selfplay.fork_fraction "
            f"{selfplay.fork_fraction:g}: together they are more than all episodes, 1; lower one of them"
        )
    if 0 < selfplay.full_search_fraction < 1:
        own = selfplay.num_simulations
        name = "search.num_simulations" if own is None else "selfplay.num_simulations"
        full = config.search.num_simulations if own is None else own
        if selfplay.fast_simulations is None:
            yield (
                f"selfplay.full_search_fraction is {selfplay.full_search_fraction:g}, so the other moves get a fast search, but "
                "selfplay.fast_simulations is null; give it a number, such as a fifth of "
                f"{name}, {full}"
            )
        elif selfplay.fast_simulations >= full:
            yield (
                f"selfplay.fast_simulations is {selfplay.fast_simulations}; it must be below {name}, {full}, "
                "or selfplay.full_search_fraction be 1"
            )


def _replay(config: Config, facts: Facts) -> Iterator[str]:
    replay, batch_size = config.replay, config.learner.batch_size
    if replay.min_size > replay.capacity:
        yield f"replay.min_size is {replay.min_size}; it must be at most replay.capacity, {replay.capacity}"
    longest = _longest_segment(config, facts)
    if longest > replay.capacity:
        yield (
            f"replay.capacity is {replay.capacity}, but one segment may take {longest} positions "
            "(selfplay.segment_length and its context of targets.td_steps and learner.num_unroll_steps); enlarge it"
        )
    if replay.error_buffer is not None:
        # All games may hand in a position at once; both sides must fit into the band or they wait for each other.
        inserted = config.selfplay.num_games * replay.samples_per_insert
        needed = max(1.0, replay.samples_per_insert, (inserted + batch_size) / 2)
        if replay.error_buffer < needed:
            yield (
                f"replay.error_buffer is {replay.error_buffer:g}, with which self-play and learner could wait for each "
                f"other for ever: learner.batch_size {batch_size}, selfplay.num_games {config.selfplay.num_games} and "
                f"replay.samples_per_insert {replay.samples_per_insert:g} need at least {needed:g}; null takes a "
                "fitting width"
            )

    often, age = replay.max_times_sampled, replay.max_behaviour_age
    if often is not None and often < replay.samples_per_insert:
        yield (
            f"replay.max_times_sampled is {often}, below replay.samples_per_insert, {replay.samples_per_insert:g}: positions "
            "would be used up before the learner has its samples; raise it, or lower samples_per_insert"
        )
    if age is not None and age < config.selfplay.weights_interval:
        yield (
            f"replay.max_behaviour_age is {age}, below selfplay.weights_interval, {config.selfplay.weights_interval}: positions "
            "would be too old when they are played; raise it, or lower weights_interval"
        )


def _longest_segment(config: Config, facts: Facts) -> int:
    """Positions of a segment with its context."""
    context = (
        config.env.num_stacked_frames
        - 1
        + config.targets.td_steps
        + config.learner.num_unroll_steps
    )
    longest = config.selfplay.segment_length + context
    return longest if facts.max_episode_steps is None else min(longest, facts.max_episode_steps + 1)


def _targets(config: Config, facts: Facts) -> Iterator[str]:
    targets = config.targets
    if targets.bootstrap == "target_network" and targets.td_lambda < 1:
        yield (
            f"targets.td_lambda is {targets.td_lambda:g} with targets.bootstrap='target_network', which values one "
            "position per target only; set td_lambda to 1, or bootstrap to search"
        )


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
