"""Gatekeeping in a real fleet: the learner goes on, the workers have what was accepted, whoever dies."""

import pytest
import torch

from muzero.metrics import read_rows
from muzero.runtime.build import Builder
from muzero.runtime.fleet.supervisor import FleetRuntime
from muzero.runtime.players import open_checkpoint
from tests.runtime.fleet.chaos import Hand, back, end_in, kill, make
from tests.runtime.fleet.test_ray_failures import ENDLESS, assert_accounted, pytestmark  # noqa: F401

REJECTS = (
    "gatekeeping.interval=20",
    "gatekeeping.games=40",
    "gatekeeping.threshold=1",
    "gatekeeping.num_simulations=16",
    "runtime.checkpoint_interval=100000",
)
ACCEPTS = (
    "gatekeeping.interval=20",
    "gatekeeping.games=2",
    "gatekeeping.threshold=0",
    "gatekeeping.num_simulations=0",
    "runtime.publish_seconds=0.05",
)


def kill_while_judging(runtime: FleetRuntime) -> bool:
    return runtime.is_judging and kill("gatekeeper")(runtime)


def judged(count: int):
    """Wait until so many matches have been played."""

    def step(runtime: FleetRuntime) -> bool:
        report = runtime._gating.report()
        played = report.get("gatekeeping/accepted", 0) + report.get("gatekeeping/rejected", 0)
        return played >= count

    return step


def behaviour_versions(checkpoint) -> set[int]:
    return set(checkpoint.arrays("replay")["behaviour_version"].tolist()) - {-1}


def test_what_is_never_accepted_is_never_used_whoever_dies(tmp_path):
    run_dir = tmp_path / "run"
    runtime = make(run_dir, *ENDLESS, *REJECTS)
    store = "weight store"
    steps = [kill_while_judging, back("gatekeeper"), kill(store), back(store), judged(2)]
    hand = Hand(runtime, [*steps, end_in(20)])
    hand.start()
    runtime.train()
    hand.assert_done()
    assert_accounted(runtime)
    checkpoint = open_checkpoint(run_dir)
    assert checkpoint.step > 40
    state = checkpoint.json("gatekeeping")
    assert state["version"] == state["accepted"] == 0 and state["rejected"] >= 2
    weights, newest = checkpoint.tensors("weights"), checkpoint.tensors("acting")
    for name, value in Builder.of(runtime.config).learner().acting_weights().items():
        assert torch.equal(value, weights[name]), name
    assert any(not torch.equal(value, newest[name]) for name, value in weights.items())
    assert behaviour_versions(checkpoint) == {0}
    row = read_rows(run_dir / "metrics.jsonl")[-1]
    assert row["gatekeeping/version"] == row["gatekeeping/accepted"] == 0
    assert row["gatekeeping/rejected"] == state["rejected"]
    assert row["fleet/restarts"] == 2
    scores = [
        r["gatekeeping/score"]
        for r in read_rows(run_dir / "metrics.jsonl")
        if "gatekeeping/score" in r
    ]
    assert scores and all(0 <= score < 1 for score in scores)


def test_a_resumed_run_goes_on_with_the_accepted_weights(tmp_path):
    run_dir = tmp_path / "run"
    make(run_dir, "learner.num_steps=45", *REJECTS).train()
    before = open_checkpoint(run_dir)
    make(run_dir, "learner.num_steps=90", *REJECTS, resumes=True).train()
    after = open_checkpoint(run_dir)
    assert (before.step, after.step) == (45, 90)
    for checkpoint in (before, after):
        assert checkpoint.json("gatekeeping")["version"] == 0
        assert behaviour_versions(checkpoint) == {0}
    for name, value in before.tensors("weights").items():
        assert torch.equal(value, after.tensors("weights")[name]), name
    newest = after.tensors("acting")
    assert any(
        not torch.equal(value, newest[name]) for name, value in before.tensors("weights").items()
    )


@pytest.mark.parametrize("inference", ["local", pytest.param("central", marks=pytest.mark.slow)])
def test_workers_play_with_accepted_weights_alone(tmp_path, inference):
    run_dir, told = tmp_path / "run", []
    settings = ("reanalyze=on", "reanalyze.fresh_fraction=0.5", f"runtime.inference={inference}")
    runtime = make(run_dir, *ENDLESS, *ACCEPTS, *settings)
    runtime._gating._tell = told.append
    hand = Hand(runtime, [judged(4), end_in(60)])
    hand.start()
    runtime.train()
    hand.assert_done()
    assert_accounted(runtime)
    checkpoint = open_checkpoint(run_dir)
    accepted = {int(text.split()[1]) for text in told}
    assert len(accepted) == len(told) >= 4 and all("accepted" in text for text in told)
    state = checkpoint.json("gatekeeping")
    assert state["version"] in accepted and state["rejected"] == 0
    assert 4 <= state["accepted"] <= len(told)
    used = behaviour_versions(checkpoint)
    assert used <= accepted | {0} and max(used) > 0
    targets = set(checkpoint.arrays("replay")["target_version"].tolist()) - {-1}
    assert targets <= accepted | {0}
    rows = read_rows(run_dir / "metrics.jsonl")
    versions = [row["gatekeeping/version"] for row in rows if "gatekeeping/version" in row]
    assert versions == sorted(versions) and versions[-1] in accepted
