"""Batched Monte Carlo tree search over arrays, for learned models."""

from mcts.base import Model, ModelOutput, RootOutput, SearchOutput, Selection
from mcts.policies import SearchSettings, draw_noise, select_actions
from mcts.search import Search, run
from mcts.tree import Tree

__all__ = [
    "Model",
    "ModelOutput",
    "RootOutput",
    "Search",
    "SearchOutput",
    "SearchSettings",
    "Selection",
    "Tree",
    "draw_noise",
    "run",
    "select_actions",
]
