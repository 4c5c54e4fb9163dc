"""Rollouts and networks as the value of a position."""

import numpy as np
import pyspiel
import pytest

from muzero.config.environments import OpenSpielConfig
from muzero.envs.registry import make_rules
from muzero.inference import RolloutValuation


def rules_of(game="tic_tac_toe"):
    return make_rules(OpenSpielConfig(game=game, name=game))


def states_behind(*lines, game="tic_tac_toe"):
    states = []
    for line in lines:
        state = pyspiel.load_game(game).new_initial_state()
        for action in line:
            state.apply_action(action)
        states.append(state)
    return states


LINES = ([], [4], [4, 0], [0, 4], [4, 0, 8], [0, 1, 2, 3], [8, 7, 6, 5])


def test_a_value_hangs_on_the_position_and_the_seed_alone():
    valuation = RolloutValuation(rules_of(), num_rollouts=3, seed=5)
    states = states_behind(*LINES)
    together = valuation.evaluate(states, None).value
    alone = [valuation.evaluate([state], None).value[0] for state in reversed(states)]
    assert together.tolist() == alone[::-1]
    with_others = valuation.evaluate([None, states[3], None, states[1]], None).value
    assert with_others.tolist() == [0, together[3], 0, together[1]]
    other = RolloutValuation(rules_of(), num_rollouts=3, seed=6).evaluate(states, None).value
    assert other.tolist() != together.tolist()


def test_positions_that_differ_in_zeros_draw_differently():
    """Action 0 is a zero in the seed: histories [8] and [8, 0] must not share their draws."""
    valuation = RolloutValuation(rules_of(), num_rollouts=1, seed=0)
    drawn = []
    rules = valuation._rules
    rules.playout = lambda state, rng, discount: drawn.append(rng.random()) or 0.0
    valuation.evaluate(states_behind([8], [8, 0], [0], []), None)
    assert len(set(drawn)) == 4


def test_all_actions_are_alike_and_the_last_move_is_known():
    # One cell is left to x, and wins: the one line there is.
    (state,) = states_behind([0, 1, 4, 2, 3, 6, 7, 5])
    valuation = RolloutValuation(rules_of(), num_rollouts=2, seed=0, discount=0.5)
    answer = valuation.evaluate([state], None)
    assert answer.value.tolist() == [1.0]
    assert (answer.prior_logits == 0).all() and answer.prior_logits.shape == (1, 9)
    # One move earlier there are two lines of two moves, as many as o has cells to choose from.
    (before,) = states_behind([0, 1, 4, 2, 3, 6, 7])
    outcomes = []
    for action in before.legal_actions():
        child = before.child(action)
        last = child.child(child.legal_actions()[0])
        outcomes.append(0.5 * last.returns()[1])
    many = RolloutValuation(rules_of(), num_rollouts=4_000, seed=0, discount=0.5)
    assert many.evaluate([before], None).value[0] == pytest.approx(np.mean(outcomes), abs=0.02)


def test_more_rollouts_come_closer():
    states = states_behind(*LINES)
    exact = RolloutValuation(rules_of(), num_rollouts=4_000, seed=1).evaluate(states, None).value
    errors = [
        np.mean(
            [
                (
                    RolloutValuation(rules_of(), num_rollouts=count, seed=seed)
                    .evaluate(states, None)
                    .value
                    - exact
                )
                ** 2
                for seed in range(2, 14)
            ]
        )
        for count in (1, 25)
    ]
    assert errors[1] < errors[0] / 8


def test_numbers_that_cannot_be_are_named():
    with pytest.raises(ValueError, match="num_rollouts=0"):
        RolloutValuation(rules_of(), num_rollouts=0, seed=0)
    with pytest.raises(ValueError, match="discount=0"):
        RolloutValuation(rules_of(), num_rollouts=1, seed=0, discount=0.0)
