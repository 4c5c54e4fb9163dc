"""A network on one device as the search sees it.

Letters: `B` rows, `N` nodes of a tree, `A` actions, `*O` observation shape.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mcts.base import ROOT_INDEX, FloatArray, ModelOutput, RootOutput, Selection
from muzero.inference.evaluators import Evaluator, ModuleEvaluator, Rows
from muzero.inference.fused import FusedMLP
from muzero.network.base import MuZeroNetwork
from muzero.network.mlp import MLPNetwork


class LocalModel:
    """An inference copy of a network, and the latents of `batch_size` trees of `num_nodes` nodes.

    Rows never influence each other, and a call may have fewer rows than `batch_size`. The arrays of a
    `ModelOutput` are valid until the next call.

    Example:
        >>> model = LocalModel(network, batch_size=128, num_nodes=17, discount=0.997)
        >>> root = model.roots(observation)            # plants node 0 of each row
        >>> output = run(search, model, root, legal)   # calls model.recurrent

    Args:
        network: Is copied; its own weights serve until `load`.
        discount: Discount per step, gamma, above 0 and at most 1.
        bfloat16: Compute and keep latents in bfloat16; heads are read in float32.
        version: Version of the network's own weights.
    """

    def __init__(
        self,
        network: MuZeroNetwork,
        *,
        batch_size: int,
        num_nodes: int,
        discount: float,
        device: torch.device | str = "cpu",
        bfloat16: bool = False,
        version: int = 0,
    ) -> None:
        if not 0.0 < discount <= 1.0:
            raise ValueError(f"targets.discount is {discount}; it has to be above 0 and at most 1")
        for name, count in (("batch_size", batch_size), ("num_nodes", num_nodes)):
            if count < 1:
                raise ValueError(f"{name} is {count}; it has to be at least 1")
        self.spec = network.spec
        self.batch_size, self.num_nodes, self.discount = batch_size, num_nodes, discount
        self.version = version
        self.device = torch.device(device)
        dtype = torch.bfloat16 if bfloat16 else torch.float32
        self._evaluator = make_evaluator(network, self.device, dtype)
        self._slab = torch.zeros(
            batch_size * num_nodes,
            *self._evaluator.memory_shape,
            dtype=self._evaluator.memory_dtype,
            device=self.device,
        )
        self._first_node = np.arange(batch_size, dtype=np.int64) * num_nodes
        self._rows: dict[int, Rows] = {}
        sign = 1.0 if self.spec.num_players == 1 else -1.0
        self._edge_discount = np.full(batch_size, sign * discount, np.float32)

    def load(self, state: Mapping[str, Tensor], version: int) -> None:
        """Take the weights of a training network's state dict, and their version."""
        self._evaluator.load(state)
        self.version = version

    @torch.inference_mode()
    def roots(self, observation: npt.NDArray[Any]) -> RootOutput:
        """`[B, *O]` of any dtype: set node 0 of rows 0 to `B - 1`; `B` at most `batch_size`."""
        self._check(observation, self.batch_size)
        num_rows = len(observation)
        rows = self._rows_of(num_rows)
        np.add(self._first_node[:num_rows], ROOT_INDEX, out=rows.target)
        answer = self._evaluator.initial(self._to_device(observation), self._slab, rows)
        return RootOutput(answer.policy_logits.copy(), answer.value.copy())

    @torch.inference_mode()
    def recurrent(self, selection: Selection) -> ModelOutput:
        """One step of the dynamics and a prediction; see `mcts.Model`."""
        num_rows = len(selection.action)
        rows = self._rows_of(num_rows)
        first_node = self._first_node[:num_rows]
        np.add(first_node, selection.parent, out=rows.source)
        np.add(first_node, selection.node, out=rows.target)
        rows.action[:] = selection.action
        answer = self._evaluator.recurrent(self._slab, rows)
        assert answer.reward is not None
        discount = self._edge_discount[:num_rows]
        if answer.turn_logit is not None:
            discount = np.where(answer.turn_logit > 0.0, np.abs(discount), -np.abs(discount))
        return ModelOutput(answer.reward, discount, answer.policy_logits, answer.value)

    @torch.inference_mode()
    def values(self, observation: npt.NDArray[Any]) -> FloatArray:
        """Network values `[B]` of observations `[B, *O]`, any number of them; the trees stay as they are."""
        self._check(observation, None)
        chunks = [
            self._evaluator.initial(self._to_device(chunk), self._slab, None).value.copy()
            for chunk in np.split(
                observation, range(self.batch_size, len(observation), self.batch_size)
            )
        ]
        return np.concatenate(chunks)

    def _rows_of(self, num_rows: int) -> Rows:
        rows = self._rows.get(num_rows)
        if rows is None:
            rows = self._rows[num_rows] = Rows(num_rows, self.device)
        return rows

    def _to_device(self, observation: npt.NDArray[Any]) -> Tensor:
        # Copied to torch's own memory: the order of sums in a matrix product depends on the alignment of its inputs.
        return torch.tensor(observation).to(self.device)

    def _check(self, observation: npt.NDArray[Any], most: int | None) -> None:
        shape = self.spec.observation_shape
        if observation.shape[1:] != shape:
            raise ValueError(
                f"observations have shape {list(observation.shape[1:])}; the network expects {list(shape)}"
            )
        if most is not None and len(observation) > most:
            raise ValueError(
                f"{len(observation)} observations; this model has room for batch_size {most}"
            )


def make_evaluator(network: MuZeroNetwork, device: torch.device, dtype: torch.dtype) -> Evaluator:
    """The fastest evaluator there is for `network` on `device`."""
    if isinstance(network, MLPNetwork) and device.type == "cpu":
        return FusedMLP(network, dtype)
    return ModuleEvaluator(network, device, dtype)
