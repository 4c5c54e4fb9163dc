"""Selection by PUCT (MuZero, equation 2) and what a finished PUCT search says of its roots."""

import numpy as np
import numpy.typing as npt

from mcts.base import FloatArray, IntArray, SearchOutput
from mcts.forced import forced_child, prune_target
from mcts.jit import kernel
from mcts.kernels import next_slot
from mcts.policies import NORMALIZATIONS, URGENCIES, SearchSettings
from mcts.puct_choice import choose_puct, likeliest
from mcts.threads import RowThreads
from mcts.tree import (
    ACTION,
    DEPTH_SUM,
    FIRST_CHILD,
    FORCED_PLAYOUTS,
    NEXT_SIBLING,
    NOTHING_LEFT,
    VALUE,
    VISITS,
    Q,
    Tree,
)

SMALLEST_RANGE = 1e-8


class PuctRule:
    """The upper confidence bound at every node, visit counts as the result."""

    # PUCT considers every legal action.
    max_considered = 0

    def __init__(self, settings: SearchSettings, tree: Tree, threads: RowThreads) -> None:
        dtype = tree.nodes.dtype
        self.noise_weight = float(settings.root_exploration_fraction)
        self._select_kernel = select_puct
        self._threads = threads
        self._tree = tree
        self._max_depth = settings.max_depth or settings.num_simulations
        self._constants = (
            NORMALIZATIONS.index(settings.normalization),
            URGENCIES.index(settings.first_play_urgency),
            scaling(settings, dtype),
            exploration_table(
                settings.num_simulations, settings.pb_c_init, settings.pb_c_base, dtype
            ),
        )

    def prepare(self, num_planned: IntArray) -> None:
        """Nothing depends on the number of simulations that the rows have before them."""

    def select(self, num_places: int, selection: IntArray) -> None:
        """Fill `selection` `[4, B]`, whose first `num_places` rows are given, with the edges to evaluate."""
        self._threads.call(
            self._select_kernel,
            num_places,
            self._max_depth,
            *self._constants,
            *self._tree.arrays,
            selection,
        )

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


@kernel
def select_puct(
    low: int,
    high: int,
    max_depth: int,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    selection: IntArray,
) -> None:
    """Walk from the roots to the edges to ask the model for.

    `selection` is `[4, B]`: its rows are given, parent, action and node are filled in.
    """
    for place in range(low, high):
        row = selection[0, place]
        node = 0
        depth = 0
        child = forced_child(row, nodes, links, rows)
        action = links[row, child, ACTION]
        while True:
            if child == 0:
                action, child = choose_puct(
                    row,
                    node,
                    normalization,
                    urgency,
                    scale,
                    exploration,
                    free_priors,
                    nodes,
                    links,
                    rows,
                )
            depth += 1
            if child == 0 or depth >= max_depth:
                break
            node = child
            child = 0
        selection[1, place] = node
        selection[2, place] = action
        selection[3, place] = child if child != 0 else next_slot(row, rows)


@kernel
def summarise_puct(
    low_row: int,
    high_row: int,
    num_made: IntArray,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    visits: IntArray,
    policy: FloatArray,
    value: FloatArray,
    qvalues: FloatArray,
    best_action: IntArray,
    best_value: FloatArray,
    depth: FloatArray,
) -> None:
    """Read the roots out: visit fractions, the most visited action (of equals the higher q, then the lower index).

    Where playouts were forced, the fractions are those of `prune_target`.
    """
    for row in range(low_row, high_row):
        root_value = nodes[row, 0, VALUE]
        num_visits = nodes[row, 0, VISITS] - 1
        visits[row] = 0
        qvalues[row] = root_value
        best = 0
        if num_visits == 0:  # the prior is all that is known
            for action in range(policy.shape[1]):
                policy[row, action] = max(free_priors[row, 0, action], 0)
            best = likeliest(free_priors[row, 0])
        else:
            policy[row] = 0
            most = 0.0
            child = links[row, 0, FIRST_CHILD]
            while child != 0:
                action = links[row, child, ACTION]
                count = nodes[row, child, VISITS]
                q = nodes[row, child, Q]
                visits[row, action] = int(count)
                qvalues[row, action] = q
                policy[row, action] = count / num_visits
                is_equal = count == most
                if (
                    count > most
                    or (is_equal and q > qvalues[row, best])
                    or (is_equal and q == qvalues[row, best] and action < best)
                ):
                    most = count
                    best = action
                child = links[row, child, NEXT_SIBLING]
            if rows[row, FORCED_PLAYOUTS] > 0:
                prune_target(
                    row,
                    best,
                    normalization,
                    urgency,
                    scale,
                    exploration,
                    nodes,
                    links,
                    rows,
                    policy[row],
                )
        value[row] = root_value
        best_action[row] = best
        best_value[row] = qvalues[row, best]
        depth[row] = rows[row, DEPTH_SUM] / max(num_made[row], 1)


@kernel
def stop_puct(
    low: int,
    high: int,
    num_made: int,
    selection: IntArray,
    free_priors: FloatArray,
    nodes: FloatArray,
    links: IntArray,
    rows: FloatArray,
    num_planned: IntArray,
) -> None:
    """End the rows whose most visited action leads by more than the simulations that are left: `num_planned` `[B]`."""
    for place in range(low, high):
        row = selection[0, place]
        most = 0
        second = 0
        num_children = 0
        child = links[row, 0, FIRST_CHILD]
        while child != 0:
            count = int(nodes[row, child, VISITS])
            if count > most:
                second = most
                most = count
            elif count > second:
                second = count
            num_children += 1
            child = links[row, child, NEXT_SIBLING]
        num_left = num_planned[row] - num_made
        has_no_rival = num_children == 1 and likeliest(free_priors[row, 0]) == NOTHING_LEFT
        if most - second > num_left or has_no_rival:
            num_planned[row] = min(num_planned[row], num_made)
