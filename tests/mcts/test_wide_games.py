"""What a simulation adds and reads where there are many actions, by counts (peers, row 82).

A node is made when its action is visited first. Of the actions that are not, a node holds the prior (or logit) and no more.
"""

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings

NARROW, WIDE = 18, 225
KINDS = ["puct", "gumbel"]


def begun(kind: str, num_actions: int, num_simulations: int = 60, num_rows: int = 3):
    """A search with its roots planted, and the answers of its simulations: all values alike, so that priors decide."""
    rng = np.random.default_rng(num_actions)
    settings = SearchSettings(kind=kind, num_simulations=num_simulations)
    search = Search(settings, batch_size=num_rows, num_actions=num_actions)
    logits = rng.normal(0, 3, (num_simulations + 1, num_rows, num_actions)).astype(np.float32)
    values = rng.uniform(-1, 1, (num_simulations + 1, num_rows)).astype(np.float32)
    zeros, ones = np.zeros(num_rows, np.float32), np.ones(num_rows, np.float32)
    answers = [
        ModelOutput(zeros, ones, logit, value)
        for logit, value in zip(logits[1:], values[1:], strict=True)
    ]
    legal = np.ones((num_rows, num_actions), bool)
    search.begin(RootOutput(logits[0], values[0]), legal)
    return search, answers


def searched(kind: str, num_actions: int, num_simulations: int = 60) -> Search:
    search, answers = begun(kind, num_actions, num_simulations)
    for answer in answers:
        assert search.select() is not None
        search.update(answer)
    assert search.select() is None
    return search


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_actions", [NARROW, WIDE, 1000])
def test_every_simulation_makes_one_node_whatever_the_actions(kind, num_actions):
    tree = searched(kind, num_actions).tree
    assert (tree.num_slots == 61).all()
    assert tree.parents.shape == (3, 61)  # no other node has a place
    # Every node but the root is the child of one visit, by an action of its own.
    edges = {
        (row, *edge)
        for row in range(3)
        for edge in zip(tree.parents[row], tree.actions[row], strict=True)
    }
    assert len(edges) == 3 * 61


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_simulations", [50, 200, 800])
def test_memory_per_node_grows_far_less_than_the_actions(kind, num_simulations):
    def bytes_per_node(num_actions: int) -> float:
        settings = SearchSettings(kind=kind, num_simulations=num_simulations)
        search = Search(settings, batch_size=4, num_actions=num_actions)
        return search.tree.num_bytes / (4 * (num_simulations + 1))

    ratio = bytes_per_node(WIDE) / bytes_per_node(NARROW)
    assert ratio < 0.75 * WIDE / NARROW
    # A record and a prior per action would take this much if every action had a node of its own.
    assert bytes_per_node(WIDE) < 0.35 * WIDE * 64


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_written_per_simulation_grow_far_less_than_the_actions(kind):
    """Counted by what is no longer what it was: the logits, and little besides."""

    def written(num_actions: int) -> float:
        search, answers = begun(kind, num_actions)
        ints = search.tree.arrays[1]
        start, total = ints.copy(), np.zeros(len(ints), bool)
        for answer in answers:
            search.select()
            search.update(answer)
            total |= ints != start
        return float(total.sum()) / (3 * 60)

    narrow, wide = written(NARROW), written(WIDE)
    assert NARROW <= narrow < NARROW + 32
    assert WIDE <= wide < WIDE + 32
    assert wide / narrow < 0.6 * WIDE / NARROW


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_actions", [NARROW, WIDE])
def test_a_simulation_reads_the_priors_of_two_nodes_however_deep_it_goes(kind, num_actions):
    """Every other row of priors is made unreadable while a simulation goes on, and nothing changes."""
    search, answers = begun(kind, num_actions)
    twin, _ = begun(kind, num_actions)
    rows = np.arange(3)
    for answer in answers:
        selection, expected = search.select(), twin.select()
        for mine, theirs in zip(selection, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        free = search.tree.free_priors
        hidden = np.ones(free.shape[:2], bool)
        hidden[rows, selection.parent] = hidden[rows, selection.node] = False
        kept = free[hidden]
        free[hidden] = np.nan
        search.update(answer)
        twin.update(answer)
        free[hidden] = kept
    assert search.select() is None and twin.select() is None
    assert search.tree.depths.max() >= 3
    np.testing.assert_array_equal(search.result().visits, twin.result().visits)
    np.testing.assert_array_equal(search.tree.values, twin.tree.values)
