"""The choice of an outcome at one chance node."""

from mcts.base import FloatArray, IntArray
from mcts.jit import inlined
from mcts.layout import BEST_UNVISITED, BLOCK, FREE_PRIOR, NUM_CHILDREN, PRIOR_BEHIND, VISITS_BEHIND
from mcts.puct_choice import Recent, best_edge, better_of, load_edges
from mcts.vectors import LANES, add, divide, load, next_lanes, read, spread


@inlined
def choose_outcome(
    record: int, blocks: int, recent: Recent, floats: FloatArray, ints: IntArray
) -> int:
    """The key of `argmax_c sigma_c / (N_c + 1)` at a chance node with children; `recent` is what has just changed.

    Visits come to be in proportion to sigma, with less variance than drawing. Ties go to the lowest outcome.
    """
    num_children = read(ints, record + NUM_CHILDREN)
    one = spread(floats.dtype.type(1))
    best_score = floats.dtype.type(0)
    best = 0
    first = 0
    while first < num_children:
        visits = load_edges(VISITS_BEHIND, first, blocks, recent[0], recent[2], floats)
        prior = load(floats, blocks + (first // LANES) * BLOCK + PRIOR_BEHIND)
        scores = divide(prior, add(visits, one))
        score, key = best_edge(scores, first, num_children, blocks, ints)
        if first == 0 or score > best_score or (score == best_score and key < best):
            best_score = score
            best = key
        first = next_lanes(first)
    free = read(ints, record + BEST_UNVISITED)
    return better_of(best, best_score, free, read(floats, record + FREE_PRIOR), ints)
