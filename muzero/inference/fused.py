"""An MLP network on the CPU as compiled kernels: one call for a whole step.

Small networks spend their time between the products: in modules, dispatch and allocation. Here a call leaves Python once,
writes to arrays that are allocated once, and holds no lock meanwhile.

Letters: `n` rows of a call, `A` actions, `L` latent size, `W` columns of a layer.
"""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from muzero.inference import jobs
from muzero.inference import mlp_kernels as plans
from muzero.inference.calls import CompiledCall, set_supports
from muzero.inference.evaluators import Answer, Rows
from muzero.inference.functions import functions
from muzero.inference.layers import (
    Indices,
    PackedLayer,
    Precision,
    Workspace,
    address,
    aligned,
    make_program,
    round_up,
)
from muzero.network.mlp import MLPNetwork, Trunk

MIN_ROWS_PER_THREAD = 64
"""Handing rows to another thread takes about as long as computing so many."""


class FusedMLP:
    """An `MLPNetwork` on the CPU.

    A row's answer is the same bit for bit whatever rows are beside it. With bfloat16, the steps inside the tree multiply
    in that; sums, latents and heads are float32, and so is all of the root.

    Args:
        bfloat16: Needs a `bfloat16_unit()`.
        num_threads: Threads that share the rows of a call.
    """

    num_spare_rows = 0

    def __init__(self, network: MLPNetwork, *, bfloat16: bool, num_threads: int = 1) -> None:
        self.memory_shape = network.latent_shape
        self.memory_dtype = torch.float32
        self.network = deepcopy(network).eval().requires_grad_(False).to("cpu")
        own = self.network
        exact, precision = Precision("float32"), Precision.of(bfloat16)
        first = own.representation, own.representation_output
        self._root = TrunkPair(own, first, exact, num_threads)
        first = own.dynamics, own.dynamics_output
        self._step = TrunkPair(own, first, precision, num_threads)
        self._offsets = aligned((own.spec.num_actions, self._step.layers[0].width), np.float32)
        for program in self._step.programs:
            program[0, jobs.BIAS] = address(self._offsets)
        self._pack()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        self.network.load_state_dict(state)
        self._pack()

    def _pack(self) -> None:
        self._root.pack()
        self._step.pack()
        # The bias of the first layer rides with the action.
        first = self.network.dynamics.layers[0]
        assert isinstance(first, nn.Linear)
        rows = (self.network.action.weight + first.bias).numpy()
        self._offsets[:, : rows.shape[1]] = rows

    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """See `Evaluator.initial`."""
        x = observation.flatten(1).float()
        if self.network.spec.observation_scale != 1.0:
            x = x * self.network.spec.observation_scale
        x = x.contiguous()
        parts, answer = self._root.call.of(len(x))
        for part in parts:
            part.plan[plans.INPUTS] = x.data_ptr()
            part.plan[plans.SLAB] = slab.data_ptr()
            part.plan[plans.TARGET] = 0 if rows is None else rows.addresses[1] + part.shift
        self._root.call.run(parts)
        return answer

    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        parts, answer = self._step.call.of(len(rows.action))
        source, target, action = rows.addresses
        memory = slab.data_ptr()
        for part in parts:
            plan, shift = part.plan, part.shift
            plan[plans.INPUTS] = plan[plans.SLAB] = memory
            plan[plans.SOURCE] = source + shift
            plan[plans.TARGET] = target + shift
            plan[plans.ACTION] = action + shift
        self._step.call.run(parts)
        return answer


class TrunkPair:
    """Two trunks with their output layers, one behind the other: representation or dynamics, then prediction."""

    def __init__(
        self,
        network: MLPNetwork,
        first: tuple[Trunk, nn.Linear],
        precision: Precision,
        num_threads: int,
    ) -> None:
        prediction = network.prediction, network.prediction_output
        self._sources = [*linear_layers(*first), *linear_layers(*prediction)]
        self._outputs = (first[1], prediction[1])
        multiple = precision.depth_multiple
        self.layers = [
            PackedLayer(
                1,
                round_up(source.in_features, multiple),
                round_up(source.out_features, multiple),
                relu=source not in self._outputs,
                precision=precision,
            )
            for source in self._sources
        ]
        self._spaces = [Workspace(plans.CHUNK) for _ in range(num_threads)]
        self.programs = [self._make_program(space, precision) for space in self._spaces]
        num_first = len(linear_layers(*first))
        plan = self._make_plan(network, first[1] is network.representation_output, num_first)
        compiled = functions(precision.unit)
        plan[plans.RUN_LAYER] = compiled.run_layer
        plan[plans.ROUND_RUN] = compiled.round_run
        plan[plans.SIZE] = precision.size
        self.call = CompiledCall(
            plans.mlp_call,
            plans,
            [(program, plan) for program in self.programs],
            num_actions=network.spec.num_actions,
            min_rows=MIN_ROWS_PER_THREAD,
            is_step=first[1] is network.dynamics_output,
        )

    def _make_program(self, space: Workspace, precision: Precision) -> Indices:
        widest = max(max(layer.depth, layer.width) for layer in self.layers)
        # A vector may look behind the last row.
        numbers = (plans.CHUNK + 1) * widest
        pair = [space.keep(aligned(numbers, precision.dtype)) for _ in range(2)]
        result = space.keep(aligned(numbers, np.float32))
        program, place = [], 0
        for source, layer in zip(self._sources, self.layers, strict=True):
            is_last = source in self._outputs
            out = result if is_last else pair[1 - place]
            program.append(
                space.job(layer, address(pair[place]), address(out), to_float=int(is_last))
            )
            place = 0 if is_last else 1 - place
        return make_program(program)

    def _make_plan(self, network: MLPNetwork, is_root: bool, num_first: int) -> Indices:
        spec, size = network.spec, network.latent_shape[0]
        plan: Indices = aligned(plans.NUM_PLAN_FIELDS, np.int64)
        plan[plans.NUM_INPUTS] = self._sources[0].in_features
        plan[plans.LATENT_SIZE] = size
        plan[plans.NUM_ACTIONS] = spec.num_actions
        plan[plans.NUM_FIRST] = num_first
        plan[plans.IS_RESIDUAL] = network.residual_dynamics and not is_root
        has_turn = spec.has_turn_head and not is_root
        plan[plans.TURN] = size + network.reward_support.size if has_turn else -1
        plan[plans.REWARD_FIRST] = -1 if is_root else size
        plan[plans.VALUE_FIRST] = spec.num_actions
        set_supports(plan, plans, network, self._spaces[0])
        return plan

    def pack(self) -> None:
        """Take the weights of the layers that this was made from."""
        for source, layer in zip(self._sources, self.layers, strict=True):
            layer.write(source.weight.t().numpy()[None], source.bias.numpy())


def linear_layers(trunk: Trunk, output: nn.Linear) -> list[nn.Linear]:
    """The layers of a trunk and its output layer."""
    return [*(layer for layer in trunk.layers if isinstance(layer, nn.Linear)), output]
