"""One step of training: batch in, better weights and new priorities out.

Letters: `B` samples, `K` unrolled steps, `*O` observation shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from muzero.config.schema import LearnerConfig
from muzero.learner.averaging import WeightAverage
from muzero.learner.diagnostics import TrainingDiverged, divergence_report, loss_metrics
from muzero.learner.inputs import Inputs, check_targets, to_inputs
from muzero.learner.loss import Loss, LossWeights, compute_loss
from muzero.learner.memory import keep_freed_memory
from muzero.learner.optimizer import make_optimizer, optimizer_tensors, restore_optimizer
from muzero.learner.schedule import learning_rate
from muzero.learner.target import TargetNetwork
from muzero.network.base import MuZeroNetwork
from muzero.network.stochastic import StochasticNetwork
from muzero.replay.batch import Batch


@dataclass(frozen=True, slots=True)
class LearnerReport:
    """What a learner step tells."""

    metrics: dict[str, float]
    """By name; `loss`, `gradient_norm` and `learning_rate` at every step, the rest every `metrics_interval` steps."""
    priorities: npt.NDArray[np.float32]
    """`[B]` new priorities, `|value - value target|` at step 0, both before the update."""
    skipped: bool
    """A NaN or infinite loss or gradient: nothing was changed, and `priorities` must not be used."""


class Learner:
    """Trains a network; same weights, same batches: same bytes.

    A step whose loss or gradient is not finite is skipped and counted: weights, norm statistics and optimiser stay as
    they were. `max_nonfinite_steps` of them in a row raise `TrainingDiverged`.

    Example:
        >>> learner = Learner(network, config, device="cpu")
        >>> report = learner.step(replay.sample(config.batch_size))

    Args:
        network: Is trained in place, and moved to `device`.
        uses_target_network: Batches come with `bootstrap_observation`, valued by a copy of the network that is
            renewed every `target_network_interval` steps.
        metrics_interval: Steps between two steps with all metrics, which cost about a tenth of a small step.
    """

    def __init__(
        self,
        network: MuZeroNetwork,
        config: LearnerConfig,
        device: torch.device | str = "cpu",
        *,
        uses_target_network: bool = False,
        metrics_interval: int = 10,
    ) -> None:
        if config.num_unroll_steps < 1:
            raise ValueError(
                f"learner.num_unroll_steps is {config.num_unroll_steps}; it has to be at least 1"
            )
        self.config = config
        # Null is settled by the builder, which knows the processor.
        self._bfloat16 = bool(config.bfloat16)
        self.device = torch.device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.network = network.to(self.device).train()
        if len(network.latent_shape) == 3:
            # Convolutions on the CPU are a sixth faster so, and those in bfloat16 on CUDA need it.
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.num_steps_done = 0
        self.num_steps_skipped = 0
        self._num_skipped_in_a_row = 0
        self._metrics_interval = metrics_interval
        self._optimizer = make_optimizer(self.network, config)
        self._parameters = list(self.network.parameters())
        self._buffers = [buffer for _, buffer in self._persistent_buffers()]
        self._weights = LossWeights(
            value=config.value_loss_weight,
            reward=config.reward_loss_weight,
            policy=config.policy_loss_weight,
            consistency=config.consistency_loss_weight,
            turn=config.turn_loss_weight,
            afterstate_value=config.afterstate_value_loss_weight,
            chance=config.chance_loss_weight,
            commitment=config.commitment_loss_weight,
        )
        self._compute_loss = torch.compile(compute_loss) if config.compile else compute_loss
        self._target = (
            TargetNetwork(self.network, config.target_network_interval)
            if uses_target_network
            else None
        )
        self._average = (
            WeightAverage(self.network, config.average_decay) if config.average_decay > 0 else None
        )

    def prepare(self, batch: Batch) -> Inputs | None:
        """The batch on the learner's device, made ahead of `step` by any thread; None where only `step` can do it.

        Raises:
            ValueError: See `step`.
        """
        return self._inputs(batch) if self._target is None else None

    def step(self, batch: Batch, inputs: Inputs | None = None) -> LearnerReport:
        """Train on one batch; `inputs` is what `prepare` made of it.

        Raises:
            ValueError: A target is NaN or infinite, or the batch lacks what the loss needs.
            TrainingDiverged: `max_nonfinite_steps` steps in a row had to be skipped.
        """
        if inputs is None:
            inputs = self._inputs(batch)
        rate = learning_rate(self.config, self.num_steps_done)
        statistics = [buffer.clone() for buffer in self._buffers]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16):
            loss = self._compute_loss(self.network, inputs, self._weights)
        loss.total.backward()
        norm = torch.nn.utils.get_total_norm(self._gradients())
        wants_metrics = self.num_steps_done % self._metrics_interval == 0
        total, gradient_norm, priorities, metrics = self._read(inputs, loss, norm, wants_metrics)

        skipped = not (np.isfinite(total) and np.isfinite(gradient_norm))
        self.num_steps_done += 1
        if skipped:
            self._skip(inputs, loss, gradient_norm, statistics)
        else:
            self._num_skipped_in_a_row = 0
            self._update(rate, gradient_norm)
        self._optimizer.zero_grad(set_to_none=True)
        self._follow(skipped)
        metrics |= {
            "loss": total,
            "gradient_norm": gradient_norm,
            "learning_rate": rate,
            "skipped_steps": float(self.num_steps_skipped),
        }
        return LearnerReport(metrics, priorities, skipped)

    def acting_weights(self) -> dict[str, Tensor]:
        """State dict of those who act: the average if there is one, else the newest; copies on the CPU."""
        state = self.network.state_dict() if self._average is None else self._average.state
        return {
            name: torch.empty(value.shape, dtype=value.dtype).copy_(value)
            for name, value in state.items()
        }

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that a restored learner needs to go on bit for bit: tensors (copies on the CPU) and JSON."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "network": self.network.state_dict(),
            "optimizer": optimizer_tensors(self._optimizer, self.network),
        }
        if self._target is not None:
            parts["target"] = self._target.network.state_dict()
        if self._average is not None:
            parts["average"] = self._average.state
        tensors = {
            f"{part}/{name}": torch.empty(value.shape, dtype=value.dtype).copy_(value.detach())
            for part, values in parts.items()
            for name, value in values.items()
        }
        meta = {
            "num_steps_done": self.num_steps_done,
            "num_steps_skipped": self.num_steps_skipped,
            "num_skipped_in_a_row": self._num_skipped_in_a_row,
            "optimizer": self.config.optimizer,
        }
        return tensors, meta

    def restore(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Go on from `state`. Raises ValueError where the settings do not fit what was saved."""
        if meta["optimizer"] != self.config.optimizer:
            raise ValueError(
                f"learner.optimizer is {self.config.optimizer!r} but the saved state is of {meta['optimizer']!r}; "
                "resume with the saved optimizer"
            )
        parts: dict[str, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            part, name = key.split("/", 1)
            parts.setdefault(part, {})[name] = value
        self.network.load_state_dict(parts["network"])
        restore_optimizer(self._optimizer, self.network, parts.get("optimizer", {}))
        # A run may turn these on when it resumes: they then begin with the saved weights.
        if self._target is not None:
            self._target.network.load_state_dict(parts.get("target", parts["network"]))
        if self._average is not None:
            self._average.restore(parts.get("average", parts["network"]))
        self.num_steps_done = int(meta["num_steps_done"])
        self.num_steps_skipped = int(meta["num_steps_skipped"])
        self._num_skipped_in_a_row = int(meta["num_skipped_in_a_row"])

    def _inputs(self, batch: Batch) -> Inputs:
        check_targets(batch)
        value = None
        if batch.bootstrap_observation is not None:
            if self._target is None:
                raise ValueError(
                    "the batch leaves the bootstrap to the learner, which has no target network: "
                    "set targets.bootstrap alike for replay and learner"
                )
            value = self._target.complete(batch, self.device, bfloat16=self._bfloat16)
        with_next_observation = self.config.consistency_loss_weight > 0.0 or isinstance(
            self.network, StochasticNetwork
        )
        return to_inputs(batch, value, self.device, with_next_observation=with_next_observation)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._parameters if p.grad is not None]

    def _update(self, rate: float, gradient_norm: float) -> None:
        """Clip the gradients' global norm and move the weights."""
        limit = self.config.max_gradient_norm
        if 0.0 < limit < gradient_norm:
            torch._foreach_mul_(self._gradients(), limit / gradient_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()

    @torch.no_grad()
    def _read(
        self, inputs: Inputs, loss: Loss, norm: Tensor, wants_metrics: bool
    ) -> tuple[float, float, npt.NDArray[np.float32], dict[str, float]]:
        """Everything the host wants to know of a step, in one transfer."""
        value = self.network.value_support.decode(loss.unrolled.value_logits[0])
        priorities = (value - inputs.value[0]).abs()
        metrics = loss_metrics(self.network, inputs, loss) if wants_metrics else {}
        scalars = torch.stack([loss.total, norm, *metrics.values()])
        numbers = torch.cat([scalars, priorities]).cpu().numpy()
        total, gradient_norm, *rest = (float(x) for x in numbers[: len(scalars)])
        named = dict(zip(metrics, rest, strict=True))
        return total, gradient_norm, numbers[len(scalars) :], named

    def _skip(self, inputs: Inputs, loss: Loss, norm: float, statistics: list[Tensor]) -> None:
        """Take back what the forward pass did to the norm statistics, and count."""
        for buffer, before in zip(self._buffers, statistics, strict=True):
            buffer.copy_(before)
        self.num_steps_skipped += 1
        self._num_skipped_in_a_row += 1
        if self._num_skipped_in_a_row >= self.config.max_nonfinite_steps:
            raise TrainingDiverged(
                f"learner step {self.num_steps_done}: {self._num_skipped_in_a_row} steps in a row had a NaN or infinite "
                "loss or gradient; the weights are those before the first of them. Lower learner.learning_rate or "
                f"learner.max_gradient_norm.\n{divergence_report(self.network, inputs, loss, norm)}"
            )

    def _follow(self, skipped: bool) -> None:
        """Let average and target network follow the new weights."""
        if self._average is not None and not skipped:
            self._average.update(self.num_steps_done)
        if self._target is not None:
            self._target.follow(self.network, self.num_steps_done)

    def _persistent_buffers(self) -> list[tuple[str, Tensor]]:
        names = self.network.state_dict().keys()
        return [(name, b) for name, b in self.network.named_buffers() if name in names]
