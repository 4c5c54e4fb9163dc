from dataclasses import replace

import numpy as np
import pyspiel
import pytest

from mcts import SearchSettings
from muzero.config.environments import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielEnv, OpenSpielFrames
from muzero.envs.stacking import FrameStack
from muzero.evaluation.agent import Agent
from muzero.evaluation.arena import draw_setups, play_games, play_match
from muzero.evaluation.exact import exhaustive, solve
from muzero.evaluation.players import (
    AgentPlayer,
    AlphaBetaPlayer,
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


def test_alpha_beta_to_the_end_is_perfect(game, solution):
    report = exhaustive(AlphaBetaPlayer(game, 9), LateSolution(solution, 5))
    assert report.optimal_move_rate == 1.0
    assert report.positions > 1_000


class LateSolution:
    """A solution without the positions of fewer than `least` stones, which take long to search naively."""

    def __init__(self, solution, least):
        self.game, self.values, self._solution = solution.game, solution.values, solution
        self.positions = iter([s for s in solution.positions if len(s.history()) >= least])
        self.num_positions = sum(len(s.history()) >= least for s in solution.positions)
        self.optimal_actions, self.value = solution.optimal_actions, solution.value


def moves(name, *actions):
    state = pyspiel.load_game(name).new_initial_state()
    for action in actions:
        state.apply_action(action)
    return state


def test_alpha_beta_sees_as_far_as_it_is_told():
    game = pyspiel.load_game("connect_four")
    seeds = list(range(40))
    # Three in a row lie open on one side: win with a move, block with a reply, and one move ahead sees no block.
    wins, blocks = moves("connect_four", 0, 6, 1, 6, 2, 5), moves("connect_four", 0, 6, 1, 6, 2)
    assert set(AlphaBetaPlayer(game, 1).select([wins] * 40, seeds)) == {3}
    assert set(AlphaBetaPlayer(game, 2).select([blocks] * 40, seeds)) == {3}
    blind = AlphaBetaPlayer(game, 1).select([blocks] * 40, seeds)
    assert set(blind) == set(range(7))
    # Two in the middle of an empty row: a third makes two threats at once, which takes three moves to see.
    forks = moves("connect_four", 2, 0, 3, 0)
    assert set(AlphaBetaPlayer(game, 3).select([forks] * 40, seeds)) <= {1, 4}
    assert set(AlphaBetaPlayer(game, 2).select([forks] * 40, seeds)) == set(range(7))


def test_alpha_beta_takes_the_sooner_win_and_the_later_loss():
    game = pyspiel.load_game("tic_tac_toe")
    # Crosses on 0 and 1 win at once on 2, though other moves win later.
    assert (
        AlphaBetaPlayer(game, 5).select([moves("tic_tac_toe", 0, 3, 1, 6)] * 5, range(5)) == [2] * 5
    )
    # Noughts lose everywhere, but at 8 they stop crosses' diagonal and are only beaten by the fork that follows.
    assert set(
        AlphaBetaPlayer(game, 4).select([moves("tic_tac_toe", 0, 1, 4)] * 20, range(20))
    ) == {8}


def test_alpha_beta_refuses_what_it_is_not_for():
    with pytest.raises(ValueError, match=r"alphabeta needs .*no chance"):
        AlphaBetaPlayer(pyspiel.load_game("pig"), 2)
    with pytest.raises(ValueError, match="alphabeta:0 must see at least 1"):
        AlphaBetaPlayer(pyspiel.load_game("tic_tac_toe"), 0)


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


@pytest.mark.parametrize("simulations", [0, 12])
def test_an_agent_judges_as_it_acts(solution, frames, simulations):
    model = SimulatorModel(solution.positions, frames)
    settings = SearchSettings(num_simulations=simulations) if simulations else None
    agent = Agent(model, settings, num_actions=9, batch_size=32)
    player = AgentPlayer(agent, frames)
    states = list(solution.positions)[::40]
    observations, legal = player.observations(states), player.legal(states)
    actions, values = agent.judge(observations, legal, states)
    assert actions.tolist() == player.select(states, [0] * len(states))
    assert values.shape == (len(states),)
    if simulations == 0:
        expected = np.concatenate(
            [model.roots(observations[s : s + 32]).value for s in range(0, len(states), 32)]
        )
        np.testing.assert_array_equal(values, expected)
    else:
        exact = np.array([solution.value(state) for state in states])
        assert np.abs(values - exact).mean() < 0.6
        assert np.corrcoef(values, exact)[0, 1] > 0.5


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


@pytest.mark.parametrize("maker", ["random", "perfect", "rollout", "alphabeta", "search"])
def test_a_game_by_itself_equals_the_game_among_others(game, solution, frames, maker):
    player = {
        "random": RandomPlayer,
        "perfect": lambda: PerfectPlayer(solution),
        "rollout": lambda: RolloutPlayer(20),
        "alphabeta": lambda: AlphaBetaPlayer(game, 2),
        "search": lambda: searcher(solution, frames, 16, batch_size=5),
    }[maker]()
    setups = draw_setups(game, games=16, max_opening_moves=3, seed=9)
    together = play_games(player, RandomPlayer(), game, setups)
    alone = [play_games(player, RandomPlayer(), game, [setup])[0] for setup in reversed(setups)]
    assert together == alone[::-1]
    assert play_games(player, RandomPlayer(), game, setups) == together
