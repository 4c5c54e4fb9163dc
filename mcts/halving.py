"""Sequential halving: which actions of the root a simulation of Gumbel MuZero chooses among.

Danihelka et al., "Policy improvement by planning with Gumbel" (ICLR 2022), figure 1; Karnin et al. (ICML 2013).
"""

import numpy as np

from mcts.base import FloatArray, IntArray
from mcts.jit import kernel
from mcts.layout import (
    KEPT_AT,
    NUM_CHILDREN,
    NUM_CONSIDERED,
    STRIDE,
    VISITS_BEHIND,
    blocks_of,
    edge_of,
    record_of,
)


@kernel
def _fill_schedule(num_considered: int, num_simulations: int, schedule: IntArray) -> None:
    if num_considered <= 1:
        for simulation in range(num_simulations):
            schedule[simulation] = simulation
        return
    num_rounds = 0
    while 1 << num_rounds < num_considered:
        num_rounds += 1
    simulation = 0
    count = 0
    size = num_considered
    while simulation < num_simulations:
        last_count = count + max(1, num_simulations // (num_rounds * size))
        while count < last_count:
            for _ in range(min(size, num_simulations - simulation)):
                schedule[simulation] = count
                simulation += 1
            count += 1
        size = max(2, size // 2)


@kernel
def fill_schedules(
    low_row: int,
    high_row: int,
    num_planned: IntArray,
    ints: IntArray,
    layout: IntArray,
    schedule: IntArray,
) -> None:
    """Write every row's own list of considered visits into `schedule` `[B, N + 1]`."""
    for row in range(low_row, high_row):
        num_considered = ints[row * layout[STRIDE] + NUM_CONSIDERED]
        _fill_schedule(num_considered, num_planned[row], schedule[row])


@kernel
def stop_gumbel(
    low: int,
    high: int,
    num_made: int,
    selection: IntArray,
    schedule: IntArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
    num_planned: IntArray,
) -> None:
    """End the rows with one action left to consider: by `num_planned` `[B]`.

    Either halving began with one, or a single simulation is left, and it would choose among the most visited actions as the
    result does: what it chose would be the only one with so many visits.
    """
    for place in range(low, high):
        row = selection[0, place]
        base = row * layout[STRIDE]
        is_certain = ints[base + NUM_CONSIDERED] <= 1
        if not is_certain and num_planned[row] == num_made + 1:
            most = 0
            blocks = blocks_of(base, 0, layout)
            for slot in range(ints[record_of(base, 0) + NUM_CHILDREN]):
                count = floats[blocks + edge_of(slot) + VISITS_BEHIND]
                most = max(most, int(count - floats[base + layout[KEPT_AT] + slot]))
            is_certain = schedule[row, num_made] == most
        if is_certain:
            num_planned[row] = min(num_planned[row], num_made)


def considered_visits(num_considered: int, num_simulations: int) -> list[int]:
    """The visit count that a root action must have to be considered, simulation by simulation.

    Sequential halving gives the considered actions equally many visits in every round, then keeps the better half.
    """
    schedule = np.zeros(num_simulations, np.int32)
    _fill_schedule(num_considered, num_simulations, schedule)
    return [int(count) for count in schedule]
