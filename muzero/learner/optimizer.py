"""Optimisers, and their state by parameter name."""

from typing import Any

import torch
from torch import Tensor, nn

from muzero.config.schema import LearnerConfig

OPTIMIZERS = ("adam", "adamw", "sgd")


def make_optimizer(network: nn.Module, config: LearnerConfig) -> torch.optim.Optimizer:
    """The optimiser of `config`; weight decay is for matrices and kernels alone.

    Biases and the scales of norms (parameters of one axis) are not decayed: pulling them to 0 limits no
    function, and a decayed norm scale only raises the effective learning rate.
    """
    decayed = [p for p in network.parameters() if p.dim() > 1]
    plain = [p for p in network.parameters() if p.dim() <= 1]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    # One kernel for all parameters: 3 to 6 times faster than the loop over them, on the CPU too.
    if config.optimizer == "adam":
        return torch.optim.Adam(groups, lr=config.learning_rate, fused=True)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=0.9, fused=True)
    raise ValueError(
        f"learner.optimizer is {config.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}"
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state as `<parameter>/<quantity>`; empty before the first update."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in network.named_parameters()
        for quantity, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, network: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Set the state that `optimizer_tensors` returned."""
    states: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, quantity = key.rsplit("/", 1)
        states.setdefault(name, {})[quantity] = value
    names = {parameter: name for name, parameter in network.named_parameters()}
    unknown = states.keys() - set(names.values())
    if unknown:
        raise ValueError(
            f"the optimizer's state has parameters that the network lacks: {sorted(unknown)}; "
            "resume with the network settings of the saved run"
        )
    state = optimizer.state_dict()
    state["state"] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for i, parameter in enumerate(parameters):
        if names[parameter] in states:
            state["state"][i] = {
                quantity: _like(parameter, value)
                for quantity, value in states[names[parameter]].items()
            }
    optimizer.load_state_dict(state)


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy laid out in memory as the parameter: fused optimisers walk both side by side without looking at strides."""
    if value.shape != parameter.shape:
        return value.clone()
    return torch.empty_like(parameter, requires_grad=False).copy_(value)
