"""Parts that networks are built from. Letters: `B` positions, `A` actions, `C` channels, `H` and `W` of the latent."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from muzero.network.factored import choices_of
from muzero.network.kernels import MIN_LATENT_RANGE

MAX_ONE_HOT_ACTIONS = 64
"""Largest number of actions, and of move types per square, that gets one plane each."""

NORMS = ("batch", "group", "none")


def scale_latent(latent: Tensor) -> Tensor:
    """Scale each position of `[B, L]` or `[B, C, H, W]` to [0, 1] by its own min and max (MuZero, appendix G).

    Planes are scaled together, so that the ratio of two channels survives. A constant latent becomes 0.
    """
    dims = tuple(range(1, latent.dim()))
    low = latent.amin(dims, keepdim=True)
    high = latent.amax(dims, keepdim=True)
    return (latent - low) / (high - low).clamp(min=MIN_LATENT_RANGE)


def halve_gradient(latent: Tensor) -> Tensor:
    """The same numbers, through which half of the gradient flows back (MuZero, appendix G)."""
    # One node of the graph. A hook on the latent itself would halve what the heads of this step send back as well.
    return torch.lerp(latent.detach(), latent, 0.5)


def zero_init(layer: nn.Linear, num_outputs: int | None = None) -> nn.Linear:
    """Zero the weights of the last `num_outputs` outputs (default all), so that a head starts by reading 0."""
    first = 0 if num_outputs is None else layer.out_features - num_outputs
    with torch.no_grad():
        layer.weight[first:] = 0.0
        layer.bias[first:] = 0.0
    return layer


def make_norm(kind: str, num_channels: int) -> nn.Module:
    """A norm over `[B, C, H, W]`: `batch`, `group` (no batch statistics) or `none`."""
    if kind == "batch":
        return nn.BatchNorm2d(num_channels)
    if kind == "group":
        return nn.GroupNorm(math.gcd(num_channels, 8), num_channels)
    if kind == "none":
        return nn.Identity()
    raise ValueError(f"network.norm is {kind!r}; choose one of {', '.join(NORMS)}")


class ConvNorm(nn.Module):
    """A convolution and its norm, which `fold` turns into one convolution for inference."""

    def __init__(self, num_inputs: int, num_outputs: int, kernel: int, norm: str, stride: int = 1):
        super().__init__()
        # A bias in front of a norm is subtracted again.
        self.conv = nn.Conv2d(
            num_inputs, num_outputs, kernel, stride, padding=kernel // 2, bias=norm == "none"
        )
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        self.norm = make_norm(norm, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C_in, H, W]` -> `[B, C_out, H / stride, W / stride]`."""
        return self.norm(self.conv(x))

    def fold(self) -> None:
        """Move the batch norm's running statistics into the convolution, for good. Other norms stay as they are."""
        if not isinstance(self.norm, nn.BatchNorm2d):
            return
        weight, bias = folded(self.conv, self.norm)
        self.conv.weight = nn.Parameter(weight, requires_grad=False)
        self.conv.bias = nn.Parameter(bias, requires_grad=False)
        self.norm = nn.Identity()


@torch.no_grad()
def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one convolution that does what `conv` and then `norm` do in eval mode."""
    assert norm.running_var is not None and norm.running_mean is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    bias = norm.bias - norm.running_mean * scale
    if conv.bias is not None:
        bias = bias + conv.bias * scale
    return conv.weight * scale[:, None, None, None], bias


class ResidualBlock(nn.Module):
    """`relu(x + branch(x))`, a branch of two 3x3 convolutions."""

    def __init__(self, num_channels: int, norm: str):
        super().__init__()
        self.first = ConvNorm(num_channels, num_channels, 3, norm)
        self.second = ConvNorm(num_channels, num_channels, 3, norm)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, H, W]` -> the same shape; the identity where `x >= 0` and the branch gives 0."""
        # In place: no layer in front needs its own output for the backward pass.
        branch = self.second(F.relu(self.first(x), inplace=True))
        return F.relu(branch.add_(x), inplace=True)


class ActionPlanes(nn.Module):
    """Actions as planes for a convolution; two different actions differ by 1 somewhere.

    On a board that keeps its size (`board` true), with `H x W` squares, an action is drawn where it is played:
    `A = H W` marks the square, `A = H W + 1` too with an empty plane for the pass, `A = W` marks the column,
    `A = n H W` marks the square and switches on one of `n` planes for the kind of move (square-major, as in
    OpenSpiel's chess and breakthrough). Any other action switches on a constant plane for each of its choices, where it has
    `factors`, or else a plane of its own or, if there are more than 64, one for each of its two digits.
    """

    square: Tensor
    switches: Tensor

    def __init__(
        self,
        num_actions: int,
        height: int,
        width: int,
        *,
        board: bool,
        factors: tuple[int, ...] = (),
    ):
        super().__init__()
        squares = height * width
        actions = torch.arange(num_actions)
        square = torch.zeros(num_actions, 0, squares)
        switches = torch.zeros(num_actions, 0)
        kinds = num_actions // squares
        if board and num_actions in (squares, squares + 1):
            square = torch.eye(num_actions)[:, None, :squares]
        elif board and num_actions == width:
            square = (actions[:, None] == torch.arange(squares) % width).float()[:, None]
        elif board and num_actions == kinds * squares and kinds <= 2 * MAX_ONE_HOT_ACTIONS:
            square = (actions[:, None] // kinds == torch.arange(squares)).float()[:, None]
            switches = F.one_hot(actions % kinds, kinds).float()
        elif factors:
            switches = choices_of(num_actions, factors)
        elif num_actions <= MAX_ONE_HOT_ACTIONS:
            switches = torch.eye(num_actions)
        else:
            base = math.isqrt(num_actions - 1) + 1
            digits = (F.one_hot(actions // base, base), F.one_hot(actions % base, base))
            switches = torch.cat(digits, 1).float()
        self.num_planes = square.shape[1] + switches.shape[1]
        self._shape = (height, width)
        # Channels last, `[A, H W, planes]`; of three axes, so that `Module.to(memory_format=...)` leaves them alone.
        self.register_buffer("square", square.mT.contiguous(), persistent=False)
        self.register_buffer("switches", switches[:, None], persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Actions `[B]` (int64) -> planes `[B, num_planes, H, W]` of zeros and ones, channels last in memory."""
        return self._to_image(self._planes(action))

    def append_to(self, latent: Tensor, action: Tensor) -> Tensor:
        """Latents `[B, C, H, W]` -> `[B, C + num_planes, H, W]`, channels last in memory."""
        # A concatenation along the channels themselves would fall back to channels first.
        squares = latent.permute(0, 2, 3, 1).flatten(1, 2)
        return self._to_image(torch.cat((squares, self._planes(action).to(latent.dtype)), 2))

    def _planes(self, action: Tensor) -> Tensor:
        square = self.square[action]
        return torch.cat((square, self.switches[action].expand(-1, square.shape[1], -1)), 2)

    def _to_image(self, planes: Tensor) -> Tensor:
        return planes.unflatten(1, self._shape).permute(0, 3, 1, 2)
