"""Stopping early saves simulations and changes no move."""

import numpy as np
import pyspiel
import pytest
import torch

from mcts import SearchSettings
from muzero.config.compose import compose
from muzero.config.environments import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielFrames
from muzero.evaluation.agent import Agent
from muzero.evaluation.arena import draw_setups, play_games
from muzero.evaluation.exact import solve
from muzero.evaluation.players import AgentPlayer, RandomPlayer
from muzero.runtime.build import Builder
from muzero.runtime.evaluation import RunEvaluator, as_metrics
from tests.oracles.simulator_model import SimulatorModel

BOARD = ("experiment=tictactoe", "evaluation.opponents=[random]", "evaluation.games=20")
EPISODES = ("experiment=cartpole", "evaluation.games=6", "evaluation.max_episode_steps=40")


def test_with_the_true_rules_every_game_is_the_same_with_fewer_simulations():
    """Exact answers, so that not even rounding may differ."""
    game = pyspiel.load_game("tic_tac_toe")
    config = OpenSpielConfig(name="tic_tac_toe", game="tic_tac_toe")
    frames, states = OpenSpielFrames(game, config), list(solve(game).positions)
    setups = draw_setups(game, games=30, max_opening_moves=3, seed=4)
    games, efforts = [], []
    for stop_early in (False, True):
        model = SimulatorModel(states, frames)
        settings = SearchSettings(kind="puct", num_simulations=40, stop_early=stop_early)
        agent = Agent(model, settings, num_actions=9, batch_size=16)
        player = AgentPlayer(agent, frames)
        chosen = player.select(states[::20], [0] * len(states[::20]))
        games.append((chosen, play_games(player, RandomPlayer(), game, setups)))
        efforts.append(agent.effort)
    assert games[0] == games[1]
    assert efforts[0].searches == efforts[1].searches
    assert efforts[0].simulations == 40 * efforts[0].searches
    assert efforts[1].simulations < 0.9 * efforts[0].simulations


def evaluated(*overrides: str) -> list[dict]:
    builder = Builder.of(compose([*overrides, "search=puct", "evaluation.num_simulations=24"]))
    generator = torch.Generator().manual_seed(3)
    weights = {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in builder.network().state_dict().items()
    }
    return RunEvaluator(builder).evaluate(weights, 0)


@pytest.mark.parametrize("recipe", [BOARD, EPISODES], ids=["board", "episodes"])
def test_an_evaluation_reports_the_same_and_tells_its_simulations_per_move(recipe):
    [plain] = evaluated(*recipe, "debug=smoke")
    [early] = evaluated(*recipe, "debug=smoke", "evaluation.stop_early=true")
    numbers = [report.pop("simulations_per_move") for report in (plain, early)]
    assert plain == early
    assert numbers[0] == 24.0
    assert 1.0 < numbers[1] < 23.0
    metrics = as_metrics([early | {"simulations_per_move": numbers[1]}])
    assert metrics["evaluation/simulations_per_move"] == numbers[1]


def test_every_evaluation_counts_its_own_simulations():
    builder = Builder.of(compose([*BOARD, "debug=smoke", "search.num_simulations=5"]))
    evaluator = RunEvaluator(builder)
    weights = builder.network().state_dict()
    reports = [evaluator.evaluate(weights, 0) for _ in range(2)]
    assert reports[0] == reports[1]


def test_an_agent_without_a_search_makes_no_simulations():
    builder = Builder.of(compose([*BOARD, "debug=smoke", "evaluation.num_simulations=0"]))
    [report] = RunEvaluator(builder).evaluate(builder.network().state_dict(), 0)
    assert report["simulations_per_move"] == 0.0


def test_only_evaluation_stops_early():
    builder = Builder.of(
        compose(
            ["experiment=tictactoe", "evaluation.stop_early=true", "reanalyze.fresh_fraction=0.5"]
        )
    )
    agent, refresher = builder.agent(2), builder.refresher()
    assert agent.settings is not None and agent.settings.stop_early
    assert refresher is not None and not refresher._search.settings.stop_early
    assert not builder.selfplay().search.settings.stop_early
    assert not Builder.of(compose(["experiment=tictactoe"])).agent(2).settings.stop_early


def test_games_that_are_over_are_not_searched_on(monkeypatch):
    """Every search has only the rows of games that still wait for a move."""
    [report] = evaluated(*EPISODES, "debug=smoke")
    agents: list[Agent] = []
    make = Builder.agent

    def watched(self, *arguments):
        agents.append(make(self, *arguments))
        return agents[-1]

    monkeypatch.setattr(Builder, "agent", watched)
    [again] = evaluated(*EPISODES, "debug=smoke")
    assert again == report
    lengths = report["length_mean"] * report["episodes"]
    assert agents[0].effort.searches == pytest.approx(lengths)
    assert np.std(report["scores"]) > 0  # they did end one after the other
