"""The target network: bootstrap values that do not chase the weights being trained.

Letters: `B` samples, `K` unrolled steps, `*O` observation shape.
"""

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from muzero.learner.inputs import to_tensor
from muzero.network.base import MuZeroNetwork
from muzero.replay.batch import Batch


class TargetNetwork:
    """A copy of the network, renewed every `interval` steps, always in eval mode."""

    def __init__(self, network: MuZeroNetwork, interval: int):
        if interval < 1:
            raise ValueError(
                f"learner.target_network_interval is {interval}; it has to be at least 1"
            )
        self.network = deepcopy(network).eval().requires_grad_(False)
        self._interval = interval

    def follow(self, network: MuZeroNetwork, num_steps_done: int) -> None:
        """Copy the weights if a copy is due after `num_steps_done` steps."""
        if num_steps_done % self._interval == 0:
            self.network.load_state_dict(network.state_dict())

    @torch.no_grad()
    def complete(self, batch: Batch, device: torch.device, *, bfloat16: bool) -> Tensor:
        """`[K+1, B]` value targets: `value + bootstrap_discount * value of bootstrap_observation`."""
        assert batch.bootstrap_observation is not None and batch.bootstrap_discount is not None
        value = to_tensor(batch.value.swapaxes(0, 1), device)
        discount = batch.bootstrap_discount.swapaxes(0, 1)
        step, sample = np.nonzero(discount)
        if len(step) == 0:
            return value
        observation = to_tensor(batch.bootstrap_observation[sample, step], device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            logits = self.network.initial_inference(observation).value_logits
        bootstrap = self.network.value_support.decode(logits)
        index = to_tensor(np.stack((step, sample)), device)
        value[index[0], index[1]] += to_tensor(discount[step, sample], device) * bootstrap
        return value
