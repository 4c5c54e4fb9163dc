import json

import numpy as np
import pyspiel
import pytest
from scipy import stats

from muzero.config.environments import OpenSpielConfig
from muzero.envs.base import EnvSpec, TimeStep
from muzero.envs.open_spiel import OpenSpielEnv, OpenSpielFrames
from muzero.evaluation.episodes import evaluate_episodes, evaluate_versus_random
from muzero.evaluation.exact import solve
from muzero.evaluation.statistics import interquartile_mean


class ScriptedEnv:
    """Episode `k` of row `i` has `1 + (5 * i + 3 * k) % 7` steps of reward 0.5 and score 2; odd lengths are truncated."""

    def __init__(self, batch_size, num_stacked_frames=1):
        self.batch_size = batch_size
        self.spec = EnvSpec(
            name="scripted",
            frame_shape=(2,),
            frame_dtype=np.dtype(np.float32),
            num_stacked_frames=num_stacked_frames,
            num_actions=2,
        )
        self.seeds = []

    @staticmethod
    def length(row, episode):
        return 1 + (5 * row + 3 * episode) % 7

    def reset(self, seed):
        self.seeds.append(seed)
        self.episode = np.zeros(self.batch_size, int)
        self.time = np.zeros(self.batch_size, int)
        return self._step(np.zeros(self.batch_size, bool), np.zeros(self.batch_size, bool), 0)

    def step(self, actions):
        assert (actions == 1).all()
        self.time += 1
        lengths = np.array([self.length(i, k) for i, k in enumerate(self.episode)])
        ended = self.time == lengths
        self.episode += ended
        self.time[ended] = 0
        return self._step(ended, lengths % 2 == 1, 1)

    def _step(self, ended, odd, reward):
        legal = np.zeros((self.batch_size, 2), bool)
        legal[:, 1] = True
        return TimeStep(
            frame=np.stack([self.episode, self.time], 1).astype(np.float32),
            legal=legal,
            to_play=np.zeros(self.batch_size, np.int32),
            reward=np.full(self.batch_size, 0.5 * reward, np.float32),
            score=np.full(self.batch_size, 2.0 * reward, np.float32),
            terminated=ended & ~odd,
            truncated=ended & odd,
        )


class FirstLegal:
    def __init__(self):
        self.observations = []

    def act(self, observation, legal, states=None):
        self.observations.append(observation)
        return legal.argmax(axis=1).astype(np.int32)


@pytest.mark.parametrize(("batch_size", "episodes"), [(3, 7), (1, 5), (8, 3), (4, 4)])
def test_each_row_plays_its_quota_whatever_the_lengths(batch_size, episodes):
    report = evaluate_episodes(ScriptedEnv(batch_size), FirstLegal(), episodes=episodes, seed=0)
    lengths = [ScriptedEnv.length(e % batch_size, e // batch_size) for e in range(episodes)]
    scores = [2.0 * length for length in lengths]
    assert report["scores"] == scores
    assert report["episodes"] == episodes
    assert report["mean"] == pytest.approx(np.mean(scores))
    assert report["std"] == pytest.approx(np.std(scores))
    assert (report["min"], report["max"]) == (min(scores), max(scores))
    assert report["iqm"] == pytest.approx(stats.trim_mean(scores, 0.25))
    assert report["iqm"] == interquartile_mean(scores)
    assert report["length_mean"] == pytest.approx(np.mean(lengths))
    assert report["truncated"] == sum(length % 2 for length in lengths)
    assert json.loads(json.dumps(report)) == report


def test_rows_that_are_done_are_not_searched():
    agent = FirstLegal()
    evaluate_episodes(ScriptedEnv(3), agent, episodes=7, seed=0)
    steps = sum(ScriptedEnv.length(e % 3, e // 3) for e in range(7))
    assert sum(map(len, agent.observations)) == steps
    assert all(len(observation) > 0 for observation in agent.observations)


def test_observations_are_stacked_and_start_anew_with_every_episode():
    agent = FirstLegal()
    evaluate_episodes(ScriptedEnv(1, num_stacked_frames=3), agent, episodes=3, seed=0)
    seen = [observation[0].tolist() for observation in agent.observations]
    expected = []
    for episode in range(3):
        for time in range(ScriptedEnv.length(0, episode)):
            expected.append([x for t in (time - 2, time - 1, time) for x in (episode, max(t, 0))])
    assert seen == expected


def test_the_seed_reaches_the_environment_and_repeats_the_report():
    env = ScriptedEnv(2)
    first = evaluate_episodes(env, FirstLegal(), episodes=4, seed=11)
    assert evaluate_episodes(env, FirstLegal(), episodes=4, seed=11) == first
    assert env.seeds == [11, 11]


def test_no_episodes_are_refused():
    with pytest.raises(ValueError, match=r"evaluation\.games=0"):
        evaluate_episodes(ScriptedEnv(2), FirstLegal(), episodes=0, seed=0)


CONFIG = OpenSpielConfig(name="tic_tac_toe", game="tic_tac_toe")


class PerfectAgent:
    """Knows the best moves of every frame of tic-tac-toe."""

    def __init__(self):
        game = pyspiel.load_game("tic_tac_toe")
        frames = OpenSpielFrames(game, CONFIG)
        solution = solve(game)
        self.table = {
            frames.frame(state).tobytes(): solution.optimal_actions(state)[0]
            for state in solution.positions
        }
        self.movers = []

    def act(self, observation, legal, states=None):
        self.movers += observation[:, -1, 0, 0].tolist()
        return np.array([self.table[np.ascontiguousarray(o).tobytes()] for o in observation])


@pytest.mark.parametrize("batch_size", [4, 7, 40])
def test_perfect_play_never_loses_to_random_through_an_environment(batch_size):
    env = OpenSpielEnv(CONFIG, batch_size)
    agent = PerfectAgent()
    report = evaluate_versus_random(env, agent, games=40, seed=1)
    assert report["losses"] == 0
    assert report["wins"] > 25
    assert report["opponent"] == "random"
    assert report["games_played"] == 40 == report["games"] + report["duplicate_games"]
    assert 15 < report["as_first"]["games"] <= 20 and 15 < report["as_second"]["games"] <= 20
    assert report["as_first"]["wins"] + report["as_second"]["wins"] == report["wins"]
    assert set(agent.movers) == {False, True}
    assert json.loads(json.dumps(report)) == report


def test_first_legal_move_against_random_scores_as_a_replay_says():
    played = []

    class Recording(OpenSpielEnv):
        def step(self, actions):
            played.append(int(actions[0]))
            return super().step(actions)

    report = evaluate_versus_random(Recording(CONFIG, 1), FirstLegal(), games=30, seed=5)
    game = pyspiel.load_game("tic_tac_toe")
    results, state, lines = [], game.new_initial_state(), set()
    for action in played:
        if state.current_player() == len(results) % 2:
            assert action == state.legal_actions()[0]
        state.apply_action(action)
        if state.is_terminal():
            line = (len(results) % 2, tuple(state.history()))
            results.append(None if line in lines else state.player_return(len(results) % 2))
            lines.add(line)
            state = game.new_initial_state()
    assert len(results) == 30
    assert report["duplicate_games"] == results.count(None) > 0
    assert report["wins"] == results.count(1)
    assert report["losses"] == results.count(-1)
    assert report["as_second"]["wins"] == results[1::2].count(1)


def test_two_evaluations_of_one_seed_agree_and_duplicates_are_counted():
    def report(seed):
        return evaluate_versus_random(OpenSpielEnv(CONFIG, 8), FirstLegal(), games=200, seed=seed)

    assert report(3) == report(3)
    assert report(3) != report(4)
    counted = report(3)
    assert counted["duplicate_games"] > 0  # 200 games of at most 945 + 384 lines
    assert counted["games"] + counted["duplicate_games"] == counted["games_played"] == 200
    assert counted["wins"] + counted["draws"] + counted["losses"] == counted["games"]
    for seat in ("as_first", "as_second"):
        assert 0 < counted[seat]["games"] < 100


def test_the_number_of_players_is_checked():
    with pytest.raises(ValueError, match="2 players"):
        evaluate_episodes(OpenSpielEnv(CONFIG, 1), FirstLegal(), episodes=1, seed=0)
    with pytest.raises(ValueError, match="1 player"):
        evaluate_versus_random(ScriptedEnv(1), FirstLegal(), games=1, seed=0)
