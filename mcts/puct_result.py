"""What a finished PUCT search says of its roots, and when a search may end early."""

from mcts.base import FloatArray, IntArray
from mcts.forced import prune_target
from mcts.jit import kernel
from mcts.layout import (
    BEST_UNVISITED,
    DEPTH_SUM,
    FORCED_PLAYOUTS,
    KEY_BEHIND,
    NOTHING_LEFT,
    NUM_CHILDREN,
    STRIDE,
    VALUE,
    VISITS,
    VISITS_BEHIND,
    action_of,
    blocks_of,
    edge_of,
    priors_of,
    record_of,
)


@kernel
def summarise_puct(
    low_row: int,
    high_row: int,
    num_made: IntArray,
    normalization: int,
    urgency: int,
    scale: FloatArray,
    exploration: FloatArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
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
        base = row * layout[STRIDE]
        record = record_of(base, 0)
        blocks = blocks_of(base, 0, layout)
        root_value = floats[record + VALUE]
        num_visits = floats[record + VISITS] - 1
        visits[row] = 0
        qvalues[row] = root_value
        best = 0
        if num_visits == 0:  # the prior is all that is known
            priors = priors_of(base, 0, layout)
            for action in range(policy.shape[1]):
                policy[row, action] = max(floats[priors + action], 0)
            best = int(ints[record + BEST_UNVISITED])
        else:
            policy[row] = 0
            most = 0.0
            for slot in range(ints[record + NUM_CHILDREN]):
                edge = blocks + edge_of(slot)
                action = action_of(ints[edge + KEY_BEHIND], ints)
                count = floats[edge + VISITS_BEHIND]
                q = floats[edge]
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
            if floats[base + FORCED_PLAYOUTS] > 0:
                prune_target(
                    base,
                    best,
                    normalization,
                    urgency,
                    scale,
                    exploration,
                    floats,
                    ints,
                    layout,
                    policy[row],
                )
        value[row] = root_value
        best_action[row] = best
        best_value[row] = qvalues[row, best]
        depth[row] = floats[base + DEPTH_SUM] / max(num_made[row], 1)


@kernel
def stop_puct(
    low: int,
    high: int,
    num_made: int,
    selection: IntArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    num_planned: IntArray,
) -> None:
    """End the rows whose most visited action leads by more than the simulations that are left: `num_planned` `[B]`."""
    for place in range(low, high):
        row = selection[0, place]
        base = row * layout[STRIDE]
        record = record_of(base, 0)
        blocks = blocks_of(base, 0, layout)
        num_children = ints[record + NUM_CHILDREN]
        most = 0
        second = 0
        for slot in range(num_children):
            count = int(floats[blocks + edge_of(slot) + VISITS_BEHIND])
            if count > most:
                second = most
                most = count
            elif count > second:
                second = count
        num_left = num_planned[row] - num_made
        has_no_rival = num_children == 1 and ints[record + BEST_UNVISITED] == NOTHING_LEFT
        if most - second > num_left or has_no_rival:
            num_planned[row] = min(num_planned[row], num_made)
