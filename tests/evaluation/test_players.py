from dataclasses import replace

import numpy as np
import pyspiel
import pytest

from mcts import SearchSettings
from muzero.config.schema import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielEnv, OpenSpielFrames
from muzero.envs.stacking import FrameStack
from muzero.evaluation.agent import Agent
from muzero.evaluation.arena import draw_setups, play_games, play_match
from muzero.evaluation.exact import exhaustive, solve
from muzero.evaluation.players import (
    AgentPlayer,
    PerfectPlayer,
    RandomPlayer,
    RolloutPlayer,
    recent_positions,
)
from tests.oracles.simulator_model import SimulatorModel

CONFIG = OpenSpielConfig(name="tic_tac_toe", game="tic_tac_toe")


@pytest.fixture(scope="module")
def game():
    return pyspiel.load_game("tic_tac_toe")


@pytest.fixture(scope="module")
def solution(game):
    return solve(game)


@pytest.fixture(scope="module")
def frames(game):
    return OpenSpielFrames(game, CONFIG)


def searcher(solution, frames, num_simulations=64, batch_size=32, **settings):
    """Searches with the game's own rules."""
    model = SimulatorModel(solution.positions, frames)
    search = SearchSettings(num_simulations=num_simulations, **settings)
    return AgentPlayer(Agent(model, search, num_actions=9, batch_size=batch_size), frames)


class TableAgent:
    """Remembers what it was asked, and plays the lowest legal action."""

    def __init__(self):
        self.observations = []

    def act(self, observation, legal, states=None):
        self.observations.append(observation)
        return legal.argmax(axis=1).astype(np.int32)


def test_perfect_against_perfect_is_always_drawn(game, solution):
    player = PerfectPlayer(solution)
    result = play_match(
        player, player, game, games=60, max_opening_moves=4, seed=1, only_sound_openings=solution
    )
    assert result.summary()["draws"] == 60


def test_perfect_never_loses_to_random_from_sound_openings(game, solution):
    result = play_match(
        PerfectPlayer(solution),
        RandomPlayer(),
        game,
        games=200,
        max_opening_moves=4,
        seed=2,
        only_sound_openings=solution,
    ).summary()
    assert result["losses"] == 0
    assert result["wins"] > 120


def test_perfect_varies_its_choice_among_the_best_moves(game, solution):
    chosen = PerfectPlayer(solution).select([game.new_initial_state()] * 300, list(range(300)))
    counts = np.bincount(chosen, minlength=9)
    assert (counts > 10).all()  # all nine openings draw


def test_random_takes_all_legal_moves_alike(game):
    state = game.new_initial_state()
    state.apply_action(4)
    counts = np.bincount(RandomPlayer().select([state] * 4_000, list(range(4_000))), minlength=9)
    assert counts[4] == 0
    assert (abs(counts[counts > 0] - 500) < 100).all()


def test_rollouts_beat_random_and_more_rollouts_find_a_win(game):
    result = play_match(
        RolloutPlayer(100), RandomPlayer(), game, games=60, max_opening_moves=2, seed=3
    ).summary()
    assert result["wins"] > 42
    assert result["losses"] < 6
    state = game.new_initial_state()
    for action in (0, 3, 1, 4):
        state.apply_action(action)
    assert RolloutPlayer(200).select([state] * 5, range(5)) == [2] * 5


def test_rollouts_refuse_no_simulations():
    with pytest.raises(ValueError, match="at least 1"):
        RolloutPlayer(0)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_more_simulations_with_the_true_rules_play_better(solution, frames, kind):
    few, many = (
        exhaustive(searcher(solution, frames, number, batch_size=512, kind=kind), solution)
        for number in (1, 40)
    )
    assert few.optimal_move_rate < 0.7
    assert many.optimal_move_rate > 0.9
    assert many.losing_lines < few.losing_lines / 2


def test_no_noise_is_drawn(game, solution, frames):
    # Settings of the noise do not matter where there is none.
    quiet = searcher(solution, frames, kind="gumbel", gumbel_scale=0.0)
    loud = searcher(solution, frames, kind="gumbel", gumbel_scale=10.0)
    states = list(solution.positions)[::50]
    assert quiet.select(states, [0] * len(states)) == loud.select(states, [1] * len(states))


def test_an_agent_cuts_large_batches_and_leaves_out_forced_moves(solution, frames):
    states = list(solution.positions)[::4]
    forced = sum(len(state.legal_actions()) == 1 for state in states)
    small = searcher(solution, frames, 8, batch_size=7)
    whole = searcher(solution, frames, 8, batch_size=len(states))
    seeds = [0] * len(states)
    assert small.select(states, seeds) == whole.select(states, seeds)
    assert small.agent.model.num_roots == len(states) - forced


def test_an_agent_without_a_search_takes_the_likeliest_legal_action(frames, solution):
    class Model(SimulatorModel):
        def roots(self, observation):
            root = super().roots(observation)
            return replace(root, prior_logits=root.prior_logits + np.arange(9, dtype=np.float32))

    agent = Agent(Model(solution.positions, frames), None, num_actions=9, batch_size=64)
    states = list(solution.positions)[:500]
    chosen = AgentPlayer(agent, frames).select(states, [0] * 500)
    assert chosen == [max(state.legal_actions()) for state in states]


def test_an_agent_refuses_a_position_without_legal_actions(frames, solution, game):
    agent = searcher(solution, frames).agent
    with pytest.raises(ValueError, match="without a legal action"):
        agent.act(frames.frames([game.new_initial_state()]), np.zeros((1, 9), bool))


@pytest.mark.parametrize("num_stacked_frames", [1, 2, 4])
@pytest.mark.parametrize("name", ["tic_tac_toe", "pig"])
def test_stacked_observations_are_those_of_self_play(name, num_stacked_frames):
    config = OpenSpielConfig(name=name, game=name, num_stacked_frames=num_stacked_frames)
    env = OpenSpielEnv(config, 1)
    game = pyspiel.load_game(name)
    stack, step = FrameStack(env.spec, 1), env.reset(3)
    stack.reset_rows(np.ones(1, bool), step.frame)
    player = AgentPlayer(TableAgent(), OpenSpielFrames(game, config))
    assert player.num_frames == num_stacked_frames
    rng = np.random.default_rng(0)
    for _ in range(12):
        (state,) = env._states
        np.testing.assert_array_equal(player.observations([state])[0], stack.observation[0])
        action = rng.choice(np.flatnonzero(step.legal[0]))
        step = env.step(np.array([action]))
        stack.push(step.frame)
        stack.reset_rows(step.terminated | step.truncated, step.frame)


def test_recent_positions_leave_out_chance():
    game = pyspiel.load_game("pig")
    state = game.new_initial_state()
    state.apply_action(0)  # roll
    state.apply_action(3)  # the die
    state.apply_action(0)
    state.apply_action(4)
    recent = recent_positions(state, 5)
    assert [len(position.history()) for position in recent] == [0, 0, 0, 2, 4]
    assert not any(position.is_chance_node() for position in recent)


@pytest.mark.parametrize("maker", ["random", "perfect", "rollout", "search"])
def test_a_game_by_itself_equals_the_game_among_others(game, solution, frames, maker):
    player = {
        "random": RandomPlayer,
        "perfect": lambda: PerfectPlayer(solution),
        "rollout": lambda: RolloutPlayer(20),
        "search": lambda: searcher(solution, frames, 16, batch_size=5),
    }[maker]()
    setups = draw_setups(game, games=16, max_opening_moves=3, seed=9)
    together = play_games(player, RandomPlayer(), game, setups)
    alone = [play_games(player, RandomPlayer(), game, [setup])[0] for setup in reversed(setups)]
    assert together == alone[::-1]
    assert play_games(player, RandomPlayer(), game, setups) == together
