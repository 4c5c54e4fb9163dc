"""Cross-entropies of heads with distributions. Letters: `...` positions, `S` atoms or actions."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from muzero.network.kernels import cross_entropy_rows
from muzero.network.support import Support

MAX_KERNEL_SIZE = 64
"""Heads up to this size go through the kernel; for larger ones torch's vectorised exponential wins."""


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Logits and targets `[..., S]` in float32 -> cross-entropies `[...]`; gradients flow into the logits only."""
    small = logits.shape[-1] <= MAX_KERNEL_SIZE
    if small and logits.is_cpu and not torch.compiler.is_compiling():
        losses: Tensor = _KernelCrossEntropy.apply(logits, target)
        return losses
    return -(target * F.log_softmax(logits, -1)).sum(-1)


def two_hot_cross_entropy(logits: Tensor, scalar: Tensor, support: Support) -> Tensor:
    """Logits `[..., S]` and scalars `[...]` -> cross-entropies `[...]` with the scalars' two-hot distributions."""
    if support.size <= MAX_KERNEL_SIZE:
        return cross_entropy(logits, support.two_hot(scalar))
    # Two of many atoms: picking them is cheaper than multiplying by zeros.
    index, share = support.locate(scalar)
    log_probability = F.log_softmax(logits, -1)
    lower = log_probability.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    upper = log_probability.gather(-1, index.unsqueeze(-1) + 1).squeeze(-1)
    return -torch.lerp(lower, upper, share)


class _KernelCrossEntropy(torch.autograd.Function):
    """Loss and gradient in one pass: torch's softmax takes tens of nanoseconds per row of a few entries."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """See `cross_entropy`."""
        rows = logits.detach().reshape(-1, logits.shape[-1])
        losses, gradient = torch.empty(len(rows)), torch.empty(rows.shape)
        cross_entropy_rows(
            rows.numpy(), target.reshape(rows.shape).numpy(), losses.numpy(), gradient.numpy()
        )
        ctx.save_for_backward(gradient.view(logits.shape))
        return losses.view(logits.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """See `cross_entropy`."""
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0].unsqueeze(-1), None
