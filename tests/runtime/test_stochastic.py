"""Games of chance with learned codes in the local runtime: they train, resume bit for bit, and are evaluated."""

import numpy as np
import pytest

from muzero.checkpoint import Checkpoint
from muzero.metrics import read_rows
from muzero.runtime.build import Builder
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint
from tests.runtime.test_local_resume import assert_same_bytes, make_config, train

SMALL = (
    "debug=smoke",
    "selfplay.num_games=6",
    "network.hidden_sizes=[16]",
    "network.latent_size=16",
    "network.num_chance_codes=5",
    "replay.min_size=32",
    "runtime.overlap=false",
    "evaluation.games=0",
)
TILES = ("experiment=2048", *SMALL, "selfplay.segment_length=12")
BACKGAMMON = ("experiment=backgammon", *SMALL, "selfplay.segment_length=16", "targets.td_steps=6")
PUCT = ("search=puct", "search.num_simulations=6", "replay.prioritized=true")
REANALYZED = (
    *TILES,
    "reanalyze.fresh_fraction=0.9",
    "reanalyze.max_target_age=4",
    "reanalyze.batch_size=8",
)
PIPELINED = (*BACKGAMMON, "search.pipelined=true", "selfplay.full_search_fraction=0.5")
TARGET_NETWORK = (*TILES, *PUCT, "targets.bootstrap=target_network", "targets.td_lambda=1")
MLP_ONLY = ("network.hidden_sizes", "network.latent_size")
RESNET = (
    *(override for override in TILES if not override.startswith(MLP_ONLY)),
    "network=resnet_small",
    "network.num_channels=4",
)


@pytest.mark.parametrize(
    ("overrides", "chance"), [(BACKGAMMON, range(196, 208)), (RESNET, range(12, 14))]
)
def test_the_encoder_of_the_codes_sees_the_newest_frames_chance(overrides, chance, tmp_path):
    config = make_config((*overrides, "env.num_stacked_frames=2"), tmp_path / "run", 1)
    builder = Builder.of(config)
    num_channels = builder.network_spec.observation_shape[0] // 2
    expected = tuple(num_channels + channel for channel in chance)
    assert builder.network_spec.chance_channels == expected


def stopped_and_resumed(
    overrides, tmp_path, stop: int, steps: int
) -> tuple[Checkpoint, Checkpoint]:
    whole = train(overrides, tmp_path / "whole", steps)
    train(overrides, tmp_path / "half", stop)
    checkpoint = open_checkpoint(tmp_path / "half")
    return whole, train(overrides, tmp_path / "resumed", steps, checkpoint)


@pytest.mark.parametrize(
    "overrides",
    [
        TILES,
        BACKGAMMON,
        REANALYZED,
        TARGET_NETWORK,
        (*PIPELINED, "selfplay.fast_simulations=2"),
        RESNET,
    ],
    ids=["2048", "backgammon", "reanalyzed", "puct", "pipelined, capped", "resnet"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(overrides, tmp_path) -> None:
    whole, resumed = stopped_and_resumed(overrides, tmp_path, 7, 14)
    assert_same_bytes(whole, resumed)
    names = whole.tensors("acting")
    assert any(name.startswith("encoder") for name in names)


def test_an_overlapped_run_resumes_exactly(tmp_path) -> None:
    overrides = (*TILES, "runtime.overlap=true", "selfplay.segment_length=4")
    whole = train(overrides, tmp_path / "whole", 24)
    runtime = LocalRuntime(make_config(overrides, tmp_path / "stopped", 24), tmp_path / "stopped")
    runtime.stop_after(8)
    runtime.train()
    checkpoint = open_checkpoint(tmp_path / "stopped")
    assert 8 <= checkpoint.step < 24
    resumed = train(overrides, tmp_path / "resumed", 24, checkpoint)
    assert_same_bytes(whole, resumed)


def test_every_part_of_the_network_learns(tmp_path) -> None:
    checkpoint = train((*TILES, "learner.average_decay=0"), tmp_path / "run", 10)
    before = Builder.of(make_config(TILES, tmp_path / "fresh", 10)).network().state_dict()
    after = checkpoint.tensors("acting")
    for name, value in before.items():
        assert not np.array_equal(value.numpy(), after[name].numpy()), name
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    row = next(row for row in rows if "learner/chance_loss" in row)
    for name in ("afterstate_value_loss", "commitment_loss", "code_entropy", "chance_entropy"):
        assert row[f"learner/{name}"] >= 0


def test_backgammon_is_evaluated_against_random_in_both_seats(tmp_path) -> None:
    overrides = (*BACKGAMMON, "evaluation.games=4", "evaluation.max_episode_steps=null")
    run_dir = tmp_path / "run"
    metrics = LocalRuntime(make_config(overrides, run_dir, 4), run_dir).train()
    assert metrics["evaluation/random/distinct_games"] == 4
    rates = [metrics[f"evaluation/random/{name}_rate"] for name in ("win", "draw", "loss")]
    assert sum(rates) == pytest.approx(1.0) and rates[1] == 0  # whole games, which nobody draws


def test_2048_is_evaluated_by_its_mean_score(tmp_path) -> None:
    overrides = (*TILES, "evaluation.games=3", "evaluation.max_episode_steps=null")
    run_dir = tmp_path / "run"
    metrics = LocalRuntime(make_config(overrides, run_dir, 4), run_dir).train()
    assert metrics["evaluation/score_mean"] > 100
