"""What a whole local run does and says, against faults that users of other trainers have met (peers, section 3)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from muzero.config.compose import compose
from muzero.config.schema import Config
from muzero.metrics import read_rows
from muzero.replay.priorities import EPSILON
from muzero.runtime.build import Builder, configure_torch
from muzero.runtime.evaluation import RunEvaluator
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint

BOARD = ("experiment=tictactoe", "debug=smoke", "runtime.overlap=false")
CARTPOLE = ("experiment=cartpole", "debug=smoke", "runtime.overlap=false")
QUIET = (
    "logger.progress=none",
    "logger.tensorboard=false",
    "evaluation.interval=0",
    "runtime.checkpoint_interval=1000",
)


def make(run_dir: Path, *overrides: str, resumes: bool = False) -> LocalRuntime:
    recipe = [part for part in overrides if part.startswith(("experiment=", "debug=", "env="))]
    rest = [part for part in overrides if part not in recipe]
    config = compose([*recipe, *QUIET, *rest], run_dir=str(run_dir))
    run_dir.mkdir(exist_ok=resumes)
    return LocalRuntime(config, run_dir, open_checkpoint(run_dir) if resumes else None)


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
def test_samples_per_insert_are_those_wished_also_after_a_resume(tmp_path, overlap):
    """Row 41: within 5 % over any stretch of 150 learner steps after the filling."""
    settings = (
        *BOARD,
        "evaluation.games=0",
        "replay.samples_per_insert=3",
        "learner.num_steps=450",
        "runtime.log_interval=50",
        f"runtime.overlap={overlap}",
    )
    runtime = make(tmp_path / "run", *settings)
    runtime.stop_after(200)
    runtime.train()
    make(tmp_path / "run", *settings, resumes=True).train()
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    # An overlapped tick makes several steps, so a row may come a few steps late.
    np.testing.assert_allclose([row["learner_step"] for row in rows], range(50, 451, 50), atol=3)
    for before, after in zip(rows[:-3], rows[3:], strict=True):
        sampled = after["replay/sampled"] - before["replay/sampled"]
        inserted = after["replay/inserted"] - before["replay/inserted"]
        assert sampled == (after["learner_step"] - before["learner_step"]) * 16
        assert sampled / inserted == pytest.approx(3.0, rel=0.05)
    assert rows[-1]["replay/samples_per_insert"] == pytest.approx(3.0, rel=0.05)


def test_the_learners_errors_become_the_priorities_of_its_samples(tmp_path, monkeypatch):
    """Row 35, in the loop of a run: nothing is dropped, nothing else is touched."""
    runtime = make(
        tmp_path / "run",
        *CARTPOLE,
        "replay.prioritized=true",
        "replay.priority_exponent=0.5",
        "replay.initial_priority=max",  # an untrained network's own error would be the learner's
    )
    runtime.stop_after(1)
    expected, reports, step = [], [], runtime.learner.step

    def stepping(batch):
        reports.append(step(batch))
        weights = runtime.replay._priorities.tree.weights.copy()
        assert (weights[batch.slot] == weights[batch.slot[0]]).all()
        weights[batch.slot] = (reports[-1].priorities.astype(np.float64) + EPSILON) ** 0.5
        expected.append(weights)
        return reports[-1]

    monkeypatch.setattr(runtime.learner, "step", stepping)
    runtime.train()
    assert len(reports) == 1 and not reports[0].skipped
    np.testing.assert_allclose(runtime.replay._priorities.tree.weights, expected[0], rtol=1e-5)
    assert runtime.replay.statistics()["replay/dropped_priorities"] == 0


def test_reanalyze_refreshes_what_is_learned_and_tells_what_it_achieved(tmp_path):
    """Rows 39 and 40: targets get a newer version than the weights that acted, and the rows say how many."""
    newest, refreshed = {}, {}
    for fraction in (0.0, 0.8):
        run_dir = tmp_path / str(fraction)
        runtime = make(
            run_dir,
            *BOARD,
            "evaluation.games=0",
            "replay.samples_per_insert=16",
            "reanalyze.max_target_age=20",
            f"reanalyze.fresh_fraction={fraction}",
            "learner.num_steps=80",
            "runtime.log_interval=20",
        )
        runtime.train()
        columns = runtime.replay._storage.columns
        refreshed[fraction] = int((columns["target_version"] > columns["behaviour_version"]).sum())
        newest[fraction] = read_rows(run_dir / "metrics.jsonl")[-1]
    assert refreshed[0.0] == 0 < refreshed[0.8]
    off, on = newest[0.0], newest[0.8]
    assert off["learner/target_age"] == off["learner/behaviour_age"]
    assert on["learner/target_age"] < on["learner/behaviour_age"]
    assert on["reanalyze/fresh_fraction"] > off["reanalyze/fresh_fraction"] + 0.2
    assert on["reanalyze/positions"] >= on["reanalyze/written"] > 0


@pytest.mark.parametrize("recipe", [BOARD, CARTPOLE], ids=["board", "gym"])
def test_a_resumed_agent_is_as_strong_and_its_first_loss_is_the_same(tmp_path, recipe):
    """Row 60."""
    settings = (*recipe, "replay.prioritized=true", "learner.average_decay=0.9")
    runtime = make(tmp_path / "run", *settings)
    runtime.stop_after(15)
    runtime.train()
    weights = runtime.learner.acting_weights()
    evaluator = RunEvaluator(Builder.of(runtime.config))
    before = evaluator.evaluate(weights, 15)
    resumed = make(tmp_path / "run", *settings, resumes=True)
    with resumed:
        assert evaluator.evaluate(resumed.learner.acting_weights(), 15) == before
        saved = open_checkpoint(tmp_path / "run").tensors("acting")
        assert evaluator.evaluate(saved, 15) == before
        losses = []
        for each in (runtime, resumed):
            losses.append(each.learner.step(each.replay.sample(16)).metrics["loss"])
    assert losses[0] == losses[1]


def test_schedules_go_on_where_they_were(tmp_path):
    """Rows 54 and 55: learning rate, temperature stage and target network's phase do not start over."""
    settings = (
        *CARTPOLE,
        "search=puct",
        "learner.num_steps=30",
        "learner.warmup_steps=4",
        "learner.target_network_interval=7",
        "selfplay.temperatures=[1.0,0.5,0.0]",
        "selfplay.temperature_steps=[5,20]",
        "runtime.log_interval=1",
    )
    make(tmp_path / "whole", *settings).train()
    runtime = make(tmp_path / "run", *settings)
    runtime.stop_after(12)
    runtime.train()
    make(tmp_path / "run", *settings, resumes=True).train()
    whole, resumed = (read_rows(tmp_path / name / "metrics.jsonl") for name in ("whole", "run"))
    names = ("learner_step", "env_steps", "selfplay/games", "learner/learning_rate", "learner/loss")
    for name in names:
        assert [row.get(name) for row in whole] == [row.get(name) for row in resumed], name
    assert len({row["learner/learning_rate"] for row in whole}) > 20  # a schedule that moves


def test_parts_of_a_checkpoint(tmp_path):
    """Row 56: all that a run goes on from; what is added to a run's state has to be added here."""
    runtime = make(
        tmp_path / "run",
        *CARTPOLE,
        "learner.average_decay=0.9",
        "reanalyze.fresh_fraction=0.5",
        "learner.num_steps=3",
    )
    runtime.train()
    checkpoint = open_checkpoint(tmp_path / "run")
    assert set(checkpoint.parts) == {
        "learner",
        "learner_state",
        "weights",
        "acting",
        "replay",
        "replay_state",
        "selfplay",
        "selfplay_state",
        "state",
        "config",
    }
    groups = {name.partition("/")[0].partition(".")[0] for name in checkpoint.tensors("learner")}
    assert groups >= {"network", "optimizer", "target", "average"}, groups
    assert checkpoint.json("learner_state").keys() >= {"num_steps_done"}
    assert checkpoint.json("replay_state").keys() >= {"limiter", "counts", "generator"}
    assert checkpoint.json("selfplay_state").keys() >= {"env", "rng", "totals"}
    assert checkpoint.json("state").keys() >= {"weights_version", "evaluated_step", "metrics"}
    # Row 62: the whole config, from which the network can be built without any other file.
    saved = checkpoint.json("config")
    assert saved["env"]["id"] == "CartPole-v1" and saved["learner"]["average_decay"] == 0.9
    assert set(saved) == set(Config.__dataclass_fields__)
    assert OmegaConf.create(saved).learner.num_steps == 3


BREAKING = """
import gymnasium

class Breaking(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    num_steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        self.num_steps += 1
        if self.num_steps > 40:
            raise RuntimeError("the lander is gone")
        return self.observation_space.low, 0.0, self.num_steps % 7 == 0, False, {}

gymnasium.register("Breaking-v0", Breaking)
"""


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
def test_an_error_of_the_environment_ends_the_run_with_its_reason(tmp_path, monkeypatch, overlap):
    """Row 70: wherever self-play runs, its error is raised where the run is waited for, and nothing hangs."""
    (tmp_path / "breaking_environment.py").write_text(BREAKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    runtime = make(
        tmp_path / "run",
        "env=gym",
        "env.id=breaking_environment:Breaking-v0",
        "debug=smoke",
        "learner.num_steps=1000",
        "evaluation.games=0",
        f"runtime.overlap={overlap}",
    )
    with pytest.raises(RuntimeError, match="the lander is gone"):
        runtime.train()
    assert runtime.learner_step < 1000


def test_rows_have_both_axes_and_name_where_the_time_goes(tmp_path):
    """Rows 80, 81 and 94: rates of a run, shares of its time, and no score of a zero-sum game."""
    runtime = make(
        tmp_path / "run",
        *BOARD,
        "learner.num_steps=120",
        "runtime.log_interval=60",
        "evaluation.opponents=[random]",
    )
    runtime.train()
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["learner_step"] for row in rows] == [60, 120]
    assert rows[1]["env_steps"] > rows[0]["env_steps"] > 0
    for row in rows:
        shares = {
            name: value
            for name, value in row.items()
            if name.startswith("time/") and name.endswith("_fraction")
        }
        # The first row's window also holds the making of the run.
        assert (0.95 if row is rows[1] else 0.5) < sum(shares.values()) <= 1.0 + 1e-6, shares
        assert {"time/selfplay_fraction", "time/learner_fraction", "time/sampling_fraction"} <= set(
            shares
        )
        assert row["selfplay/simulations_per_second"] == pytest.approx(
            4 * row["selfplay/env_steps_per_second"]
        )
        assert "selfplay/score" not in row and "evaluation/score_mean" not in row
    assert rows[-1]["evaluation/random/win_rate"] >= 0.0


def test_rows_are_written_without_any_evaluation(tmp_path):
    """At every interval and at the last step, whether or not an evaluation would fall on it."""
    runtime = make(
        tmp_path / "run",
        *BOARD,
        "evaluation.games=0",
        "evaluation.interval=10",
        "runtime.log_interval=10",
        "learner.num_steps=25",
    )
    runtime.train()
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["learner_step"] for row in rows] == [10, 20, 25]


def test_denormal_numbers_are_zero_in_a_run_and_its_threads() -> None:
    """Else a learner step takes ten times as long once Adam's averages of dead units decay into them."""
    tiny = torch.full((4,), 1e-30)
    torch.set_flush_denormal(False)  # tests before this one may have left it on
    assert (tiny * 1e-10).max() > 0.0
    try:
        configure_torch(1)
        with ThreadPoolExecutor() as pool:
            products = pool.submit(lambda: tiny * 1e-10).result()
        assert (tiny * 1e-10).max() == products.max() == 0.0
    finally:
        torch.set_flush_denormal(False)
