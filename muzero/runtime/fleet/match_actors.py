"""The roles that play matches beside training, as Ray actors; they give way to all others for the processor."""

import os
from functools import cached_property
from pathlib import Path

from muzero.config.schema import Config
from muzero.evaluation.pictures import PolicyPictures
from muzero.runtime.build import Builder
from muzero.runtime.evaluation import RunEvaluator, make_pictures
from muzero.runtime.fleet.actor import Actor, prepare_process
from muzero.runtime.fleet.messages import Evaluated
from muzero.runtime.gatekeeping import Gatekeeper, Verdict, Versioned
from muzero.weights import Arrays, to_tensors

_NICENESS = 10


class EvaluatorActor(Actor):
    """Evaluates weights."""

    def __init__(self, config: Config) -> None:
        prepare_process(config)
        os.nice(_NICENESS)
        self._builder = Builder.of(config)
        self._evaluator = RunEvaluator(self._builder)

    def evaluate(self, weights: Arrays, step: int, folder: Path, draws: bool) -> Evaluated:
        """See `RunEvaluator`; `draws` asks for a picture as well."""
        state = to_tensors(weights)
        reports = self._evaluator.evaluate(state, step, folder)
        pictures = self._pictures if draws else None
        return Evaluated(reports, None if pictures is None else pictures.draw(state, step))

    @cached_property
    def _pictures(self) -> PolicyPictures | None:
        return make_pictures(self._builder)


class GatekeeperActor(Actor):
    """Plays candidates against the weights in use."""

    def __init__(self, config: Config) -> None:
        prepare_process(config)
        os.nice(_NICENESS)
        self._gatekeeper = Gatekeeper(Builder.of(config))

    def judge(
        self, version: int, weights: Arrays, version_in_use: int, weights_in_use: Arrays
    ) -> Verdict:
        """See `Gatekeeper`; its counters are not asked for, they are the supervisor's."""
        candidate = Versioned(version, to_tensors(weights))
        return self._gatekeeper.judge(
            candidate, Versioned(version_in_use, to_tensors(weights_in_use))
        )
