"""The learner: loss, schedule, optimiser, weights that act."""

from muzero.learner.diagnostics import TrainingDiverged
from muzero.learner.learner import Learner, LearnerReport

__all__ = ["Learner", "LearnerReport", "TrainingDiverged"]
