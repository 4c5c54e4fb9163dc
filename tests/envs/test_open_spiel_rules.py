"""Rules for states that the caller holds: they are OpenSpiel's, and the environment's."""

import numpy as np
import pyspiel
import pytest

from muzero.config.environments import AtariConfig, GymConfig, OpenSpielConfig
from muzero.envs.base import BatchedEnv
from muzero.envs.open_spiel import OpenSpielEnv
from muzero.envs.registry import make_env, make_rules
from muzero.envs.states import GameRules, StatesEnv, states_of

GAMES = {
    "tic_tac_toe": {},
    "connect_four": {},
    "othello": {},
    "mancala": {},  # a stone in the own store moves again
    "dots_and_boxes": {},  # so does a box
    "cliff_walking": {"horizon": 12},  # one player, a reward at every step
    "chess": {},
    "open_spiel.python.games:python_tic_tac_toe": {},
}


def config(game: str, **settings) -> OpenSpielConfig:
    parameters = settings.pop("parameters", GAMES.get(game, {}))
    return OpenSpielConfig(game=game, name=game, parameters=parameters, **settings)


def random_actions(legal, rng):
    return np.argmax(rng.random(legal.shape) * legal, axis=1)


@pytest.mark.parametrize("game", GAMES)
def test_moves_are_those_of_the_environment(game):
    settings = config(game)
    env, rules = OpenSpielEnv(settings, 4), make_rules(settings)
    step, rng = env.reset(0), np.random.default_rng(0)
    seen, gained = set(), 0.0
    for _ in range(120):
        states = [rules.copy(state) for state in env.states(range(4))]
        np.testing.assert_array_equal(rules.frames(states), step.frame)
        np.testing.assert_array_equal(rules.legal(states), step.legal)
        before, movers = list(map(str, states)), step.to_play
        actions = random_actions(step.legal, rng)
        moves, step = rules.play(states, actions.tolist()), env.step(actions)
        np.testing.assert_array_equal(moves.reward, step.reward)
        same = np.where(step.to_play == movers, 1, -1)
        np.testing.assert_array_equal(moves.turn, np.where(step.terminated, 0, same))
        assert [state is None for state in moves.states] == step.terminated.tolist()
        for row in np.flatnonzero(~step.terminated):
            np.testing.assert_array_equal(rules.frames([moves.states[row]])[0], step.frame[row])
        assert list(map(str, states)) == before  # a move leaves the state it is made from
        seen.update(moves.turn.tolist())
        gained += float(abs(moves.reward).sum())
    assert rules.spec == env.spec
    repeats = game in ("mancala", "dots_and_boxes")
    assert seen - {0} == ({1} if game == "cliff_walking" else {1, -1} if repeats else {-1})
    assert gained > 0 or game == "chess"


def test_an_environment_goes_on_without_the_copies_of_its_states():
    env, rules = OpenSpielEnv(config("tic_tac_toe"), 3), make_rules(config("tic_tac_toe"))
    env.reset(0)
    env.step(np.array([0, 4, 8]))
    copies = [rules.copy(state) for state in env.states([2, 0])]
    assert [rules.history(state) for state in copies] == [[8], [0]]
    env.step(np.array([1, 1, 1]))
    assert [rules.history(state) for state in copies] == [[8], [0]]
    assert [rules.history(state) for state in env.states([2, 0])] == [[8, 1], [0, 1]]
    assert not any(map(rules.is_over, copies))


def expected_return(state, player, discount):
    """Of uniformly random play, by all lines."""
    if state.is_terminal():
        return 0.0
    legal = state.legal_actions()
    total = 0.0
    for action in legal:
        child = state.child(action)
        gained = child.player_return(player) - state.player_return(player)
        total += gained + discount * expected_return(child, player, discount)
    return total / len(legal)


@pytest.mark.parametrize(
    ("game", "moves", "discount"),
    [
        ("tic_tac_toe", [4, 0, 8, 2], 1.0),
        ("tic_tac_toe", [4, 0, 8, 2, 6], 0.8),
        ("dots_and_boxes", [0, 1, 2, 3, 4, 5], 0.9),
        ("cliff_walking", [], 0.5),
    ],
)
def test_random_games_have_the_expected_return_of_all_lines(game, moves, discount):
    settings = config(game, parameters={"horizon": 5} if game == "cliff_walking" else {})
    rules = make_rules(settings)
    state = pyspiel.load_game(game, settings.parameters).new_initial_state()
    for action in moves:
        state.apply_action(action)
    before, rng = str(state), np.random.default_rng(1)
    returns = [rules.playout(state, rng, discount) for _ in range(4_000)]
    expected = expected_return(state, state.current_player(), discount)
    error = 4 * np.std(returns) / np.sqrt(len(returns))
    assert 0 < error < max(0.1, 0.2 * abs(expected))
    assert abs(np.mean(returns) - expected) < error
    assert str(state) == before


@pytest.mark.parametrize("game", ["pig", "2048", "backgammon"])
def test_chance_is_refused_with_the_way_out(game):
    with pytest.raises(ValueError, match=rf"{game}: it has chance events.*dynamics=learned"):
        make_rules(config(game))


@pytest.mark.parametrize(
    "settings", [GymConfig(id="CartPole-v1", name="c"), AtariConfig(game="pong", name="pong")]
)
def test_environments_without_states_are_refused_with_the_way_out(settings):
    with pytest.raises(ValueError, match=rf"env.kind is '{settings.kind}'.*dynamics=learned"):
        make_rules(settings)


def test_what_has_states_is_seen_from_outside():
    board: BatchedEnv = make_env(config("tic_tac_toe"), 2)
    board.reset(0)
    walk = make_env(GymConfig(id="CartPole-v1", name="c"), 2)
    assert isinstance(board, StatesEnv)
    assert not isinstance(walk, StatesEnv)
    assert [len(state.history()) for state in states_of(board, [0, 1])] == [0, 0]
    assert states_of(walk, [0, 1]) is None
    rules: GameRules = make_rules(config("tic_tac_toe"))
    assert rules.spec.num_actions == 9
    walk.close()
