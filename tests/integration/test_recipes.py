"""Every shipped recipe runs (peers, rows 40, 48, 76, 78 and 92)."""

from pathlib import Path

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.config.environments import AtariConfig
from muzero.config.store import config_groups
from muzero.envs.registry import make_spec
from muzero.replay.storage import Storage
from muzero.runtime.local import LocalRuntime

RECIPES = [
    pytest.param(name, marks=[pytest.mark.atari] if name == "pong" else [])
    for name in config_groups()["experiment"]
]


@pytest.mark.parametrize("experiment", RECIPES)
def test_a_recipe_plays_learns_and_is_evaluated(experiment: str, tmp_path: Path) -> None:
    """With its own environment, network, loss and reanalyze; only sizes are small."""
    small = [
        "learner.num_steps=6",
        "learner.batch_size=4",
        "replay.min_size=16",
        "evaluation.interval=0",
        "evaluation.games=1",
        "evaluation.max_episode_steps=3",
        "search.num_simulations=2",
        "selfplay.num_games=2",
        "selfplay.segment_length=8",
        "replay.samples_per_insert=1",
        "reanalyze.batch_size=4",
        "reanalyze.max_target_age=0",
        "runtime.overlap=false",  # the processes are the same in all recipes, and have tests of their own
        "logger.progress=none",
        "logger.tensorboard=false",
    ]
    config = compose([f"experiment={experiment}", "debug=smoke", *small], run_dir=str(tmp_path))
    recipe = compose([f"experiment={experiment}"])
    runtime = LocalRuntime(config, tmp_path)
    metrics = runtime.train()
    assert runtime.learner_step == 6 and metrics
    # The smoke profile makes a recipe small but takes nothing out of it.
    assert (config.reanalyze.fresh_fraction > 0) == (recipe.reanalyze.fresh_fraction > 0)
    assert config.learner.consistency_loss_weight == recipe.learner.consistency_loss_weight
    assert config.targets == recipe.targets and config.network == recipe.network
    if runtime.reanalyze is not None:
        assert runtime.reanalyze.totals.searched > 0


@pytest.mark.parametrize("experiment", RECIPES)
def test_a_recipe_fits_a_machine_of_eight_gigabytes(experiment: str) -> None:
    """Rows 76 and 78: its replay, which is nearly all of its memory."""
    config = compose([f"experiment={experiment}"])
    spec = make_spec(config.env)
    storage = Storage(spec, 64)
    frame = int(np.prod(spec.frame_shape)) * spec.frame_dtype.itemsize
    per_position = storage.bytes / 64
    assert per_position < frame + (4 + 1 / 8) * spec.num_actions + 64  # policy and legal actions
    assert config.replay.capacity * per_position < 4 * 2**30


@pytest.mark.parametrize("options", [["experiment=pong"], ["env=atari", "env.game=breakout"]])
def test_atari_sees_motion(options: list[str]) -> None:
    """Row 48: a still image has no velocity."""
    env = compose(options).env
    assert isinstance(env, AtariConfig)
    assert env.num_stacked_frames >= 4
    assert AtariConfig(game="pong").num_stacked_frames >= 4
