"""A network on one device as the search sees it.

Letters: `B` rows, `N` nodes of a tree, `A` actions, `*O` observation shape.
"""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mcts.base import ROOT_INDEX, FloatArray, IntArray, ModelOutput, RootOutput, Selection
from muzero.inference.evaluators import Answer, Evaluator, ModuleEvaluator, Rows
from muzero.inference.fused import FusedMLP, FusedStochasticMLP
from muzero.inference.fused_resnet import FusedResNet, is_fusable
from muzero.inference.graph import GraphEvaluator
from muzero.inference.precision import Unit, bfloat16_unit
from muzero.inference.stochastic_evaluator import StochasticEvaluator
from muzero.network.base import MuZeroNetwork
from muzero.network.mlp import MLPNetwork
from muzero.network.resnet import ResNetNetwork
from muzero.network.stochastic import StochasticNetwork
from muzero.network.stochastic_mlp import StochasticMLP

_logger = logging.getLogger(__name__)

NodeArray = npt.NDArray[np.integer]


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
        cuda_graph: On CUDA, replay a captured step.
        num_threads: On a CPU, threads that share the rows of a call; they change no result.
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
        cuda_graph: bool = True,
        num_threads: int = 1,
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
        self._evaluator = make_evaluator(
            network,
            self.device,
            batch_size,
            bfloat16=bfloat16,
            cuda_graph=cuda_graph,
            num_threads=num_threads,
        )
        self._slab = torch.zeros(
            batch_size * num_nodes + self._evaluator.num_spare_rows,
            *self._evaluator.memory_shape,
            dtype=self._evaluator.memory_dtype,
            device=self.device,
        )
        self._first_node = np.arange(batch_size, dtype=np.int64) * num_nodes
        self._all_rows = Rows(batch_size, self.device)
        self._rows: dict[int, Rows] = {}
        # Evaluators that answer in the same arrays every time give the same record.
        self._outputs: dict[int, tuple[Answer, ModelOutput]] = {}
        sign = 1.0 if self.spec.num_players == 1 else -1.0
        self._edge_discount = np.full(batch_size, sign * discount, np.float32)

    def load(self, state: Mapping[str, Tensor], version: int) -> None:
        """Take the weights of a training network's state dict, and their version."""
        self._evaluator.load(state)
        self.version = version

    def roots(self, observation: npt.NDArray[Any], rows: NodeArray | None = None) -> RootOutput:
        """`[B, *O]` of any dtype: set node 0 of rows 0 to `B - 1`, or of `rows` `[B]`; `B` at most `batch_size`."""
        self._check(observation, self.batch_size)
        num_rows = len(observation)
        places = self._rows_of(num_rows)
        first_node = self._first_node[:num_rows] if rows is None else self._first_node[rows]
        np.add(first_node, ROOT_INDEX, out=places.target)
        answer = self._evaluator.initial(self._to_device(observation), self._slab, places)
        return RootOutput(answer.policy_logits.copy(), answer.value.copy())

    def recurrent(self, selection: Selection) -> ModelOutput:
        """One step of the dynamics and a prediction; see `mcts.Model`."""
        num_rows = len(selection.action)
        rows = self._rows_of(num_rows)
        rows.fill(selection, self.num_nodes)
        answer = self._evaluator.recurrent(self._slab, rows)
        known = self._outputs.get(num_rows)
        if known is None or known[0] is not answer:
            assert answer.reward is not None
            discount = self._edge_discount[:num_rows]
            output = ModelOutput(answer.reward, discount, answer.policy_logits, answer.value)
            known = self._outputs[num_rows] = answer, output
        if answer.turn_logit is not None:
            stays = self.discount
            known[1].discount[:] = np.where(answer.turn_logit > 0.0, stays, -stays)
        return known[1]

    @property
    def latent_format(self) -> str:
        """How latents are laid out in memory: what two models must share to exchange `latents`."""
        slab = self._slab
        return f"{type(self._evaluator).__name__} {slab.dtype} {list(slab.shape[1:])}"

    def move_nodes(self, source: IntArray, num_nodes: IntArray) -> None:
        """Follow `Search.keep_subtrees`: node `n` of row `r` gets the latent of node `source[r, n]`, for `n` below `num_nodes[r]`."""
        rows, nodes = used_nodes(num_nodes)
        self.copy_nodes(rows, source[rows, nodes], nodes)

    def latents(self, num_nodes: IntArray) -> npt.NDArray[Any]:
        """`[sum of num_nodes, *M]` latents of the first `num_nodes[r]` nodes of each row `r`, row by row; bfloat16 as its bits."""
        return self.read_nodes(*used_nodes(num_nodes))

    def restore_latents(self, num_nodes: IntArray, latents: npt.NDArray[Any]) -> None:
        """Set what `latents` gave."""
        self.write_nodes(*used_nodes(num_nodes), latents)

    @torch.inference_mode()
    def copy_nodes(self, rows: NodeArray, source: NodeArray, target: NodeArray) -> None:
        """Give node `target[k]` of row `rows[k]` the latent of node `source[k]`, for all `k` at once."""
        latents = self._slab.index_select(0, self._places(rows, source))
        self._slab.index_copy_(0, self._places(rows, target), latents)

    @torch.inference_mode()
    def read_nodes(self, rows: NodeArray, nodes: NodeArray) -> npt.NDArray[Any]:
        """`[k, *M]` latents of node `nodes[k]` of row `rows[k]`; bfloat16 as its bits."""
        latents = self._slab.index_select(0, self._places(rows, nodes))
        if latents.dtype == torch.bfloat16:
            latents = latents.view(torch.int16)
        array: npt.NDArray[Any] = latents.cpu().numpy()
        return array

    @torch.inference_mode()
    def write_nodes(self, rows: NodeArray, nodes: NodeArray, latents: npt.NDArray[Any]) -> None:
        """Set what `read_nodes` gave."""
        tensor = torch.tensor(latents).to(self.device)
        if self._slab.dtype == torch.bfloat16:
            tensor = tensor.view(torch.bfloat16)
        self._slab.index_copy_(0, self._places(rows, nodes), tensor)

    def values(self, observation: npt.NDArray[Any]) -> FloatArray:
        """Network values `[B]` of observations `[B, *O]`, any number of them; the trees stay as they are."""
        return self.predict(observation).value

    def predict(self, observation: npt.NDArray[Any]) -> RootOutput:
        """Policy logits `[B, A]` and values `[B]` of observations `[B, *O]`, any number of them; touches no tree."""
        self._check(observation, None)
        logits = np.empty((len(observation), self.spec.num_actions), np.float32)
        value = np.empty(len(observation), np.float32)
        for first in range(0, len(observation), self.batch_size):
            chunk = slice(first, first + self.batch_size)
            answer = self._evaluator.initial(self._to_device(observation[chunk]), self._slab, None)
            logits[chunk], value[chunk] = answer.policy_logits, answer.value
        return RootOutput(logits, value)

    def _places(self, rows: NodeArray, nodes: NodeArray) -> Tensor:
        """Slab rows of `nodes` of `rows`."""
        return torch.from_numpy(self._first_node[rows] + nodes).to(self.device)

    def _rows_of(self, num_rows: int) -> Rows:
        rows = self._rows.get(num_rows)
        if rows is None:
            rows = self._rows[num_rows] = self._all_rows.first(num_rows)
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


def used_nodes(num_nodes: IntArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row and node of each of the first `num_nodes[r]` nodes of every row `r`, row by row."""
    rows, nodes = np.nonzero(np.arange(num_nodes.max(initial=0)) < num_nodes[:, None])
    return rows, nodes


def make_evaluator(
    network: MuZeroNetwork,
    device: torch.device,
    batch_size: int,
    *,
    bfloat16: bool,
    cuda_graph: bool,
    num_threads: int,
) -> Evaluator:
    """The fastest evaluator there is for `network` on `device`."""
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    compiled: Evaluator | None = None
    if device.type == "cpu":
        unit = bfloat16_unit() if bfloat16 else "float32"
        if unit is not None:
            compiled = _compiled(network, bfloat16, num_threads)
        if bfloat16:
            _logger.info("search.bfloat16: %s", _way_of(unit, compiled is not None))
    if isinstance(network, StochasticNetwork):
        way = "as torch's modules" if compiled is None else "compiled"
        _logger.info("network.num_chance_codes: the networks of searches run %s", way)
    if compiled is not None:
        return compiled
    if isinstance(network, StochasticNetwork):
        return StochasticEvaluator(network, device, dtype)
    if device.type == "cuda" and cuda_graph:
        return GraphEvaluator(network, device, dtype, batch_size=batch_size)
    return ModuleEvaluator(network, device, dtype)


def _compiled(network: MuZeroNetwork, bfloat16: bool, num_threads: int) -> Evaluator | None:
    """The compiled evaluator of a network, if there is one."""
    if isinstance(network, MLPNetwork):
        return FusedMLP(network, bfloat16=bfloat16, num_threads=num_threads)
    if isinstance(network, StochasticMLP):
        return FusedStochasticMLP(network, bfloat16=bfloat16, num_threads=num_threads)
    if isinstance(network, ResNetNetwork) and is_fusable(network):
        return FusedResNet(network, bfloat16=bfloat16, num_threads=num_threads)
    return None


def _way_of(unit: Unit | None, is_compiled: bool) -> str:
    """For the log: how a network in bfloat16 is computed on this CPU."""
    if unit is None:
        return "this processor has neither AMX nor AVX512_BF16; networks run as torch's modules"
    if not is_compiled:
        return "this network cannot be compiled (see docs/inference.md); it runs as torch's modules"
    return f"networks run compiled, on {unit.upper()}"
