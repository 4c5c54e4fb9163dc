"""Lanes do what numpy does, eight numbers at a time."""

import math

import numba
import numpy as np
import pytest

from mcts import reductions, vectors
from mcts.jit import kernel
from mcts.vectors import LANES

DTYPES = [np.float32, np.float64]


@kernel
def apply_exponential(numbers, out):
    for start in range(0, numbers.shape[0], LANES):
        vectors.store(out, start, reductions.exponential(vectors.load(numbers, start)))


@kernel
def combine(left, right, out):
    a, b = vectors.load(left, 0), vectors.load(right, 0)
    vectors.store(out, 0, vectors.add(a, b))
    vectors.store(out, 8, vectors.subtract(a, b))
    vectors.store(out, 16, vectors.multiply(a, b))
    vectors.store(out, 24, vectors.divide(a, b))
    vectors.store(out, 32, reductions.smaller(a, b))
    vectors.store(out, 40, reductions.larger(a, b))
    vectors.store(out, 48, vectors.choose(vectors.less(a, b), b, a))
    vectors.store(out, 56, reductions.spread_lowest(a))
    vectors.store(out, 64, reductions.spread_highest(a))
    vectors.store(out, 72, vectors.spread_minus_infinity(a))
    vectors.store(out, 80, vectors.spread(reductions.first_lane(b)))


@kernel
def reduce(numbers, out):
    lanes = vectors.load(numbers, 0)
    vectors.write(out, 0, reductions.lowest(lanes))
    vectors.write(out, 1, reductions.highest(lanes))
    vectors.write(out, 2, reductions.total(lanes))


@kernel
def compare(left, right, count, out):
    a, b = vectors.load(left, 0), vectors.load(right, 0)
    vectors.write(out, 0, vectors.bits_of(vectors.equal(a, b)))
    vectors.write(out, 1, vectors.bits_of(vectors.less(a, b)))
    vectors.write(out, 2, vectors.bits_of(vectors.greater(a, b)))
    vectors.write(out, 3, vectors.bits_of(vectors.below(count)))
    vectors.write(
        out, 4, vectors.bits_of(vectors.both(vectors.greater(a, b), vectors.below(count)))
    )
    places = vectors.equal(vectors.count_from(16), vectors.spread_place(16 + count))
    vectors.write(out, 5, vectors.bits_of(places))
    vectors.write(out, 6, vectors.count_bits(vectors.bits_of(vectors.less(a, b))))
    vectors.write(out, 7, vectors.lowest_bit(vectors.bits_of(vectors.less(a, b))))


@kernel
def load_some(numbers, index, count, out):
    vectors.store(out, 0, vectors.load_first(numbers, index, count, -math.inf))


@kernel
def look_at(numbers, index, value):
    before = vectors.read(numbers, index)
    vectors.write(numbers, index, value)
    return before, vectors.bits_per_number(numbers)


@kernel
def count_turns(count):
    turns = 0
    first = 0
    while first < count:
        turns += 1
        first = vectors.next_lanes(first)
    return turns


def in_bits(mask):
    return int((mask * 2 ** np.arange(LANES)).sum())


def test_exponential_is_within_two_units_in_the_last_place():
    numbers = np.linspace(-87, 88, 1 << 20).astype(np.float32)
    numbers[:LANES] = [0, -0.0, 1, -1, math.log(2), -math.log(2), 1e-30, -1e-30]
    ours = np.empty_like(numbers)
    apply_exponential(numbers, ours)
    exact = np.exp(numbers.astype(np.longdouble))
    unit = np.spacing(exact.astype(np.float32)).astype(np.longdouble)
    assert (np.abs(ours.astype(np.longdouble) - exact) <= 2 * unit).all()
    assert ours[0] == ours[1] == 1


def test_exponential_of_float64_is_that_of_the_library():
    numbers = np.concatenate([np.linspace(-700, 700, 4096), np.full(LANES, -np.inf)])
    ours = np.empty_like(numbers)
    apply_exponential(numbers, ours)
    np.testing.assert_allclose(ours, np.exp(numbers), rtol=1e-15)
    assert (ours[-LANES:] == 0).all()


@pytest.mark.parametrize("number", [-88.0, -1e9, -1e30, -np.inf, np.nan])
def test_exponential_far_below_stays_a_normal_number_next_to_zero(number):
    numbers, ours = np.full(LANES, number, np.float32), np.empty(LANES, np.float32)
    apply_exponential(numbers, ours)
    assert (ours >= np.finfo(np.float32).tiny).all() and (ours < 2e-38).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_is_numpys(dtype):
    left, right = np.random.default_rng(0).normal(size=(2, LANES)).astype(dtype)
    out = np.empty(11 * LANES, dtype)
    combine(left, right, out)
    expected = [
        left + right, left - right, left * right, left / right,
        np.minimum(left, right), np.maximum(left, right), np.maximum(left, right),
        np.full(LANES, left.min()), np.full(LANES, left.max()), np.full(LANES, -np.inf),
        np.full(LANES, right[0]),
    ]  # fmt: skip
    np.testing.assert_array_equal(out.reshape(-1, LANES), np.array(expected, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(20))
def test_reductions_find_lowest_highest_and_the_sum_of_halves(dtype, seed):
    numbers = np.random.default_rng(seed).normal(size=LANES).astype(dtype)
    out = np.empty(3, dtype)
    reduce(numbers, out)
    fours = numbers[:4] + numbers[4:]
    twos = fours[:2] + fours[2:]
    np.testing.assert_array_equal(out, [numbers.min(), numbers.max(), twos[0] + twos[1]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_have_a_lowest_and_a_highest(dtype):
    @kernel
    def ends(numbers):
        lanes = vectors.load(numbers, 0)
        return reductions.lowest(lanes), reductions.highest(lanes)

    numbers = np.array([5, -3, 2**31 - 1, 0, -(2**31), 7, 1, 1], dtype)
    assert ends(numbers) == (-(2**31), 2**31 - 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", range(-1, LANES + 2))
def test_masks_are_those_of_comparisons(dtype, count):
    rng = np.random.default_rng(count + 1)
    left, right = rng.integers(3, size=(2, LANES)).astype(dtype)
    out = np.zeros(8, np.int64)
    compare(left, right, count, out)
    is_first = np.arange(LANES) < count
    is_less = left < right
    expected = [
        in_bits(left == right), in_bits(is_less), in_bits(left > right), in_bits(is_first),
        in_bits((left > right) & is_first), in_bits(np.arange(LANES) == count),
        is_less.sum(), int(np.argmax(is_less)),
    ]  # fmt: skip
    assert out.tolist() == expected


def test_nothing_is_less_greater_or_equal_to_nan():
    numbers, out = np.full(LANES, np.nan, np.float32), np.zeros(8, np.int64)
    compare(numbers, numbers, LANES, out)
    assert out[:3].tolist() == [0, 0, 0]
    assert out[7] == 0  # the lowest bit of none


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", range(-2, LANES + 3))
def test_lanes_behind_the_first_are_filled(dtype, count):
    numbers = np.arange(2 * LANES, dtype=dtype)
    out = np.empty(LANES, dtype)
    load_some(numbers, 3, count, out)
    lane = np.arange(LANES)
    np.testing.assert_array_equal(out, np.where(lane < count, lane + 3, -np.inf))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_an_index_counts_the_elements_of_any_shape(dtype):
    numbers = np.arange(12, dtype=dtype).reshape(3, 4)
    assert look_at(numbers, 7, 100) == (7, 8 * numbers.itemsize)
    assert numbers[1, 3] == 100


@pytest.mark.parametrize(("count", "turns"), [(0, 0), (1, 1), (8, 1), (9, 2), (368, 46)])
def test_a_loop_over_lanes_has_a_turn_for_eight(count, turns):
    assert count_turns(count) == turns


def test_lanes_of_other_types_do_not_mix():
    @kernel
    def mixed(floats, doubles):
        return reductions.total(vectors.add(vectors.load(floats, 0), vectors.load(doubles, 0)))

    with pytest.raises(numba.core.errors.TypingError):
        mixed(np.zeros(LANES, np.float32), np.zeros(LANES))
