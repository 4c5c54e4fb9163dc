"""Gumbel MuZero: planning with few simulations that still improves the policy.

Danihelka et al., "Policy improvement by planning with Gumbel" (ICLR 2022).
"""

import numpy as np

from mcts.base import Answer, IntArray, SearchOutput
from mcts.gumbel_kernels import start_gumbel, step_gumbel
from mcts.gumbel_result import summarise_gumbel
from mcts.halving import fill_schedules, stop_gumbel
from mcts.policies import SearchSettings
from mcts.puct import NORMALIZATIONS, scaling
from mcts.threads import RowThreads
from mcts.tree import Tree


class GumbelRule:
    """Sequential halving at the root, the improved policy below it."""

    def __init__(self, settings: SearchSettings, tree: Tree, threads: RowThreads) -> None:
        num_rows, _, num_actions = tree.free_priors.shape
        dtype = tree.nodes.dtype
        self.noise_weight = float(settings.gumbel_scale)
        self.max_considered = min(settings.max_num_considered_actions, num_actions)
        self._threads = threads
        self._tree = tree
        # One column more than simulations: a row that has made its last one walks on, to nowhere.
        self._schedule = np.zeros((num_rows, settings.num_simulations + 1), np.int32)
        sigma = np.array([settings.value_scale, settings.maxvisit_init], dtype)
        self._completion = (
            NORMALIZATIONS.index(settings.normalization),
            settings.use_mixed_value,
            np.concatenate([scaling(settings, dtype), sigma]),
        )
        self._shared = (
            settings.max_depth or settings.num_simulations,
            tree.has_chance,
            *self._completion,
            self._schedule,
            *tree.arrays,
        )

    def prepare(self, num_planned: IntArray) -> None:
        """Write the schedules of rows that have `num_planned` `[B]` simulations before them."""
        self._threads.call(
            fill_schedules, len(num_planned), num_planned, *self._tree.arrays[1:], self._schedule
        )

    def start(self, num_rows: int, selection: IntArray) -> None:
        """Fill `selection` `[4, B]`, whose first `num_rows` rows are given, with the first edges to evaluate."""
        self._threads.call(start_gumbel, num_rows, *self._shared, selection)

    def step(
        self, num_places: int, answer: Answer, selection: IntArray, following: IntArray
    ) -> int:
        """Take in the answer to `selection` and fill `following`, both `[4, B]`; the first place at fault, or NO_FAULT."""
        fault: int = self._threads.call(
            step_gumbel, num_places, *self._shared, *answer, selection, following
        )
        return fault

    def stop(
        self, num_places: int, num_made: int, selection: IntArray, num_planned: IntArray
    ) -> None:
        """Lower `num_planned` `[B]` to `num_made` in the selected rows whose best action is certain."""
        tree = self._tree
        self._threads.call(
            stop_gumbel,
            num_places,
            num_made,
            selection,
            self._schedule,
            *tree.arrays,
            num_planned,
        )

    def summarise(self, output: SearchOutput) -> None:
        """Fill `output` from the roots; `output.num_simulations` is given."""
        tree = self._tree
        self._threads.call(
            summarise_gumbel,
            len(output.num_simulations),
            output.num_simulations,
            *self._completion,
            *tree.arrays,
            output.visits,
            output.policy,
            output.value,
            output.qvalues,
            output.best_action,
            output.best_value,
            output.depth,
        )
