"""A simulation allocates nothing: every array of a search is made with it."""

import tracemalloc
from contextlib import contextmanager

import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError
from numba.core.runtime import _nrt_python, rtsys

from mcts import ModelOutput, RootOutput, Search, SearchSettings, draw_noise
from mcts.jit import inlined, kernel

NUM_SIMULATIONS = 20
CASES = [
    {"kind": "puct"},
    {"kind": "puct", "forced_playouts": 2.0},
    {"kind": "puct", "num_chance_outcomes": 3},
    {"kind": "gumbel"},
    {"kind": "gumbel", "num_chance_outcomes": 3},
]


class Prepared:
    """Answers of simulation `i`, made beforehand."""

    def __init__(self, num_rows, num_actions):
        rng = np.random.default_rng(0)
        shape = (NUM_SIMULATIONS, num_rows)
        logits = rng.normal(size=(*shape, num_actions)).astype(np.float32)
        value, reward = rng.uniform(-1, 1, (2, *shape)).astype(np.float32)
        discount = np.ones(num_rows, np.float32)
        self.outputs = [
            ModelOutput(reward[i], discount, logits[i], value[i]) for i in range(NUM_SIMULATIONS)
        ]
        self.root = RootOutput(logits[0], value[0])


def simulations(options, num_rows, num_actions):
    """A search that stops before its simulations, and behind them."""
    settings = SearchSettings(num_simulations=NUM_SIMULATIONS, **options)
    search = Search(settings, batch_size=num_rows, num_actions=num_actions)
    prepared = Prepared(num_rows, num_actions)
    legal = np.ones((num_rows, num_actions), bool)
    noise = draw_noise(settings, legal, np.random.default_rng(1))
    while True:
        search.begin(prepared.root, legal, noise)
        yield
        num_calls = 0
        while (selection := search.select()) is not None:
            assert len(selection.row) == num_rows
            search.update(prepared.outputs[num_calls])
            num_calls += 1
        assert num_calls == NUM_SIMULATIONS
        yield


@contextmanager
def counted_by_numba():
    """A list that gets the number of allocations made in compiled code while the context was open."""
    counts = []
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats().alloc
        yield counts
        counts.append(rtsys.get_allocation_stats().alloc - before)
    finally:
        _nrt_python.memsys_disable_stats()


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize(("num_rows", "num_actions"), [(2, 5), (4096, 16)])
def test_kernels_allocate_nothing(options, num_rows, num_actions):
    steps = simulations(options, num_rows, num_actions)
    for _ in range(3):  # compiles
        next(steps)
    with counted_by_numba() as counts:
        next(steps)
    assert counts == [0]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_python_holds_less_than_a_number_per_row(options):
    num_rows = 4096
    steps = simulations(options, num_rows, 16)
    for _ in range(3):
        next(steps)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        next(steps)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 4 * num_rows


def test_the_counts_see_what_is_allocated():
    @numba.njit
    def allocates(size):
        return np.zeros(size).sum()

    allocates(3)
    with counted_by_numba() as counts:
        allocates(4096)
    assert counts[0] > 0
    tracemalloc.start()
    try:
        np.zeros(4096)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 4 * 4096


def test_numba_refuses_a_kernel_that_allocates():
    def allocates(size):
        return np.zeros(size).sum()

    def calls(size):
        return inlined(allocates)(size)

    for function in (allocates, calls):
        with pytest.raises(NumbaError):
            kernel(function)(3)
