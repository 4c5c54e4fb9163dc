"""What a real fleet's evaluator draws reaches TensorBoard's file."""

import numpy as np
import pytest

from muzero.metrics import read_rows
from muzero.runtime.build import Builder
from muzero.runtime.evaluation import PICTURE, make_pictures
from muzero.runtime.players import open_checkpoint
from tests.evaluation.test_pictures import decode
from tests.runtime.fleet.chaos import make
from tests.runtime.fleet.test_ray_failures import pytestmark  # noqa: F401

EVALUATES = ("evaluation.games=4", "evaluation.exhaustive=false", "learner.num_steps=60")


def test_the_evaluator_draws_the_weights_that_it_evaluates(tmp_path):
    """Each picture stands at the learner step whose weights it shows, the run's last one among them."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run_dir = tmp_path / "run"
    settings = ("evaluation.interval=20", "logger.tensorboard=true")
    runtime = make(run_dir, *EVALUATES, *settings, "runtime.checkpoint_interval=20")
    runtime.train()
    reader = accumulator.EventAccumulator(str(run_dir / "tensorboard"))
    reader.Reload()
    assert reader.Tags()["images"] == [PICTURE]
    events = reader.Images(PICTURE)
    rows = read_rows(run_dir / "metrics.jsonl")
    evaluated = {row["evaluation/learner_step"] for row in rows if "evaluation/learner_step" in row}
    assert 60 in evaluated
    assert evaluated <= {event.step for event in events}
    pictures = make_pictures(Builder.of(runtime.config))
    assert pictures is not None
    last = pictures.draw(open_checkpoint(run_dir).tensors("acting"), 60)
    np.testing.assert_array_equal(decode(events[-1].encoded_image_string), last)
