"""Costs measured on this machine can be fed to the simulation."""

from dataclasses import asdict

import pytest

from muzero.config.compose import compose
from muzero.runtime.simulation import Costs, Scenario, Simulation
from muzero.runtime.simulation.measure import measure, scenario_settings

SMALL = (
    "experiment=tictactoe", "runtime.device=cpu", "selfplay.num_games=16", "search.num_simulations=4",
    "replay.capacity=3000", "learner.batch_size=32", "reanalyze.batch_size=16", "replay.min_size=100",
)  # fmt: skip


def test_every_piece_is_measured_and_simulates() -> None:
    config = compose(list(SMALL))
    costs = measure(config, seconds=0.02)
    measured = asdict(costs)
    for name in (
        "search_seconds", "network_seconds", "learner_step_seconds", "sample_seconds", "insert_seconds", "take_seconds",
    ):  # fmt: skip
        assert 0.0 < measured[name] < 1.0, name
        assert measured[name] != getattr(Costs(), name), name
    position = config.search.num_simulations * (costs.search_seconds + costs.network_seconds)
    assert costs.search_seconds < 10 * costs.network_seconds
    assert costs.move_seconds + position < 0.1

    # One player's and the other's stones and the empty squares, 9 bytes each; action, reward, policy, ... beside them
    assert 27 < costs.position_bytes < 400
    unrolled = config.learner.num_unroll_steps + 1
    assert costs.sample_bytes > unrolled * 9 * 4  # policies alone
    num_parameters = costs.weights_bytes / 4
    assert 50_000 < num_parameters < 200_000

    settings = scenario_settings(config)
    assert settings["num_simulations"] == settings["reanalyze_simulations"] == 4
    assert settings["batch_size"] == 32 and settings["capacity"] == 3000
    assert settings["num_unroll_steps"] == 3 and settings["fresh_fraction"] == 0.0
    report = Simulation(Scenario.from_mapping(settings | {"cores": 4}), costs).run(5.0)
    assert report.samples_per_second > 0.0


def test_settings_of_a_role_win_over_the_searchs() -> None:
    config = compose([*SMALL, "runtime=ray", "selfplay.num_simulations=7", "reanalyze.num_simulations=9",
                      "reanalyze.fresh_fraction=0.4", "runtime.lease_seconds=0.25"])  # fmt: skip
    settings = scenario_settings(config)
    assert settings["num_simulations"] == 7 and settings["reanalyze_simulations"] == 9
    assert settings["fresh_fraction"] == 0.4 and settings["lease_seconds"] == 0.25


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(ValueError, match=r"search.dynamics=learned search.pipelined=false"):
        measure(compose([*SMALL, "search.pipelined=true"]))
