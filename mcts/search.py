"""A batch of searches in lock step: begin, then select and update once per simulation, then result."""

import numpy as np
import numpy.typing as npt

from mcts import kernels
from mcts.base import (
    BoolArray,
    FloatArray,
    IntArray,
    Model,
    ModelOutput,
    RootOutput,
    SearchOutput,
    Selection,
)
from mcts.gumbel import GumbelRule
from mcts.policies import SearchSettings
from mcts.puct import PuctRule
from mcts.threads import MIN_ROWS_PER_THREAD, RowThreads
from mcts.tree import Tree


class Search:
    """Searches up to `batch_size` roots at a time; every array is allocated here, once.

    The search never calls the model: the driver asks it for the selected edges and hands the answer to `update`.
    float32 holds values up to some thousands; `dtype` float64 serves comparison with other implementations.
    """

    def __init__(
        self,
        settings: SearchSettings,
        *,
        batch_size: int,
        num_actions: int,
        num_threads: int = 1,
        dtype: npt.DTypeLike = np.float32,
        min_rows_per_thread: int = MIN_ROWS_PER_THREAD,
    ) -> None:
        for name, count in (("batch_size", batch_size), ("num_actions", num_actions)):
            if count < 1:
                raise ValueError(f"{name}={count}: must be at least 1")
        self.settings = settings
        self.num_actions = num_actions
        self.batch_size = batch_size
        self._dtype = np.dtype(dtype)
        self._is_gumbel = settings.kind == "gumbel"
        self._threads = RowThreads(num_threads, min_rows_per_thread)
        num_simulations = settings.num_simulations
        self.tree = Tree(
            batch_size=batch_size,
            num_simulations=num_simulations,
            num_actions=num_actions,
            dtype=self._dtype,
            holds_logits=self._is_gumbel,
        )
        self._selection: IntArray = np.zeros((3, batch_size), np.int32)
        self._logits = np.zeros((batch_size, num_actions), self._dtype)
        self._noise = np.zeros((batch_size, num_actions), self._dtype)
        self._reward, self._discount, self._value = np.zeros((3, batch_size), self._dtype)
        self._scratch = np.zeros((batch_size, num_actions), self._dtype)
        rule = GumbelRule if self._is_gumbel else PuctRule
        self._rule = rule(settings, self.tree, self._threads)
        self._num_done = 0
        self._is_begun = False
        self._is_selected = False
        self._view_rows(batch_size)

    def begin(self, root: RootOutput, legal: BoolArray, noise: FloatArray | None = None) -> None:
        """Plant new roots: `legal` `[B, A]` with `B` up to `batch_size`, `noise` `[B, A]` from `draw_noise` or None.

        Raises ValueError if a row has no legal action, or if the model's answer or the noise is not finite.
        """
        num_rows = len(legal)
        shape = (num_rows, self.num_actions)
        if not 1 <= num_rows <= self.batch_size:
            raise ValueError(f"legal has {num_rows} rows; this search takes 1 to {self.batch_size}")
        _check_shape("legal", legal, shape)
        _check_shape("root.prior_logits", root.prior_logits, shape)
        _check_shape("root.value", root.value, (num_rows,))
        self._is_begun = False
        self._logits[:num_rows] = root.prior_logits
        self._value[:num_rows] = root.value
        self.tree.legal[:num_rows] = legal
        if noise is None:
            self._noise[:num_rows] = 0
        else:
            _check_shape("noise", noise, shape)
            self._noise[:num_rows] = noise
        tree = self.tree
        fault = self._threads.call(
            kernels.plant,
            num_rows,
            self._is_gumbel,
            0.0 if noise is None else self._rule.noise_weight,
            self._rule.max_considered,
            self._logits,
            self._value,
            self._noise,
            tree.legal,
            tree.gumbel,
            *tree.arrays,
        )
        if fault != kernels.NO_FAULT:
            row, kind = divmod(fault, kernels.NUM_FAULTS)
            raise ValueError(f"row {row}: {_PLANT_FAULTS[kind]}")
        self._view_rows(num_rows)
        tree.num_rows = num_rows
        tree.num_nodes = 1
        self._num_done = 0
        self._is_begun = True
        self._is_selected = False

    def select(self) -> Selection:
        """Walk every tree to the edge that it wants evaluated; the arrays are valid until the next call."""
        if not self._is_begun:
            raise RuntimeError("Search.select before Search.begin")
        if self._num_done >= self.settings.num_simulations:
            raise RuntimeError(
                f"Search.select after all {self.settings.num_simulations} simulations"
            )
        self._rule.select(self._num_rows, self._num_done + 1, self._selection)
        self._is_selected = True
        return self._selected

    def update(self, output: ModelOutput) -> None:
        """Expand the selected edges with the model's answer and back it up.

        Raises ValueError if the answer is not finite; the search must then begin anew. A logit of minus infinity is
        allowed, it is a prior of 0.
        """
        if not self._is_selected:
            raise RuntimeError("Search.update without Search.select before it")
        self._is_selected = False
        num_rows = self._num_rows
        slot = self._num_done + 1
        tree = self.tree
        fault = self._threads.call(
            kernels.expand_and_backup,
            num_rows,
            slot,
            self._is_gumbel,
            self._selection,
            self._fit("reward", output.reward, self._reward),
            self._fit("discount", output.discount, self._discount),
            self._fit("prior_logits", output.prior_logits, self._logits),
            self._fit("value", output.value, self._value),
            *tree.arrays,
        )
        tree.num_nodes = slot + 1
        if fault != kernels.NO_FAULT:
            self._is_begun = False
            raise ValueError(
                f"the model returned non-finite values: row {fault}, simulation {self._num_done}, "
                f"action {self._selection[1, fault]} at node {self._selection[0, fault]}"
            )
        self._num_done = slot

    def result(self) -> SearchOutput:
        """Read the roots out into fresh arrays; may be called before all simulations are done."""
        if not self._is_begun:
            raise RuntimeError("Search.result before Search.begin, or after a failed update")
        num_rows = self._num_rows
        shape = (num_rows, self.num_actions)
        output = SearchOutput(
            visits=np.empty(shape, np.int32),
            policy=np.empty(shape, self._dtype),
            value=np.empty(num_rows, self._dtype),
            qvalues=np.empty(shape, self._dtype),
            best_action=np.empty(num_rows, np.int32),
            best_value=np.empty(num_rows, self._dtype),
            depth=np.empty(num_rows, self._dtype),
        )
        self._rule.summarise(num_rows, self._num_done, output)
        is_finite = np.isfinite(output.value) & np.isfinite(output.policy).all(axis=1)
        if not is_finite.all():
            row = int(np.argmin(is_finite))
            raise ValueError(
                f"row {row}: the model's rewards and values leave the range of {self._dtype}"
            )
        return output

    def _view_rows(self, num_rows: int) -> None:
        self._num_rows = num_rows
        parent, action, node = self._selection[:, :num_rows]
        self._selected = Selection(parent, action, node)

    def _fit(self, name: str, array: FloatArray, buffer: FloatArray) -> FloatArray:
        """The array itself if the kernels take it as it is, else a copy in the buffer."""
        expected = (self._num_rows, *buffer.shape[1:])
        if array.shape != expected:
            raise ValueError(f"the model's {name} has shape {array.shape}, expected {expected}")
        if array.dtype == self._dtype and array.flags.carray:
            return array
        buffer[: self._num_rows] = array
        return buffer


_PLANT_FAULTS = {
    kernels.NO_LEGAL_ACTION: "no legal action; a position to search must have at least one",
    kernels.NOT_FINITE: "the model returned non-finite values for the root",
    kernels.BAD_NOISE: "the noise is not finite",
}


def _check_shape(name: str, array: np.ndarray, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")


def run(
    search: Search,
    model: Model,
    root: RootOutput,
    legal: BoolArray,
    noise: FloatArray | None = None,
) -> SearchOutput:
    """Search the roots with all simulations: the model answers exactly `num_simulations` times."""
    search.begin(root, legal, noise)
    for _ in range(search.settings.num_simulations):
        search.update(model.recurrent(search.select()))
    return search.result()
