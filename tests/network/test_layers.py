import numpy as np
import pytest
import torch
from torch import nn

from muzero.network.factored import choices_of
from muzero.network.kernels import scale_rows, scale_rows_backward
from muzero.network.layers import (
    ActionPlanes,
    ConvNorm,
    ResidualBlock,
    halve_gradient,
    scale_latent,
)

NO_SLAB = np.zeros((0, 0), np.float32)
NO_ROWS = np.zeros(0, np.int64)


def test_latents_are_scaled_sample_by_sample():
    latent = torch.tensor([[1.0, 3.0, 2.0], [-4.0, 0.0, 4.0]])
    assert scale_latent(latent).tolist() == [[0.0, 1.0, 0.5], [0.0, 0.5, 1.0]]
    image = torch.randn(2, 3, 4, 5)
    scaled = scale_latent(image)
    assert scaled.amin((1, 2, 3)).tolist() == [0.0, 0.0]
    assert scaled.amax((1, 2, 3)).tolist() == [1.0, 1.0]
    assert torch.equal(scaled[:1], scale_latent(image[:1]))


def test_a_constant_latent_has_finite_value_and_gradient():
    latent = torch.full((1, 4), 7.0, requires_grad=True)
    scaled = scale_latent(latent)
    scaled.sum().backward()
    assert scaled.tolist() == [[0.0] * 4]
    assert bool(latent.grad.isfinite().all())


@pytest.mark.parametrize("ties", [False, True])
def test_scaling_kernels_equal_autograd(ties):
    x = torch.randn(9, 21, dtype=torch.float64)
    if ties:
        x = x.relu().clamp(max=0.5)
        x[0] = 0.25  # a constant row meets the guard
    x = x.float()
    gradient = torch.randn(9, 21)

    latent, spread = np.zeros((9, 21), np.float32), np.zeros(9, np.float32)
    slab, target = np.full((30, 21), -1.0, np.float32), np.arange(9) * 3
    padded = np.pad(x.numpy(), ((0, 0), (0, 4)))
    scale_rows(padded, latent, spread, slab, target)
    result = np.full((9, 25), 5.0, np.float32)
    scale_rows_backward(gradient.numpy(), latent, spread, result)

    reference = x.clone().requires_grad_()
    scaled = scale_latent(reference)
    scaled.backward(gradient)
    assert np.array_equal(latent, scaled.detach().numpy())
    assert np.array_equal(slab[target], latent)
    assert np.all(np.delete(slab, target, axis=0) == -1.0)
    # The guarded row is scaled up by 1e5: compare relative to it.
    expected = reference.grad.numpy()
    np.testing.assert_allclose(
        result[:, :21], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max()
    )
    assert np.all(result[:, 21:] == 5.0)


def test_a_nan_is_not_scaled_away():
    x = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)
    x[0, 17] = np.nan
    latent, spread = np.zeros_like(x), np.zeros(1, np.float32)
    scale_rows(x, latent, spread, NO_SLAB, NO_ROWS)
    assert np.isnan(latent).any()


def test_half_of_the_gradient_passes():
    latent = torch.tensor([3.0, -0.7], requires_grad=True)
    halved = halve_gradient(latent)
    assert torch.equal(halved, latent)
    halved.backward(torch.tensor([1.0, 5.0]))
    assert latent.grad.tolist() == [0.5, 2.5]


def test_other_consumers_of_a_latent_keep_their_whole_gradient():
    # The two-consumer example on which a hook on the latent gives 4.0 and no scaling 8.0.
    latent = torch.tensor(1.0, requires_grad=True)
    (3.0 * latent + 5.0 * halve_gradient(latent)).backward()
    assert latent.grad.item() == 5.5


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_a_zeroed_branch_is_the_identity(norm):
    block = ResidualBlock(8, norm)
    for parameter in block.second.parameters():
        nn.init.zeros_(parameter)
    x = torch.rand(3, 8, 4, 5)
    assert torch.equal(block(x), x)


def test_a_residual_block_is_more_than_its_branch():
    block = ResidualBlock(4, "none")
    x = torch.rand(2, 4, 3, 3)
    branch = block.second(torch.relu(block.first(x)))
    assert torch.equal(block(x), torch.relu(x + branch))
    assert not torch.allclose(block(x), torch.relu(branch))


@pytest.mark.parametrize("kernel", [1, 3])
def test_folding_changes_nothing(kernel):
    layer = ConvNorm(3, 6, kernel, "batch")
    for _ in range(3):
        layer(torch.randn(16, 3, 5, 5) * 2.0 + 1.0)
    nn.init.normal_(layer.norm.weight)
    nn.init.normal_(layer.norm.bias)
    layer.eval()
    x = torch.randn(4, 3, 5, 5)
    before = layer(x)
    layer.fold()
    assert isinstance(layer.norm, nn.Identity)
    torch.testing.assert_close(layer(x), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("num_actions", "shape", "board", "num_planes"),
    [
        (9, (3, 3), True, 1),  # a square
        (26, (5, 5), True, 1),  # a square or a pass
        (7, (6, 7), True, 1),  # a column
        (768, (8, 8), True, 13),  # a square and one of 12 moves
        (18, (6, 6), False, 18),  # one plane each
        (6, (6, 6), False, 6),  # an Atari latent of 6 columns is no board
        (1000, (6, 6), False, 64),  # two digits in base 32
        (1027, (5, 5), True, 66),  # no whole number of moves per square
        (1, (4, 4), False, 1),
    ],
)
def test_two_actions_differ_by_one_somewhere(num_actions, shape, board, num_planes):
    planes = ActionPlanes(num_actions, *shape, board=board)
    drawn = planes(torch.arange(num_actions))
    assert planes.num_planes == num_planes
    assert drawn.shape == (num_actions, num_planes, *shape)
    assert set(drawn.unique().tolist()) <= {0.0, 1.0}
    assert len(drawn.flatten(1).unique(dim=0)) == num_actions


def test_a_factored_action_switches_on_a_plane_for_each_choice():
    planes = ActionPlanes(24, 3, 3, board=True, factors=(2, 3, 4))(torch.arange(24))
    expected = choices_of(24, (2, 3, 4))
    assert torch.equal(planes, expected[:, :, None, None].expand(-1, -1, 3, 3))
    square = ActionPlanes(9, 3, 3, board=True, factors=(3, 3))
    assert square.num_planes == 1  # a board's squares say more


def test_a_board_action_marks_where_it_is_played():
    square = ActionPlanes(26, 5, 5, board=True)(torch.tensor([7, 25]))
    assert square[0].nonzero().tolist() == [[0, 1, 2]]
    assert square[1].count_nonzero() == 0
    column = ActionPlanes(7, 6, 7, board=True)(torch.tensor([4]))
    assert column[0, 0].nonzero()[:, 1].tolist() == [4] * 6
    move = ActionPlanes(768, 8, 8, board=True)(torch.tensor([12 * 19 + 5]))
    assert move[0, 0].nonzero().tolist() == [[2, 3]]
    assert move[0, 1:].mean((1, 2)).tolist() == [1.0 if kind == 5 else 0.0 for kind in range(12)]
