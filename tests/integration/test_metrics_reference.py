"""Every scalar that a real run writes is explained in docs/metrics.md."""

import importlib.util
from pathlib import Path

import pytest

from muzero.config.compose import compose
from muzero.metrics import read_rows
from muzero.runtime.local import LocalRuntime

_SPEC = importlib.util.spec_from_file_location(
    "metric_docs", Path(__file__).parents[1] / "metric_docs.py"
)
assert _SPEC is not None and _SPEC.loader is not None
metric_docs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(metric_docs)


@pytest.mark.parametrize(
    "overrides",
    [
        (
            "experiment=tictactoe",
            "reanalyze.fresh_fraction=0.8",
            "evaluation.exhaustive=true",
            "gatekeeping.interval=7",
            "gatekeeping.games=4",
        ),
        ("experiment=cartpole", "learner.consistency_loss_weight=1", "network.projection_size=8"),
        ("env=open_spiel", "env.game=dots_and_boxes", "runtime.overlap=true"),
        ("experiment=2048", "selfplay.segment_length=20"),
    ],
    ids=["board", "episodes", "repeated turns", "chance codes"],
)
def test_all_metrics_of_a_run_are_documented(tmp_path, overrides):
    config = compose(
        [*overrides[:1], "debug=smoke", *overrides[1:], "logger.progress=none"]
        if overrides[0].startswith("experiment")
        else [*overrides, "debug=smoke", "logger.progress=none"],
        run_dir=str(tmp_path),
    )
    LocalRuntime(config, tmp_path).train()
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert len(rows) >= 2
    for row in rows:
        assert metric_docs.undocumented(row) == []
    names = set().union(*rows)
    assert {"learner/wait_fraction", "learner/behaviour_age", "learner/target_age"} <= names
    assert "replay/samples_per_insert" in names
