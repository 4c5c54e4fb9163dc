"""Gatekeeping: newer weights play against those in use, and only what wins becomes self-play's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from muzero.checkpoint import Checkpoint
from muzero.config.compose import compose
from muzero.metrics import read_rows, strip_timing
from muzero.runtime.build import Builder
from muzero.runtime.gatekeeping import Gatekeeper, Versioned
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint
from muzero.weights import StateDict, WeightStore
from tests.runtime.test_local_resume import assert_same_bytes, without_clock

# By the rules a search finds what wins at once, whatever its network says of the rest.
BOARD = (
    "experiment=tictactoe",
    "debug=smoke",
    "search.kind=puct",
    "search.dynamics=rules",
    "search.num_simulations=16",
    "selfplay.num_games=6",
    "selfplay.opening_fraction=0",
    "replay.samples_per_insert=1",  # so that games are played to the end, with the newest accepted weights
    "learner.schedule=constant",
    "evaluation.games=0",
    "runtime.overlap=false",
    "runtime.checkpoint_interval=1000",
    "runtime.log_interval=1",
    "logger.tensorboard=false",
    "logger.progress=none",
)
GATE = (
    "gatekeeping.interval=5",
    "gatekeeping.games=40",
    "gatekeeping.num_simulations=40",
    "gatekeeping.max_opening_moves=3",
)
STILL = (
    "learner.learning_rate=1e-12",
    "learner.average_decay=0",
)  # what learns nothing stays as strong as it was


def sound(builder: Builder) -> StateDict:
    """Untrained: it holds all moves and positions alike, so the search decides alone."""
    return builder.network().state_dict()


def misled(builder: Builder) -> StateDict:
    """It is sure of moves and values that are drawn at random, so the search hardly looks at others."""
    generator, weights = torch.Generator().manual_seed(1), sound(builder)
    for name in ("prediction_output.weight", "prediction_output.bias"):
        weights[name] = 8.0 * torch.randn(weights[name].shape, generator=generator)
    return weights


def make(run_dir: Path, *overrides: str, checkpoint: Checkpoint | None = None) -> LocalRuntime:
    config = compose([*BOARD, *overrides], run_dir=str(run_dir))
    run_dir.mkdir(exist_ok=True)
    return LocalRuntime(config, run_dir, checkpoint)


def train(
    run_dir: Path, num_steps: int, *overrides: str, checkpoint: Checkpoint | None = None
) -> Checkpoint:
    make(run_dir, *overrides, f"learner.num_steps={num_steps}", checkpoint=checkpoint).train()
    return open_checkpoint(run_dir)


def metric(run_dir: Path, name: str) -> list[float]:
    """Every value of a metric, row by row."""
    return [row[name] for row in read_rows(run_dir / "metrics.jsonl") if name in row]


def assert_same_weights(left: StateDict, right: StateDict) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=0, atol=1e-6, msg=name)


@pytest.fixture(scope="module")
def builder() -> Builder:
    return Builder.of(compose([*BOARD, *GATE]))


def test_a_better_candidate_passes_and_a_worse_one_does_not(builder):
    gatekeeper = Gatekeeper(builder)
    good, bad = sound(builder), misled(builder)
    won = gatekeeper.judge(Versioned(5, good), Versioned(0, bad))
    assert won.is_accepted and won.score > 0.7 and 10 < won.num_games <= 40
    lost = gatekeeper.judge(Versioned(10, bad), Versioned(5, good))
    assert not lost.is_accepted and lost.score < 0.3
    assert (gatekeeper.accepted, gatekeeper.rejected) == (1, 1)
    assert gatekeeper.report(5) == {
        "gatekeeping/accepted": 1,
        "gatekeeping/rejected": 1,
        "gatekeeping/version": 5,
    }


def test_equals_score_a_half_and_openings_differ_from_match_to_match(builder):
    """Both play the same, so what one wins in one seat it loses in the other."""
    gatekeeper = Gatekeeper(builder)
    good = sound(builder)
    verdicts = [gatekeeper.judge(Versioned(step, good), Versioned(0, good)) for step in (5, 10, 5)]
    assert [verdict.score for verdict in verdicts] == [0.5] * 3
    assert not any(verdict.is_accepted for verdict in verdicts)
    assert verdicts[0] == verdicts[2]
    games = [{record.setup.opening for record in gatekeeper._play(step)} for step in (5, 10, 5)]
    assert games[0] == games[2] != games[1]


def test_the_score_counts_draws_as_halves_from_both_seats(builder):
    gatekeeper = Gatekeeper(builder)
    good, bad = sound(builder), misled(builder)
    verdict = gatekeeper.judge(Versioned(5, good), Versioned(0, bad))
    seen, points = set(), 0.0
    for record in gatekeeper._play(5):  # the same match once more
        key = (record.setup.first_seat, record.actions)
        if key not in seen:
            seen.add(key)
            points += {1: 1.0, 0: 0.5, -1: 0.0}[int(np.sign(record.score))]
    assert {seat for seat, _ in seen} == {0, 1}
    assert verdict.num_games == len(seen)
    assert verdict.score == points / len(seen)


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
def test_a_worse_candidate_is_rejected_and_selfplay_stays_with_the_old_weights(tmp_path, overlap):
    run_dir = tmp_path / "run"
    runtime = make(run_dir, *GATE, *STILL, "learner.num_steps=12", f"runtime.overlap={overlap}")
    builder = Builder.of(runtime.config)
    runtime.learner.network.load_state_dict(misled(builder))
    runtime.train()
    checkpoint = open_checkpoint(run_dir)
    assert checkpoint.json("state")["gatekeeper"] == {"accepted": 0, "rejected": 2}
    assert checkpoint.json("state")["weights_version"] == runtime.acting_version == 0
    assert_same_weights(checkpoint.tensors("weights"), sound(builder))
    assert_same_weights(checkpoint.tensors("acting"), misled(builder))
    assert set(checkpoint.arrays("replay")["behaviour_version"].tolist()) <= {-1, 0}
    assert metric(run_dir, "gatekeeping/rejected")[-1] == 2
    assert len(scores := metric(run_dir, "gatekeeping/score")) == 2 and max(scores) < 0.3
    assert metric(run_dir, "selfplay/weights_age")[-1] == 12


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
def test_a_better_candidate_becomes_what_selfplay_plays_with(tmp_path, overlap):
    run_dir = tmp_path / "run"
    runtime = make(run_dir, *GATE, *STILL, "learner.num_steps=12", f"runtime.overlap={overlap}")
    builder = Builder.of(runtime.config)
    runtime.weights = WeightStore()
    runtime.weights.publish(0, misled(builder))
    runtime._has_new_weights = True  # self-play begins with them
    runtime.train()
    checkpoint = open_checkpoint(run_dir)
    # The second candidate is no better than the first, which is in use by then.
    assert checkpoint.json("state")["gatekeeper"] == {"accepted": 1, "rejected": 1}
    accepted = checkpoint.json("state")["weights_version"]
    assert 5 <= accepted < 10 and metric(run_dir, "gatekeeping/version")[-1] == accepted
    assert_same_weights(checkpoint.tensors("weights"), sound(builder))
    assert set(checkpoint.arrays("replay")["behaviour_version"].tolist()) >= {0, accepted}
    assert 0.4 < metric(run_dir, "gatekeeping/score")[-1] < 0.55


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
def test_a_gate_that_lets_all_pass_is_training_as_it_was(tmp_path, overlap):
    """A match after every step that anything wins: self-play always has the newest weights, bit for bit as without.

    Only the moment of publication differs: at the match, and else when the next move is made.
    """
    run = (f"runtime.overlap={overlap}", "reanalyze.fresh_fraction=0.9", "search.dynamics=learned")
    gate = (
        "gatekeeping.interval=1",
        "gatekeeping.games=2",
        "gatekeeping.threshold=0",
        "gatekeeping.num_simulations=0",
    )
    plain = train(tmp_path / "plain", 14, *run)
    gated = train(tmp_path / "gated", 14, *run, *gate)
    for name in plain.parts:
        if name not in ("state", "config", "replay_state", "weights"):
            ours, theirs = plain.part(name), gated.part(name)
            assert ours.keys() == theirs.keys()
            for key, value in ours.items():
                same = np.array_equal if isinstance(value, np.ndarray) else torch.equal
                equal = (
                    same(value, theirs[key]) if hasattr(value, "shape") else value == theirs[key]
                )
                assert equal, (name, key)
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("plain", "gated")]
    for left, right in zip(*rows, strict=True):
        apart = {name for name in right if name.startswith("gatekeeping/")}
        apart |= {"selfplay/weights_age"}
        left, right = (
            {name: value for name, value in strip_timing(row).items() if name not in apart}
            for row in (left, right)
        )
        assert left == right and len(left) > 20
    assert without_clock(plain.json("state"))["gatekeeper"] is None


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("interval", [3, 13])
def test_stopped_and_resumed_equals_uninterrupted(tmp_path, interval, overlap):
    """Interval 13 saves when a candidate has just been accepted, and self-play has not taken it yet."""
    overrides = (
        *GATE,
        f"gatekeeping.interval={interval}",
        f"gatekeeping.threshold={0.5 if interval == 3 else 0}",
        "reanalyze.fresh_fraction=0.9",
        "reanalyze.max_target_age=4",
        "search.dynamics=learned",
        f"runtime.overlap={overlap}",
    )
    whole = train(tmp_path / "whole", 26, *overrides)
    counted = whole.json("state")["gatekeeper"]
    assert counted["accepted"] > 0
    assert counted["rejected"] > 0 or interval == 13
    if overlap:
        runtime = make(tmp_path / "half", *overrides, "learner.num_steps=26")
        runtime.stop_after(13)
        runtime.train()
    else:
        train(tmp_path / "half", 13, *overrides)
    half = open_checkpoint(tmp_path / "half")
    assert 13 <= half.step < 26
    if interval == 13:
        assert half.json("state")["weights_version"] == half.step
    resumed = train(tmp_path / "resumed", 26, *overrides, checkpoint=half)
    assert_same_bytes(whole, resumed)


def test_a_run_may_begin_and_end_with_gatekeeping_when_it_is_resumed(tmp_path):
    plain = train(tmp_path / "plain", 6)
    version = plain.json("state")["weights_version"]
    gated = train(tmp_path / "gated", 12, *GATE, "gatekeeping.threshold=1", checkpoint=plain)
    assert gated.json("state")["weights_version"] == version
    assert gated.json("state")["gatekeeper"] == {"accepted": 0, "rejected": 1}
    opened = train(tmp_path / "opened", 18, checkpoint=gated)
    assert opened.json("state")["weights_version"] > 12


def test_other_games_are_refused():
    config = compose(["experiment=cartpole", "debug=smoke"])
    config.gatekeeping.interval = 5
    with pytest.raises(ValueError, match=r"gatekeeping\.interval=5 needs a game of OpenSpiel"):
        Gatekeeper(Builder.of(config))
