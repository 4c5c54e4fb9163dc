"""One seed gives one run, and a run that was stopped and resumed equals one that was not: byte for byte."""

from pathlib import Path

import numpy as np
import pytest
import torch

from muzero.checkpoint import Checkpoint
from muzero.config.compose import compose
from muzero.config.schema import Config
from muzero.metrics import read_rows, strip_timing
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint

BOARD = ("experiment=tictactoe", "debug=smoke", "selfplay.num_games=6", "runtime.overlap=false")
REANALYZED = (*BOARD, "reanalyze.fresh_fraction=0.9", "reanalyze.max_target_age=4")
GYM = ("experiment=cartpole", "debug=smoke", "selfplay.segment_length=12")
CUT = (*GYM, "env.max_episode_steps=9", "replay.prioritized=true", "learner.average_decay=0.9")
RULES = (*BOARD, "search.dynamics=rules")
STACKED = (*BOARD, "env.num_stacked_frames=3", "search.kind=puct", "search.normalization=tree")
CAPPED = (*REANALYZED, "selfplay.full_search_fraction=0.4", "selfplay.fast_simulations=2")
REUSED = (*GYM, "selfplay.reuse_subtree=true", "search.num_simulations=12")
PUCT = ("search.kind=puct", "search.forced_playouts=2", "selfplay.opening_fraction=0.3")
ALL_TOGETHER = (*CAPPED, *PUCT, "selfplay.reuse_subtree=true", "search.num_simulations=9")
STAGES = ("selfplay.progressive_simulations=[2,3]", "selfplay.progressive_steps=[8,15]")
PROGRESSIVE = (*CAPPED, *STAGES)
PROGRESSIVE_TREES = (*ALL_TOGETHER, *STAGES)
REUSED_RULES = (*BOARD, *PUCT, "selfplay.reuse_subtree=true", "search.dynamics=rules")


def make_config(overrides: tuple[str, ...], run_dir: Path, num_steps: int) -> Config:
    config = compose(
        [
            *overrides,
            f"learner.num_steps={num_steps}",
            "learner.schedule=constant",
            "evaluation.interval=0",
            "logger.tensorboard=false",
            "logger.progress=none",
            "runtime.checkpoint_interval=1000",
        ],
        run_dir=str(run_dir),
    )
    run_dir.mkdir(parents=True)
    return config


def train(overrides, run_dir: Path, num_steps: int, checkpoint: Checkpoint | None = None):
    LocalRuntime(make_config(overrides, run_dir, num_steps), run_dir, checkpoint).train()
    return open_checkpoint(run_dir)


def assert_same_bytes(left: Checkpoint, right: Checkpoint) -> None:
    """All parts equal; only what the clock measured may differ."""
    assert left.step == right.step
    assert left.parts == right.parts
    for name in left.parts:
        ours, theirs = left.part(name), right.part(name)
        if name in ("state", "replay_state", "config"):
            ours, theirs = without_clock(ours), without_clock(theirs)
            assert ours == theirs, name
            continue
        assert ours.keys() == theirs.keys(), name
        for key, value in ours.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, theirs[key]), (name, key)
            elif isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, theirs[key], err_msg=f"{name}/{key}")
            else:
                assert value == theirs[key], (name, key)


def without_clock(tree):
    """JSON without what the clock measured and where the run lies."""
    if not isinstance(tree, dict):
        return tree
    dropped = (
        "seconds",
        "elapsed_seconds",
        "insert_waiting",
        "sample_waiting",
        "run_dir",
        "num_rows",
    )
    kept = {key: without_clock(value) for key, value in tree.items() if key not in dropped}
    if "reductions" in kept:
        kept["reductions"] = {
            key: value for key, value in kept["reductions"].items() if value["kind"] == "mean"
        }
    kept.pop("num_steps", None)  # the stopped run was told of fewer steps
    return kept


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
def test_two_runs_of_one_seed_are_the_same_bytes(tmp_path, overlap):
    overrides = (*REANALYZED, f"runtime.overlap={overlap}")
    first = train(overrides, tmp_path / "first", 24)
    second = train(overrides, tmp_path / "second", 24)
    assert_same_bytes(first, second)
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("first", "second")]
    assert len(rows[0]) > 2
    assert [strip_timing(row) for row in rows[0]] == [strip_timing(row) for row in rows[1]]


def test_another_seed_is_another_run(tmp_path):
    first = train(BOARD, tmp_path / "first", 6)
    second = train((*BOARD, "seed=1"), tmp_path / "second", 6)
    ours, theirs = first.tensors("acting"), second.tensors("acting")
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    "overrides",
    [
        BOARD,
        REANALYZED,
        GYM,
        CUT,
        STACKED,
        RULES,
        CAPPED,
        REUSED,
        ALL_TOGETHER,
        REUSED_RULES,
        PROGRESSIVE,
        PROGRESSIVE_TREES,
    ],
    ids=[
        "board",
        "reanalyzed",
        "gym",
        "cut and prioritised",
        "stacked puct",
        "rules",
        "playout caps",
        "reused subtrees",
        "caps, forced playouts, reuse",
        "reused subtrees by the rules",
        "progressive simulations",
        "progressive simulations in kept trees",
    ],
)
def test_stopped_and_resumed_equals_uninterrupted(tmp_path, overrides):
    whole = train(overrides, tmp_path / "whole", 26)
    train(overrides, tmp_path / "half", 13)
    checkpoint = open_checkpoint(tmp_path / "half")
    assert checkpoint.step == 13
    if "selfplay.reuse_subtree=true" in overrides:
        assert checkpoint.arrays("selfplay")["tree_num_nodes"].max() > 1  # there is a tree to lose
    resumed = train(overrides, tmp_path / "resumed", 26, checkpoint)
    assert_same_bytes(whole, resumed)


@pytest.mark.parametrize("kind", [BOARD, ALL_TOGETHER], ids=["board", "all search options"])
def test_an_overlapped_run_resumes_exactly_from_its_checkpoints(tmp_path, kind):
    overrides = (*kind, "runtime.overlap=true")
    whole_dir, run_dir = tmp_path / "whole", tmp_path / "stopped"
    whole = train(overrides, whole_dir, 30)
    config = make_config(overrides, run_dir, 30)
    runtime = LocalRuntime(config, run_dir)
    runtime.stop_after(12)
    runtime.train()
    checkpoint = open_checkpoint(run_dir)
    assert 12 <= checkpoint.step < 30
    resumed = train(overrides, tmp_path / "resumed", 30, checkpoint)
    assert_same_bytes(whole, resumed)


def test_resumed_metrics_continue_the_file(tmp_path):
    run_dir = tmp_path / "run"
    config = make_config(GYM, run_dir, 20)
    runtime = LocalRuntime(config, run_dir)
    runtime.stop_after(9)
    runtime.train()
    config.resume = str(run_dir)
    LocalRuntime(config, run_dir, open_checkpoint(run_dir)).train()
    steps = [row["learner_step"] for row in read_rows(run_dir / "metrics.jsonl")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 20


def test_without_the_replay_a_resumed_run_fills_it_again_before_it_learns(tmp_path):
    overrides = (*BOARD, "replay.save_with_checkpoint=false")
    train(overrides, tmp_path / "half", 10)
    checkpoint = open_checkpoint(tmp_path / "half")
    assert "replay" not in checkpoint.parts
    run_dir = tmp_path / "resumed"
    runtime = LocalRuntime(make_config(overrides, run_dir, 12), run_dir, checkpoint)
    assert runtime.replay.size == 0
    assert runtime.learner_step == 10
    runtime.train()
    assert runtime.replay.limiter.inserts >= runtime.config.replay.min_size
    assert runtime.learner_step == 12
