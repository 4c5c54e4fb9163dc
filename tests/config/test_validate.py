"""What cannot work is refused with the setting, its value, what is allowed and a way out; all of it at once."""

import math
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muzero.config.environments import AtariConfig, GymConfig, OpenSpielConfig
from muzero.config.limits import CHOICES, FREE_TEXT, RANGES, Range
from muzero.config.networks import MLPConfig, ResNetConfig
from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import ENVS, VARIANTS, Config
from muzero.config.validate import Facts, check, problems


def make_config(**sections: dict[str, Any]) -> Config:
    """The schema's values for tic-tac-toe with an MLP, changed by `section={setting: value}`."""
    config = Config(
        env=OpenSpielConfig(game="tic_tac_toe", name="tictactoe"),
        network=MLPConfig(
            value_support_max=1.0,
            value_support_size=3,
            reward_support_max=1.0,
            support_transform=False,
        ),
        run_dir="runs/x",
    )
    for section, values in sections.items():
        for name, value in values.items():
            setattr(getattr(config, section), name, value)
    return config


def test_the_schema_itself_is_sound() -> None:
    assert problems(make_config()) == []
    check(make_config(), num_players=2, return_bounds=(-1.0, 1.0), max_episode_steps=9)


def all_settings() -> dict[str, Any]:
    """Type of every setting of every kind of section."""
    found: dict[str, Any] = {}
    for field in fields(Config):
        kinds = VARIANTS.get(field.name, {}).values()
        for kind in (field.type, *kinds):
            if is_dataclass(kind):
                hints = typing.get_type_hints(kind)
                found |= {f"{field.name}.{name}": hint for name, hint in hints.items()}
            else:
                found[field.name] = kind
    return found


def leaf_types(hint: Any) -> set[Any]:
    arguments = typing.get_args(hint)
    return set().union(*map(leaf_types, arguments)) if arguments else {hint}


def test_every_number_has_a_range_and_every_string_its_choices() -> None:
    for name, hint in all_settings().items():
        if typing.get_origin(hint) is dict:
            continue  # the adapter knows what its game takes
        kinds = leaf_types(hint)
        assert (name in RANGES) == bool(kinds & {int, float}), name
        assert (name in CHOICES or name in FREE_TEXT) == (str in kinds), name
    assert set(RANGES) | set(CHOICES) | FREE_TEXT <= set(all_settings())


@pytest.mark.parametrize(
    "name", [name for name in CHOICES if name.partition(".")[0] not in ("env", "network")]
)
def test_every_choice_is_checked(name: str) -> None:
    section, _, leaf = name.partition(".")
    config = make_config()
    if section == "runtime" and not hasattr(config.runtime, leaf):
        config.runtime = RayRuntimeConfig()
    setattr(getattr(config, section), leaf, "banana")
    (problem,) = problems(config)
    assert problem.startswith(f"{name} is 'banana'; it must be ")
    assert all(choice in problem for choice in CHOICES[name])


@pytest.mark.parametrize("outside", [math.nan, math.inf, -math.inf])
def test_every_range_is_checked(outside: float) -> None:
    for name in RANGES:
        section, _, leaf = name.rpartition(".")
        config = make_config()
        if section == "env":
            config.env = next(kind(name="x") for kind in ENVS.values() if hasattr(kind(), leaf))
        if section == "network" and not hasattr(config.network, leaf):
            config.network = ResNetConfig()
        if section == "runtime" and not hasattr(config.runtime, leaf):
            config.runtime = RayRuntimeConfig()
        part = getattr(config, section) if section else config
        setattr(part, leaf, [outside] if isinstance(getattr(part, leaf), list) else outside)
        assert any(line.startswith(f"{name} is ") for line in problems(config)), name


def test_messages_of_ranges() -> None:
    (problem,) = problems(make_config(learner={"num_unroll_steps": 0}))
    assert problem == "learner.num_unroll_steps is 0; it must be at least 1"
    (problem,) = problems(make_config(targets={"discount": 1.5}))
    assert problem == "targets.discount is 1.5; it must be above 0 and at most 1"
    (problem,) = problems(
        make_config(selfplay={"temperatures": [1.0, -0.5], "temperature_steps": [5]})
    )
    assert problem == "selfplay.temperatures is [1.0, -0.5]; it must be at least 0"
    (problem,) = problems(make_config(search={"kind": "gumbell"}))
    assert problem == "search.kind is 'gumbell'; it must be puct or gumbel; did you mean gumbel?"


@given(st.floats(-2, 3), st.floats(-1, 1), st.floats(1, 2), st.booleans(), st.booleans())
def test_range(number: float, low: float, high: float, low_open: bool, high_open: bool) -> None:
    inside = (
        low <= number <= high
        and not (low_open and number == low)
        and not (high_open and number == high)
    )
    assert Range(low, high, low_open, high_open).holds(number) == inside


Change = dict[str, dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"network": {"value_support_size": 4}},
            ["network.value_support_size is 4", "odd", "take 5"],
        ),
        ({"network": {"hidden_sizes": []}}, ["network.hidden_sizes is empty", "[128]"]),
        ({"learner": {"consistency_loss_weight": 2.0}}, ["is 2", "network.projection_size is 0"]),
        ({"network": {"num_chance_codes": 1}}, ["num_chance_codes is 1", "at least 2, or 0"]),
        (
            {"network": {"num_chance_codes": 32}, "search": {"dynamics": "rules"}},
            ["num_chance_codes is 32", "search.dynamics is 'rules'", "dynamics to learned"],
        ),
        (
            {"network": {"num_chance_codes": 32}, "selfplay": {"reuse_subtree": True}},
            ["num_chance_codes is 32", "selfplay.reuse_subtree is true", "num_chance_codes to 0"],
        ),
        ({"search": {"value_min": 1.0}}, ["search.value_min is 1", "search.value_max, 1"]),
        ({"selfplay": {"temperatures": []}}, ["selfplay.temperatures is empty"]),
        (
            {"selfplay": {"temperatures": [1.0, 0.5]}},
            ["selfplay.temperature_steps has 0 entries for 2", "must have 1"],
        ),
        (
            {"selfplay": {"temperatures": [1.0, 0.5, 0.1], "temperature_steps": [20, 20]}},
            ["selfplay.temperature_steps is [20, 20]", "increase"],
        ),
        (
            {"selfplay": {"progressive_simulations": [2, 8], "progressive_steps": [10]}},
            ["selfplay.progressive_steps has 1 entries for 2", "as many", "stages ends"],
        ),
        (
            {"selfplay": {"progressive_steps": [10]}},
            ["selfplay.progressive_steps has 1 entries for 0"],
        ),
        (
            {"selfplay": {"progressive_simulations": [2, 8], "progressive_steps": [10, 10]}},
            ["selfplay.progressive_steps is [10, 10]", "increase"],
        ),
        (
            {"selfplay": {"progressive_simulations": [8, 2], "progressive_steps": [10, 20]}},
            ["selfplay.progressive_simulations is [8, 2]", "increase"],
        ),
        (
            {"selfplay": {"progressive_simulations": [8, 32], "progressive_steps": [10, 20]}},
            ["selfplay.progressive_simulations is [8, 32]", "below search.num_simulations, 32"],
        ),
        (
            {
                "selfplay": {
                    "progressive_simulations": [17],
                    "progressive_steps": [10],
                    "num_simulations": 16,
                }
            },
            ["selfplay.progressive_simulations is [17]", "below selfplay.num_simulations, 16"],
        ),
        ({"selfplay": {"progressive_simulations": [2, 31], "progressive_steps": [1, 2]}}, []),
        (
            {"gatekeeping": {"interval": 100, "games": 7}},
            ["gatekeeping.games is 7", "even", "take 8"],
        ),
        ({"gatekeeping": {"games": 7}}, []),
        ({"gatekeeping": {"games": 1}}, ["gatekeeping.games is 1", "at least 2"]),
        (
            {"gatekeeping": {"interval": 100}, "replay": {"max_behaviour_age": 500}},
            ["replay.max_behaviour_age is 500", "gatekeeping.interval is 100", "null"],
        ),
        ({"gatekeeping": {"interval": 100, "threshold": 0.5}}, []),
        (
            {"selfplay": {"opening_fraction": 0.7, "fork_fraction": 0.4}},
            ["selfplay.opening_fraction is 0.7", "selfplay.fork_fraction 0.4", "more than all"],
        ),
        (
            {"selfplay": {"full_search_fraction": 0.25}},
            [
                "full_search_fraction is 0.25",
                "fast_simulations is null",
                "search.num_simulations, 32",
            ],
        ),
        (
            {"selfplay": {"full_search_fraction": 0.25, "fast_simulations": 32}},
            ["selfplay.fast_simulations is 32", "below search.num_simulations, 32"],
        ),
        (
            {
                "selfplay": {
                    "full_search_fraction": 0.25,
                    "fast_simulations": 16,
                    "num_simulations": 16,
                }
            },
            ["selfplay.fast_simulations is 16", "below selfplay.num_simulations, 16"],
        ),
        ({"selfplay": {"full_search_fraction": 0.25, "fast_simulations": 31}}, []),
        ({"selfplay": {"full_search_fraction": 1.0, "fast_simulations": 64}}, []),
        ({"selfplay": {"full_search_fraction": 0.0}}, ["full_search_fraction is 0.0", "above 0"]),
        (
            {"search": {"forced_playouts": 2.0}},
            ["search.forced_playouts is 2", "search.kind is 'gumbel'", "search=puct"],
        ),
        ({"search": {"forced_playouts": 2.0, "kind": "puct"}}, []),
        ({"replay": {"min_size": 11, "capacity": 10_000_000}, "learner": {}}, []),
        (
            {"replay": {"min_size": 5_000, "capacity": 4_000}},
            ["replay.min_size is 5000", "replay.capacity, 4000"],
        ),
        (
            {"replay": {"min_size": 10, "capacity": 200}},
            ["replay.capacity is 200", "take 215 positions", "enlarge"],
        ),
        (
            {"replay": {"error_buffer": 200.0}, "selfplay": {"num_games": 64}},
            ["replay.error_buffer is 200", "batch_size 256", "num_games 64", "at least 256"],
        ),
        (
            {"targets": {"bootstrap": "target_network", "td_lambda": 0.9}},
            ["targets.td_lambda is 0.9", "target_network"],
        ),
        ({"runtime": {"device": "gpu"}}, ["runtime.device is 'gpu'", "cuda"]),
        ({"runtime": {"device": "cuda:1"}}, []),
        (
            {"learner": {"warmup_steps": 20_000}},
            ["learner.warmup_steps is 20000", "num_steps, 10000"],
        ),
        (
            {"replay": {"max_times_sampled": 3, "samples_per_insert": 4.0}},
            ["replay.max_times_sampled is 3", "replay.samples_per_insert, 4"],
        ),
        ({"replay": {"max_times_sampled": 4, "samples_per_insert": 4.0}}, []),
        (
            {"replay": {"max_behaviour_age": 9}, "selfplay": {"weights_interval": 10}},
            ["replay.max_behaviour_age is 9", "selfplay.weights_interval, 10"],
        ),
        ({"replay": {"max_behaviour_age": 10}, "selfplay": {"weights_interval": 10}}, []),
        (
            {"evaluation": {"min_distinct_games": 50, "games": 20}},
            ["evaluation.min_distinct_games is 50", "evaluation.games, 20"],
        ),
        ({"evaluation": {"min_distinct_games": 20, "games": 20}}, []),
        ({"evaluation": {"min_distinct_games": 0}}, ["min_distinct_games is 0", "at least 1"]),
        ({"evaluation": {"opponents": ["perfct"]}}, ["'perfct'", "did you mean perfect?"]),
        ({"evaluation": {"opponents": ["rollout:0"]}}, ["'rollout:0'", "at least 1"]),
        ({"evaluation": {"opponents": ["rollout:x"]}}, ["'rollout:x'"]),
        ({"evaluation": {"opponents": ["alphabeta:0"]}}, ["'alphabeta:0'", "number of moves"]),
        ({"evaluation": {"opponents": ["alphabet:4"]}}, ["did you mean alphabeta:4?"]),
        ({"evaluation": {"opponents": ["alphabeta:3"]}}, []),
        ({"evaluation": {"opponents": ["rollout"]}}, ["'rollout'", "did you mean rollout:100?"]),
        ({"evaluation": {"opponents": ["random", "perfect", "rollout:50"]}}, []),
    ],
)
def test_cross_checks(change: Change, words: list[str]) -> None:
    found = problems(make_config(**change))
    assert len(found) == bool(words), found
    assert all(word in found[0] for word in words), found


def test_an_opponent_may_be_a_run(tmp_path: Any) -> None:
    (tmp_path / "config.yaml").touch()
    assert problems(make_config(evaluation={"opponents": [str(tmp_path)]})) == []


def test_downsample() -> None:
    config = make_config()
    config.network = ResNetConfig(downsample=3)
    assert problems(config) == ["network.downsample is 3; it must be 1, 2, 4, 8 or 16"]


def test_a_kind_has_to_fit_its_section() -> None:
    config = make_config(env={"kind": "gym"}, network={"kind": "resnet"})
    assert problems(config) == [
        "env.kind is 'gym', but the section is a OpenSpielConfig; choose env=...",
        "network.kind is 'resnet', but the section is a MLPConfig; choose network=...",
    ]


@pytest.mark.parametrize(
    ("bounds", "top", "with_transform", "needed"),
    [
        ((-1.0, 1.0), 1.0, False, None),
        ((-2.0, 1.0), 1.0, False, "at least 2"),
        ((0.0, 500.0), 22.0, True, None),
        ((0.0, 500.0), 21.8, True, "at least 21.9, in transformed units"),
        ((0.0, 500.0), 22.0, False, "at least 500"),
        ((-math.inf, math.inf), 1.0, False, None),
    ],
)
def test_support_has_to_reach_the_returns(
    bounds: tuple[float, float], top: float, with_transform: bool, needed: str | None
) -> None:
    config = make_config(network={"value_support_max": top, "support_transform": with_transform})
    found = problems(config, Facts(return_bounds=bounds))
    if needed is None:
        assert found == []
    else:
        (problem,) = found
        assert f"network.value_support_max is {top:g}" in problem
        assert f"between {bounds[0]:g} and {bounds[1]:g}" in problem
        assert needed in problem


def test_search_bounds_have_to_hold_the_returns() -> None:
    config = make_config(search={"normalization": "bounds", "value_max": 0.5})
    (problem,) = problems(config, Facts(return_bounds=(-1.0, 1.0)))
    assert "search.value_max 0.5" in problem
    assert "between -1 and 1" in problem


def test_a_game_with_repeated_turns_needs_the_turn_head() -> None:
    config = make_config(network={"turn_head": False})
    (problem,) = problems(config, Facts(turn_order="repeated"))
    assert problem.startswith("network.turn_head is false")
    assert problems(config, Facts(turn_order="alternating")) == []


def test_the_rules_need_a_game_of_openspiel_and_no_reanalyze() -> None:
    rules = {"dynamics": "rules"}
    assert problems(make_config(search=rules)) == []
    config = make_config(search=rules, reanalyze={"fresh_fraction": 0.5})
    (problem,) = problems(config)
    assert problem.startswith("reanalyze.fresh_fraction is 0.5 with search.dynamics='rules'")
    assert "set fresh_fraction to 0, or dynamics to learned" in problem
    config = make_config(search=rules)
    for env in (GymConfig(id="CartPole-v1", name="c"), AtariConfig(game="pong", name="pong")):
        config.env = env
        (problem,) = problems(config)
        assert f"search.dynamics is 'rules', but env.kind is '{env.kind}'" in problem
        assert problem.endswith("set search.dynamics to learned")


def test_capacity_knows_how_long_episodes_are() -> None:
    config = make_config(replay={"min_size": 10, "capacity": 20}, targets={"td_steps": 1_000})
    assert problems(config, Facts(max_episode_steps=9)) == []
    assert len(problems(config)) == 1


def test_all_problems_are_told_together() -> None:
    config = make_config(
        learner={"batch_size": 0}, search={"kind": "x"}, replay={"min_size": 9, "capacity": 8}
    )
    with pytest.raises(ValueError) as caught:
        check(config, max_episode_steps=5)
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 settings cannot work:"
    assert [line.split()[1] for line in lines[1:]] == [
        "search.kind",
        "learner.batch_size",
        "replay.min_size",
    ]


def test_a_single_problem_is_a_single_sentence() -> None:
    with pytest.raises(ValueError, match=r"^learner\.batch_size is 0; it must be at least 1$"):
        check(make_config(learner={"batch_size": 0}))


@pytest.mark.parametrize("make_env", [GymConfig, AtariConfig])
def test_other_environments_pass(make_env: Callable[..., Any]) -> None:
    config = make_config()
    config.env = make_env(name="x")
    assert problems(config) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_workers": "0"}, "runtime.num_workers is '0'"),
        ({"num_workers": "many"}, "must be auto, or a number"),
        ({"address": "nowhere"}, "runtime.address is 'nowhere'"),
        ({"deadline_seconds": 1.0}, "runtime.deadline_seconds is 1"),
        ({"watchdog_seconds": 1.0}, "set it to at least 2"),
    ],
)
def test_a_fleet_that_cannot_work_is_refused(change: dict[str, Any], named: str) -> None:
    config = make_config()
    config.runtime = RayRuntimeConfig(**change)
    (problem,) = problems(config)
    assert named in problem


@pytest.mark.parametrize(
    ("section", "change", "named"),
    [
        ("search", {"dynamics": "rules"}, "search.dynamics is rules"),
        ("search", {"pipelined": True}, "search.pipelined is True"),
        ("selfplay", {"reuse_subtree": True}, "selfplay.reuse_subtree is True"),
        ("network", {"num_chance_codes": 32}, "network.num_chance_codes is 32"),
        ("selfplay", {"num_games": 1}, "selfplay.num_games is 1"),
    ],
)
def test_what_central_inference_cannot_serve_is_refused(
    section: str, change: dict[str, Any], named: str
) -> None:
    config = make_config(**{section: change})
    assert problems(config) == []
    config.runtime = RayRuntimeConfig(inference="central")
    (problem,) = problems(config)
    assert problem.startswith(named) and "runtime.inference" in problem


def test_gatekeeping_needs_a_match_in_either_runtime() -> None:
    config = make_config(gatekeeping={"interval": 100})
    assert problems(config, Facts(num_players=2)) == []
    (problem,) = problems(config, Facts(num_players=1))
    assert "gatekeeping.interval is 100" in problem and "one player" in problem
    for inference in ("local", "central"):
        config.runtime = RayRuntimeConfig(inference=inference)
        assert problems(config, Facts(num_players=2)) == []
        (problem,) = problems(config, Facts(num_players=1))
        assert "one player" in problem
    config = make_config(gatekeeping={"interval": 100})
    config.env = GymConfig(id="CartPole-v1", name="x")
    (problem,) = problems(config)
    assert "env.kind is 'gym'" in problem and "set the interval to 0" in problem
    config.gatekeeping.interval = 0
    assert problems(config) == []
