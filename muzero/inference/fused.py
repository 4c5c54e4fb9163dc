"""MLP networks on the CPU as compiled kernels: one call for a whole step.

Small networks spend their time between the products: in modules, dispatch and allocation. Here a call leaves Python once,
writes to arrays that are allocated once, and holds no lock meanwhile.

Letters: `n` rows of a call, `M` chance codes.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor

from muzero.inference.evaluators import Answer, FloatArray, Rows
from muzero.inference.layers import Precision
from muzero.inference.trunks import MLP, Function, TrunkPair
from muzero.network.mlp import MLPNetwork
from muzero.network.stochastic_mlp import StochasticMLP

_Network = TypeVar("_Network", bound=MLP)


class _Fused(Generic[_Network]):
    """What the evaluators of both kinds of MLP share: a copy of the network, the root, and f as what follows a state.

    Args:
        bfloat16: Needs a `bfloat16_unit()`.
        num_threads: Threads that share the rows of a call.
    """

    num_spare_rows = 0

    def __init__(self, network: _Network, *, bfloat16: bool, num_threads: int = 1) -> None:
        self.memory_shape = network.latent_shape
        self.memory_dtype = torch.float32
        self.network = deepcopy(network)
        self.network.eval().requires_grad_(False).to("cpu")
        self._precision, self._num_threads = Precision.of(bfloat16), num_threads
        self._pairs: list[TrunkPair] = []
        own = self.network
        self._root = self._to_states(
            (own.representation, own.representation_output), None, Precision("float32")
        )

    def _to_states(
        self, first: Function, choices: Callable[[], Tensor] | None, precision: Precision
    ) -> TrunkPair:
        """A function that leads to states, and f: from observations, or by choices."""
        second = self.network.prediction, self.network.prediction_output
        pair = TrunkPair(
            self.network,
            first,
            second,
            num_logits=self.network.spec.num_actions,
            choices=choices,
            has_reward=choices is not None,
            precision=precision,
            num_threads=self._num_threads,
        )
        self._pairs.append(pair)
        return pair

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        self.network.load_state_dict(state)
        for pair in self._pairs:
            pair.pack()

    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """See `Evaluator.initial`."""
        x = observation.flatten(1).float()
        if self.network.spec.observation_scale != 1.0:
            x = x * self.network.spec.observation_scale
        return self._root.from_observations(x.contiguous(), slab, rows)


class FusedMLP(_Fused[MLPNetwork]):
    """An `MLPNetwork` on the CPU.

    A row's answer is the same bit for bit whatever rows are beside it. With bfloat16, the steps inside the tree multiply
    in that; sums, latents and heads are float32, and so is all of the root.

    Args:
        bfloat16: Needs a `bfloat16_unit()`.
        num_threads: Threads that share the rows of a call.
    """

    def __init__(self, network: MLPNetwork, *, bfloat16: bool, num_threads: int = 1) -> None:
        super().__init__(network, bfloat16=bfloat16, num_threads=num_threads)
        own = self.network
        self._step = self._to_states(
            (own.dynamics, own.dynamics_output), lambda: own.action.weight, self._precision
        )

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        return self._step.from_latents(slab, rows)


class FusedStochasticMLP(_Fused[StochasticMLP]):
    """A `StochasticMLP` on the CPU, as `FusedMLP`: phi and psi are one call, g and f another.

    States and afterstates share the slab.

    Args:
        bfloat16: Needs a `bfloat16_unit()`.
        num_threads: Threads that share the rows of a call.
    """

    def __init__(self, network: StochasticMLP, *, bfloat16: bool, num_threads: int = 1) -> None:
        super().__init__(network, bfloat16=bfloat16, num_threads=num_threads)
        own = self.network
        self._to_afterstate = TrunkPair(
            own,
            (own.afterstate_dynamics, own.afterstate_dynamics_output),
            (own.afterstate_prediction, own.afterstate_prediction_output),
            num_logits=own.num_chance_codes,
            choices=lambda: own.action.weight,
            has_reward=False,
            precision=self._precision,
            num_threads=num_threads,
        )
        self._pairs.append(self._to_afterstate)
        self._to_state = self._to_states(
            (own.dynamics, own.dynamics_output), lambda: own.code.weight.t(), self._precision
        )

    def afterstates(self, slab: Tensor, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """See `ChanceEvaluator.afterstates`."""
        answer = self._to_afterstate.from_latents(slab, rows)
        return answer.policy_logits, answer.value

    def states(self, slab: Tensor, rows: Rows) -> Answer:
        """See `ChanceEvaluator.states`."""
        return self._to_state.from_latents(slab, rows)

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`; by way of sigma's most likely code, as `StochasticNetwork.step`."""
        chance_logits, _ = self.afterstates(slab, rows)
        onward = Rows(len(rows.action), slab.device)
        onward.source[:] = onward.target[:] = rows.target
        onward.action[:] = chance_logits.argmax(1)
        return self.states(slab, onward)
