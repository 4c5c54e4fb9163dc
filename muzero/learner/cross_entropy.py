"""Cross-entropies of heads with distributions. Letters: `...` positions, `S` atoms or actions."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from muzero.network.kernels import cross_entropy_rows, two_hot_cross_entropy_rows
from muzero.network.support import Support

MAX_KERNEL_SIZE = 64
"""Heads up to this size go through the kernel; for larger ones torch's vectorised exponential wins."""


def cross_entropy(logits: Tensor, target: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and targets `[..., S]` in float32, and `[...]` -> the scaled sum of the cross-entropies, and these `[...]`.

    Gradients flow from the sum into the logits, and nowhere else.
    """
    if _takes_kernel(logits):
        return _Kernel.apply(logits, target, scale, None)
    losses = -(target * F.log_softmax(logits, -1)).sum(-1)
    return _sum(losses, scale)


def two_hot_cross_entropy(
    logits: Tensor, scalar: Tensor, scale: Tensor, support: Support
) -> tuple[Tensor, Tensor]:
    """`cross_entropy` of logits `[..., S]` with the two-hot distributions of scalars `[...]`."""
    if _takes_kernel(logits):
        return _Kernel.apply(logits, scalar, scale, support)
    index, share = support.locate(scalar)
    log_probability = F.log_softmax(logits, -1)
    lower = log_probability.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    upper = log_probability.gather(-1, index.unsqueeze(-1) + 1).squeeze(-1)
    return _sum(-torch.lerp(lower, upper, share), scale)


def _sum(losses: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    return torch.dot(losses.flatten(), scale.flatten()), losses.detach()


def _takes_kernel(logits: Tensor) -> bool:
    small = logits.shape[-1] <= MAX_KERNEL_SIZE
    return small and logits.is_cpu and not torch.compiler.is_compiling()


class _Kernel(torch.autograd.Function):
    """Losses and their gradients in one pass: torch's softmax takes tens of nanoseconds per row of a few entries."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, scale: Tensor, support: Support | None
    ) -> tuple[Tensor, Tensor]:
        """Logits `[..., S]`; targets `[..., S]`, or scalars `[...]` if there is a support."""
        rows = logits.reshape(-1, logits.shape[-1]).numpy()
        losses, gradient = np.empty(len(rows), np.float32), np.empty(rows.shape, np.float32)
        scales = scale.reshape(-1).numpy()
        if support is None:
            dense = target.reshape(rows.shape).numpy()
            total = cross_entropy_rows(rows, dense, scales, losses, gradient)
        else:
            total = two_hot_cross_entropy_rows(
                rows,
                target.reshape(-1).numpy(),
                scales,
                support.atom_width,
                support.transform,
                losses,
                gradient,
            )
        ctx.save_for_backward(torch.from_numpy(gradient).view(logits.shape))
        each = torch.from_numpy(losses).view(logits.shape[:-1])
        ctx.mark_non_differentiable(each)
        return torch.tensor(total, dtype=torch.float32), each

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """See `cross_entropy`."""
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None, None
