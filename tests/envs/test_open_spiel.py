import json
import math

import numpy as np
import pyspiel
import pytest

from muzero.config.environments import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielEnv, OpenSpielFrames, load_game, make_spec


def config(game, **settings):
    return OpenSpielConfig(game=game, name=game, **settings)


def random_actions(step, rng):
    return np.argmax(rng.random(step.legal.shape) * step.legal, axis=1)


def play(env, step, num_steps, seed):
    """Steps under random actions, and the actions."""
    rng, steps, actions = np.random.default_rng(seed), [], []
    for _ in range(num_steps):
        actions.append(random_actions(step, rng))
        step = env.step(actions[-1])
        steps.append(step)
    return steps, actions


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        for name in ("frame", "legal", "to_play", "reward", "score", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def at(settings, lines):
    """An environment whose rows have played `lines`, and its positions."""
    env = OpenSpielEnv(settings, len(lines))
    env.reset(0)
    return env, env.restore(env.state() | {"actions": lines})


def count_games(settings, depth):
    """Complete games, and unfinished lines of `depth` moves, by the adapter's own masks and flags."""
    num_games, lines = 0, [[]]
    for _ in range(depth):
        longer = []
        for start in range(0, len(lines), 2048):
            parents = lines[start : start + 2048]
            rows, actions = np.nonzero(at(settings, parents)[1].legal)
            played = [parents[row] for row in rows]
            step = at(settings, played)[0].step(actions)
            num_games += int(step.terminated.sum())
            longer += [
                [*line, action]
                for line, action, ended in zip(
                    played, actions.tolist(), step.terminated, strict=True
                )
                if not ended
            ]
        lines = longer
    return num_games, len(lines)


@pytest.mark.parametrize(
    ("game", "depth", "expected"),
    [
        ("connect_four", 1, (0, 7)),
        ("connect_four", 2, (0, 49)),
        ("connect_four", 3, (0, 343)),
        ("connect_four", 4, (0, 2401)),
        ("tic_tac_toe", 4, (0, 3024)),
        ("tic_tac_toe", 5, (1440, 15120 - 1440)),
    ],
)
def test_numbers_of_move_sequences(game, depth, expected):
    assert count_games(config(game), depth) == expected


@pytest.mark.slow
def test_all_games_of_tic_tac_toe():
    assert count_games(config("tic_tac_toe"), 9) == (255_168, 0)


@pytest.mark.parametrize(
    "game", ["tic_tac_toe", "connect_four", "chess", "amazons", "backgammon", "pig", "2048"]
)
def test_agrees_with_openspiel_on_everything(game):
    """Every row follows a state of its own that is stepped by OpenSpiel alone."""
    settings = config(game, frame_shape=[3, 101, 1] if game == "pig" else None)
    env, plain = OpenSpielEnv(settings, 3), load_game(settings)
    step, rng = env.reset(5), np.random.default_rng(1)
    ends = 0
    for _ in range(150):
        before = [plain.deserialize_state(text) for text in serialized(env)]
        returns = [state.returns() for state in before]
        actions = random_actions(step, rng)
        after = env.step(actions)
        for row, state in enumerate(before):
            mover = state.current_player()
            assert step.to_play[row] == mover
            assert np.flatnonzero(step.legal[row]).tolist() == state.legal_actions()
            tensor = np.array(state.observation_tensor(mover), np.float32)
            planes = step.frame[row].astype(np.float32)
            if plain.num_players() == 2:
                np.testing.assert_array_equal(planes[-1], np.full_like(planes[-1], mover))
                planes = planes[:-1]
            np.testing.assert_array_equal(planes.ravel(), tensor)
            state.apply_action(int(actions[row]))
            if not state.is_chance_node():  # what chance adds may end the game, or not
                assert after.terminated[row] == state.is_terminal()
                gained = state.returns()[mover] - returns[row][mover]
                assert after.reward[row] == after.score[row] == np.float32(gained)
            ends += int(after.terminated[row])
        step = after
    if game in ("tic_tac_toe", "connect_four"):
        assert ends > 10


def serialized(env):
    """OpenSpiel's own text of each row's state: its actions, one a line."""
    return ["".join(f"{action}\n" for action in actions) for actions in env.state()["actions"]]


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "othello", "amazons", "checkers"])
def test_returns_are_zero_sum_and_draws_give_nothing(game):
    settings = config(game)
    env, plain = OpenSpielEnv(settings, 4), load_game(settings)
    step, rng, outcomes = env.reset(0), np.random.default_rng(0), []
    for _ in range(400):
        texts, mover, actions = serialized(env), step.to_play, random_actions(step, rng)
        step = env.step(actions)
        for row in np.flatnonzero(step.terminated):
            state = plain.deserialize_state(texts[row])
            state.apply_action(int(actions[row]))
            assert sum(state.returns()) == 0
            assert step.reward[row] == state.returns()[mover[row]]
            outcomes.append(float(step.reward[row]))
        assert not step.reward[~step.terminated].any()
    assert set(outcomes) <= {-1.0, 0.0, 1.0}
    if game == "tic_tac_toe":
        assert 0.0 in outcomes


def test_chess_is_begun_by_player_one():
    step = OpenSpielEnv(config("chess"), 2).reset(0)
    assert step.to_play.tolist() == [1, 1]
    assert (step.frame[:, -1] == 1).all()


def test_amazons_moves_three_times_in_a_row():
    env = OpenSpielEnv(config("amazons"), 1)
    steps, _ = play(env, env.reset(0), 8, 0)
    assert [int(step.to_play[0]) for step in steps] == [0, 0, 1, 1, 1, 0, 0, 0]
    assert env.spec.turn_order == "repeated"


def test_rewards_over_chance_nodes_are_counted_once():
    """In 2048 `State.rewards` repeats itself after the tile that chance adds."""
    env = OpenSpielEnv(config("2048"), 1)
    total, step, rng = 0.0, env.reset(0), np.random.default_rng(0)
    plain = load_game(config("2048"))
    for _ in range(60):
        step = env.step(random_actions(step, rng))
        total += float(step.reward[0])
        assert not step.terminated[0]
    state = plain.deserialize_state(serialized(env)[0])
    assert total == state.returns()[0] > 0


def test_chance_draws_follow_their_probabilities():
    env = OpenSpielEnv(config("2048"), 400)
    env.reset(0)
    tiles = np.concatenate(
        [step.frame[step.frame > 0] for step in [env.reset(seed) for seed in range(5)]]
    )
    share = float((tiles == 4).mean())  # two tiles at the start, each a 4 with probability 0.1
    assert abs(share - 0.1) < 4 * math.sqrt(0.09 / len(tiles))


def test_truncation_gives_the_final_frame_and_its_player():
    settings = config("connect_four", max_episode_steps=5)
    env, uncut = OpenSpielEnv(settings, 4), OpenSpielEnv(config("connect_four"), 4)
    assert env.spec.max_episode_steps == 5
    step, twin = env.reset(0), uncut.reset(0)
    first, rng = step.frame, np.random.default_rng(0)
    for _ in range(5):
        assert step.final_frame is None
        actions = random_actions(step, rng)
        step, twin = env.step(actions), uncut.step(actions)
    assert step.truncated.all() and not step.terminated.any()
    np.testing.assert_array_equal(step.final_frame, twin.frame)
    np.testing.assert_array_equal(step.final_to_play, twin.to_play)
    np.testing.assert_array_equal(step.frame, first)
    assert step.to_play.tolist() == [0] * 4 and not step.reward.any()


def test_an_end_at_the_limit_is_no_truncation():
    env = OpenSpielEnv(config("tic_tac_toe", max_episode_steps=5), 2)
    env.reset(0)
    for actions in ([0, 0], [3, 3], [1, 1], [4, 4]):
        step = env.step(np.array(actions))
    step = env.step(np.array([2, 5]))
    assert step.terminated.tolist() == [True, False]
    assert step.truncated.tolist() == [False, True]
    assert step.reward.tolist() == [1, 0]
    step = env.step(np.array([0, 0]))
    assert not (step.terminated | step.truncated).any()


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "2048", "backgammon"])
def test_restores_bit_for_bit_in_the_middle_of_games(game):
    env = OpenSpielEnv(config(game, max_episode_steps=17), 3)
    steps, _ = play(env, env.reset(3), 40, 1)
    saved = json.loads(json.dumps(env.state()))
    expected, _ = play(env, steps[-1], 40, 2)
    other = OpenSpielEnv(config(game, max_episode_steps=17), 3)
    restored = other.restore(saved)
    np.testing.assert_array_equal(restored.frame, steps[-1].frame)
    assert not restored.reward.any() and not (restored.terminated | restored.truncated).any()
    again, _ = play(other, restored, 40, 2)
    assert_same(expected, again)


def test_restore_refuses_another_batch_size():
    env = OpenSpielEnv(config("tic_tac_toe"), 2)
    env.reset(0)
    with pytest.raises(ValueError, match="2 games, this environment has 3"):
        OpenSpielEnv(config("tic_tac_toe"), 3).restore(env.state())


def test_rows_differ_and_hang_on_seed_and_row_alone():
    small, large = OpenSpielEnv(config("2048"), 2), OpenSpielEnv(config("2048"), 5)
    few, many = small.reset(7), large.reset(7)
    for _ in range(30):
        np.testing.assert_array_equal(few.frame, many.frame[:2])
        actions = random_actions(many, np.random.default_rng(0))
        few, many = small.step(actions[:2]), large.step(actions)
    assert len({frame.tobytes() for frame in many.frame}) == 5
    assert not np.array_equal(large.reset(7).frame, large.reset(8).frame)


def test_returned_arrays_are_the_callers():
    env = OpenSpielEnv(config("tic_tac_toe"), 2)
    step = env.reset(0)
    step.frame[:] = True
    step.legal[:] = False
    step.to_play[:] = 1
    after = env.step(np.array([0, 4]))
    assert after.to_play.tolist() == [1, 1] and after.legal.sum() == 16


@pytest.mark.parametrize(
    ("actions", "message"), [([0, 9], "action 9 is illegal in row 1"), ([4, 0], "in row 0")]
)
def test_illegal_actions_are_refused(actions, message):
    env = OpenSpielEnv(config("tic_tac_toe"), 2)
    env.reset(0)
    env.step(np.array([4, 4]))
    with pytest.raises(ValueError, match=message):
        env.step(np.array(actions))


def test_a_second_move_in_a_row_stops_an_alternating_game(monkeypatch):
    """As if the random games had missed it."""
    monkeypatch.setattr("muzero.envs.open_spiel_game.NUM_PROBE_GAMES", 0)
    env = OpenSpielEnv(config("amazons"), 2)
    assert env.spec.turn_order == "alternating"
    step = env.reset(0)
    with pytest.raises(
        ValueError, match=r"amazons: player 0 .* twice in a row.*env.turn_order=repeated"
    ):
        env.step(np.argmax(step.legal, axis=1))


@pytest.mark.parametrize(
    ("game", "settings", "shape", "dtype", "turn_order"),
    [
        ("tic_tac_toe", {}, (4, 3, 3), np.bool_, "alternating"),
        ("gomoku", {}, (676,), np.bool_, "alternating"),
        ("gomoku", {"frame_shape": [3, 15, 15]}, (4, 15, 15), np.bool_, "alternating"),
        ("2048", {}, (16,), np.float32, "single"),
        ("2048", {"frame_shape": [1, 4, 4]}, (1, 4, 4), np.float32, "single"),
        ("oware", {}, (15,), np.float32, "alternating"),
        ("dots_and_boxes", {}, (4, 9, 3), np.bool_, "repeated"),
        ("chess", {}, (21, 8, 8), np.float32, "alternating"),
        ("tic_tac_toe", {"turn_order": "repeated"}, (4, 3, 3), np.bool_, "repeated"),
    ],
)
def test_spec(game, settings, shape, dtype, turn_order):
    spec = make_spec(config(game, **settings))
    assert (spec.frame_shape, spec.frame_dtype, spec.turn_order) == (
        shape,
        np.dtype(dtype),
        turn_order,
    )
    step = OpenSpielEnv(config(game, **settings), 2).reset(0)
    assert step.frame.shape == (2, *shape) and step.frame.dtype == dtype


def test_spec_takes_bounds_and_length_from_the_game():
    assert make_spec(config("connect_four")).return_bounds == (-1.0, 1.0)
    assert make_spec(config("2048")).return_bounds == (0.0, 20480.0)
    assert make_spec(config("connect_four")).max_episode_steps == 42
    assert make_spec(config("connect_four", max_episode_steps=50)).max_episode_steps == 42


def test_frames_of_any_state():
    settings = config("connect_four")
    game = load_game(settings)
    frames = OpenSpielFrames(game, settings)
    env = OpenSpielEnv(settings, 1)
    env.reset(0)
    state = game.new_initial_state()
    for action in (3, 3, 2):
        state.apply_action(action)
        step = env.step(np.array([action]))
    np.testing.assert_array_equal(frames.frame(state), step.frame[0])
    np.testing.assert_array_equal(frames.legal([state, state.clone()])[1], step.legal[0])
    assert frames.to_play([state]).tolist() == [1]


def test_python_games_are_named_by_their_module():
    settings = config("open_spiel.python.games:python_tic_tac_toe")
    ours, theirs = OpenSpielEnv(config("tic_tac_toe"), 2), OpenSpielEnv(settings, 2)
    step, twin = ours.reset(0), theirs.reset(0)
    for _ in range(20):
        np.testing.assert_array_equal(step.legal, twin.legal)
        np.testing.assert_array_equal(step.reward, twin.reward)
        actions = random_actions(step, np.random.default_rng(0))
        step, twin = ours.step(actions), theirs.step(actions)
    assert pyspiel.load_game("python_tic_tac_toe").get_type().short_name == "python_tic_tac_toe"
