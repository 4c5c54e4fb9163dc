"""The calls of an MLP network, each compiled into one function.

A kernel takes a program, whose jobs are the layers of both trunks in their order, and a plan: an array of int64 with the
names below. So a call hands over two arrays, and not the forty that it works on.

Letters: `n` rows of a call, `m` of a chunk, `A` actions, `L` latent size, `O` numbers of an observation.
"""

import numpy as np
import numpy.typing as npt

from muzero.inference import jobs
from muzero.inference.emit import inlined, kernel
from muzero.inference.functions import call_on_run, call_with_job, floats_at, integers_at
from muzero.inference.runs import bounds_of_floats, fill_zeros, mean_place, scale_float_to_float
from muzero.network.kernels import MIN_RANGE, ONE, ZERO, unsquash_one

Indices = npt.NDArray[np.int64]

CHUNK = 64
"""Rows that pass all layers together: their hidden units stay in the second-level cache."""

(
    NUM_ROWS,  # n
    INPUTS,  # address of float32 [R, inputs]: a slab of latents, or observations
    NUM_INPUTS,
    SOURCE,  # address of the rows to read there, int64 [n]
    SLAB,  # address of float32 [R, L]
    TARGET,  # address of the rows to write there, int64 [n]; 0 for none
    ACTION,  # address of int64 [n]; 0 at a root
    LATENT_SIZE,
    NUM_ACTIONS,
    NUM_FIRST,  # jobs of the first trunk
    IS_RESIDUAL,
    TURN,  # column of the turn logit; below 0 if there is none
    REWARD_FIRST,  # column of the first atom; below 0 at a root
    REWARD_ATOMS,
    VALUE_FIRST,
    VALUE_ATOMS,
    TRANSFORM,  # whether scalars are squashed: 1 for rewards, plus 2 for values
    ATOM_WIDTHS,  # address of two floats, of reward and value
    LOGITS,  # addresses of the answer
    VALUE,
    REWARD,
    TURN_LOGIT,
    RUN_LAYER,  # functions for the type of number of the layers
    ROUND_RUN,
    SIZE,  # bytes of such a number
) = range(25)
NUM_PLAN_FIELDS = 25


@kernel
def read_scalar(logits: int, num_atoms: int, atom_width: np.float32, transform: bool) -> np.float32:
    """`Support.decode` of the atoms that begin at this address."""
    x = mean_place(logits, num_atoms) * atom_width
    return unsquash_one(x) if transform else x


@inlined
def run_rows(program: Indices, first: int, last: int, num_rows: int, run_layer: int) -> None:
    """Linear layers `first` to `last - 1` of a program, for so many rows."""
    for index in range(first, last):
        program[index, jobs.ROW_LENGTH] = num_rows
        program[index, jobs.IMAGE_STEP] = num_rows
        call_with_job(run_layer, program.ctypes.data + 8 * jobs.NUM_FIELDS * index)


@inlined
def _put_row(
    run: int, i: int, count: int, low: np.float32, factor: np.float32, job: Indices, plan: Indices
) -> None:
    """`(run - low) * factor` becomes row `i` of the inputs of a job, zeros behind it."""
    size, depth = plan[SIZE], job[jobs.DEPTH]
    to = job[jobs.X] + size * i * depth
    call_on_run(plan[ROUND_RUN], run, to, count, low, factor)
    if depth > count:
        fill_zeros(to + size * count, size * (depth - count))


@kernel
def mlp_call(program: Indices, plan: Indices) -> None:
    """From latents by actions to latents and what is read off them, or from observations.

    An action names the biases of the first layer.
    """
    num_rows, num_first, num_inputs = plan[NUM_ROWS], plan[NUM_FIRST], plan[NUM_INPUTS]
    latent_size, num_actions = plan[LATENT_SIZE], plan[NUM_ACTIONS]
    source, target = integers_at(plan[SOURCE]), integers_at(plan[TARGET])
    atom_widths = floats_at(plan[ATOM_WIDTHS])
    logits, value = floats_at(plan[LOGITS]), floats_at(plan[VALUE])
    reward, turn = floats_at(plan[REWARD]), floats_at(plan[TURN_LOGIT])
    last_first, last = program[num_first - 1], program[-1]
    for first in range(0, num_rows, CHUNK):
        rows = min(CHUNK, num_rows - first)
        for i in range(rows):
            run = plan[INPUTS] + 4 * num_inputs * source[first + i]
            _put_row(run, i, num_inputs, ZERO, ONE, program[0], plan)
        if plan[ACTION] != 0:
            program[0, jobs.BIAS_ROWS] = plan[ACTION] + 8 * first
        run_rows(program, 0, num_first, rows, plan[RUN_LAYER])
        for i in range(rows):
            row = last_first[jobs.OUT] + 4 * i * last_first[jobs.WIDTH]
            outputs = floats_at(row)
            if plan[IS_RESIDUAL]:
                before = floats_at(plan[INPUTS] + 4 * num_inputs * source[first + i])
                for j in range(latent_size):
                    outputs[j] += before[j]
            if plan[REWARD_FIRST] >= 0:
                reward[first + i] = read_scalar(
                    row + 4 * plan[REWARD_FIRST],
                    plan[REWARD_ATOMS],
                    atom_widths[0],
                    plan[TRANSFORM] & 1 != 0,
                )
            if plan[TURN] >= 0:
                turn[first + i] = outputs[plan[TURN]]
            low, high = bounds_of_floats(row, latent_size)
            factor = ONE / max(high - low, MIN_RANGE)
            _put_row(row, i, latent_size, low, factor, program[num_first], plan)
            if plan[TARGET] != 0:
                memory = plan[SLAB] + 4 * latent_size * target[first + i]
                scale_float_to_float(row, memory, latent_size, low, factor)
        run_rows(program, num_first, len(program), rows, plan[RUN_LAYER])
        for i in range(rows):
            row = last[jobs.OUT] + 4 * i * last[jobs.WIDTH]
            outputs = floats_at(row)
            for action in range(num_actions):
                logits[(first + i) * num_actions + action] = outputs[action]
            value[first + i] = read_scalar(
                row + 4 * plan[VALUE_FIRST],
                plan[VALUE_ATOMS],
                atom_widths[1],
                plan[TRANSFORM] & 2 != 0,
            )
