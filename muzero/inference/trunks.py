"""Two functions of an MLP, one behind the other, as one compiled call.

Letters: `n` rows of a call, `C` choices (actions, or chance codes), `L` latent size, `W` columns of a layer.
"""

from collections.abc import Callable

import numpy as np
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
from muzero.network.factored import weight_of
from muzero.network.mlp import MLPNetwork, Trunk
from muzero.network.stochastic_mlp import StochasticMLP

MIN_ROWS_PER_THREAD = 64
"""Handing rows to another thread takes about as long as computing so many."""

MLP = MLPNetwork | StochasticMLP
Function = tuple[Trunk, nn.Linear]
"""A function of a network: hidden layers and an output layer."""


class TrunkPair:
    """The first function makes latents, of observations or of other latents by a choice; the second says what they are worth.

    So h and f make a root and g and f a step; with chance codes phi and psi follow an action, g and f a code.

    Args:
        first: Outputs a latent; behind it, if `has_reward`, the reward's atoms and, where the network has one, the turn logit.
        second: Outputs `num_logits` logits, then the value's atoms.
        choices: `[C, hidden]`, what each choice adds to the first layer, asked for whenever there are new weights; None if the
            first function takes observations.
        num_threads: Threads that share the rows of a call.
    """

    def __init__(
        self,
        network: MLP,
        first: Function,
        second: Function,
        *,
        num_logits: int,
        choices: Callable[[], Tensor] | None,
        has_reward: bool,
        precision: Precision,
        num_threads: int,
    ) -> None:
        self._sources = [*linear_layers(*first), *linear_layers(*second)]
        self._outputs = (first[1], second[1])
        self._choices = choices
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
        if choices is not None:
            self._offsets = aligned((len(choices()), self.layers[0].width), np.float32)
            for program in self.programs:
                program[0, jobs.BIAS] = address(self._offsets)
        plan = self._make_plan(network, len(linear_layers(*first)), num_logits, has_reward)
        compiled = functions(precision.unit)
        plan[plans.RUN_LAYER] = compiled.run_layer
        plan[plans.ROUND_RUN] = compiled.round_run
        plan[plans.SIZE] = precision.size
        self.call = CompiledCall(
            plans.mlp_call,
            plans,
            [(program, plan) for program in self.programs],
            num_actions=num_logits,
            min_rows=MIN_ROWS_PER_THREAD,
            is_step=has_reward,
        )
        self.pack()

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

    def _make_plan(
        self, network: MLP, num_first: int, num_logits: int, has_reward: bool
    ) -> Indices:
        size = network.latent_shape[0]
        plan: Indices = aligned(plans.NUM_PLAN_FIELDS, np.int64)
        plan[plans.NUM_INPUTS] = self._sources[0].in_features
        plan[plans.LATENT_SIZE] = size
        # Whatever the logits are of, and the choices, the kernel calls them actions.
        plan[plans.NUM_ACTIONS] = num_logits
        plan[plans.NUM_FIRST] = num_first
        plan[plans.IS_RESIDUAL] = network.residual_dynamics and self._choices is not None
        has_turn = network.spec.has_turn_head and has_reward
        plan[plans.TURN] = size + network.reward_support.size if has_turn else -1
        plan[plans.REWARD_FIRST] = size if has_reward else -1
        plan[plans.VALUE_FIRST] = num_logits
        set_supports(plan, plans, network, self._spaces[0])
        return plan

    def pack(self) -> None:
        """Take the weights of the layers that this was made from."""
        for source, layer in zip(self._sources, self.layers, strict=True):
            layer.write(weight_of(source).t().numpy()[None], source.bias.numpy())
        if self._choices is not None:
            # The bias of the first layer rides with the choice.
            rows = (self._choices() + self._sources[0].bias).numpy()
            self._offsets[:, : rows.shape[1]] = rows

    def from_observations(self, x: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """Observations `[n, inputs]`, float32 and contiguous; latents go to `rows.target`, or nowhere without `rows`."""
        parts, answer = self.call.of(len(x))
        for part in parts:
            part.plan[plans.INPUTS] = x.data_ptr()
            part.plan[plans.SLAB] = slab.data_ptr()
            part.plan[plans.TARGET] = 0 if rows is None else rows.addresses[1] + part.shift
        self.call.run(parts)
        return answer

    def from_latents(self, slab: Tensor, rows: Rows) -> Answer:
        """From the latents of `rows.source` by the choices `rows.action` to those of `rows.target`."""
        parts, answer = self.call.of(len(rows.action))
        source, target, choice = rows.addresses
        memory = slab.data_ptr()
        for part in parts:
            plan, shift = part.plan, part.shift
            plan[plans.INPUTS] = plan[plans.SLAB] = memory
            plan[plans.SOURCE] = source + shift
            plan[plans.TARGET] = target + shift
            plan[plans.ACTION] = choice + shift
        self.call.run(parts)
        return answer


def linear_layers(trunk: Trunk, output: nn.Linear) -> list[nn.Linear]:
    """The layers of a trunk and its output layer."""
    return [*(layer for layer in trunk.layers if isinstance(layer, nn.Linear)), output]
