"""Settings without effect are told, and those with effect are not."""

from typing import Any

import pytest

from muzero.config.effect import warnings
from tests.config.test_validate import make_config


def test_the_defaults_warn_of_nothing() -> None:
    board = {"num_players": 2, "max_episode_steps": 9, "turn_order": "alternating"}
    assert warnings(make_config(), **board) == []
    assert warnings(make_config(evaluation={"opponents": []}), num_players=1) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"search": {"pb_c_init": 2.0}}, "search.kind is gumbel"),
        ({"selfplay": {"temperature_drop_move": 10}}, "search.kind is gumbel"),
        ({"selfplay": {"temperatures": [0.5]}}, "search.kind is gumbel"),
        ({"search": {"kind": "puct", "value_scale": 1.0}}, "search.kind is puct"),
        ({"search": {"value_min": -3.0}}, "search.normalization is tree"),
        (
            {"search": {"normalization": "none", "min_value_range": 0.5}},
            "search.normalization is none",
        ),
        ({"replay": {"priority_exponent": 0.5}}, "replay.prioritized is false"),
        ({"learner": {"decay_rate": 0.5}}, "learner.schedule is cosine"),
        (
            {"learner": {"schedule": "step", "final_learning_rate_fraction": 0.5}},
            "learner.schedule is step",
        ),
        ({"learner": {"target_network_interval": 7}}, "targets.bootstrap is search"),
        ({"network": {"projection_size": 512}}, "learner.consistency_loss_weight is 0"),
        ({"learner": {"afterstate_value_loss_weight": 1.0}}, "network.num_chance_codes is 0"),
        ({"learner": {"chance_loss_weight": 2.0}}, "network.num_chance_codes is 0"),
        ({"learner": {"commitment_loss_weight": 1.0}}, "network.num_chance_codes is 0"),
        (
            {"search": {"cuda_graph": False}, "network": {"num_chance_codes": 8}},
            "a step of a network with chance codes is not captured",
        ),
        ({"reanalyze": {"max_target_age": 7}}, "reanalyze.fresh_fraction is 0"),
        ({"gatekeeping": {"threshold": 0.6}}, "gatekeeping.interval is 0"),
        ({"gatekeeping": {"num_simulations": 8}}, "gatekeeping.interval is 0"),
        (
            {"selfplay": {"weights_interval": 5}, "gatekeeping": {"interval": 500}},
            "gatekeeping.interval is 500",
        ),
        ({"selfplay": {"fast_simulations": 8}}, "selfplay.full_search_fraction is 1"),
        (
            {"evaluation": {"num_simulations": 0, "stop_early": True}},
            "evaluation.num_simulations is 0",
        ),
        ({"selfplay": {"opening_fraction": 0.5}}, "selfplay.max_opening_moves is 0"),
        ({"selfplay": {"max_opening_moves": 5}}, "selfplay.opening_fraction is 0"),
        ({"selfplay": {"fork_fraction": 0.5}}, "selfplay.max_fork_moves is 0"),
        ({"selfplay": {"max_fork_moves": 5}}, "selfplay.fork_fraction is 0"),
        ({"logger": {"wandb_project": "mine"}}, "logger.wandb is false"),
    ],
)
def test_idle_settings(change: dict[str, dict[str, Any]], reason: str) -> None:
    section, values = next(iter(change.items()))
    name, value = list(values.items())[-1]
    (warning,) = warnings(make_config(**change))
    assert warning.startswith(f"{section}.{name}={value} has no effect: {reason}")


@pytest.mark.parametrize(
    ("change", "facts", "words"),
    [
        ({"search": {"num_simulations": 8}}, {}, ["search.num_simulations=8", "only 8 actions"]),
        ({"selfplay": {"num_simulations": 8}}, {}, ["selfplay.num_simulations=8"]),
        ({"search": {"num_simulations": 8, "kind": "puct"}}, {}, []),
        (
            {"selfplay": {"opening_fraction": 0.5, "max_opening_moves": 4}},
            {"num_players": 1},
            ["selfplay.opening_fraction", "one player"],
        ),
        ({"selfplay": {"opening_fraction": 0.5, "max_opening_moves": 4}}, {"num_players": 2}, []),
        (
            {"selfplay": {"fork_fraction": 0.5, "max_fork_moves": 4}},
            {"num_players": 1},
            ["selfplay.fork_fraction", "one player"],
        ),
        (
            {"evaluation": {"opponents": ["perfect"]}},
            {"num_players": 1},
            ["opponents=['perfect']", "one player"],
        ),
        ({"evaluation": {"opponents": []}}, {"num_players": 2}, ["evaluation=board"]),
        ({"evaluation": {"opponents": [], "games": 0}}, {"num_players": 2}, []),
        ({"learner": {"batch_size": 4_096}}, {}, ["replay.min_size=2000", "more than once"]),
        ({"gatekeeping": {"interval": 20_000}}, {}, ["learner.num_steps=10000", "never judged"]),
        ({"gatekeeping": {"interval": 10_000}}, {}, []),
        ({"targets": {"td_steps": 1_000}}, {"num_players": 2}, ["segment_length=200", "1005"]),
        ({"targets": {"td_steps": 1_000}}, {"num_players": 2, "max_episode_steps": 42}, []),
        ({"learner": {"turn_loss_weight": 0.5}}, {"turn_order": "alternating"}, ["no turn head"]),
        ({"learner": {"turn_loss_weight": 0.5}}, {"turn_order": "repeated"}, []),
    ],
)
def test_slips(change: dict[str, dict[str, Any]], facts: dict[str, Any], words: list[str]) -> None:
    found = warnings(make_config(**change), **facts)
    assert len(found) == bool(words), found
    assert all(word in found[0] for word in words), found
