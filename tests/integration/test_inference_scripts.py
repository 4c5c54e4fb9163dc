"""The scripts that measure inference run and report what their docstrings promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def report(script: str, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_search_efficiency_is_told_for_both_networks():
    options = ("--batch", "16", "--simulations", "6", "--seconds", "0.1")
    found = report("bench_selfplay.py", "--efficiency", *options)
    assert (found["batch"], found["simulations"], found["policy"]) == (16, 6, "puct")
    assert found["networks"].keys() == {"mlp", "resnet"}
    assert 120_000 < found["networks"]["mlp"]["parameters"] < 136_000
    for figures in found["networks"].values():
        assert figures["repeats"] >= 3
        assert figures["strict_efficiency"] < figures["search_efficiency"]
        assert figures["microseconds_per_step"]["network_alone"] > 0


@pytest.mark.slow
def test_central_and_local_inference_are_compared():
    options = ("--clients", "1", "2", "--rows", "8", "--threads", "2", "--seconds", "0.5")
    found = report("bench_inference.py", *options, "--override", "search.num_simulations=4")
    assert (found["rows"], found["threads"], found["simulations"]) == (8, 2, 4)
    assert found["ring_microseconds"] > 0.0
    assert found["clients"].keys() == {"1", "2"}
    for figures in found["clients"].values():
        for way in ("central", "local"):
            assert figures[way]["simulations_per_second"] > 0
            assert figures[way]["latency_microseconds"] > 0.0
        assert 0.0 < figures["central"]["occupancy"] <= 1.0


@pytest.mark.slow
def test_the_check_of_bfloat16_compares_searches_of_played_positions():
    found = report("check_bfloat16.py", "experiment=tictactoe", "debug=smoke", "--roots", "40")
    assert found["environment"] == "tictactoe"
    assert 30 <= found["roots"] <= 40
    for name in ("same_most_visited", "same_choice"):
        assert 0.9 <= found[name] <= 1.0
    assert found["evaluations_per_second"]["float32"] > 0
