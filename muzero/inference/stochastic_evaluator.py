"""Networks with chance codes made ready for inference. Letters: `n` rows of a call, `M` chance codes."""

from typing import Protocol

import torch
from torch import Tensor

from muzero.inference.evaluators import Answer, Evaluator, FloatArray, ModuleEvaluator, Rows
from muzero.network.stochastic import StochasticNetwork


class ChanceEvaluator(Evaluator, Protocol):
    """An inference copy of a network with chance codes; states and afterstates share the slab."""

    def afterstates(self, slab: Tensor, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """From the states of `rows.source` by `rows.action` to the afterstates of `rows.target`.

        Returns logits of sigma `[n, M]` and values `[n]` seen by who acted, on the host; valid until the next call.
        """

    def states(self, slab: Tensor, rows: Rows) -> Answer:
        """From the afterstates of `rows.source` by the codes `rows.action` to the states of `rows.target`."""


class StochasticEvaluator(ModuleEvaluator):
    """A network with chance codes as its own module."""

    _network: StochasticNetwork

    def __init__(self, network: StochasticNetwork, device: torch.device, dtype: torch.dtype):
        super().__init__(network, device, dtype)
        self._codes = torch.eye(network.num_chance_codes, device=device, dtype=dtype)

    @torch.inference_mode()
    def afterstates(self, slab: Tensor, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """See `ChanceEvaluator.afterstates`."""
        network = self._network
        source, target, action = rows.on_device()
        afterstate = network.afterstate(self._read(slab, source), action)
        slab.index_copy_(0, target, self._to_memory(afterstate))
        chance_logits, value_logits = network.predict_afterstate(afterstate)
        value = network.value_support.decode(value_logits)
        return chance_logits.float().cpu().numpy(), value.cpu().numpy()

    @torch.inference_mode()
    def states(self, slab: Tensor, rows: Rows) -> Answer:
        """See `ChanceEvaluator.states`."""
        network = self._network
        source, target, code = rows.on_device()
        latent, reward_logits, turn_logit = network.outcome(
            self._read(slab, source), self._codes[code]
        )
        slab.index_copy_(0, target, self._to_memory(latent))
        policy_logits, value_logits = network.predict(latent)
        return Answer(
            policy_logits.float().cpu().numpy(),
            network.value_support.decode(value_logits).cpu().numpy(),
            network.reward_support.decode(reward_logits).cpu().numpy(),
            None if turn_logit is None else turn_logit.float().cpu().numpy(),
        )

    def _read(self, slab: Tensor, source: Tensor) -> Tensor:
        memory = slab.index_select(0, source)
        return memory.permute(0, 3, 1, 2) if self._is_image else memory
