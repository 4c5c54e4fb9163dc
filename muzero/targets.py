"""Learning targets from stored positions: n-step and lambda returns, ends of episodes, unrolled steps.

Letters: `C` rows of the ring that holds the positions, `B` samples, `K` unrolled steps, `A` actions.
The ring is cyclic: behind row `C - 1` comes row 0. A return is seen by the player to move at its position; every sign
comes from the edges' signed discounts `turn * discount`, so the search's backup and these targets obey one rule.

Ends of episodes. An edge with `turn == 0` enters a terminal state: its return is the reward alone, and the unrolled steps
behind it are absorbing (reward 0, value 0, no policy). A position without action is the state behind a truncation: a
return that reaches it early stops there and bootstraps from its `root_value`. As an unrolled step it has no target of
its own (its return would be that bootstrap itself), and what lies behind it is unknown: everything is masked.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

FloatArray = npt.NDArray[np.float32]

_REAL, _ABSORBING, _UNKNOWN = 0, 1, 2


class Positions(NamedTuple):
    """The stored columns that targets are made of; see `muzero.replay.episode.Segment` for their meaning."""

    reward: FloatArray
    """`[C]`."""
    turn: npt.NDArray[np.int8]
    """`[C]`."""
    has_action: npt.NDArray[np.bool_]
    """`[C]`."""
    root_value: FloatArray
    """`[C]`."""
    policy: FloatArray
    """`[C, A]`."""
    has_policy: npt.NDArray[np.bool_]
    """`[C]`."""


class UnrolledTargets(NamedTuple):
    """Targets of `B` positions and the `K` steps behind each; masks are 1.0 or 0.0."""

    row: npt.NDArray[np.int64]
    """`[B, K+1]` row of step k; behind an end the row of the last real position."""
    reward: FloatArray
    """`[B, K]` reward of the edge from step k to k+1."""
    reward_mask: FloatArray
    """`[B, K]`."""
    value: FloatArray
    """`[B, K+1]` return; its reward part alone if the bootstrap is left to the caller."""
    value_mask: FloatArray
    """`[B, K+1]`."""
    policy: FloatArray
    """`[B, K+1, A]`."""
    policy_mask: FloatArray
    """`[B, K+1]` 1.0 at real positions whose policy is a target."""
    real_action: npt.NDArray[np.bool_]
    """`[B, K]` whether step k is a real position, so that the action stored there was taken."""
    turn: FloatArray
    """`[B, K]` 1.0 where the mover of the edge moves again."""
    turn_mask: FloatArray
    """`[B, K]` 1.0 where the edge is real and does not end the game."""
    observation_mask: FloatArray
    """`[B, K]` 1.0 where step k+1 is a stored position."""
    bootstrap_row: npt.NDArray[np.int64]
    """`[B, K+1]` row that the n-step return bootstraps from; the step's own row where nothing is bootstrapped."""
    bootstrap_discount: FloatArray
    """`[B, K+1]` product of the signed discounts up to there; 0 where nothing is bootstrapped."""


@njit(cache=True, nogil=True)
def n_step_return(positions, row, discount, td_steps):  # type: ignore[no-untyped-def]
    """Return of `row` in parts: `(sum of discounted rewards, bootstrap row, bootstrap discount)`.

    The whole return is `rewards + bootstrap_discount * value(bootstrap row)`; the discount is 0 behind a terminal state.
    """
    num_rows = positions.reward.shape[0]
    rewards, product, at = 0.0, 1.0, row
    for _ in range(td_steps):
        if not positions.has_action[at]:
            break
        rewards += product * positions.reward[at]
        product *= positions.turn[at] * discount
        if product == 0.0:
            return rewards, row, 0.0
        at = (at + 1) % num_rows
    return rewards, at, product


@njit(cache=True, nogil=True)
def lambda_return(positions, row, discount, td_steps, td_lambda):  # type: ignore[no-untyped-def]
    """Mix of the 1- to `td_steps`-step returns of `row`, bootstrapped from stored root values.

    `G_t = u_t + d_t ((1 - lambda) v_{t+1} + lambda G_{t+1})` with `G = v` after `td_steps` and behind a truncation.
    """
    num_rows = positions.reward.shape[0]
    total, weight, at = 0.0, 1.0, row
    for _ in range(td_steps):
        if not positions.has_action[at]:
            break
        total += weight * positions.reward[at]
        weight *= positions.turn[at] * discount
        if weight == 0.0:
            return total
        at = (at + 1) % num_rows
        total += weight * (1.0 - td_lambda) * positions.root_value[at]
        weight *= td_lambda
    return total + weight * positions.root_value[at]


@njit(cache=True, nogil=True)
def value_targets(positions, rows, discount, td_steps, td_lambda):  # type: ignore[no-untyped-def]
    """Complete value targets `[B]` of `rows[B]`, bootstrapped from stored root values."""
    value = np.empty(rows.shape[0], np.float32)
    for index in range(rows.shape[0]):
        value[index] = lambda_return(positions, rows[index], discount, td_steps, td_lambda)
    return value


@njit(cache=True, nogil=True)
def unroll_targets(  # type: ignore[no-untyped-def]
    positions, rows, num_unroll_steps, discount, td_steps, td_lambda, stored_bootstrap
):
    """Targets of `rows[B]` and the steps behind them, as `UnrolledTargets`.

    With `stored_bootstrap` False the value is the reward part of the n-step return (`td_lambda` must be 1 then) and the
    caller adds `bootstrap_discount` times its own value of `bootstrap_row`.
    The rows up to `K + td_steps` behind a sampled one must be of its episode unless the episode ends before.
    """
    num_samples, num_steps = rows.shape[0], num_unroll_steps
    num_rows, num_actions = positions.policy.shape
    row = np.empty((num_samples, num_steps + 1), np.int64)
    reward = np.zeros((num_samples, num_steps), np.float32)
    reward_mask = np.zeros((num_samples, num_steps), np.float32)
    value = np.zeros((num_samples, num_steps + 1), np.float32)
    value_mask = np.zeros((num_samples, num_steps + 1), np.float32)
    policy = np.zeros((num_samples, num_steps + 1, num_actions), np.float32)
    policy_mask = np.zeros((num_samples, num_steps + 1), np.float32)
    real_action = np.zeros((num_samples, num_steps), np.bool_)
    turn = np.zeros((num_samples, num_steps), np.float32)
    turn_mask = np.zeros((num_samples, num_steps), np.float32)
    observation_mask = np.zeros((num_samples, num_steps), np.float32)
    bootstrap_row = np.empty((num_samples, num_steps + 1), np.int64)
    bootstrap_discount = np.zeros((num_samples, num_steps + 1), np.float32)

    for sample in range(num_samples):
        at, kind = rows[sample], _REAL
        for step in range(num_steps + 1):
            if kind == _REAL and not positions.has_action[at]:
                kind = _UNKNOWN
            row[sample, step] = at
            bootstrap_row[sample, step] = at
            if kind == _REAL:
                if td_lambda == 1.0:
                    rewards, last, product = n_step_return(positions, at, discount, td_steps)
                    bootstrap_row[sample, step] = last
                    bootstrap_discount[sample, step] = product
                    if stored_bootstrap:
                        rewards += product * positions.root_value[last]
                    value[sample, step] = rewards
                else:
                    value[sample, step] = lambda_return(
                        positions, at, discount, td_steps, td_lambda
                    )
                if positions.has_policy[at]:
                    policy[sample, step] = positions.policy[at]
                    policy_mask[sample, step] = 1.0
            if kind != _UNKNOWN:
                value_mask[sample, step] = 1.0
            if step == num_steps:
                break
            if kind != _UNKNOWN:
                reward_mask[sample, step] = 1.0
            if kind == _REAL:
                real_action[sample, step] = True
                reward[sample, step] = positions.reward[at]
                if positions.turn[at] == 0:
                    kind = _ABSORBING
                else:
                    turn[sample, step] = 1.0 if positions.turn[at] > 0 else 0.0
                    turn_mask[sample, step] = 1.0
                    observation_mask[sample, step] = 1.0
                    at = (at + 1) % num_rows
    return UnrolledTargets(
        row,
        reward,
        reward_mask,
        value,
        value_mask,
        policy,
        policy_mask,
        real_action,
        turn,
        turn_mask,
        observation_mask,
        bootstrap_row,
        bootstrap_discount,
    )
