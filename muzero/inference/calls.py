"""Calls of compiled kernels: the rows of a call shared by threads, plans made once, answers in memory that stays.

Letters: `n` rows of a call, `A` actions.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import NamedTuple

import numpy as np

from muzero.inference.evaluators import Answer
from muzero.inference.layers import Indices, Workspace, address, aligned
from muzero.network.base import MuZeroNetwork


class Part(NamedTuple):
    """What one thread does of a call."""

    program: Indices
    """Its own: jobs point to buffers."""
    plan: Indices
    first: int
    """First of its rows."""

    @property
    def shift(self) -> int:
        """Bytes from the first number of an int64 array by rows to that of this part."""
        return 8 * self.first


class CompiledCall:
    """A kernel with a program and a plan per thread.

    Args:
        names: The module that names a plan's fields.
        workers: Program of each thread, and what of its plan is the same in all calls.
        min_rows: Fewer are not worth a thread.
        is_step: Whether the kernel answers with rewards.
    """

    def __init__(
        self,
        kernel: Callable[[Indices, Indices], None],
        names: ModuleType,
        workers: list[tuple[Indices, Indices]],
        *,
        num_actions: int,
        min_rows: int,
        is_step: bool,
    ) -> None:
        self._kernel, self._names, self._workers = kernel, names, workers
        self._num_actions, self._min_rows = num_actions, min_rows
        self._is_step = is_step
        self._room = 0
        self._found: dict[int, tuple[list[Part], Answer]] = {}
        self._pool = (
            ThreadPoolExecutor(len(workers) - 1, thread_name_prefix="network")
            if len(workers) > 1
            else None
        )

    def of(self, num_rows: int) -> tuple[list[Part], Answer]:
        """The parts of a call with so many rows, which reads row after row, and what it will answer: always the same record."""
        found = self._found.get(num_rows)
        if found is None:
            if num_rows > self._room:
                self._grow(num_rows)
            logits, value, reward, turn = (array[:num_rows] for array in self._memory)
            plan = self._workers[0][1]
            answer = Answer(
                logits,
                value,
                reward if self._is_step else None,
                turn if plan[self._names.TURN] >= 0 else None,
            )
            found = self._found[num_rows] = self._parts(num_rows), answer
        return found

    def run(self, parts: list[Part]) -> None:
        """Do all parts; this thread takes the first."""
        first, *others = parts
        if self._pool is None or not others:
            self._kernel(first.program, first.plan)
            return
        pending = [self._pool.submit(self._kernel, part.program, part.plan) for part in others]
        self._kernel(first.program, first.plan)
        for each in pending:
            each.result()

    def _grow(self, num_rows: int) -> None:
        self._found.clear()
        self._room = num_rows
        self._memory = [
            aligned((num_rows, self._num_actions), np.float32),
            *(aligned(num_rows, np.float32) for _ in range(3)),
        ]
        self._in_order = np.arange(num_rows)

    def _parts(self, num_rows: int) -> list[Part]:
        names, count = self._names, max(1, min(len(self._workers), num_rows // self._min_rows))
        bounds = [num_rows * part // count for part in range(count + 1)]
        parts = []
        for (program, common), first, last in zip(self._workers, bounds, bounds[1:], strict=False):
            plan = common.copy()
            plan[names.NUM_ROWS] = last - first
            plan[names.SOURCE] = address(self._in_order) + 8 * first
            for name, array in zip(
                ("LOGITS", "VALUE", "REWARD", "TURN_LOGIT"), self._memory, strict=True
            ):
                plan[getattr(names, name)] = address(array) + array.strides[0] * first
            parts.append(Part(program, plan, first))
        return parts


def set_supports(
    plan: Indices, names: ModuleType, network: MuZeroNetwork, space: Workspace
) -> None:
    """Tell a plan how rewards and values are read."""
    reward, value = network.reward_support, network.value_support
    widths = space.keep(np.array([reward.atom_width, value.atom_width], np.float32))
    plan[names.REWARD_ATOMS], plan[names.VALUE_ATOMS] = reward.size, value.size
    plan[names.TRANSFORM] = int(reward.transform) + 2 * int(value.transform)
    plan[names.ATOM_WIDTHS] = address(widths)
