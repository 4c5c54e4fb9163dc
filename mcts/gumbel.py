"""Gumbel MuZero: planning with few simulations that still improves the policy.

Danihelka et al., "Policy improvement by planning with Gumbel" (ICLR 2022).
"""

import numpy as np

from mcts.base import IntArray, SearchOutput
from mcts.gumbel_kernels import select_gumbel, summarise_gumbel
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
        self._max_depth = settings.max_depth or settings.num_simulations
        self._table = halving_table(self.max_considered, settings.num_simulations)
        self._scratch = np.zeros((num_rows, num_actions), dtype)
        sigma = np.array([settings.value_scale, settings.maxvisit_init], dtype)
        self._completion = (
            NORMALIZATIONS.index(settings.normalization),
            settings.use_mixed_value,
            np.concatenate([scaling(settings, dtype), sigma]),
        )

    def select(self, num_rows: int, slot: int, selection: IntArray) -> None:
        """Fill `selection` `[3, B]` with the edges that may become node `slot`."""
        tree = self._tree
        self._threads.call(
            select_gumbel,
            num_rows,
            slot,
            self._max_depth,
            *self._completion,
            self._table,
            tree.gumbel,
            self._scratch,
            *tree.arrays,
            selection,
        )

    def summarise(self, num_rows: int, num_simulations: int, output: SearchOutput) -> None:
        """Fill `output` from the roots."""
        tree = self._tree
        self._threads.call(
            summarise_gumbel,
            num_rows,
            num_simulations,
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


def considered_visits(num_considered: int, num_simulations: int) -> list[int]:
    """The visit count that a root action must have to be considered, simulation by simulation.

    Sequential halving gives the considered actions equally many visits in every round, then keeps the better half.
    """
    if num_considered <= 1:
        return list(range(num_simulations))
    num_rounds = (num_considered - 1).bit_length()
    counts: list[int] = []
    first_count = 0
    size = num_considered
    while len(counts) < num_simulations:
        num_extra = max(1, num_simulations // (num_rounds * size))
        for count in range(first_count, first_count + num_extra):
            counts.extend([count] * size)
        first_count += num_extra
        size = max(2, size // 2)
    return counts[:num_simulations]


def halving_table(max_considered: int, num_simulations: int) -> IntArray:
    """`[max_considered + 1, N]` the list of `considered_visits` for every number of considered actions."""
    lists = [considered_visits(size, num_simulations) for size in range(max_considered + 1)]
    return np.array(lists, np.int32)
