"""A network on CUDA whose step is captured once as a graph and then replayed: one launch instead of some dozens.

A graph repeats what it has recorded, at the same addresses. So a step reads rows and actions from buffers that never move
and writes to others; latents stay in the slab, and only logits, value, reward and turn cross to the host.

Letters: `n` rows of a call, `b` rows of a captured step, `B` rows of the model.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from muzero.inference.evaluators import Answer, ModuleEvaluator, Outputs, Rows
from muzero.network.base import MuZeroNetwork

_logger = logging.getLogger(__name__)

SMALLEST = 8
"""Rows of the smallest step that is captured."""

_WARM_UPS = 3
"""Runs before a capture, in which libraries choose their algorithms and allocate their workspaces."""

_capturing = threading.Lock()

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""From what is to be done to what repeats it."""


def row_counts(batch_size: int) -> list[int]:
    """Sizes `b` of captured steps: `B` and its halves, ascending. A call takes the smallest that it fits into."""
    sizes = [batch_size]
    while sizes[-1] > SMALLEST:
        sizes.append((sizes[-1] + 1) // 2)
    return sizes[::-1]


class StaticStep:
    """One size of step, with its buffers.

    Args:
        slab: Its last row is spare: rows of a call that is smaller than the step read and write that.
        capture: Records the step and returns what replays it.
    """

    def __init__(
        self,
        evaluator: ModuleEvaluator,
        num_rows: int,
        slab: Tensor,
        num_actions: int,
        capture: Capture,
    ) -> None:
        device = slab.device
        self.num_rows = num_rows
        self._spare = len(slab) - 1
        self._inputs = torch.zeros(3, num_rows, dtype=torch.int64, device=device)
        self._host = self._inputs
        if device.type == "cuda":
            self._host = torch.zeros(3, num_rows, dtype=torch.int64).pin_memory()
        self._table = self._host.numpy()
        self._set(None)
        self._inputs.copy_(self._host)
        self.outputs = Outputs(num_rows, num_actions, device)
        source, target, action = self._inputs
        self._replay = capture(lambda: evaluator.step(slab, source, target, action, self.outputs))

    def run(self, rows: Rows) -> None:
        """Do the step for `n` rows, at most `b`; the outputs are there when the stream has come so far."""
        self._set(rows)
        if self._host is not self._inputs:
            self._inputs.copy_(self._host, non_blocking=True)
        self._replay()
        self.outputs.fetch()

    def _set(self, rows: Rows | None) -> None:
        count = 0 if rows is None else len(rows.action)
        if rows is not None:
            self._table[0, :count] = rows.source
            self._table[1, :count] = rows.target
            self._table[2, :count] = rows.action
        self._table[:2, count:] = self._spare
        self._table[2, count:] = 0


class GraphEvaluator(ModuleEvaluator):
    """A `ModuleEvaluator` whose steps are replayed, on a stream of its own: two of them overlap.

    The slab needs a spare row at its end, and has to stay the same.

    Args:
        batch_size: `B`.
        capture: Another way to record a step, for tests without CUDA.
    """

    num_spare_rows = 1

    def __init__(
        self,
        network: MuZeroNetwork,
        device: torch.device,
        dtype: torch.dtype,
        *,
        batch_size: int,
        capture: Capture | None = None,
    ) -> None:
        super().__init__(network, device, dtype)
        self._sizes = row_counts(batch_size)
        self._capture = capture or self._capture_graph
        self._steps: dict[int, StaticStep] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Evaluator.load`."""
        super().load(state)
        if self._stream is not None:
            torch.cuda.synchronize(self._device)

    @torch.inference_mode()
    def initial(self, observation: Tensor, slab: Tensor, rows: Rows | None) -> Answer:
        """See `Evaluator.initial`."""
        with self._on_stream():
            return super().initial(observation, slab, rows)

    @torch.inference_mode()
    def recurrent(self, slab: Tensor, rows: Rows) -> Answer:
        """See `Evaluator.recurrent`."""
        num_rows = len(rows.action)
        size = next(size for size in self._sizes if size >= num_rows)
        with self._on_stream():
            step = self._steps.get(size)
            if step is None:
                num_actions = self._network.spec.num_actions
                step = StaticStep(self, size, slab, num_actions, self._capture)
                self._steps[size] = step
            step.run(rows)
            if self._stream is not None:
                self._stream.synchronize()
        return step.outputs.answer(num_rows, self._network.spec.has_turn_head)

    def _on_stream(self) -> AbstractContextManager[object]:
        if self._stream is None:
            return nullcontext()
        # What the caller's stream still does, such as moving latents, comes first.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def _capture_graph(self, step: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        assert self._stream is not None
        # One at a time; what other threads do on the device meanwhile is no part of it and goes on.
        with _capturing:
            try:
                for _ in range(_WARM_UPS):
                    step()
                self._stream.synchronize()
                with torch.cuda.graph(
                    graph,
                    pool=self._pool,
                    stream=self._stream,
                    capture_error_mode="thread_local",
                ):
                    step()
            except RuntimeError as error:
                raise RuntimeError(
                    f"search.cuda_graph=true: a step of this network cannot be captured as a CUDA graph ({error}); set "
                    "search.cuda_graph=false"
                ) from error
        _logger.info("A step of the network is replayed as a CUDA graph (%s)", self._device)
        return graph.replay
