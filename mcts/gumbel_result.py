"""What a finished Gumbel search says of its roots."""

import math

from mcts.base import FloatArray, IntArray
from mcts.completed_q import complete
from mcts.gumbel_choice import choose_at_root
from mcts.jit import kernel
from mcts.layout import (
    DEPTH_SUM,
    FREE_LOGITS_ABOVE,
    KEPT_AT,
    KEY_BEHIND,
    NUM_CHILDREN,
    PRIOR_BEHIND,
    STRIDE,
    VALUE,
    VISITS_BEHIND,
    action_of,
    blocks_of,
    edge_of,
    priors_of,
    record_of,
)
from mcts.puct_choice import no_recent_edge


@kernel
def summarise_gumbel(
    low_row: int,
    high_row: int,
    num_made: IntArray,
    normalization: int,
    use_mixed_value: bool,
    scale: FloatArray,
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
    """Read the roots out: the improved policy, and the winner among the most visited actions."""
    num_actions = policy.shape[1]
    for row in range(low_row, high_row):
        base = row * layout[STRIDE]
        root = record_of(base, 0)
        blocks = blocks_of(base, 0, layout)
        priors = priors_of(base, 0, layout)
        root_value = floats[root + VALUE]
        offset, factor, unvisited = complete(
            base,
            0,
            blocks,
            no_recent_edge(blocks, floats),
            normalization,
            use_mixed_value,
            scale,
            floats,
            ints,
            layout,
        )
        visits[row] = 0
        qvalues[row] = root_value
        for action in range(num_actions):
            logit = floats[priors + action]
            policy[row, action] = logit + unvisited if logit > FREE_LOGITS_ABOVE else -math.inf
        most = 0  # of this search alone
        for slot in range(ints[root + NUM_CHILDREN]):
            edge = blocks + edge_of(slot)
            action = action_of(ints[edge + KEY_BEHIND], ints)
            count = floats[edge + VISITS_BEHIND]
            visits[row, action] = int(count)
            most = max(most, int(count - floats[base + layout[KEPT_AT] + slot]))
            q = floats[edge]
            qvalues[row, action] = q
            policy[row, action] = floats[edge + PRIOR_BEHIND] + (q - offset) * factor
        highest = -math.inf
        for action in range(num_actions):
            if policy[row, action] > highest:
                highest = policy[row, action]
        total = 0.0
        for action in range(num_actions):
            policy[row, action] = math.exp(policy[row, action] - highest)
            total += policy[row, action]
        for action in range(num_actions):
            policy[row, action] /= total
        key = choose_at_root(
            base,
            most,
            normalization,
            use_mixed_value,
            scale,
            floats,
            ints,
            layout,
        )
        best = action_of(key, ints)
        value[row] = root_value
        best_action[row] = best
        best_value[row] = qvalues[row, best]
        depth[row] = floats[base + DEPTH_SUM] / max(num_made[row], 1)
