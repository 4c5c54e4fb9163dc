"""The calls of a residual network, compiled; program and plan as in `muzero.inference.mlp_kernels`.

An image lies in memory pixel by pixel, channels together, with a pixel of zeros behind every row and a row of zeros above:
`P = (H + 1) (W + 1)` pixels. So a neighbour beyond the edge is zero, and an image's last row borders on the next image.

Letters: `n` rows of a call, `m` of a chunk, `C` channels, `H` and `W` of the latent, `A` actions.
"""

import numpy as np
import numpy.typing as npt

from muzero.inference import jobs
from muzero.inference.emit import inlined, kernel
from muzero.inference.functions import (
    call_for_bounds,
    call_on_run,
    call_with_job,
    floats_at,
    integers_at,
)
from muzero.inference.mlp_kernels import read_scalar, run_rows
from muzero.inference.runs import copy_bytes
from muzero.network.kernels import MIN_RANGE, ONE, ZERO

Indices = npt.NDArray[np.int64]

(
    NUM_ROWS,  # n
    CHUNK,  # most rows that pass all layers together: their images stay in the second-level cache
    HEIGHT,
    WIDTH,
    CHANNELS,
    WHOLE_CHANNELS,  # step from pixel to pixel
    SLAB,  # address of numbers [R, H W C]
    SOURCE,  # address of the rows to read there, int64 [n]
    TARGET,  # address of the rows to write there, int64 [n]; 0 for none
    ACTION,  # address of int64 [n]; 0 at a root
    PLANES,  # address of float32 [n, planes, H, W]; 0 if there are none
    NUM_PLANES,
    WHOLE_PLANES,  # step from pixel to pixel
    PLANES_AT,  # address of the image that planes become
    PIXEL,  # address of float32 [planes]
    STREAM,  # address of the image that latents are read to
    ENTRY_BIAS_ROWS,  # address of int64 [m P]
    BOUNDS,  # address of two floats
    NUM_ENTRY,  # jobs before the heads
    NUM_REWARD,  # jobs of the reward head; 0 at a root
    REWARD_ATOMS,
    TURN,  # column of the turn logit; below 0 if there is none
    NUM_ACTIONS,
    VALUE_FIRST,  # column of the first atom
    VALUE_ATOMS,
    TRANSFORM,  # whether scalars are squashed: 1 for rewards, plus 2 for values
    ATOM_WIDTHS,  # address of two floats, of reward and value
    LOGITS,  # addresses of the answer
    VALUE,
    REWARD,
    TURN_LOGIT,
    RUN_LAYER,  # functions for the type of number
    ROUND_RUN,
    SCALE_RUN,
    BOUNDS_OF_RUN,
    SIZE,  # bytes of a number
) = range(36)
NUM_PLAN_FIELDS = 36


@inlined
def _run_jobs(program: Indices, first: int, last: int, num_images: int, run_layer: int) -> None:
    """Jobs over images, and those over one row per image."""
    for index in range(first, last):
        if program[index, jobs.ROW_STEP] > 0:
            program[index, jobs.NUM_IMAGES] = num_images
            call_with_job(run_layer, program.ctypes.data + 8 * jobs.NUM_FIELDS * index)
        else:
            run_rows(program, index, index + 1, num_images, run_layer)


@inlined
def _read_latents(first: int, rows: int, plan: Indices) -> None:
    """From the slab into the stream."""
    height, width, channels = plan[HEIGHT], plan[WIDTH], plan[CHANNELS]
    size, step = plan[SIZE], plan[WHOLE_CHANNELS]
    source = integers_at(plan[SOURCE])
    for i in range(rows):
        run = plan[SLAB] + size * height * width * channels * source[first + i]
        for y in range(height):
            pixel = i * (height + 1) * (width + 1) + (y + 1) * (width + 1)
            to = plan[STREAM] + size * step * pixel
            if channels == step:
                copy_bytes(to, run, size * width * channels)
                run += size * width * channels
            else:
                for _ in range(width):
                    copy_bytes(to, run, size * channels)
                    run += size * channels
                    to += size * step


@inlined
def _read_planes(first: int, rows: int, plan: Indices) -> None:
    """From observations `[n, planes, H, W]` to images."""
    height, width, planes = plan[HEIGHT], plan[WIDTH], plan[NUM_PLANES]
    squares = height * width
    observation, pixel_inputs = floats_at(plan[PLANES]), floats_at(plan[PIXEL])
    for i in range(rows):
        start = (first + i) * planes * squares
        for y in range(height):
            for x in range(width):
                for plane in range(planes):
                    place = start + plane * squares + y * width + x
                    pixel_inputs[plane] = observation[place]
                pixel = i * (height + 1) * (width + 1) + (y + 1) * (width + 1) + x
                to = plan[PLANES_AT] + plan[SIZE] * plan[WHOLE_PLANES] * pixel
                call_on_run(plan[ROUND_RUN], plan[PIXEL], to, planes, ZERO, ONE)


@inlined
def _set_actions(first: int, rows: int, plan: Indices) -> None:
    """Name the biases that each pixel gets: those of its place and the row's action."""
    height, width = plan[HEIGHT], plan[WIDTH]
    action, bias_rows = integers_at(plan[ACTION]), integers_at(plan[ENTRY_BIAS_ROWS])
    for i in range(rows):
        row = action[first + i] * height * width
        for y in range(height):
            pixel = i * (height + 1) * (width + 1) + (y + 1) * (width + 1)
            for x in range(width):
                bias_rows[pixel + x] = row + y * width + x


@inlined
def _scale_latents(at: int, first: int, rows: int, plan: Indices) -> None:
    """`scale_latent` of the images at an address, in place, and a copy to the slab."""
    height, width, channels = plan[HEIGHT], plan[WIDTH], plan[CHANNELS]
    size, step = plan[SIZE], plan[WHOLE_CHANNELS]
    target, bounds = integers_at(plan[TARGET]), floats_at(plan[BOUNDS])
    # Runs of numbers without padding in between.
    is_dense = channels == step
    runs = height if is_dense else height * width
    count = width * channels if is_dense else channels
    for i in range(rows):
        image = at + size * step * i * (height + 1) * (width + 1)
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for run in range(runs):
            pixel = _pixel_of(run, is_dense, width)
            call_for_bounds(plan[BOUNDS_OF_RUN], image + size * step * pixel, count, plan[BOUNDS])
            low, high = min(low, bounds[0]), max(high, bounds[1])
        factor = ONE / max(high - low, MIN_RANGE)
        memory = plan[SLAB]
        if plan[TARGET] != 0:
            memory += size * height * width * channels * target[first + i]
        for run in range(runs):
            place = image + size * step * _pixel_of(run, is_dense, width)
            call_on_run(plan[SCALE_RUN], place, place, count, low, factor)
            if plan[TARGET] != 0:
                copy_bytes(memory, place, size * count)
                memory += size * count


@inlined
def _pixel_of(run: int, is_row: bool, width: int) -> int:
    """First pixel of a run that is a row, or else a pixel."""
    if is_row:
        return (run + 1) * (width + 1)
    return (run // width + 1) * (width + 1) + run % width


@kernel
def resnet_call(program: Indices, plan: Indices) -> None:
    """From latents by actions to latents and what is read off them, from observations, or from latents alone.

    The entry's jobs lead to the image that the first job of the prediction reads.
    """
    num_rows, num_entry, num_reward = plan[NUM_ROWS], plan[NUM_ENTRY], plan[NUM_REWARD]
    num_actions = plan[NUM_ACTIONS]
    atom_widths = floats_at(plan[ATOM_WIDTHS])
    logits, value = floats_at(plan[LOGITS]), floats_at(plan[VALUE])
    reward, turn = floats_at(plan[REWARD]), floats_at(plan[TURN_LOGIT])
    heads = num_entry + num_reward
    rewards, last = program[heads - 1], program[-1]
    run_layer = plan[RUN_LAYER]
    for first in range(0, num_rows, plan[CHUNK]):
        rows = min(plan[CHUNK], num_rows - first)
        if plan[PLANES] != 0:
            _read_planes(first, rows, plan)
        else:
            _read_latents(first, rows, plan)
        if plan[ACTION] != 0:
            _set_actions(first, rows, plan)
        _run_jobs(program, 0, heads, rows, run_layer)
        if num_reward > 0:
            for i in range(rows):
                row = rewards[jobs.OUT] + 4 * i * rewards[jobs.WIDTH]
                is_squashed = plan[TRANSFORM] & 1 != 0
                reward[first + i] = read_scalar(
                    row, plan[REWARD_ATOMS], atom_widths[0], is_squashed
                )
                if plan[TURN] >= 0:
                    turn[first + i] = floats_at(row)[plan[TURN]]
        if num_entry > 0:
            _scale_latents(program[heads, jobs.X], first, rows, plan)
        _run_jobs(program, heads, len(program), rows, run_layer)
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
