"""Batched Monte Carlo tree search over arrays, for learned models."""

from mcts.base import KeptSubtrees, Model, ModelOutput, RootOutput, SearchOutput, Selection
from mcts.chance import AfterstateOutput, AlternatingModel, StochasticModel
from mcts.counter_random import draw_keys
from mcts.policies import SearchSettings, draw_noise, select_actions
from mcts.sampled import SampledModel, SampledTarget
from mcts.sampled_box import SquashedGaussianSampler
from mcts.sampled_categories import CategoricalSampler, FactoredSampler
from mcts.search import Search, run
from mcts.tree import Tree

__all__ = [
    "AfterstateOutput",
    "AlternatingModel",
    "CategoricalSampler",
    "FactoredSampler",
    "KeptSubtrees",
    "Model",
    "ModelOutput",
    "RootOutput",
    "SampledModel",
    "SampledTarget",
    "Search",
    "SearchOutput",
    "SearchSettings",
    "Selection",
    "SquashedGaussianSampler",
    "StochasticModel",
    "Tree",
    "draw_keys",
    "draw_noise",
    "run",
    "select_actions",
]
