"""Where a walk from the root ends, for the kernels of every rule."""

from mcts.base import IntArray
from mcts.jit import inlined
from mcts.layout import PATH_LENGTH, action_of, next_slot, node_of
from mcts.vectors import write


@inlined
def finish_walk(
    base: int, place: int, depth: int, parent: int, key: int, ints: IntArray, selection: IntArray
) -> None:
    """Write the edge that a walk of `depth` edges has ended with: `selection` is `[4, B]` (row, parent, action, node)."""
    num_places = selection.shape[1]
    child = node_of(key, ints)
    write(ints, base + PATH_LENGTH, depth)
    write(selection, num_places + place, parent)
    write(selection, 2 * num_places + place, action_of(key, ints))
    # A child that is there has been reached at the depth limit: it is evaluated again.
    write(selection, 3 * num_places + place, child if child != 0 else next_slot(base, ints))
