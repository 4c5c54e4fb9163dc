"""What fits into the memory of a tree, and how it is found there."""

import numpy as np
import pytest

from mcts import RootOutput, Search, SearchSettings
from mcts.layout import edge_of, make_key, make_layout
from mcts.tree import CACHE_LINE, Tree


@pytest.mark.parametrize("options", [{"num_actions": 32_769}, {"num_simulations": 65_536}])
def test_what_does_not_fit_into_a_key_is_refused(options):
    shape = {"num_actions": 2, "num_simulations": 2} | options
    with pytest.raises(ValueError, match=r"32768 actions and 65535 simulations; dtype float64"):
        Search(
            SearchSettings(kind="puct", num_simulations=shape["num_simulations"]),
            batch_size=1,
            num_actions=shape["num_actions"],
        )


def test_float64_has_room_for_more_actions():
    num_actions = 40_000
    settings = SearchSettings(kind="puct", num_simulations=2)
    search = Search(settings, batch_size=1, num_actions=num_actions, dtype=np.float64)
    logits = np.zeros((1, num_actions))
    logits[0, -1] = 20.0
    search.begin(RootOutput(logits, np.zeros(1)), np.ones((1, num_actions), bool))
    assert search.select().action.tolist() == [num_actions - 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("num_actions", "num_simulations"), [(1, 1), (18, 50), (362, 20)])
def test_every_part_starts_a_cache_line_and_none_overlaps(dtype, num_actions, num_simulations):
    tree = Tree(batch_size=3, num_simulations=num_simulations, num_actions=num_actions, dtype=dtype)
    memory = tree.arrays[0]
    assert memory.ctypes.data % CACHE_LINE == 0
    parts = (
        tree.rows,
        tree.nodes,
        tree.links,
        tree.free_priors,
        tree.fillers,
        tree.blocks,
        tree.gumbel,
    )
    memory[:] = 0
    tree.links[:] = 0
    for mark, part in enumerate(parts, start=1):
        assert np.shares_memory(part, memory)
        assert (part == 0).all()
        part[:] = mark
    for mark, part in enumerate(parts, start=1):
        assert (part == mark).all()


def test_keys_order_by_action_and_edges_stand_in_blocks_of_eight():
    for dtype, bits in ((np.int32, 16), (np.int64, 32)):
        ints = np.zeros(1, dtype)
        assert make_key(3, 5, ints) == (3 << bits) + 5
        assert make_key(2, 60_000, ints) < make_key(3, 1, ints)
    assert [edge_of(slot) for slot in (0, 7, 8, 17)] == [0, 7, 32, 65]
    layout, stride = make_layout(51, 18)
    assert stride % 16 == 0
    assert layout[0] == stride
