"""Gumbel MuZero: planning with few simulations that still improves the policy.

Danihelka et al., "Policy improvement by planning with Gumbel" (ICLR 2022).
"""

import numpy as np

from mcts.base import IntArray, SearchOutput
from mcts.gumbel_kernels import select_gumbel, summarise_gumbel
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
        self._select_kernel = select_gumbel
        self.max_considered = min(settings.max_num_considered_actions, num_actions)
        self._threads = threads
        self._tree = tree
        self._max_depth = settings.max_depth or settings.num_simulations
        self._schedule = np.zeros((num_rows, settings.num_simulations), np.int32)
        self._scratch = np.zeros((num_rows, num_actions), dtype)
        sigma = np.array([settings.value_scale, settings.maxvisit_init], dtype)
        self._completion = (
            NORMALIZATIONS.index(settings.normalization),
            settings.use_mixed_value,
            np.concatenate([scaling(settings, dtype), sigma]),
        )

    def prepare(self, num_planned: IntArray) -> None:
        """Write the schedules of rows that have `num_planned` `[B]` simulations before them."""
        self._threads.call(
            fill_schedules, len(num_planned), num_planned, self._tree.rows, self._schedule
        )

    def select(self, num_places: int, selection: IntArray) -> None:
        """Fill `selection` `[4, B]`, whose first `num_places` rows are given, with the edges to evaluate."""
        tree = self._tree
        self._threads.call(
            self._select_kernel,
            num_places,
            self._max_depth,
            *self._completion,
            self._schedule,
            tree.gumbel,
            self._scratch,
            *tree.arrays,
            selection,
        )

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
            tree.nodes,
            tree.links,
            tree.rows,
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
            tree.gumbel,
            *tree.arrays,
            output.visits,
            output.policy,
            output.value,
            output.qvalues,
            output.best_action,
            output.best_value,
            output.depth,
        )
