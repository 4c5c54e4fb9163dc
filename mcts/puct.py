"""The rule of PUCT (MuZero, equation 2): its constants, and the calls of its kernels."""

import numpy as np
import numpy.typing as npt

from mcts.base import Answer, FloatArray, IntArray, SearchOutput
from mcts.policies import NORMALIZATIONS, URGENCIES, SearchSettings
from mcts.puct_kernels import start_puct, step_puct
from mcts.puct_result import stop_puct, summarise_puct
from mcts.threads import RowThreads
from mcts.tree import Tree

SMALLEST_RANGE = 1e-8


class PuctRule:
    """The upper confidence bound at every node, visit counts as the result."""

    # PUCT considers every legal action.
    max_considered = 0

    def __init__(self, settings: SearchSettings, tree: Tree, threads: RowThreads) -> None:
        dtype = tree.nodes.dtype
        self.noise_weight = float(settings.root_exploration_fraction)
        self._threads = threads
        self._tree = tree
        self._constants = (
            NORMALIZATIONS.index(settings.normalization),
            URGENCIES.index(settings.first_play_urgency),
            scaling(settings, dtype),
            exploration_table(
                settings.num_simulations, settings.pb_c_init, settings.pb_c_base, dtype
            ),
        )
        self._shared = (
            settings.max_depth or settings.num_simulations,
            tree.has_chance,
            *self._constants,
            *tree.arrays,
        )

    def prepare(self, num_planned: IntArray) -> None:
        """Nothing depends on the number of simulations that the rows have before them."""

    def start(self, num_rows: int, selection: IntArray) -> None:
        """Fill `selection` `[4, B]`, whose first `num_rows` rows are given, with the first edges to evaluate."""
        self._threads.call(start_puct, num_rows, *self._shared, selection)

    def step(
        self, num_places: int, answer: Answer, selection: IntArray, following: IntArray
    ) -> int:
        """Take in the answer to `selection` and fill `following`, both `[4, B]`; the first place at fault, or NO_FAULT."""
        fault: int = self._threads.call(
            step_puct, num_places, *self._shared, *answer, selection, following
        )
        return fault

    def stop(
        self, num_places: int, num_made: int, selection: IntArray, num_planned: IntArray
    ) -> None:
        """Lower `num_planned` `[B]` to `num_made` in the selected rows whose best action is certain."""
        self._threads.call(
            stop_puct, num_places, num_made, selection, *self._tree.arrays, num_planned
        )

    def summarise(self, output: SearchOutput) -> None:
        """Fill `output` from the roots; `output.num_simulations` is given."""
        self._threads.call(
            summarise_puct,
            len(output.num_simulations),
            output.num_simulations,
            *self._constants,
            *self._tree.arrays,
            output.visits,
            output.policy,
            output.value,
            output.qvalues,
            output.best_action,
            output.best_value,
            output.depth,
        )


def scaling(settings: SearchSettings, dtype: npt.DTypeLike) -> FloatArray:
    """The constants of the normalisation: fixed offset, fixed inverse range, smallest range of a moving one."""
    smallest = max(settings.min_value_range, SMALLEST_RANGE)
    if settings.normalization != "bounds":
        return np.array([0.0, 1.0, smallest], dtype)
    span = settings.value_max - settings.value_min
    return np.array([settings.value_min, 1.0 / span, smallest], dtype)


def exploration_table(
    num_simulations: int, pb_c_init: float, pb_c_base: float, dtype: npt.DTypeLike
) -> FloatArray:
    """`[N + 2]` the factor `sqrt(n) * (c1 + ln((n + c2 + 1) / c2))` of the prior by the visits `n` of a node."""
    visits = np.arange(num_simulations + 2, dtype=np.float64)
    bonus = pb_c_init + np.log((visits + pb_c_base + 1.0) / pb_c_base)
    return (np.sqrt(visits) * bonus).astype(dtype)
