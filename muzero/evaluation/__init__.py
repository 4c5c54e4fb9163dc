"""Evaluation: agents, episodes, matches, exact play, statistics.

What plays OpenSpiel games is imported from its module (`exact`, `players`, `arena`, `evaluator`): the rest, which is
listed here, does without OpenSpiel.
"""

from muzero.evaluation.agent import Agent, BatchedAgent
from muzero.evaluation.episodes import evaluate_episodes, evaluate_versus_random

__all__ = ["Agent", "BatchedAgent", "evaluate_episodes", "evaluate_versus_random"]
