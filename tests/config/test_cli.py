"""The training command's line, as a user types it: in a process of its own, with a task that prints its config."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from muzero.config.cli import prepare_arguments
from muzero.config.compose import compose
from muzero.config.store import save_config

SCRIPT = """
import json, sys
from muzero.config.cli import hydra_main

def task(config):
    if config.seed == 13:
        raise ValueError("seed 13 brings bad luck")
    print(json.dumps([config.env.name, config.seed, config.learner.num_steps, config.run_dir, config.resume]))
    return 1.0

heavy = {"torch", "numba", "ray", "pyspiel", "gymnasium"} & set(sys.modules)
assert not heavy, heavy
hydra_main(task)
"""


def command(*arguments: str, folder: Path, code: int = 0) -> tuple[str, str]:
    """Standard output and error of the command, run in `folder`."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_a_run_and_its_resumption(tmp_path: Path) -> None:
    out, err = command("experiment=tictactoe", "seed=3", folder=tmp_path)
    name, seed, steps, run_dir, resume = json.loads(out.splitlines()[-1])
    assert (name, seed, resume, err) == ("tictactoe", 3, None, "")
    run = Path(run_dir)
    assert run.parent == tmp_path / "runs" / "tictactoe"
    assert [file.name for file in run.iterdir()] == ["config.yaml"]
    header = run.joinpath("config.yaml").read_text().splitlines()[0]
    assert header == "# muzero-train experiment=tictactoe seed=3"

    resumed = [f"resume={run.relative_to(tmp_path)}", f"learner.num_steps={steps + 1}"]
    out, _ = command(*resumed, folder=tmp_path)
    assert json.loads(out.splitlines()[-1]) == ["tictactoe", 3, steps + 1, run_dir, run_dir]
    assert len(list(run.parent.iterdir())) == 1


def test_a_run_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    out, err = command("learner.batch_size=0", "search.kind=pct", folder=tmp_path, code=2)
    assert out == ""
    assert err.splitlines()[0] == "2 settings cannot work:"
    assert len(err.splitlines()) == 3
    _, err = command("env=atari", folder=tmp_path, code=2)
    assert err == "env.game has no value; give one with env.game=...\n"
    assert not list(tmp_path.glob("runs/*/*"))


def test_an_error_of_the_task_keeps_its_traceback_in_the_log(tmp_path: Path) -> None:
    _, err = command("seed=13", "run_dir=here", folder=tmp_path, code=2)
    log = tmp_path / "here" / "train.log"
    assert err == f"seed 13 brings bad luck\n(the traceback is in {log})\n"
    assert "in task" in log.read_text()


def test_a_sweep_gives_each_job_its_folder(tmp_path: Path) -> None:
    out, _ = command("-m", "seed=1,2", "learner.num_steps=5", folder=tmp_path)
    jobs = [json.loads(line) for line in out.splitlines() if line.startswith('["')]
    assert [job[1] for job in jobs] == [1, 2]
    folders = [Path(job[3]) for job in jobs]
    assert folders[0].parent == folders[1].parent
    assert [folder.name for folder in folders] == ["0", "1"]
    assert all((folder / "config.yaml").is_file() for folder in folders)


def test_help_is_ours_and_leaves_nothing(tmp_path: Path) -> None:
    out, _ = command("--help", folder=tmp_path)
    assert out.startswith("Trains a MuZero-style agent.")
    assert "  experiment  2048, backgammon, cartpole, connect_four, " in out
    assert "schema" not in out
    out, _ = command("--cfg", "job", "--package", "targets", folder=tmp_path)
    assert "discount: 1.0" in out
    assert not list(tmp_path.iterdir())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_config(compose(), tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["learner.learning_rat=1"],
            r"no setting named 'learner\.learning_rat'; did you mean learner\.learning_rate\?",
        ),
        (["resume=nowhere"], "nowhere is no run folder"),
        (["resume={run}", "network.num_blocks=3"], r"network\.num_blocks cannot change"),
        (["resume={run}", "env=atari"], "env cannot change"),
        (["resume={run}", "run_dir=x"], "leave run_dir= out"),
        (["-m", "resume={run}", "seed=1,2"], "cannot be part of a sweep"),
        (["resume=a(b"], "cannot be read"),
        (["--experimental-rerun=x"], "pickle"),
    ],
)
def test_refused_before_hydra_starts(run: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_arguments([argument.format(run=run) for argument in arguments])


def test_what_hydra_gets(run: Path) -> None:
    arguments = ["env=gym", "env.kwargs.a=1", "run_dir=x", "--cfg", "job", "+b=1", f"resume={run}"]
    assert prepare_arguments(arguments[:-1]) == [
        "env=gym",
        "++env.kwargs.a=1",
        "hydra.run.dir=x",
        "--cfg",
        "job",
        "+b=1",
    ]
    assert prepare_arguments(arguments[-1:]) == arguments[-1:]
    assert prepare_arguments(["resume=null"]) == ["resume=null"]


def test_an_option_may_be_called_by_a_number() -> None:
    """Hydra itself takes `env=2048` for a number and refuses it; numbers of settings stay numbers."""
    arguments = ["env=2048", "experiment=2048,backgammon", "seed=2048", "network=mlp"]
    assert prepare_arguments(arguments) == [
        "env='2048'",
        "experiment='2048',backgammon",
        "seed=2048",
        "network=mlp",
    ]
    assert compose(["experiment=2048"]).env.name == "2048"
