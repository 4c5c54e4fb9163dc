"""Taking the model's answer into a tree, for the kernels of every rule."""

import math

from mcts.base import FloatArray, IntArray
from mcts.expansion import carry_up, expand, survey
from mcts.jit import inlined
from mcts.vectors import read

REFUSED = -1
"""Result of `take_in` for an answer that is not finite."""


@inlined
def take_in(
    base: int,
    place: int,
    is_gumbel: bool,
    choices_need_bounds: bool,
    has_chance: bool,
    reward: FloatArray,
    discount: FloatArray,
    logits: FloatArray,
    value: FloatArray,
    selection: IntArray,
    floats: FloatArray,
    ints: IntArray,
    layout: IntArray,
) -> int:
    """Expand the edge at a place of `selection` `[4, B]` with the answer there, and carry it up; the length of the path.

    An answer that is not finite leaves the tree as it was, and the result is REFUSED.
    """
    num_places = selection.shape[1]
    num_actions = logits.shape[1]
    parent = read(selection, num_places + place)
    action = read(selection, 2 * num_places + place)
    node = read(selection, 3 * num_places + place)
    start = place * num_actions
    length = REFUSED
    highest, is_usable = survey(logits, start, num_actions)
    if is_usable and _is_finite(place, reward, discount, value):
        expand(
            base,
            parent,
            action,
            node,
            is_gumbel,
            has_chance,
            logits,
            start,
            highest,
            floats,
            ints,
            layout,
        )
        length = carry_up(
            base,
            node,
            read(reward, place),
            read(discount, place),
            read(value, place),
            choices_need_bounds,
            has_chance,
            floats,
            ints,
            layout,
        )
    return length


@inlined
def _is_finite(place: int, reward: FloatArray, discount: FloatArray, value: FloatArray) -> bool:
    """Whether the numbers of an answer are finite; of its logits `expansion.survey` tells."""
    return math.isfinite(read(reward, place) + read(discount, place)) and math.isfinite(
        read(value, place)
    )
