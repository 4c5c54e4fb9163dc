"""`MuZeroNetwork.unroll` of an MLP on the CPU, with its backward pass written out.

At these sizes autograd spends as long on nodes, copies and broadcasts as on matrix products. Here both passes are
products on `B` rows at a time, which stay in the cache, and compiled loops; weight gradients accumulate in place.

Letters: `B` samples, `K` unrolled steps, `L` latent size, `H` hidden units, `W` outputs of a function.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from muzero.network.kernels import scale_rows, scale_rows_backward

NO_SLAB = np.zeros((0, 0), np.float32)
NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True)
class Layers:
    """Weights `[out, in]` and biases of a trunk and its output layer, and the gradients of the backward pass."""

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    weight_gradients: Sequence[Tensor] = ()
    bias_gradients: Sequence[Tensor] = ()
    ones: Tensor = field(default_factory=lambda: torch.ones(0))

    @classmethod
    def of(cls, parameters: Sequence[Tensor]) -> "Layers":
        """From `weight, bias` of each layer in order, the output layer last."""
        return cls(parameters[0::2], parameters[1::2])

    def begin_gradients(self, ones: Tensor) -> None:
        """Zero gradients to accumulate into; `ones` `[B]` sums over samples."""
        self.weight_gradients = [torch.zeros_like(weight) for weight in self.weights]
        self.bias_gradients = [torch.zeros_like(bias) for bias in self.biases]
        self.ones = ones

    def gradients(self) -> list[Tensor]:
        """In the order of `of`."""
        pairs = zip(self.weight_gradients, self.bias_gradients, strict=True)
        return [gradient for pair in pairs for gradient in pair]

    def forward(self, x: Tensor, outputs: Tensor, first: Tensor | None = None) -> list[Tensor]:
        """`[B, in]` -> outputs `[B, W]`, written to `outputs`; returns the hidden layers `[B, H]`.

        `first` `[B, H]`, if given, is overwritten: the first product is added to it instead of to its bias.
        """
        hidden = []
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            if first is None:
                product = torch.addmm(bias, x, weight.t())
            else:
                product, first = first.addmm_(x, weight.t()), None
            x = product.relu_()
            hidden.append(x)
        torch.addmm(self.biases[-1], x, self.weights[-1].t(), out=outputs)
        return hidden

    def backward(self, x: Tensor, hidden: Sequence[Tensor], gradient: Tensor) -> Tensor:
        """Gradient of the outputs `[B, W]` -> gradient in front of the first ReLU `[B, H]`; weights accumulate."""
        inputs = (x, *hidden)
        for i in range(len(self.weights) - 1, -1, -1):
            self.weight_gradients[i].addmm_(gradient.t(), inputs[i])
            self.bias_gradients[i].addmv_(gradient.t(), self.ones)
            if i > 0:
                gradient = gradient @ self.weights[i]
                torch.ops.aten.threshold_backward.grad_input(
                    gradient, hidden[i - 1], 0, grad_input=gradient
                )
        return gradient


class FusedUnroll(torch.autograd.Function):
    """Observations, actions and parameters -> latents, outputs of f, outputs of g.

    Arguments: flat observation `[B, O]`, action `[K, B]`, whether g is residual, number of layers per function, action
    rows `[A, H]`, then `weight, bias` of every layer of h, g and f. Returns `[K+1, B, L]`, `[K+1, B, W_f]`, `[K, B, W_g]`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        observation: Tensor,
        action: Tensor,
        residual: bool,
        num_layers: int,
        action_rows: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See the class."""
        (num_steps, batch_size), size = action.shape, 2 * num_layers
        h, g, f = (Layers.of(parameters[i * size : (i + 1) * size]) for i in range(3))
        latent_size = len(h.biases[-1])
        latents = torch.empty(num_steps + 1, batch_size, latent_size)
        spreads = torch.empty(num_steps + 1, batch_size)
        f_outputs = torch.empty(num_steps + 1, batch_size, len(f.biases[-1]))
        g_outputs = torch.empty(num_steps, batch_size, len(g.biases[-1]))
        h_outputs = torch.empty(batch_size, latent_size)

        h_hidden, g_hidden, f_hidden = h.forward(observation, h_outputs), [], []
        outputs = h_outputs
        rows = action_rows + g.biases[0]
        for k in range(num_steps + 1):
            scale_rows(outputs.numpy(), latents[k].numpy(), spreads[k].numpy(), NO_SLAB, NO_ROWS)
            f_hidden.append(f.forward(latents[k], f_outputs[k]))
            if k < num_steps:
                outputs = g_outputs[k]
                first = rows.index_select(0, action[k])
                g_hidden.append(g.forward(latents[k], outputs, first))
                if residual:
                    outputs[:, :latent_size] += latents[k]

        ctx.save_for_backward(observation, action, action_rows, latents, spreads)
        ctx.functions = h, g, f
        ctx.hidden = h_hidden, g_hidden, f_hidden
        ctx.residual = residual
        return latents, f_outputs, g_outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """See the class."""
        observation, action, action_rows, latents, spreads = ctx.saved_tensors
        h, g, f = ctx.functions
        h_hidden, g_hidden, f_hidden = ctx.hidden
        latent_gradients, f_gradients, g_gradients = (
            gradient.contiguous() for gradient in gradients
        )
        latent_gradients, g_gradients = latent_gradients.clone(), g_gradients.clone()
        h_gradient = torch.empty_like(latents[0])
        row_gradients = torch.zeros_like(action_rows)
        latent_size, ones = latents.shape[2], torch.ones(latents.shape[1])
        for function in (h, g, f):
            function.begin_gradients(ones)

        for k in range(len(action), -1, -1):
            gradient = latent_gradients[k]
            inner = f.backward(latents[k], f_hidden[k], f_gradients[k])
            gradient.addmm_(inner, f.weights[0])
            outputs = g_gradients[k - 1] if k > 0 else h_gradient
            scale_rows_backward(
                gradient.numpy(), latents[k].numpy(), spreads[k].numpy(), outputs.numpy()
            )
            if k > 0:
                inner = g.backward(latents[k - 1], g_hidden[k - 1], outputs)
                row_gradients.index_add_(0, action[k - 1], inner)
                # The halved gradient into a dynamics call (MuZero, appendix G).
                before = latent_gradients[k - 1].addmm_(inner, g.weights[0], alpha=0.5)
                if ctx.residual:
                    before.add_(outputs[:, :latent_size], alpha=0.5)
        h.backward(observation, h_hidden, h_gradient)

        parameters = [gradient for function in (h, g, f) for gradient in function.gradients()]
        return (None, None, None, None, row_gradients, *parameters)
