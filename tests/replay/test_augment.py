"""Turned batches: observation, actions and policies move together, and turning back restores them."""

from dataclasses import fields, replace

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.envs.symmetry import Symmetries
from muzero.replay.augment import SymmetryAugmenter
from muzero.runtime.build import Builder


@pytest.fixture(scope="module")
def sampled():
    overrides = ["experiment=tictactoe", "debug=smoke", "selfplay.num_games=16"]
    builder = Builder.of(compose([*overrides, "env.num_stacked_frames=2"]))
    selfplay, replay = builder.selfplay(), builder.replay()
    while replay.size < 200:
        for segment in selfplay.play(0):
            replay.add(segment)
    batch = replay.sample(64)
    rng = np.random.default_rng(0)
    shape = (64, batch.action.shape[1], *batch.observation.shape[1:])
    batch = replace(
        batch,
        next_observation=rng.random(shape) < 0.5,
        bootstrap_observation=rng.random(shape) < 0.5,
    )
    return builder.spec.symmetries, batch


def test_each_sample_is_turned_as_a_board_is(sampled):
    symmetries, batch = sampled
    which = np.arange(64) % 8
    turned = SymmetryAugmenter(symmetries, np.random.default_rng(0)).turn(batch, which)
    for b in range(64):
        cells, actions = symmetries.cells[which[b]], symmetries.actions[which[b]]
        for name in ("observation", "next_observation", "bootstrap_observation"):
            before, after = getattr(batch, name)[b], getattr(turned, name)[b]
            np.testing.assert_array_equal(after.reshape(-1, 9), before.reshape(-1, 9)[:, cells])
        assert turned.action[b].tolist() == [actions[a] for a in batch.action[b]]
        for k in range(batch.policy.shape[1]):
            for action in range(9):
                assert turned.policy[b, k, actions[action]] == batch.policy[b, k, action]


def test_what_does_not_lie_on_the_board_stays(sampled):
    symmetries, batch = sampled
    turned = SymmetryAugmenter(symmetries, np.random.default_rng(0))(batch)
    moved = {"observation", "next_observation", "bootstrap_observation", "action", "policy"}
    for field in fields(batch):
        same = np.array_equal(getattr(batch, field.name), getattr(turned, field.name))
        assert same != (field.name in moved), field.name


def test_the_inverse_restores_the_batch(sampled):
    symmetries, batch = sampled
    which = np.arange(64) % 8
    back = Symmetries(np.argsort(symmetries.cells, axis=1), np.argsort(symmetries.actions, axis=1))
    rng = np.random.default_rng(0)
    there = SymmetryAugmenter(symmetries, rng).turn(batch, which)
    again = SymmetryAugmenter(back, rng).turn(there, which)
    for name in ("observation", "next_observation", "action", "policy"):
        np.testing.assert_array_equal(getattr(again, name), getattr(batch, name))


def test_all_turns_are_drawn_within_one_batch_and_a_restored_one_draws_the_same(sampled):
    symmetries, batch = sampled
    augmenter = SymmetryAugmenter(symmetries, np.random.default_rng(1))
    state = augmenter.state()
    first = augmenter(batch)
    other = SymmetryAugmenter(symmetries, np.random.default_rng(2))
    other.restore(state)
    np.testing.assert_array_equal(other(batch).action, first.action)
    empty = batch.observation.reshape(64, -1, 9).sum(axis=(1, 2))
    assert (first.observation.reshape(64, -1, 9).sum(axis=(1, 2)) == empty).all()
    turned = [not np.array_equal(a, b) for a, b in zip(first.action, batch.action, strict=True)]
    assert 32 < sum(turned) < 64


def test_channels_are_exchanged_within_every_frame_of_a_stack():
    overrides = ["experiment=hex", "debug=smoke", "selfplay.num_games=8"]
    builder = Builder.of(compose([*overrides, "env.num_stacked_frames=3"]))
    selfplay, replay = builder.selfplay(), builder.replay()
    while replay.size < 64:
        for segment in selfplay.play(0):
            replay.add(segment)
    batch, symmetries = replay.sample(16), builder.spec.symmetries
    turned = SymmetryAugmenter(symmetries, np.random.default_rng(0)).turn(batch, np.arange(16) % 2)
    frames = batch.observation.reshape(16, 3, 10, 5, 5)
    west, east = frames[:, :, 1].copy(), frames[:, :, 2].copy()
    assert (west[1::2] != east[1::2]).any()
    after = turned.observation.reshape(16, 3, 10, 5, 5)
    np.testing.assert_array_equal(after[1::2, :, 1], east[1::2, :, ::-1, ::-1])
    np.testing.assert_array_equal(after[1::2, :, 2], west[1::2, :, ::-1, ::-1])
    for b in range(16):
        for k in range(3):
            np.testing.assert_array_equal(symmetries.turn(frames[b, k], b % 2), after[b, k])
