"""The compiled functions against numpy: layers over rows and images, scalars, and the matrix unit's manners."""

import ctypes
import itertools

import numpy as np
import pytest
import torch

from muzero.inference import amx, jobs, panels
from muzero.inference.emit import to_bfloat16
from muzero.inference.functions import functions
from muzero.inference.images import Images
from muzero.inference.layers import (
    PackedLayer,
    Precision,
    Workspace,
    address,
    aligned,
    make_program,
    round_up,
)
from muzero.inference.mlp_kernels import read_scalar
from muzero.network.support import Support

needs_amx = pytest.mark.skipif(not amx.has_amx(), reason="this processor has no AMX")
needs_avx512_bf16 = pytest.mark.skipif(
    not panels.has_avx512_bf16(), reason="this processor has no AVX512_BF16"
)
PRECISIONS = [
    pytest.param(Precision("float32"), id="float32"),
    pytest.param(Precision("amx"), id="amx", marks=needs_amx),
    pytest.param(Precision("avx512_bf16"), id="avx512_bf16", marks=needs_avx512_bf16),
]


def run(job: list[int], precision: Precision) -> None:
    program = make_program([job])
    run_layer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(functions(precision.unit).run_layer)
    run_layer(address(program))


def to_numbers(x: np.ndarray, precision: Precision) -> np.ndarray:
    return to_bfloat16(x) if precision.bfloat16 else x


def to_floats(numbers: np.ndarray) -> np.ndarray:
    if numbers.dtype == np.float32:
        return numbers
    return (numbers.astype(np.uint32) << 16).view(np.float32)


def drawn(rng: np.random.Generator, shape, precision: Precision) -> np.ndarray:
    """Numbers that both types hold exactly."""
    x = rng.normal(size=shape).astype(np.float32)
    return to_floats(to_numbers(x, precision))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("num_rows", [*range(1, 18), 31, 32, 33, 64])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(5, 3), (33, 17), (40, 48), (64, 70)])
def test_a_linear_layer_is_a_matrix_product(precision, num_rows, num_inputs, num_outputs):
    rng = np.random.default_rng(num_rows)
    depth, width = round_up(num_inputs, precision.depth_multiple), round_up(num_outputs, 16)
    layer = PackedLayer(1, depth, width, relu=True, precision=precision)
    matrix = drawn(rng, (1, num_inputs, num_outputs), precision)
    layer.write(matrix, None)
    x = drawn(rng, (num_rows, num_inputs), precision)
    inputs = aligned((num_rows + 32, depth), precision.dtype)
    inputs[:num_rows, :num_inputs] = to_numbers(x, precision)
    out = aligned((num_rows + 1, width), np.float32)
    out[num_rows] = 7.0
    biases = aligned((3, width), np.float32)
    biases[:, :num_outputs] = rng.normal(size=(3, num_outputs))
    bias_rows = rng.integers(0, 3, num_rows)
    space = Workspace(64)  # holds what the job points to
    job = space.job(
        layer,
        address(inputs),
        address(out),
        bias=address(biases),
        bias_rows=address(bias_rows),
        to_float=1,
        row_length=num_rows,
        image_step=num_rows,
    )
    run(job, precision)
    expected = np.maximum(x.astype(np.float64) @ matrix[0] + biases[bias_rows, :num_outputs], 0.0)
    np.testing.assert_allclose(out[:num_rows, :num_outputs], expected, rtol=1e-4, atol=2e-5)
    assert (out[:num_rows, num_outputs:] == 0.0).all()
    assert (out[num_rows] == 7.0).all()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("height", "width", "channels"),
    [(6, 7, 32), (1, 1, 5), (3, 4, 40), (2, 19, 8), (13, 13, 16), (5, 5, 33)],
)
def test_a_convolution_is_torchs(precision, height, width, channels):
    rng = np.random.default_rng(0)
    num_images = 3
    depth = round_up(channels, precision.depth_multiple)
    space = Workspace(num_images * (height + 1) * (width + 1))
    images = Images(height, width, num_images, space, precision)
    x, extra, out = (images.buffer(depth) for _ in range(3))
    layer = PackedLayer(9, depth, depth, relu=True, precision=precision)
    weight = drawn(rng, (channels, channels, 3, 3), precision) * np.float32(0.25)
    bias = rng.normal(size=channels).astype(np.float32)
    layer.write(weight.transpose(2, 3, 1, 0).reshape(9, channels, channels), bias)

    def view(at: int) -> np.ndarray:
        """`[m, H, W, depth]` inside the borders."""
        count = num_images * (height + 1) * (width + 1) * depth
        kind = ctypes.c_uint16 if precision.bfloat16 else ctypes.c_float
        flat = np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(kind)), (count,))
        return flat.reshape(num_images, height + 1, width + 1, depth)

    given = drawn(rng, (2, num_images, height, width, channels), precision)
    for at, values in zip((x, extra), given, strict=True):
        view(at)[:, 1:, :-1, :channels] = to_numbers(values, precision)
    job = images.convolution(layer, x, out, extra=extra)
    job[jobs.NUM_IMAGES] = num_images
    run(job, precision)
    convolved = torch.nn.functional.conv2d(
        torch.from_numpy(given[0].transpose(0, 3, 1, 2)).double(),
        torch.from_numpy(weight).double(),
        torch.from_numpy(bias).double(),
        padding=1,
    )
    expected = np.maximum(convolved.numpy().transpose(0, 2, 3, 1) + given[1], 0.0)
    result = to_floats(np.ascontiguousarray(view(out)))
    tolerance = (
        {"rtol": 2**-8, "atol": 1e-4} if precision.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    )
    np.testing.assert_allclose(result[:, 1:, :-1, :channels], expected, **tolerance)
    # The border stays zero: the next layer reads it.
    result[:, 1:, :-1, :channels] = 0.0
    assert not result.any()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_nan_comes_through(precision):
    layer = PackedLayer(1, 32, 16, relu=True, precision=precision)
    layer.write(np.ones((1, 32, 16), np.float32), None)
    inputs = aligned((40, 32), precision.dtype)
    inputs[1] = to_numbers(np.full((1, 32), np.nan, np.float32), precision)
    out = aligned((3, 16), np.float32)
    space = Workspace(8)
    job = space.job(layer, address(inputs), address(out), to_float=1, row_length=3, image_step=3)
    run(job, precision)
    assert np.isnan(out[1]).all() and (out[[0, 2]] == 0.0).all()


def test_rounding_is_to_the_nearest_bfloat16():
    rng = np.random.default_rng(0)
    x = rng.normal(size=5000).astype(np.float32)
    x[:4] = (np.inf, -np.inf, 0.0, 1.00390625)  # the last lies half-way: ties go to even
    expected = torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(to_bfloat16(x), expected)
    assert np.isnan(to_floats(to_bfloat16(np.array([np.nan], np.float32))))


@needs_amx
def test_the_matrix_unit_is_left_as_it_was_found():
    """torch's own bfloat16 products in the same thread use the unit too."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=generator).bfloat16() for _ in range(2))
    expected = a @ b
    for _ in range(5):
        test_a_linear_layer_is_a_matrix_product(Precision("amx"), 33, 40, 48)
        assert torch.equal(a @ b, expected)


@pytest.mark.parametrize(
    "support",
    [
        Support(1.0, 3, False),
        Support(2.0, 17, False),
        Support(10.0, 51),
        Support(300.0, 601),
        Support(22.0, 255),
    ],
)
def test_scalars_read_what_decode_reads(support):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, support.size + 40, generator=generator) * 3.0
    logits[3] = 4.25
    logits[4, 3 : 3 + support.size - 1] = -np.inf
    array = logits.numpy()
    width = np.float32(support.atom_width)

    def read(row: int) -> np.float32:
        at = address(array) + 4 * (row * array.shape[1] + 3)
        return read_scalar(at, support.size, width, support.transform)

    expected = support.decode(logits[:, 3 : 3 + support.size]).numpy()
    np.testing.assert_allclose([read(row) for row in range(8)], expected, rtol=2e-5, atol=1e-5)
    assert read(3) == 0.0
    logits[5, 3] = np.nan
    assert np.isnan(read(5))


def test_every_field_of_a_job_has_a_place_of_its_own():
    names = [name for name in vars(jobs) if name.isupper() and name != "NUM_FIELDS"]
    assert sorted(getattr(jobs, name) for name in names) == list(range(jobs.NUM_FIELDS))


@pytest.mark.parametrize("module", ["mlp_kernels", "resnet_kernels"])
def test_every_field_of_a_plan_has_a_place_of_its_own(module):
    import importlib

    plans = importlib.import_module(f"muzero.inference.{module}")
    fields = {"CHUNK", "NUM_PLAN_FIELDS"} if module == "mlp_kernels" else {"NUM_PLAN_FIELDS"}
    imported = {"MIN_RANGE", "ONE", "ZERO"}
    names = [name for name in vars(plans) if name.isupper() and name not in fields | imported]
    places = sorted(getattr(plans, name) for name in names)
    assert places == list(range(plans.NUM_PLAN_FIELDS))
    answers = [getattr(plans, name) for name in ("LOGITS", "VALUE", "REWARD", "TURN_LOGIT")]
    assert all(b == a + 1 for a, b in itertools.pairwise(answers))  # written as one slice
