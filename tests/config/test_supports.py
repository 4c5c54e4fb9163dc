"""Supports that the settings leave open fit the environment."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muzero.config.networks import MLPConfig
from muzero.config.supports import fit_supports, inverse_transform, transform


@given(st.floats(-1e6, 1e6))
def test_transform_and_its_inverse(value: float) -> None:
    assert inverse_transform(transform(value)) == pytest.approx(value, rel=1e-6, abs=1e-6)


def test_transform_against_the_paper() -> None:
    """MuZero, appendix F, in its own words: sign(x)(sqrt(|x|+1)-1+eps x)."""
    assert transform(500.0) == pytest.approx(math.sqrt(501) - 1 + 0.5)
    assert transform(-3.0) == pytest.approx(-(math.sqrt(4) - 1 + 0.003))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((-1.0, 1.0), (1.0, 3, False)),
        ((0.0, 1.0), (1.0, 3, False)),
        ((-3.0, 3.0), (3.0, 7, False)),
        ((-0.5, 2.5), (2.5, 7, False)),
        ((0.0, 0.0), (1.0, 3, False)),
        ((0.0, 500.0), (22.0, 45, True)),  # h(500) = 21.9
        ((0.0, 20480.0), (163.0, 327, True)),  # OpenSpiel's 2048
        ((-1e9, 0.0), (1031622.0, 601, True)),
        (None, (300.0, 601, True)),
        ((-math.inf, 1.0), (300.0, 601, True)),
    ],
)
def test_what_is_open_fits_the_returns(
    bounds: tuple[float, float] | None, expected: tuple[float, int, bool]
) -> None:
    assert fit_supports(MLPConfig(), bounds) == (expected, expected)


@given(st.floats(0, 1e7), st.booleans() | st.none())
def test_the_fitted_support_reaches_every_return(furthest: float, squashed: bool | None) -> None:
    value, _ = fit_supports(MLPConfig(support_transform=squashed), (-furthest, 0.0))
    assert value.reach >= furthest * (1 - 1e-9)
    assert value.size % 2 == 1
    assert 3 <= value.size <= 601


def test_what_is_set_wins() -> None:
    network = MLPConfig(value_support_max=5.0, reward_support_size=9, support_transform=False)
    assert fit_supports(network, (0.0, 500.0)) == ((5.0, 11, False), (500.0, 9, False))
    assert fit_supports(MLPConfig(support_transform=True), (-1.0, 1.0))[0] == (1.0, 3, True)
    assert fit_supports(MLPConfig(value_support_max=math.nan))[0].size == 601
