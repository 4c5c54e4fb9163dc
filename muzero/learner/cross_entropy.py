"""Cross-entropies of heads with distributions. Letters: `...` positions, `S` atoms or actions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from muzero.network.kernels import cross_entropy_rows, two_hot_cross_entropy_rows
from muzero.network.support import Support

FloatArray = npt.NDArray[np.float32]

MAX_KERNEL_SIZE = 64
"""Heads up to this size go through the kernel; for larger ones torch's vectorised exponential wins."""


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Logits and targets `[..., S]` in float32 -> cross-entropies `[...]`; gradients flow into the logits only."""
    if _takes_kernel(logits):
        losses: Tensor = _CrossEntropy.apply(logits, target)
        return losses
    return -(target * F.log_softmax(logits, -1)).sum(-1)


def two_hot_cross_entropy(logits: Tensor, scalar: Tensor, support: Support) -> Tensor:
    """Logits `[..., S]` and scalars `[...]` -> cross-entropies `[...]` with the scalars' two-hot distributions."""
    if _takes_kernel(logits):
        losses: Tensor = _TwoHotCrossEntropy.apply(logits, scalar, support)
        return losses
    index, share = support.locate(scalar)
    log_probability = F.log_softmax(logits, -1)
    lower = log_probability.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    upper = log_probability.gather(-1, index.unsqueeze(-1) + 1).squeeze(-1)
    return -torch.lerp(lower, upper, share)


def _takes_kernel(logits: Tensor) -> bool:
    small = logits.shape[-1] <= MAX_KERNEL_SIZE
    return small and logits.is_cpu and not torch.compiler.is_compiling()


class _CrossEntropy(torch.autograd.Function):
    """Losses and their gradients in one pass: torch's softmax takes tens of nanoseconds per row of a few entries."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        """See `cross_entropy`."""
        rows, losses, gradient = _rows(logits)
        cross_entropy_rows(rows, target.reshape(rows.shape).numpy(), losses, gradient)
        return _keep(ctx, logits, losses, gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """See `cross_entropy`."""
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0].unsqueeze(-1), None


class _TwoHotCrossEntropy(torch.autograd.Function):
    """`_CrossEntropy` without the dense targets."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, scalar: Tensor, support: Support) -> Tensor:
        """See `two_hot_cross_entropy`."""
        rows, losses, gradient = _rows(logits)
        two_hot_cross_entropy_rows(
            rows,
            scalar.reshape(-1).numpy(),
            support.atom_width,
            support.transform,
            losses,
            gradient,
        )
        return _keep(ctx, logits, losses, gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """See `two_hot_cross_entropy`."""
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0].unsqueeze(-1), None, None


def _rows(logits: Tensor) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Logits as `[n, S]`, and room for losses `[n]` and gradients `[n, S]`."""
    rows = logits.detach().reshape(-1, logits.shape[-1]).numpy()
    return rows, np.empty(len(rows), np.float32), np.empty(rows.shape, np.float32)


def _keep(ctx: Any, logits: Tensor, losses: FloatArray, gradient: FloatArray) -> Tensor:
    ctx.save_for_backward(torch.from_numpy(gradient).view(logits.shape))
    return torch.from_numpy(losses).view(logits.shape[:-1])
