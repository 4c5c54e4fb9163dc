import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.targets import (
    Positions,
    UnrolledTargets,
    lambda_return,
    n_step_return,
    unroll_targets,
    value_targets,
)
from tests.oracles.games import Game, games, lambda_mix, n_step, segment_of

GAMMAS = st.sampled_from([1.0, 0.997, 0.5])
LAMBDAS = st.sampled_from([1.0, 0.95, 0.5, 0.0])


def positions_of(*played: Game, offset: int = 0, num_spare_rows: int = 0) -> Positions:
    """Games one behind the other in a ring, the first at row `offset`."""
    segments = [segment_of(game) for game in played]

    def column(name: str) -> np.ndarray:
        joined = np.concatenate([getattr(segment, name) for segment in segments])
        spare = np.full((num_spare_rows, *joined.shape[1:]), 77).astype(joined.dtype)
        return np.roll(np.concatenate([joined, spare]), offset, axis=0)

    return Positions(*(column(name) for name in Positions._fields))


def unroll(
    positions: Positions,
    rows: list[int],
    *,
    K: int = 3,
    gamma: float = 1.0,
    n: int = 5,
    lam: float = 1.0,
    stored: bool = True,
) -> UnrolledTargets:
    return unroll_targets(positions, np.array(rows), K, gamma, n, lam, stored)


def values(game: Game, *, gamma: float, n: int, lam: float = 1.0) -> list[float]:
    rows = np.arange(game.length)
    return value_targets(positions_of(game), rows, gamma, n, lam).tolist()


def test_worked_game_with_a_player_moving_twice() -> None:
    game = Game(players=[0, 1, 1, 0, 0], rewards=[1, 2, -1, 4], values=[10, 20, 30, 40, 50])
    # 1 - 2/2 - 30/4;  2 - 1/2 - 40/4;  -1 - 4/2;  4
    assert values(game, gamma=0.5, n=2) == [-7.5, -8.5, -3.0, 4.0]
    # 1 - 2/2 - (-1)/4 + 40/8;  2 - 1/2 - 4/4
    assert values(game, gamma=0.5, n=3) == [1 - 1 + 0.25 + 5, 2 - 0.5 - 1, -3.0, 4.0]


def test_worked_game_that_is_cut() -> None:
    game = Game(
        players=[0, 1, 1, 0, 1], rewards=[1, 2, -1, 4], values=[10, 20, 30, 40, 8], truncated=True
    )
    # behind the cut, player 1 is to move and has 8
    assert values(game, gamma=0.5, n=2) == [-7.5, -8.5, -1 - 2 + 2, 4 - 4.0]
    assert values(game, gamma=0.5, n=9) == [1 - 1 + 0.25 + 0.5 - 0.5, 2 - 0.5 - 1 + 1, -1.0, 0.0]


@pytest.mark.parametrize("start", range(5))
def test_winner_sees_plus_one_from_every_start_ply(start: int) -> None:
    game = Game(players=[0, 1, 0, 1, 0, 1], rewards=[0, 0, 0, 0, 1], values=[0.3] * 6)
    targets = unroll(positions_of(game), [start], K=5, n=9)
    expected = [0.0 if start + k >= 5 else (-1.0) ** (start + k) for k in range(6)]
    assert targets.value[0].tolist() == expected


def test_loss_found_by_the_opponents_move() -> None:
    game = Game(players=[0, 1, 0], rewards=[0, 1], values=[0, 0, 0])
    assert values(game, gamma=1.0, n=10) == [-1.0, 1.0]


def test_cut_and_ended_episodes_side_by_side() -> None:
    ended = Game(players=[0] * 4, rewards=[1, 1, 1], values=[5, 5, 5, 5])
    cut = Game(players=[0] * 4, rewards=[1, 1, 1], values=[5, 5, 5, 100], truncated=True)
    positions = positions_of(ended, cut)
    targets = unroll(positions, [0, 3], K=0, gamma=0.5, n=10)
    assert targets.value[:, 0].tolist() == [1.75, 1.75 + 100 / 8]


def test_masks_behind_a_terminal_state() -> None:
    game = Game(players=[0, 1, 0], rewards=[2, 3], values=[7, 7, 7])
    targets = unroll(positions_of(game, game), [0], K=4)
    assert targets.row[0].tolist() == [0, 1, 1, 1, 1]
    assert targets.reward[0].tolist() == [2, 3, 0, 0]
    assert targets.reward_mask[0].tolist() == [1, 1, 1, 1]
    assert targets.value[0].tolist() == [-1, 3, 0, 0, 0]
    assert targets.value_mask[0].tolist() == [1, 1, 1, 1, 1]
    assert targets.policy_mask[0].tolist() == [1, 1, 0, 0, 0]
    assert not targets.policy[0, 2:].any()
    assert targets.turn_mask[0].tolist() == [1, 0, 0, 0]
    assert targets.observation_mask[0].tolist() == [1, 0, 0, 0]


def test_masks_behind_a_cut() -> None:
    game = Game(players=[0, 0, 1], rewards=[2, 3], values=[7, 7, 4], truncated=True)
    targets = unroll(positions_of(game, game), [0], K=4)
    assert targets.row[0].tolist() == [0, 1, 2, 2, 2]
    assert targets.reward[0].tolist() == [2, 3, 0, 0]
    assert targets.reward_mask[0].tolist() == [1, 1, 0, 0]
    assert targets.value[0].tolist() == [1, -1, 0, 0, 0]
    assert targets.value_mask[0].tolist() == [1, 1, 0, 0, 0]
    assert targets.policy_mask[0].tolist() == [1, 1, 0, 0, 0]
    assert targets.turn[0].tolist() == [1, 0, 0, 0]
    assert targets.turn_mask[0].tolist() == [1, 1, 0, 0]
    # the state behind the cut has been seen, what follows has not
    assert targets.observation_mask[0].tolist() == [1, 1, 0, 0]


def test_life_loss_in_the_middle_of_an_episode_ends_returns_and_unrolls() -> None:
    game = Game(players=[0] * 5, rewards=[1, 2, 3, 4], values=[9] * 5)
    positions = positions_of(game)
    positions.turn[1] = 0
    targets = unroll(positions, [0, 2], K=3, n=10)
    assert targets.value.tolist() == [[3, 2, 0, 0], [7, 4, 0, 0]]
    assert targets.policy_mask.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]


def test_a_fast_search_makes_a_value_target_and_no_policy_target() -> None:
    game = Game([0, 1, 0, 1, 0], [0, 0, 2, 1], [5, 6, 7, 8, 9], fast=frozenset({1, 2}))
    positions = positions_of(game)
    positions.policy[1] = 9.0  # even if something is stored there
    targets = unroll(positions, [0], K=4, n=2)
    whole = unroll(
        positions_of(Game([0, 1, 0, 1, 0], [0, 0, 2, 1], [5, 6, 7, 8, 9])), [0], K=4, n=2
    )
    assert targets.policy_mask[0].tolist() == [1, 0, 0, 1, 0]
    assert [policy.tolist() for policy in targets.policy[0]] == [
        game.policy(t).tolist() for t in range(5)
    ]
    assert targets.real_action[0].tolist() == [True] * 4
    for name in ("row", "reward", "reward_mask", "value", "value_mask", "turn", "turn_mask"):
        np.testing.assert_array_equal(getattr(targets, name), getattr(whole, name), err_msg=name)


def test_bootstrap_left_to_the_caller() -> None:
    game = Game(players=[0, 1, 1, 0, 1], rewards=[1, 2, -1, 4], values=[10, 20, 30, 40, 8])
    targets = unroll(positions_of(game), [0], K=4, gamma=0.5, n=2, stored=False)
    assert targets.value[0].tolist() == [0, 1.5, -3, 4, 0]
    assert targets.bootstrap_row[0].tolist() == [2, 3, 2, 3, 3]
    assert targets.bootstrap_discount[0].tolist() == [-0.25, -0.25, 0, 0, 0]


@settings(max_examples=200, deadline=None)
@given(games(), GAMMAS, st.integers(1, 14), LAMBDAS)
def test_values_equal_the_formula(game: Game, gamma: float, n: int, lam: float) -> None:
    expected = [lambda_mix(game, t, gamma, n, lam) for t in range(game.length)]
    np.testing.assert_allclose(values(game, gamma=gamma, n=n, lam=lam), expected, atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(games(), GAMMAS, st.integers(1, 14))
def test_lambda_one_is_the_n_step_return(game: Game, gamma: float, n: int) -> None:
    positions = positions_of(game)
    for row in range(game.length):
        rewards, last, product = n_step_return(positions, row, gamma, n)
        whole = rewards + product * float(positions.root_value[last])
        assert whole == pytest.approx(lambda_return(positions, row, gamma, n, 1.0), abs=1e-12)
        assert whole == pytest.approx(n_step(game, row, gamma, n), abs=1e-6)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(games(max_length=8), min_size=1, max_size=3),
    GAMMAS,
    st.integers(1, 9),
    LAMBDAS,
    st.integers(0, 6),
    st.booleans(),
    st.integers(0, 30),
)
def test_unrolled_targets_equal_the_formulas(
    played: list[Game], gamma: float, n: int, lam: float, K: int, stored: bool, offset: int
) -> None:
    if not stored:
        lam = 1.0
    positions = positions_of(*played, offset=offset, num_spare_rows=2)
    capacity = len(positions.reward)
    start = offset
    for game in played:
        rows = [(start + t) % capacity for t in range(game.length)]
        targets = unroll(positions, rows, K=K, gamma=gamma, n=n, lam=lam, stored=stored)
        for t in range(game.length):
            check_sample(targets, t, game, start, capacity, gamma, n, lam, stored)
        start += game.length + game.truncated


def check_sample(
    targets: UnrolledTargets,
    t: int,
    game: Game,
    start: int,
    capacity: int,
    gamma: float,
    n: int,
    lam: float,
    stored: bool,
) -> None:
    """Compare sample `t`, which begins at move `t` of a game that starts in row `start`."""
    known = not game.truncated  # whether one knows what is behind the last state
    last_position = game.length - 1 + game.truncated
    for k in range(targets.value.shape[1]):
        s = t + k
        real = s < game.length
        assert targets.row[t, k] == (start + min(s, last_position)) % capacity
        assert targets.value_mask[t, k] == float(real or known)
        searched_fully = real and s not in game.fast
        assert targets.policy_mask[t, k] == float(searched_fully)
        value = targets.value[t, k]
        if real and not stored:
            last = targets.bootstrap_row[t, k]
            ahead = (last - start) % capacity
            if targets.bootstrap_discount[t, k] != 0:
                assert ahead == min(s + n, game.length)
                value += targets.bootstrap_discount[t, k] * game.values[ahead]
            else:
                assert s + n >= game.length and not game.truncated
        expected = lambda_mix(game, s, gamma, n, lam) if real else 0.0
        assert value == pytest.approx(expected, abs=1e-5)
        assert targets.policy[t, k].tolist() == (
            game.policy(s).tolist() if searched_fully else [0, 0, 0]
        )
        if k == targets.reward.shape[1]:
            break
        assert targets.real_action[t, k] == real
        assert targets.reward[t, k] == (game.rewards[s] if real else 0.0)
        assert targets.reward_mask[t, k] == float(real or known)
        seen = s + 1 <= last_position
        assert targets.turn_mask[t, k] == targets.observation_mask[t, k] == float(seen)
        assert targets.turn[t, k] == float(seen and game.players[s] == game.players[s + 1])


def test_kernels_equal_their_python_twins() -> None:
    game = Game(players=[0, 1, 1, 0, 1], rewards=[1, 2, -1, 4], values=[1, 2, 3, 4, 5])
    positions = positions_of(game)
    rows = np.arange(4)
    for lam in (1.0, 0.5):
        compiled = unroll_targets(positions, rows, 3, 0.9, 2, lam, True)
        plain = unroll_targets.py_func(positions, rows, 3, 0.9, 2, lam, True)
        for name, ours, twin in zip(UnrolledTargets._fields, compiled, plain, strict=True):
            np.testing.assert_allclose(ours, twin, rtol=1e-6, err_msg=name)
            assert ours.dtype == twin.dtype
