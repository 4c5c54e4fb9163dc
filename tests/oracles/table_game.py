"""Games on a table of random numbers, for searches that keep their trees from move to move."""

import numpy as np

from mcts import Search, SearchSettings, run
from tests.oracles.table_model import TableModel

NUM_ROWS, NUM_ACTIONS, NUM_SIMULATIONS = 6, 5, 40


def draw_game(seed, kind, **options):
    """A generator, a search, a model with room for its trees, and the states of all rows."""
    rng = np.random.default_rng(seed)
    model = TableModel.draw(
        rng, num_actions=NUM_ACTIONS, players="mixed", absent_fraction=0.1, dtype=np.float32
    )
    case_settings = SearchSettings(kind=kind, num_simulations=NUM_SIMULATIONS, **options)
    search = Search(case_settings, batch_size=NUM_ROWS, num_actions=NUM_ACTIONS)
    states = rng.integers(len(model.value), size=NUM_ROWS)
    model.root(states, NUM_SIMULATIONS + 1)
    return rng, search, model, states


def draw_legal(rng, model, states):
    """`[B, A]`, one action that exists at least."""
    exists = model.logits[states] > -np.inf
    legal = rng.random(exists.shape) < 0.6
    for row, there in enumerate(exists):
        legal[row, rng.choice(np.flatnonzero(there))] = True
    return legal


def search_on(search, model, states, legal, noise=None, **options):
    """Search the states without touching the other nodes of the model."""
    return run(search, model, model.replant(states), legal, noise, **options)


def play(search, model, states, actions):
    """Make a move in every row: trees and model move on; the states behind it."""
    kept = search.keep_subtrees(actions)
    model.move_nodes(kept.source, kept.num_nodes)
    return model.successor[states, actions]
