"""A stand-in for a CUDA graph on the CPU: what was done once is done again, at the same places in memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Notes every operation with the very tensors that it took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        output = operation(*arguments, **(options or {}))
        self.operations.append((operation, arguments, options or {}, output))
        return output


class Recordings:
    """Records steps as `GraphEvaluator` asks for, and counts."""

    def __init__(self) -> None:
        self.num_captures = 0
        self.num_replays = 0

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        self.num_captures += 1
        with Recorder() as recorder:
            step()
        assert len(recorder.operations) > 5

        @torch.inference_mode()
        def replay() -> None:
            self.num_replays += 1
            for operation, arguments, options, output in recorder.operations:
                again = operation(*arguments, **options)
                # A graph computes into the memory of its capture; what is read later stands there.
                if isinstance(output, Tensor) and again.data_ptr() != output.data_ptr():
                    output.copy_(again)

        return replay
