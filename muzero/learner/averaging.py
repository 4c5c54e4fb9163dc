"""An exponential average of the weights, for those who act."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class WeightAverage:
    """`average <- d * average + (1 - d) * weights` after each update, norm statistics included.

    `d = min(decay, (1 + t) / (10 + t))` at update `t`, so that the untrained weights are forgotten soon.
    """

    def __init__(self, network: nn.Module, decay: float):
        if not 0.0 < decay < 1.0:
            raise ValueError(
                f"learner.average_decay is {decay}; it has to be 0 (off) or between 0 and 1"
            )
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in network.state_dict().items()}
        source = network.state_dict(keep_vars=True)
        self._pairs = [
            (average, source[name])
            for name, average in self.state.items()
            if average.is_floating_point()
        ]
        self._counters = [
            (average, source[name])
            for name, average in self.state.items()
            if not average.is_floating_point()
        ]

    @torch.no_grad()
    def update(self, num_updates: int) -> None:
        """Take in the network's weights after `num_updates` updates."""
        decay = min(self.decay, (1.0 + num_updates) / (10.0 + num_updates))
        averages = [average for average, _ in self._pairs]
        torch._foreach_lerp_(averages, [value for _, value in self._pairs], 1.0 - decay)
        for average, value in self._counters:
            average.copy_(value)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Set the average to `state`."""
        for name, value in self.state.items():
            value.copy_(state[name])
