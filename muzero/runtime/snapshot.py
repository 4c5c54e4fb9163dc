"""What a checkpoint of a local run holds, and how a run continues from it.

Parts: `learner` (tensors: weights, target network, averages, optimiser), `learner_state`, `weights` (tensors: those in
use by self-play), `acting` (tensors: those that evaluation and play use), `replay` and `replay_state`, `selfplay` and
`selfplay_state` (running episodes), `state` (counters, metrics, reanalyze, gatekeeper) and `config` (so that a checkpoint can be
used without its run folder).
"""

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from muzero.checkpoint import Checkpoint, Part
from muzero.runtime.gathering import Work

if TYPE_CHECKING:
    from muzero.runtime.local import LocalRuntime


def take(runtime: "LocalRuntime") -> dict[str, Part]:
    """The parts of a checkpoint: copies, so that training may go on while they are written."""
    learner, learner_state = runtime.learner.state()
    replay, replay_state = runtime.replay.state()
    selfplay, selfplay_state = runtime.gatherer.state()
    published = runtime.weights.pull_if_newer(None)
    assert published is not None
    version, weights = published
    parts: dict[str, Part] = {
        "learner": learner,
        "learner_state": learner_state,
        "weights": weights,
        "acting": runtime.learner.acting_weights(),
        "replay_state": replay_state,
        "selfplay": selfplay,
        "selfplay_state": selfplay_state,
        "state": {
            "weights_version": version,
            **runtime.evaluations.state(),
            "metrics": runtime.metrics.state(),
            "reanalyze": None if runtime.reanalyze is None else runtime.reanalyze.state(),
            "augmenter": None if runtime.augmenter is None else runtime.augmenter.state(),
            "gatekeeper": None if runtime.gatekeeper is None else runtime.gatekeeper.state(),
        },
        "config": asdict(runtime.config),
    }
    if runtime.config.replay.save_with_checkpoint:
        parts["replay"] = {name: array.copy() for name, array in replay.items()}
    return parts


def restore(runtime: "LocalRuntime", checkpoint: Checkpoint) -> None:
    """Continue from a checkpoint.

    Raises:
        ValueError: If it does not fit the run's config.
    """
    state = checkpoint.json("state")
    runtime.learner.restore(checkpoint.tensors("learner"), checkpoint.json("learner_state"))
    runtime.weights.publish(state["weights_version"], checkpoint.tensors("weights"))
    arrays: dict[str, np.ndarray] | None = None
    if "replay" in checkpoint.parts:
        arrays = checkpoint.arrays("replay")
    runtime.replay.restore(arrays, checkpoint.json("replay_state"))
    runtime.acting_version = state["weights_version"]
    work = Work(checkpoint.step, runtime.acting_version, runtime.acting_weights(), None)
    runtime.totals = runtime.gatherer.restore(
        checkpoint.arrays("selfplay"), checkpoint.json("selfplay_state"), work
    )
    runtime.metrics.restore(state["metrics"], checkpoint.step)
    if runtime.reanalyze is not None and state["reanalyze"] is not None:
        runtime.reanalyze.restore(state["reanalyze"])
    if runtime.augmenter is not None and state["augmenter"] is not None:
        runtime.augmenter.restore(state["augmenter"])
    if runtime.gatekeeper is not None and state.get("gatekeeper") is not None:  # nor this
        runtime.gatekeeper.restore(state["gatekeeper"])

    def weights_of(step: int) -> dict[str, Tensor]:
        saved = checkpoint if step == checkpoint.step else runtime.checkpoints.load(step)
        return saved.tensors("acting")

    runtime.evaluations.restore(state, weights_of)
