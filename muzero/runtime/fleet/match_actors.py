"""The roles that play matches beside training, as Ray actors; they give way to all others for the processor."""

import os
from pathlib import Path

from muzero.config.schema import Config
from muzero.runtime.build import Builder
from muzero.runtime.examining import NICENESS, Evaluated, Examiner, Task
from muzero.runtime.fleet.actor import Actor, prepare_process
from muzero.runtime.gatekeeping import Gatekeeper, Verdict, Versioned
from muzero.weights import Arrays, to_tensors


class EvaluatorActor(Actor):
    """Evaluates weights."""

    def __init__(self, config: Config) -> None:
        prepare_process(config)
        os.nice(NICENESS)
        self._examiner = Examiner(Builder.of(config))

    def evaluate(self, weights: Arrays, step: int, folder: Path, draws: bool) -> Evaluated:
        """See `Examiner`."""
        return self._examiner.evaluate(Task(step, weights, folder, draws))


class GatekeeperActor(Actor):
    """Plays candidates against the weights in use."""

    def __init__(self, config: Config) -> None:
        prepare_process(config)
        os.nice(NICENESS)
        self._gatekeeper = Gatekeeper(Builder.of(config))

    def judge(
        self, version: int, weights: Arrays, version_in_use: int, weights_in_use: Arrays
    ) -> Verdict:
        """See `Gatekeeper`; its counters are not asked for, they are the supervisor's."""
        candidate = Versioned(version, to_tensors(weights))
        return self._gatekeeper.judge(
            candidate, Versioned(version_in_use, to_tensors(weights_in_use))
        )
