"""What an evaluation's number rests on: games that differ, and seeds that picked nothing (peers, rows 96 and 99)."""

import json
import logging
from pathlib import Path

import pytest

from muzero.checkpoint import CheckpointManager
from muzero.config.arguments import parse_arguments
from muzero.config.compose import compose
from muzero.config.store import save_config
from muzero.evaluate import EvaluateArguments, evaluate
from muzero.evaluation.arena import read_records
from muzero.metrics import read_rows
from muzero.runtime.evaluation import objective
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint

QUIET = (
    "logger.progress=none",
    "logger.tensorboard=false",
    "evaluation.num_simulations=4",
    "runtime.overlap=false",  # beside training, those that come too fast are left out
)


def train(folder: Path, *overrides: str, stop_after: int | None = None) -> Path:
    resumes = folder.exists()
    config = compose(
        ["experiment=tictactoe", "debug=smoke", *QUIET, *overrides], run_dir=str(folder)
    )
    if not resumes:
        save_config(config, folder)
    runtime = LocalRuntime(config, folder, open_checkpoint(folder) if resumes else None)
    if stop_after is not None:
        runtime.stop_after(stop_after)
    runtime.train()
    return folder


EVALUATED = (
    "learner.num_steps=24",
    "evaluation.interval=4",
    "evaluation.games=12",
    "evaluation.opponents=[random]",
)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of tic-tac-toe that is evaluated six times."""
    return train(tmp_path_factory.mktemp("seeds") / "run", *EVALUATED)


def report(run_dir: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict, str]:
    """The command's last line as JSON, and all that it printed."""
    parsed, overrides = parse_arguments(
        [f"run={run_dir}", "exhaustive=false", "opponent=random", "games=12", *arguments],
        EvaluateArguments,
        program="muzero-evaluate",
    )
    evaluate(parsed, overrides)
    printed = capsys.readouterr().out
    return json.loads(printed.splitlines()[-1]), printed


def openings(folder: Path) -> list[tuple]:
    (file,) = folder.glob("*.jsonl")
    return [(record.setup.seed, record.setup.opening) for record in read_records(file)]


def best_by_the_rows(run_dir: Path) -> int:
    """The first of the best evaluations, as the metrics tell them."""
    scores = {row["learner_step"]: objective(row) for row in read_rows(run_dir / "metrics.jsonl")}
    evaluated = {step: score for step, score in scores.items() if score is not None}
    return max(evaluated, key=lambda step: (evaluated[step], -step))


def test_training_marks_the_best_of_its_evaluations_and_keeps_it(run_dir):
    manager = CheckpointManager(run_dir / "checkpoints", owner=False)
    assert (
        len([row for row in read_rows(run_dir / "metrics.jsonl") if objective(row) is not None])
        == 6
    )
    assert manager.best_step == best_by_the_rows(run_dir)
    assert open_checkpoint(run_dir, best=True).step == manager.best_step


def test_a_resumed_run_remembers_the_best(tmp_path, run_dir):
    stopped = train(tmp_path / "run", *EVALUATED, stop_after=10)
    train(stopped, *EVALUATED)
    manager = CheckpointManager(stopped / "checkpoints", owner=False)
    assert manager.best_step == best_by_the_rows(stopped) == best_by_the_rows(run_dir)


def test_a_run_that_was_never_evaluated_has_no_best(tmp_path, capsys):
    run_dir = train(tmp_path / "run", "learner.num_steps=4", "evaluation.games=0")
    with pytest.raises(ValueError, match=r"no checkpoint marked as the best.*steps \[4\]"):
        report(run_dir, capsys, "checkpoint=best")


def test_the_best_checkpoint_is_evaluated_on_seeds_that_did_not_pick_it(run_dir, capsys):
    step = CheckpointManager(run_dir / "checkpoints", owner=False).best_step
    result, printed = report(run_dir, capsys, "checkpoint=best")
    assert (result["checkpoint"], result["learner_step"], result["seeds"]) == ("best", step, [1])
    assert "none of which training's evaluations have used" in printed
    in_training = openings(run_dir / "evaluation" / f"step_{step:08d}")
    fresh = openings(run_dir / "evaluation" / f"command_step_{step:08d}_seed_1")
    assert len(fresh) == len(in_training) == 12
    assert not {seed for seed, _ in fresh} & {seed for seed, _ in in_training}
    assert [opening for _, opening in fresh] != [opening for _, opening in in_training]
    # Without being asked for others, a step is evaluated as training did it.
    again, _ = report(run_dir, capsys, f"step={step}")
    assert again["seeds"] is None
    assert openings(run_dir / "evaluation" / f"command_step_{step:08d}") == in_training


def test_several_seeds_are_all_shown_with_mean_min_and_max(run_dir, capsys):
    result, printed = report(run_dir, capsys, "seeds=[3,1,2]")
    assert [one["seed"] for one in result["by_seed"]] == result["seeds"] == [3, 1, 2]
    rates = [one["wins"] / one["games"] for one in result["by_seed"]]
    assert len(set(rates)) > 1
    spread = result["over_seeds"]["evaluation/random/win_rate"]
    assert spread == {
        "mean": pytest.approx(sum(rates) / 3),
        "min": min(rates),
        "max": max(rates),
    }
    for seed in (1, 2, 3):
        assert f"seed {seed}: against random: " in printed
    assert "over 3 seeds: evaluation/random/win_rate mean" in printed
    alone, _ = report(run_dir, capsys, "seeds=[1]")
    of_three = dict(result["by_seed"][1])
    assert of_three.pop("seed") == 1
    assert alone.items() >= of_three.items()


def test_baselines_are_evaluated_with_the_same_seeds(run_dir, capsys):
    result, printed = report(run_dir, capsys, "seeds=[1,2]", "baselines=true")
    for one in result["baselines"].values():
        assert [each["seed"] for each in one["by_seed"]] == [1, 2]
    assert "the network alone: seed 2: against random" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("seeds=[1,1]",), r"seeds=\[1, 1\] must be different"),
        (("seeds=[]",), r"seeds=\[\] must be"),
        (("seeds=[-1]",), r"seeds=\[-1\] must be .* at least 0"),
        (("checkpoint=bset",), "checkpoint='bset' must be newest or best"),
        (("checkpoint=best", "step=4"), "name two checkpoints"),
    ],
)
def test_slips_are_told(run_dir, capsys, arguments, words):
    with pytest.raises(ValueError, match=words):
        report(run_dir, capsys, *arguments)


FEW = ("evaluation.max_opening_moves=0", "evaluation.min_distinct_games=11")


def test_the_command_fails_if_too_few_games_differ(run_dir, capsys):
    """The network alone against itself: one game in each seat, however many are asked for."""
    itself = ("simulations=0", f"opponent={run_dir}")
    result, _ = report(run_dir, capsys, *itself, FEW[0])
    assert (result["games"], result["games_played"]) == (2, 12)
    with pytest.raises(ValueError) as failure:
        report(run_dir, capsys, *itself, *FEW)
    for words in (
        "evaluation.min_distinct_games=11, but only 2 of 12 games against",
        "raise evaluation.max_opening_moves (now 0) or evaluation.games (now 12)",
    ):
        assert words in str(failure.value)
    assert "2 different games (10 duplicates left out)" in capsys.readouterr().out
    report(run_dir, capsys, *itself, "evaluation.max_opening_moves=4", FEW[1])


def test_training_warns_of_too_few_games_and_goes_on(tmp_path, caplog):
    itself = train(tmp_path / "rival", "learner.num_steps=2", "evaluation.games=0")
    with caplog.at_level(logging.WARNING):
        run_dir = train(
            tmp_path / "run",
            "learner.num_steps=4",
            "evaluation.games=12",
            "evaluation.num_simulations=0",
            f"evaluation.opponents=[random,{itself}]",
            *FEW,
        )
    assert "only 2 of 12 games against" in caplog.text
    last = read_rows(run_dir / "metrics.jsonl")[-1]
    assert last["learner_step"] == 4
    assert last["evaluation/rival/distinct_games"] == 2
    assert 2 < last["evaluation/random/distinct_games"] <= 12
