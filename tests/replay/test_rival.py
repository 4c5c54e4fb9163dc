"""The comparison with cpprb gives both sides the same task."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cpprb")
SCRIPTS = Path(__file__).parents[2] / "scripts"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_both_sides_hold_the_same_items_and_draw_them_by_the_same_law():
    from muzero.envs.base import EnvSpec

    bench, rival = load("bench_replay"), load("rival_cpprb")
    spec = EnvSpec(
        name="items",
        frame_shape=(8,),
        frame_dtype=np.dtype(np.uint8),
        num_stacked_frames=1,
        num_actions=rival.NUM_ACTIONS,
        num_players=1,
        turn_order="single",
    )
    sides = rival.Ours(spec, 64, bench.make_segment), rival.Cpprb(8, 64)
    rng = np.random.default_rng(0)
    items = {}
    for number in range(6):  # the ring goes round
        block = {
            "obs": np.full((16, 8), number, np.uint8) * 16 + np.arange(16, dtype=np.uint8)[:, None],
            "act": rng.integers(0, 4, 16),
            "rew": rng.normal(size=16).astype(np.float32),
        }
        items |= {
            int(obs[0]): (int(act), float(rew))
            for obs, act, rew in zip(block["obs"], block["act"], block["rew"], strict=True)
        }
        for side in sides:
            side.insert(side.prepare(block))
    frequencies, weights = [], []
    for side in sides:
        seen = np.zeros(256)
        batch = side.sample(64)
        # An item's error is its number, known by the observation: the ring's slots need not agree.
        for _ in range(40):
            side.update(batch, batch["obs"][:, 0].astype(np.float32))
            batch = side.sample(64)
        weight = {}
        for _ in range(300):
            batch = side.sample(64)
            names = batch["obs"][:, 0]
            assert {name: items[int(name)] for name in names} == {
                name: (int(act), float(rew))
                for name, act, rew in zip(
                    names, batch["act"].reshape(-1), batch["rew"].reshape(-1), strict=True
                )
            }
            np.add.at(seen, names, 1)
            relative = batch["weights"] / batch["weights"][names == names.max()][0]
            weight |= dict(
                zip(names.tolist(), (relative * names.max() ** -0.24).tolist(), strict=True)
            )
        frequencies.append(seen / seen.sum())
        weights.append(weight)
    assert (
        set(np.flatnonzero(frequencies[0]))
        == set(np.flatnonzero(frequencies[1]))
        == set(range(32, 96))
    )
    law = np.arange(256) ** rival.ALPHA * (frequencies[0] > 0)
    for seen in frequencies:
        np.testing.assert_allclose(seen, law / law.sum(), atol=0.003)
    for weight in weights:
        for name, value in weight.items():
            assert value == pytest.approx(name ** (-rival.ALPHA * rival.BETA), rel=1e-3)
