"""With the exact rules as its model the search finds what a solver finds, given simulations enough."""

import numpy as np
import pytest

from mcts import RootOutput, Search, SearchSettings, run
from muzero.config.environments import OpenSpielConfig
from muzero.envs.open_spiel import load_game
from muzero.envs.registry import make_rules
from muzero.evaluation.exact import solve
from muzero.inference import RolloutValuation, RulesModel

BUDGETS = (400, 1_600, 6_400, 25_600)
"""A position that a search gets wrong is searched again with the next number of simulations."""
GAMMA = 0.97  # an early win is worth more than a late one
BATCH = 256


class NoOpinion:
    """All actions alike, every position worth nothing: what is found is found by the search."""

    needs_observations = False

    def __init__(self, num_actions):
        self.num_actions = num_actions

    def evaluate(self, states, observation):
        shape = (len(states), self.num_actions)
        return RootOutput(np.zeros(shape, np.float32), np.zeros(len(states), np.float32))


class Position:
    """A state, its moves that keep the game's value, and those that end it with a win."""

    def __init__(self, solution, state):
        self.state = state
        values = solution.action_values(state)
        best = max(values.values())
        self.good = {action for action, value in values.items() if value == best}
        self.wins_now = {
            action
            for action in values
            if state.child(action).is_terminal()
            and state.child(action).player_return(state.current_player()) > 0
        }
        self.is_win = best > 0 and len(self.good) < len(values)
        self.is_block = best <= 0 and len(self.good) == 1 < len(values)

    def accepts(self, action):
        return action in (self.wins_now or self.good)


def config(game, **parameters):
    return OpenSpielConfig(game=game, name=game, parameters=parameters)


def positions_of(settings, every, least_moves=0):
    """Every so many of all positions at which somebody is to move, behind so many moves or more."""
    solution = solve(load_game(settings))
    states = [state for state in solution.positions if state.move_number() >= least_moves]
    return [Position(solution, state) for state in states[::every]]


def failures(settings, positions, kind, num_simulations, rollouts):
    """Positions at which the search does not choose a move that the solver accepts."""
    rules = make_rules(settings)
    num_actions = rules.spec.num_actions
    valuation = NoOpinion(num_actions)
    if rollouts:
        valuation = RolloutValuation(rules, num_rollouts=rollouts, seed=0, discount=GAMMA)
    batch_size = min(BATCH, len(positions))
    search = Search(
        SearchSettings(kind=kind, num_simulations=num_simulations),
        batch_size=batch_size,
        num_actions=num_actions,
    )
    model = RulesModel(
        rules,
        valuation,
        batch_size=batch_size,
        num_nodes=num_simulations + 1,
        discount=GAMMA,
    )
    failed = []
    for start in range(0, len(positions), batch_size):
        block = positions[start : start + batch_size]
        states = [position.state for position in block]
        output = run(search, model, model.roots(states), rules.legal(states))
        failed += [
            position
            for position, action in zip(block, output.best_action.tolist(), strict=True)
            if not position.accepts(action)
        ]
    return failed


def assert_all_found(settings, kind, *, every, least_moves=0, rollouts=0, wins, blocks):
    positions = positions_of(settings, every, least_moves)
    # Otherwise there would be nothing to find.
    assert sum(position.is_win for position in positions) >= wins
    assert sum(position.is_block for position in positions) >= blocks
    missed = []
    for budget in BUDGETS:
        positions = failures(settings, positions, kind, budget, rollouts)
        missed.append(len(positions))
        if not positions:
            print(f"{settings.game} {settings.parameters} {kind}: missed {missed}")
            return
    pytest.fail(
        f"missed {missed} with {BUDGETS} simulations, among them\n{positions[0].state}\n{positions[0].good}"
    )


@pytest.mark.parametrize("rollouts", [0, 1])
@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_wins_and_blocks_of_tictactoe(kind, rollouts):
    assert_all_found(config("tic_tac_toe"), kind, every=9, rollouts=rollouts, wins=250, blocks=60)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_wins_and_blocks_of_a_small_connect_four(kind):
    game = config("connect_four", rows=3, columns=4, x_in_row=3)
    assert_all_found(game, kind, every=9, wins=200, blocks=20)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_boxes_where_a_player_moves_twice_in_a_row(kind):
    # Who wins is decided by the last box: from an early position everything behind it has to be seen.
    game = config("dots_and_boxes")
    assert_all_found(game, kind, every=20, least_moves=6, wins=100, blocks=20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_every_win_and_block_of_tictactoe(kind):
    assert_all_found(config("tic_tac_toe"), kind, every=1, wins=2_300, blocks=600)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["puct", "gumbel"])
@pytest.mark.parametrize(
    ("length", "every", "least_moves", "wins", "blocks"),
    [(3, 4, 0, 3_000, 50), (4, 40, 8, 500, 300)],
)
def test_wins_and_blocks_of_connect_four_on_four_by_four(
    kind, length, every, least_moves, wins, blocks
):
    game = config("connect_four", rows=4, columns=4, x_in_row=length)
    assert_all_found(game, kind, every=every, least_moves=least_moves, wins=wins, blocks=blocks)
