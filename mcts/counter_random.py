"""Random numbers by counting: a draw is a hash of what it is for, so neither batch, order nor threads change it.

A search position has a 64-bit key. The numbers of one of its nodes are the stream that SplitMix64 (Steele, Lea and Flood,
2014) gives from a state mixed of key and node; number `i` of a stream needs none of those before it.
"""

import numpy as np
import numpy.typing as npt

from mcts.jit import inlined

Keys = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_TO_UNIT = 2.0**-53


def draw_keys(rng: np.random.Generator, num_rows: int) -> Keys:
    """One key per row, `[num_rows]`: all that the sampled actions of these searches draw from a generator."""
    return rng.integers(0, 2**64, size=num_rows, dtype=np.uint64)


@inlined
def _mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * _FIRST_FACTOR
    state = (state ^ (state >> np.uint64(27))) * _SECOND_FACTOR
    return state ^ (state >> np.uint64(31))


@inlined
def stream_of(key: np.uint64, node: int) -> np.uint64:
    """The state that the stream of a node starts from."""
    return _mix(_mix(key) + (np.uint64(node) + _ONE) * _GOLDEN)


@inlined
def bits(stream: np.uint64, index: int) -> np.uint64:
    """Number `index` of a stream, 64 random bits."""
    return _mix(stream + (np.uint64(index) + _ONE) * _GOLDEN)


@inlined
def uniform(stream: np.uint64, index: int) -> float:
    """Number `index` of a stream, in [0, 1) in steps of 2^-53."""
    return float(bits(stream, index) >> np.uint64(11)) * _TO_UNIT
