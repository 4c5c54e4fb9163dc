"""A fleet on several nodes, with central inference, on a bad disk, and to the end of a recipe."""

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from muzero.metrics import read_rows
from muzero.runtime.controller import replay_decisions
from muzero.runtime.players import open_checkpoint
from tests.runtime.fleet.chaos import Hand, back, end_in, kill, make, members
from tests.runtime.fleet.test_ray_failures import ENDLESS, ROLES, assert_accounted, pytestmark  # noqa: F401

slow = pytest.mark.slow
RAY = Path(sys.executable).with_name("ray")


@slow
@pytest.mark.parametrize("on_lost", ["local", "wait"])
def test_an_inference_server_is_killed_and_the_workers_go_on(tmp_path, on_lost):
    server = "inference server"
    runtime = make(
        tmp_path / "run",
        "learner.num_steps=100000",
        "runtime.inference=central",
        f"runtime.on_lost_server={on_lost}",
        "reanalyze=on",
        "reanalyze.fresh_fraction=0.5",
        "reanalyze.max_target_age=20",
        "replay.samples_per_insert=32",  # the learner is the bottleneck, so that there is time for reanalyze
        "runtime.controller_seconds=1",
    )

    def searched(run) -> bool:
        return run.account.searched > 0

    hand = Hand(runtime, [searched, kill(server, at_step=100), back(server), end_in(100)])
    hand.start()
    runtime.train()
    hand.assert_done()
    assert_accounted(runtime)
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    substituted = max(row.get("fleet/local_inference_fraction", 0.0) for row in rows)
    if on_lost == "wait":
        assert substituted == 0.0
    clients = max(row.get("inference/clients", 0.0) for row in rows)
    assert clients >= 3  # two groups of games and reanalyze
    decisions = replay_decisions(tmp_path / "run" / "controller.jsonl")
    assert len(decisions) >= 3
    assert all(decision.recorded == decision.decided for decision in decisions)


def kill_while_saving(role: str):
    """Kill -9 a role while its state is being collected for a checkpoint."""

    def step(runtime) -> bool:
        return runtime.is_saving and kill(role)(runtime)

    return step


def saved_anew(runtime) -> bool:
    return len(runtime.checkpoints.steps()) >= 2


@slow
@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_killed_as_soon_as_it_works_and_while_a_checkpoint_is_made(tmp_path, role):
    runtime = make(tmp_path / "run", *ENDLESS, "runtime.checkpoint_interval=50")
    steps = [kill(role), back(role), saved_anew, kill_while_saving(role), back(role, incarnation=2)]
    hand = Hand(runtime, [*steps, end_in(100)])
    hand.start()
    runtime.train()
    hand.assert_done()
    assert_accounted(runtime)
    assert runtime.account.lost == 0
    checkpoint = open_checkpoint(tmp_path / "run")  # verifies every file
    assert checkpoint.step == runtime.learner_step


@slow
def test_a_node_with_workers_is_lost_and_another_joins(tmp_path):
    """The workers of the lost node are made anew where there is room; a node that joins is used."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    cluster = RayCluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "include_dashboard": False},
    )
    joined: list[subprocess.Popen[bytes]] = []
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        runtime = make(
            tmp_path / "run",
            *ENDLESS,
            f"runtime.address={cluster.address}",
            "runtime.controller_seconds=1",
            "runtime.deadline_seconds=30",
        )
        assert len(runtime.members) == 0

        def lose_node(run) -> bool:
            if run.learner_step < 100 or len(members(run, "search worker")) < 2:
                return False
            cluster.remove_node(second, allow_graceful=False)
            return True

        def add_node(run) -> bool:
            command = ["start", f"--address={cluster.address}", "--num-cpus=1", "--block"]
            joined.append(subprocess.Popen([str(RAY), *command], start_new_session=True))
            return True

        def shrunk(run) -> bool:
            return len(members(run, "search worker")) == 1

        def grown(run) -> bool:
            return len(members(run, "search worker")) == 2

        hand = Hand(runtime, [lose_node, shrunk, add_node, grown, end_in(50)])
        hand.start()
        runtime.train()
        hand.assert_done()
        assert_accounted(runtime)
    finally:
        if ray.is_initialized():
            ray.shutdown()
        for process in joined:
            process.terminate()
            process.wait(60)
        cluster.shutdown()


@slow
def test_workers_of_other_nodes_ask_a_server_by_calls(tmp_path):
    """Three nodes, one server: whoever is not on its node cannot share memory with it."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    cluster = RayCluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        runtime = make(
            tmp_path / "run",
            *ENDLESS,
            f"runtime.address={cluster.address}",
            "runtime.inference=central",
        )

        def all_work(run) -> bool:
            nodes = {actor["NodeID"] for actor in _actors("WorkerActor")}
            return len(members(run, "search worker")) == 2 and len(nodes) == 2

        hand = Hand(runtime, [all_work, end_in(300)])
        hand.start()
        runtime.train()
        hand.assert_done()
        assert_accounted(runtime)
        rows = read_rows(tmp_path / "run" / "metrics.jsonl")
        assert max(row.get("inference/clients", 0.0) for row in rows) == 4
        assert rows[-1]["fleet/local_inference_fraction"] == 0.0
    finally:
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()


def _actors(name: str) -> list[dict[str, str]]:
    from ray._private.state import actors

    found = []
    for actor in actors().values():
        if actor["ActorClassName"] == name and actor["State"] == "ALIVE":
            found.append({"NodeID": actor["Address"]["NodeID"]})
    return found


@slow
def test_a_cluster_that_happens_to_run_here_is_left_alone(tmp_path, monkeypatch):
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    foreign = RayCluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        monkeypatch.setenv("RAY_ADDRESS", foreign.address)
        runtime = make(tmp_path / "run", "learner.num_steps=50")
        assert ray.get_runtime_context().gcs_address != foreign.address
        runtime.train()
        assert runtime.learner_step == 50
        assert not ray.is_initialized()
        ray.init(address=foreign.address, log_to_driver=False)
        assert len(ray.nodes()) == 1  # it lives, and nobody has joined it
        assert ray.available_resources()["CPU"] == 1.0
    finally:
        if ray.is_initialized():
            ray.shutdown()
        foreign.shutdown()


@slow
def test_a_full_disk_is_told_and_training_goes_on(tmp_path, monkeypatch, caplog):
    """Checkpoints cannot be written for a while; those before stay, and the last one is written again."""
    runtime = make(tmp_path / "run", "learner.num_steps=600", "runtime.checkpoint_interval=100")
    save = runtime.checkpoints._write
    refused = []

    def full(step, *rest):
        if 150 < step < 450:
            refused.append(step)
            raise_full(step)
        save(step, *rest)

    def raise_full(step):
        from muzero.checkpoint import CheckpointError

        raise CheckpointError(f"step {step}: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(runtime.checkpoints, "_write", full)
    with caplog.at_level("INFO"):
        runtime.train()
    assert refused and runtime.learner_step == 600
    assert os.strerror(errno.ENOSPC) in caplog.text
    steps = sorted(int(p.name[5:]) for p in (tmp_path / "run").glob("checkpoints/step_????????"))
    assert steps[-1] == 600


@slow
def test_a_slow_disk_stops_nobody(tmp_path, monkeypatch):
    """A checkpoint that takes seconds: the learner's wait stays what it is without."""
    runtime = make(tmp_path / "run", "learner.num_steps=600", "runtime.checkpoint_interval=50")
    save = runtime.checkpoints._write
    writing = threading.Event()
    steps_while_writing = []

    def slow_write(step, *rest):
        writing.set()
        before = runtime.learner_step
        time.sleep(1.0)
        steps_while_writing.append(runtime.learner_step - before)
        save(step, *rest)

    monkeypatch.setattr(runtime.checkpoints, "_write", slow_write)
    runtime.train()
    assert writing.is_set() and runtime.learner_step == 600
    assert max(steps_while_writing) > 0


@slow
def test_a_stopped_run_reaches_the_same_strength(tmp_path):
    """Tic-tac-toe by the fleet, stopped half-way and resumed: perfect play, as by one process."""
    recipe = (
        "selfplay.num_games=128",
        "search.num_simulations=16",
        "search.max_num_considered_actions=16",
        "replay.capacity=40000",
        "replay.min_size=2000",
        "learner.batch_size=256",
        "learner.num_steps=5000",
        "evaluation.games=200",
        "evaluation.num_simulations=16",
        "evaluation.exhaustive=true",
        "evaluation.max_episode_steps=null",
        "runtime.lease_seconds=0.25",
        "runtime.log_interval=500",
        "runtime.checkpoint_interval=1000",
    )
    first = make(tmp_path / "run", *recipe)
    first.stop_after(2500)
    first.train()
    assert 2500 <= first.learner_step < 5000
    second = make(tmp_path / "run", *recipe, resumes=True)
    metrics = second.train()
    assert second.learner_step == 5000
    assert metrics["evaluation/losing_lines"] <= 2
    assert metrics["evaluation/perfect/loss_rate"] <= 0.02
    assert metrics["evaluation/optimal_move_rate"] > 0.98
    assert_accounted(second)
