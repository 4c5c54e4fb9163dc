"""The cluster start-up examples, as far as they can be checked without a cluster."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from muzero.config.compose import compose

CLUSTER = Path(__file__).parents[2] / "scripts" / "cluster"


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / name).read_text())


def settings_of(command: str) -> list[str]:
    """The settings of the muzero-train in a command line."""
    words = shlex.split(command)
    return words[words.index("muzero-train") + 1 :]


def test_the_ray_up_example_fits_rays_own_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = load("ray_up.yaml")
    schema = json.loads((Path(util.ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(config, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config | {"worker_ips": []}, schema)
    prepared = util.prepare_config(config)  # what `ray up` makes of it for machines at hand
    util.validate_config(prepared)
    (node_type,) = prepared["available_node_types"].values()
    assert node_type["max_workers"] == node_type["min_workers"] == 2


def test_the_ray_up_example_starts_what_it_should() -> None:
    config = load("ray_up.yaml")
    assert len(config["provider"]["worker_ips"]) == config["max_workers"]
    (head,) = [text for text in config["head_start_ray_commands"] if "--head" in text]
    (worker,) = [text for text in config["worker_start_ray_commands"] if "ray start" in text]
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in head
    assert "--address=$RAY_HEAD_IP:6379" in worker and "--port=6379" in head
    for text in (head, worker):
        assert "\n" not in text.strip()
        assert "OMP_NUM_THREADS=1" in text
        subprocess.run(["bash", "-n", "-c", text], check=True)


def fake_commands(folder: Path) -> None:
    """Stand-ins for SLURM, Ray and the trainer that write down how they were called."""
    scripts = {
        "scontrol": 'printf "node1\\nnode2\\nnode3\\n"',
        "hostname": 'echo "10.0.0.1 fe80::1"',
        "srun": ('echo "srun $*" >> "$CALLS"\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"'),
        "ray": (
            'echo "ray $*" >> "$CALLS"\n'
            # the head answers once it has been started
            'if [[ "$1" == status ]]; then until grep -q -- "ray start --head" "$CALLS"; do sleep 0.02; done; fi\n'
            'if [[ "$*" == *--block* ]]; then exec sleep 30; fi'
        ),
        "muzero-train": (
            'until grep -q "ray start --address" "$CALLS"; do sleep 0.02; done\n'
            'echo "muzero-train $*" >> "$CALLS"\n'
            'if [[ "$*" == *waits* ]]; then\n'
            '  trap \'echo saved >> "$CALLS"; exit 0\' TERM\n  touch "$CALLS.waits"\n'
            "  while true; do sleep 0.05; done\nfi\n"
            'if [[ "$*" == *fails* ]]; then exit 7; fi'
        ),
    }
    for name, body in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)


def start_slurm(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    commands = folder / "commands"
    commands.mkdir()
    fake_commands(commands)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").write_text("")
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_JOB_ID": "123456",
        "SLURM_CPUS_PER_TASK": "32",
    }
    return subprocess.Popen(
        ["bash", str(CLUSTER / "slurm.sh"), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def calls_of(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_the_slurm_script_is_sound_bash() -> None:
    subprocess.run(["bash", "-n", str(CLUSTER / "slurm.sh")], check=True)
    assert os.access(CLUSTER / "slurm.sh", os.X_OK)
    directives = [
        line
        for line in (CLUSTER / "slurm.sh").read_text().splitlines()
        if line.startswith("#SBATCH")
    ]
    assert "#SBATCH --ntasks-per-node=1" in directives
    assert "#SBATCH --signal=B:TERM@600" in directives


def test_the_slurm_script_starts_head_others_and_trainer(tmp_path: Path) -> None:
    process = start_slurm(tmp_path, "experiment=connect_four", "seed=3")
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0, output
    calls = calls_of(tmp_path)
    address = f"10.0.0.1:{20_000 + 123_456 % 20_000}"
    (head,) = [call for call in calls if call.startswith("srun") and "--head" in call]
    assert "--nodelist=node1 ray start --head --node-ip-address=10.0.0.1" in head
    (others,) = [call for call in calls if call.startswith("srun") and "--address" in call]
    assert f"--nodes=2 --ntasks=2 --nodelist=node2,node3 ray start --address={address}" in others
    (trainer,) = [call for call in calls if call.startswith("muzero-train")]
    assert trainer == (
        f"muzero-train experiment=connect_four seed=3 runtime=ray runtime.address={address}"
    )
    status = next(n for n, call in enumerate(calls) if call.startswith("ray status"))
    assert calls.index(trainer) > status


def test_the_slurm_script_passes_signals_and_failures_on(tmp_path: Path) -> None:
    failing, waiting = tmp_path / "failing", tmp_path / "waiting"
    failing.mkdir(), waiting.mkdir()
    process = start_slurm(failing, "experiment=fails")
    process.communicate(timeout=20)
    assert process.returncode == 7

    process = start_slurm(waiting, "resume=waits")
    while not (waiting / "calls.waits").exists():
        assert process.poll() is None
    process.terminate()
    process.communicate(timeout=20)
    calls = calls_of(waiting)
    assert process.returncode == 0
    assert calls[-1] == "saved"
    (trainer,) = [call for call in calls if call.startswith("muzero-train")]
    assert "runtime=ray" not in trainer and "resume=waits runtime.address=10.0.0.1:" in trainer


def test_the_slurm_script_asks_for_an_experiment(tmp_path: Path) -> None:
    process = start_slurm(tmp_path)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 2 and "usage: sbatch" in output


def test_the_kuberay_example_has_what_the_operator_needs() -> None:
    job = load("kuberay.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    assert workers["groupName"]
    for group in (head, workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert {"name": "OMP_NUM_THREADS", "value": "1"} in container["env"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert "/dev/shm" in {mount["mountPath"] for mount in container["volumeMounts"]}
    images = {g["template"]["spec"]["containers"][0]["image"] for g in (head, workers)}
    assert len(images) == 1


def test_the_examples_run_settings_that_exist() -> None:
    text = (CLUSTER / "ray_up.yaml").read_text()
    (line,) = [line for line in text.splitlines() if "ray exec" in line]
    in_ray_up = shlex.split(line.removeprefix("#"))[-1]
    for command in (load("kuberay.yaml")["spec"]["entrypoint"], in_ray_up):
        settings = settings_of(command)
        assert "runtime=ray" in settings and "runtime.address=auto" in settings
        config = compose([each for each in settings if not each.startswith("hydra.")])
        assert config.runtime.kind == "ray"
        assert config.runtime.address == "auto"
