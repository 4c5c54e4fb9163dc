"""Metrics of a learner step, and the report of a run that diverged. Letters: `B` samples, `K` unrolled steps."""

import torch
from torch import Tensor

from muzero.learner.inputs import Inputs
from muzero.learner.loss import Loss
from muzero.network.base import MuZeroNetwork


class TrainingDiverged(RuntimeError):
    """Too many steps in a row had a NaN or infinite loss or gradient; the weights are those before them."""


@torch.no_grad()
def loss_metrics(network: MuZeroNetwork, inputs: Inputs, loss: Loss) -> dict[str, Tensor]:
    """Scalars on the device, by name; masked means, importance weights left out."""
    metrics = {
        "policy_loss": _mean(loss.policy, inputs.policy_mask),
        "value_loss": _mean(loss.value, inputs.value_mask),
        "reward_loss": _mean(loss.reward, inputs.reward_mask),
    }
    if loss.turn is not None:
        metrics["turn_loss"] = _mean(loss.turn, inputs.turn_mask)
        metrics |= _turn_metrics(inputs, loss)
    if loss.consistency is not None:
        metrics["consistency_loss"] = _mean(loss.consistency, inputs.observation_mask)
    if loss.chance is not None:
        metrics |= _chance_metrics(inputs, loss)
    for name, part, mask in (
        ("policy", loss.policy, inputs.policy_mask),
        ("value", loss.value, inputs.value_mask),
        ("reward", loss.reward, inputs.reward_mask),
    ):
        per_step = (part * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        first = 1 if name == "reward" else 0
        metrics |= {f"{name}_loss_step_{first + k}": mean for k, mean in enumerate(per_step)}
    return metrics | _policy_metrics(inputs, loss) | _scalar_metrics(network, inputs, loss)


def _chance_metrics(inputs: Inputs, loss: Loss) -> dict[str, Tensor]:
    parts, unrolled = loss.chance, loss.unrolled.chance
    assert parts is not None and unrolled is not None
    log_sigma = torch.log_softmax(unrolled.chance_logits, -1)
    share = (unrolled.code * parts.mask.unsqueeze(-1)).sum((0, 1)) / parts.mask.sum().clamp(min=1.0)
    return {
        "afterstate_value_loss": _mean(parts.afterstate_value, parts.mask * inputs.value_mask[:-1]),
        "chance_loss": _mean(parts.chance, parts.mask),
        "commitment_loss": _mean(parts.commitment, parts.mask),
        "chance_entropy": _mean(-(log_sigma.exp() * log_sigma).sum(-1), parts.mask),
        "code_entropy": -torch.special.xlogy(share, share).sum(),
    }


def _turn_metrics(inputs: Inputs, loss: Loss) -> dict[str, Tensor]:
    logits = loss.unrolled.turn_logits
    assert logits is not None
    # As searches read it: the mover moves again where the logit is above 0.
    right = (logits > 0.0) == (inputs.turn > 0.5)
    return {
        "turn_accuracy": _mean(right.float(), inputs.turn_mask),
        "turn_repeated_fraction": _mean(inputs.turn, inputs.turn_mask),
    }


def _policy_metrics(inputs: Inputs, loss: Loss) -> dict[str, Tensor]:
    logits, target, mask = loss.unrolled.policy_logits, inputs.policy, inputs.policy_mask
    log_probability = torch.log_softmax(logits, -1)
    entropy = -(log_probability.exp() * log_probability).sum(-1)
    agreement = (logits[0].argmax(-1) == target[0].argmax(-1)).float()
    return {
        "policy_target_entropy": _mean(-torch.special.xlogy(target, target).sum(-1), mask),
        "policy_entropy": _mean(entropy, mask),
        "top1_agreement": _mean(agreement, mask[0]),
    }


def _scalar_metrics(network: MuZeroNetwork, inputs: Inputs, loss: Loss) -> dict[str, Tensor]:
    value_support, reward_support = network.value_support, network.reward_support
    reward = reward_support.decode(loss.unrolled.reward_logits)
    root_value = value_support.decode(loss.unrolled.value_logits[0])
    root_target, root_mask = inputs.value[0], inputs.value_mask[0]
    error = root_target - root_value
    variance = _variance(root_target, root_mask)
    return {
        "value_error": _mean(error.abs(), root_mask),
        "reward_error": _mean((reward - inputs.reward).abs(), inputs.reward_mask),
        "value_mean": _mean(root_value, root_mask),
        "value_target_mean": _mean(root_target, root_mask),
        "value_target_std": variance.sqrt(),
        # Equal targets leave nothing to explain: 0, where a NaN would poison the row's mean.
        "explained_variance": torch.where(
            variance > 1e-12, 1.0 - _variance(error, root_mask) / variance.clamp(min=1e-12), 0.0
        ),
        "value_clamped_fraction": _mean(
            value_support.is_clamped(inputs.value).float(), inputs.value_mask
        ),
        "reward_clamped_fraction": _mean(
            reward_support.is_clamped(inputs.reward).float(), inputs.reward_mask
        ),
    }


def _variance(values: Tensor, mask: Tensor) -> Tensor:
    return _mean((values - _mean(values, mask)).square(), mask)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1.0)


def divergence_report(network: MuZeroNetwork, inputs: Inputs, loss: Loss, norm: float) -> str:
    """What is not finite, and the ranges of what went in, one line each."""
    lines = [f"  loss {loss.total.item():g}, gradient norm {norm:g}"]
    for name, parameter in network.named_parameters():
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            lines.append(f"  gradient of {name} is not finite")
        if not bool(parameter.detach().isfinite().all()):
            lines.append(f"  weights of {name} are not finite")
    for name in ("observation", "reward", "value", "policy", "weight"):
        tensor: Tensor = getattr(inputs, name)
        low, high = tensor.float().min().item(), tensor.float().max().item()
        lines.append(f"  {name} from {low:g} to {high:g}")
    return "\n".join(lines)
