"""The transform and the two-hot support, against closed forms and a float64 transcription."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from muzero.network.kernels import unsquash_one
from muzero.network.support import Support, require_finite, squash, unsquash

SUPPORTS = [
    Support(300.0, 601),
    Support(1.0, 3, transform=False),
    Support(10.0, 21),
    Support(2.5, 51, transform=False),
]


def textbook_squash(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1.0) - 1.0, x) + 0.001 * x


def textbook_unsquash(y: float) -> float:
    inner = (math.sqrt(1.0 + 4 * 0.001 * (abs(y) + 1.0 + 0.001)) - 1.0) / (2 * 0.001)
    return math.copysign(inner**2 - 1.0, y)


def test_transform_has_the_published_values():
    x = torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=torch.float64)
    expected = [0.41521356, 2.32662479, 9.14987562, 31.63858404]
    assert squash(x).tolist() == pytest.approx(expected, abs=1e-8)
    y = torch.tensor([1.0, 10.0, 300.0], dtype=torch.float64)
    assert unsquash(y).tolist() == pytest.approx([2.98805668, 117.430323, 58705.58], rel=1e-7)


@given(st.floats(-1e6, 1e6))
def test_transform_equals_the_textbook_in_float64(x):
    value = torch.tensor(x, dtype=torch.float64)
    assert squash(value).item() == pytest.approx(textbook_squash(x), rel=1e-9, abs=1e-12)
    assert unsquash(value).item() == pytest.approx(textbook_unsquash(x), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("x", [1e-6, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 1e3, 1e5])
def test_inverse_keeps_float32_precision_near_zero(x):
    value = torch.tensor([x, -x])
    assert unsquash(squash(value)).tolist() == pytest.approx([x, -x], rel=5e-7)


@pytest.mark.parametrize("support", SUPPORTS)
def test_decode_inverts_encode_from_end_to_end(support):
    ends = torch.tensor([-1.0, -1.0 + 1e-6, 0.0, 1e-4, 1.0]) * support.largest
    x = torch.cat([ends, torch.linspace(-support.largest, support.largest, 997)])
    distribution = support.encode(x)
    assert distribution.sum(-1).tolist() == pytest.approx([1.0] * len(x), abs=1e-6)
    assert bool((distribution >= 0.0).all())
    assert int((distribution > 0.0).sum(-1).max()) <= 2
    decoded = support.decode(distribution.clamp(min=1e-45).log())
    torch.testing.assert_close(decoded, x, rtol=2e-5, atol=2e-6 * support.largest)


@pytest.mark.parametrize("support", SUPPORTS)
def test_both_ends_have_an_atom_of_their_own(support):
    distribution = support.encode(torch.tensor([-support.largest, 0.0, support.largest]))
    for row, atom in enumerate((0, support.size // 2, support.size - 1)):
        assert distribution[row, atom].item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("support", SUPPORTS)
@given(x=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_finite_scalar_is_encoded_within_the_support(support, x):
    value = torch.tensor([x])
    index, share = support.locate(value)
    assert 0 <= index.item() <= support.size - 2
    assert 0.0 <= share.item() <= 1.0
    assert support.encode(value).sum().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_by_name(x):
    with pytest.raises(ValueError, match=r"value target.*not finite"):
        Support(300.0, 601).encode(torch.tensor([0.0, x]), "value target")


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf])
def test_unchecked_encoding_never_indexes_outside_and_keeps_the_nan(x):
    support = Support(300.0, 601)
    index, share = support.locate(torch.tensor([x]))
    assert 0 <= index.item() <= support.size - 2
    assert math.isnan(share.item()) or not math.isnan(x)


def test_saturated_targets_are_counted_and_clamped():
    support = Support(1.0, 3, transform=False)
    x = torch.tensor([-1e9, -1.0, 0.5, 1.0, 1.001, 7.0])
    assert support.is_clamped(x).tolist() == [True, False, False, False, True, True]
    assert support.decode(support.encode(x).log()).tolist() == [-1.0, -1.0, 0.5, 1.0, 1.0, 1.0]
    wide = Support(300.0, 601)
    assert not bool(wide.is_clamped(torch.tensor([wide.largest])))


@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("level", [0.0, 3.7, -1e4])
def test_equal_logits_read_exactly_zero(support, level):
    assert support.decode(torch.full((3, support.size), level)).tolist() == [0.0, 0.0, 0.0]


def test_decoding_is_done_in_float32():
    support = Support(300.0, 601)
    logits = torch.randn(5, 601).to(torch.bfloat16)
    assert torch.equal(support.decode(logits), support.decode(logits.float()))
    assert support.decode(logits).dtype == torch.float32


@pytest.mark.parametrize(("largest", "size"), [(0.0, 3), (math.inf, 3), (1.0, 4), (1.0, 1)])
def test_bad_supports_are_refused(largest, size):
    with pytest.raises(ValueError, match=r"support (max|size) is"):
        Support(largest, size)


def test_the_first_bad_entry_is_named():
    values = np.zeros((2, 3), np.float32)
    require_finite(values, "x")
    values[1, 2] = np.nan
    with pytest.raises(ValueError, match=r"x has 1 entries.*nan at \(1, 2\)"):
        require_finite(values, "x")


def test_kernel_inverse_equals_torch_inverse():
    y = np.linspace(-300, 300, 1001).astype(np.float32)
    kernel = np.array([unsquash_one(v) for v in y])
    np.testing.assert_allclose(kernel, unsquash(torch.from_numpy(y)).numpy(), rtol=5e-7)
