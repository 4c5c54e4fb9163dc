"""A batch as tensors on the learner's device, steps first.

Letters: `B` samples, `K` unrolled steps, `A` actions, `*O` observation shape.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from muzero.network.support import require_finite
from muzero.replay.batch import Batch


class Inputs(NamedTuple):
    """What the loss needs of a `Batch`; its docstrings apply, with steps as the first axis."""

    observation: Tensor
    """`[B, *O]`."""
    next_observation: Tensor | None
    """`[K * B, *O]`; None where neither a consistency loss nor chance codes need it."""
    action: Tensor
    """`[K, B]`."""
    reward: Tensor
    """`[K, B]`."""
    reward_mask: Tensor
    """`[K, B]`."""
    value: Tensor
    """`[K+1, B]`, complete."""
    value_mask: Tensor
    """`[K+1, B]`."""
    policy: Tensor
    """`[K+1, B, A]`."""
    policy_mask: Tensor
    """`[K+1, B]`."""
    turn: Tensor
    """`[K, B]`."""
    turn_mask: Tensor
    """`[K, B]`."""
    observation_mask: Tensor
    """`[K, B]`."""
    weight: Tensor
    """`[B]`."""


def check_targets(batch: Batch) -> None:
    """Raise ValueError that names the target that holds a NaN or an infinity."""
    # On the host, where it costs no synchronisation; behind it the two-hot encoding cannot meet one.
    for name in ("reward", "value", "policy", "weight"):
        require_finite(getattr(batch, name), f"the {name} target of a batch")
    if batch.bootstrap_discount is not None:
        require_finite(batch.bootstrap_discount, "bootstrap_discount of a batch")


def to_inputs(
    batch: Batch, value: Tensor | None, device: torch.device, *, with_next_observation: bool
) -> Inputs:
    """Copy a batch to the device; `value` `[K+1, B]` replaces the batch's own if it was completed there."""

    def steps_first(array: npt.NDArray[Any]) -> Tensor:
        return to_tensor(array.swapaxes(0, 1), device)

    following = None
    if with_next_observation:
        if batch.next_observation is None:
            raise ValueError(
                "learner.consistency_loss_weight is above 0, or the network has chance codes, but the batch has no next "
                "observations: build the replay buffer with with_next_observation=True"
            )
        following = steps_first(batch.next_observation).flatten(0, 1)
    return Inputs(
        observation=to_tensor(batch.observation, device),
        next_observation=following,
        action=steps_first(batch.action),
        reward=steps_first(batch.reward),
        reward_mask=steps_first(batch.reward_mask),
        value=steps_first(batch.value) if value is None else value,
        value_mask=steps_first(batch.value_mask),
        policy=steps_first(batch.policy),
        policy_mask=steps_first(batch.policy_mask),
        turn=steps_first(batch.turn),
        turn_mask=steps_first(batch.turn_mask),
        observation_mask=steps_first(batch.observation_mask),
        weight=to_tensor(batch.weight, device),
    )


def to_tensor(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A contiguous copy in torch's own memory, on the device."""
    # Always a copy: sums in a matrix product depend on its inputs' alignment, and numpy's differs between runs.
    tensor = torch.empty(array.shape, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype)
    np.copyto(tensor.numpy(), array)
    return tensor.to(device)
