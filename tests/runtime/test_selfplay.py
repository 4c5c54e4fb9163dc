"""Self-play: what it records is what was played, searched and seen."""

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.runtime.build import Builder

SMALL = ("debug=smoke", "selfplay.num_games=8", "search.num_simulations=6")


def play(overrides, num_moves: int, learner_step: int = 0):
    builder = Builder.of(compose([*overrides[:1], *SMALL, *overrides[1:]]))
    selfplay = builder.selfplay()
    segments = [segment for _ in range(num_moves) for segment in selfplay.play(learner_step)]
    return builder, selfplay, segments


def test_games_of_tictactoe_are_recorded_as_they_were_played():
    import pyspiel

    _, selfplay, segments = play(("experiment=tictactoe", "selfplay.opening_fraction=0"), 60)
    assert len(segments) > 20
    game = pyspiel.load_game("tic_tac_toe")
    for segment in segments:
        state = game.new_initial_state()
        assert segment.first == 0 and segment.count == len(segment)
        for position in range(len(segment)):
            assert segment.to_play[position] == state.current_player() == position % 2
            assert np.flatnonzero(segment.legal[position]).tolist() == state.legal_actions()
            assert segment.policy[position][~segment.legal[position]].sum() == 0.0
            np.testing.assert_allclose(segment.policy[position].sum(), 1.0, atol=1e-5)
            mover = state.current_player()
            state.apply_action(int(segment.action[position]))
            assert segment.reward[position] == state.rewards()[mover]
        assert state.is_terminal()
        assert segment.turn.tolist() == [-1] * (len(segment) - 1) + [0]
    played = sum(len(segment) for segment in segments)
    assert selfplay.totals.games == len(segments)
    assert 0 <= selfplay.totals.env_steps - played < 8 * 9  # the rest is still running


def test_random_openings_are_played_without_search_and_not_trained_on():
    _, selfplay, segments = play(
        (
            "experiment=tictactoe",
            "selfplay.opening_fraction=1",
            "selfplay.max_opening_moves=3",
        ),
        80,
    )
    assert selfplay.totals.opening_steps > 0
    plies = [int(segment.frame[0][1:3].sum()) for segment in segments]  # stones on the board
    assert set(plies) == {1, 2, 3}
    for segment in segments:
        assert (segment.policy.sum(axis=1) > 0.99).all()
    assert sum(map(len, segments)) <= selfplay.totals.env_steps


def test_a_cut_episode_is_bootstrapped_with_the_value_of_the_state_behind_the_cut():
    _, selfplay, segments = play(("experiment=cartpole", "env.max_episode_steps=5"), 24)
    cut = [segment for segment in segments if not segment.has_action[-1]]
    assert cut
    for segment in cut:
        assert len(segment) == 6 and segment.count == 5
        assert segment.turn[:5].tolist() == [1] * 5
        value = selfplay.model.values(segment.frame[5:6])
        np.testing.assert_allclose(segment.root_value[5], value[0], atol=1e-6)


def test_rows_play_different_games_and_another_seed_plays_others():
    _, _, segments = play(("experiment=tictactoe",), 30)
    assert len({tuple(segment.action.tolist()) for segment in segments}) > len(segments) // 2
    _, _, others = play(("experiment=tictactoe", "seed=5"), 30)
    assert [s.action.tolist() for s in segments] != [s.action.tolist() for s in others]
    _, _, again = play(("experiment=tictactoe",), 30)
    assert [s.action.tolist() for s in segments] == [s.action.tolist() for s in again]


@pytest.mark.parametrize(("step", "greedy"), [(0, False), (10, True)])
def test_temperature_follows_the_learner_step(step, greedy):
    _, _, segments = play(
        (
            "experiment=tictactoe",
            "search=puct",
            "selfplay.opening_fraction=0",
            "selfplay.temperatures=[1.0,0.0]",
            "selfplay.temperature_steps=[10]",
        ),
        40,
        learner_step=step,
    )
    chosen_is_best = [
        segment.policy[i, segment.action[i]] == segment.policy[i].max()
        for segment in segments
        for i in range(len(segment))
    ]
    assert all(chosen_is_best) == greedy


def test_the_temperature_drops_after_so_many_moves():
    _, _, segments = play(
        (
            "experiment=tictactoe",
            "search=puct",
            "selfplay.opening_fraction=0",
            "selfplay.temperature_drop_move=2",
            "search.num_simulations=40",
        ),
        40,
    )
    best = np.array(
        [
            [segment.policy[i, segment.action[i]] == segment.policy[i].max() for i in range(5)]
            for segment in segments
        ]
    )
    assert best[:, 2:].all() and not best[:, :2].all()


def test_segments_carry_the_version_that_acted():
    builder = Builder.of(compose(["experiment=tictactoe", *SMALL]))
    selfplay = builder.selfplay()
    selfplay.model.load(builder.network().state_dict(), 41)
    segments = [segment for _ in range(12) for segment in selfplay.play(0)]
    assert all((segment.version == 41).all() for segment in segments)


def test_one_root_inference_and_n_steps_per_move():
    builder = Builder.of(compose(["experiment=tictactoe", *SMALL]))
    selfplay = builder.selfplay()
    calls = {"roots": 0, "recurrent": 0}
    for name in calls:
        inner = getattr(selfplay.model, name)

        def counted(*args, name=name, inner=inner):
            calls[name] += 1
            return inner(*args)

        setattr(selfplay.model, name, counted)
    selfplay.play(0)
    assert calls == {"roots": 1, "recurrent": 6}
