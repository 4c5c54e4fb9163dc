"""A batch of searches in lock step: begin, then select and update once per simulation, then result."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mcts import kernels, reuse, saved_trees
from mcts.base import (
    Answer,
    BoolArray,
    FloatArray,
    IntArray,
    KeptSubtrees,
    Model,
    ModelOutput,
    RootOutput,
    SearchOutput,
    Selection,
)
from mcts.checks import check_integers, check_planted, check_roots, check_shape
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
        self._has_chance = settings.num_chance_outcomes > 0
        # Actions and outcomes share the columns of the tree.
        num_columns = max(num_actions, settings.num_chance_outcomes)
        self._threads = RowThreads(num_threads, min_rows_per_thread)
        num_simulations = settings.num_simulations
        self.tree = Tree(
            batch_size=batch_size,
            num_simulations=num_simulations,
            num_actions=num_columns,
            dtype=self._dtype,
            holds_logits=self._is_gumbel,
            has_chance=self._has_chance,
        )
        # The edges that are being asked for, and room for those after them: they change places with every simulation.
        self._selection, self._following = np.zeros((2, 4, batch_size), np.int32)
        self._logits = np.zeros((batch_size, num_columns), self._dtype)
        self._noise = np.zeros((batch_size, num_columns), self._dtype)
        # What the model has answered with last, as far as it fits the kernels as it is.
        nothing = np.zeros(0, self._dtype)
        self._answer: Answer = (nothing, nothing, nothing, nothing)
        self._no_answer = self._answer
        self._explored = np.zeros(batch_size, np.bool_)
        self._reward, self._discount, self._value = np.zeros((3, batch_size), self._dtype)
        rule = GumbelRule if self._is_gumbel else PuctRule
        self._rule = rule(settings, self.tree, self._threads)
        # A row searches while it has made fewer simulations than it has planned; all begin together.
        self._num_planned: IntArray = np.zeros(batch_size, np.int32)
        self._num_steps = self._next_end = 0
        self._num_rows = self._num_places = batch_size
        self._is_begun = self._is_selected = self._is_kept = False
        self._all_rows = np.arange(batch_size, dtype=np.int32)
        self._cut_selections(batch_size)

    def begin(
        self,
        root: RootOutput,
        legal: BoolArray,
        noise: FloatArray | None = None,
        *,
        num_simulations: npt.NDArray[np.integer] | None = None,
        explored: BoolArray | None = None,
        kept: bool = False,
    ) -> None:
        """Plant new roots.

        Args:
            root: What the model says of them.
            legal: `[B, A]`, `B` up to `batch_size`.
            noise: `[B, A]` from `draw_noise`; None for none.
            num_simulations: `[B]` simulations per row, 1 to the settings' number; None gives that to all.
            explored: `[B]` rows that get noise and forced playouts; None for all.
            kept: After `keep_subtrees` with the same rows: plant the roots over the kept trees. A kept child whose
                action is illegal or absent is cut off. Simulations in what stays count: the row makes only what is missing
                to its number, at least one.

        Raises:
            ValueError: If a row has no action that is legal and not absent, a wrong number of simulations, or if the
                model's answer or the noise is not finite.
        """
        num_rows = len(legal)
        if not 1 <= num_rows <= self.batch_size:
            raise ValueError(f"legal has {num_rows} rows; this search takes 1 to {self.batch_size}")
        most = self.settings.num_simulations
        shape = (num_rows, self.num_actions)
        check_roots(shape, root, legal, noise, explored, num_simulations, most)
        if kept and not self._is_kept:
            raise RuntimeError("Search.begin(kept=True) without Search.keep_subtrees before it")
        if kept and num_rows != self._num_rows:
            raise ValueError(
                f"legal has {num_rows} rows; subtrees were kept of {self._num_rows}, all of which begin together"
            )
        self._is_begun = self._is_selected = self._is_kept = False
        self._logits[:num_rows, : self.num_actions] = root.prior_logits
        self._logits[:num_rows, self.num_actions :] = -np.inf
        self._value[:num_rows] = root.value
        self._noise[:num_rows, : self.num_actions] = 0 if noise is None else noise
        self._explored[:num_rows] = True if explored is None else explored
        tree = self.tree
        tree.legal[:num_rows, : self.num_actions] = legal
        fault = self._threads.call(
            kernels.plant,
            num_rows,
            self._is_gumbel,
            0.0 if noise is None else self._rule.noise_weight,
            self._rule.max_considered,
            self.settings.forced_playouts,
            kept,
            self._logits,
            self._value,
            self._noise,
            self._explored,
            tree.legal,
            *tree.arrays,
        )
        check_planted(fault)
        tree.num_rows = self._num_rows = num_rows
        planned = self._num_planned[:num_rows]
        planned[:] = most if num_simulations is None else num_simulations
        if kept:
            self._threads.call(
                reuse.regraft, num_rows, self._is_gumbel, self._has_chance, *tree.arrays
            )
            planned[:] = np.maximum(1, planned - tree.num_kept)
        self._rule.prepare(planned)
        self._num_steps = 0
        self._next_end = int(planned.min())
        self._selection[0, :num_rows] = self._following[0, :num_rows] = self._all_rows[:num_rows]
        self._cut_selections(num_rows)
        self._rule.start(num_rows, self._selection)
        self._is_begun = True

    def select(self) -> Selection | None:
        """The edge that every row that still searches wants evaluated; None if no row searches any more.

        The arrays are valid until the next call but one.
        """
        if not self._is_begun:
            raise RuntimeError("Search.select before Search.begin")
        if self._num_steps >= self._next_end:
            self._drop_finished_rows()
        if self._num_places == 0:
            return None
        self._is_selected = True
        return self._selections[0]

    def update(self, output: ModelOutput) -> None:
        """Expand the selected edges with the model's answer and back it up.

        Raises ValueError if the answer is not finite; the search must then begin anew. A logit of minus infinity says
        that the action does not exist at the new node.
        """
        if not self._is_selected:
            raise RuntimeError("Search.update without Search.select before it")
        self._is_selected = False
        reward, discount, logits, value = self._answer
        if not (
            output.reward is reward
            and output.discount is discount
            and output.prior_logits is logits
            and output.value is value
        ):
            self._fit_answer(output)
        fault = self._rule.step(self._num_places, self._answer, self._selection, self._following)
        if fault != kernels.NO_FAULT:
            self._is_begun = False
            row, node, action, _ = self._selection[:, fault]
            raise ValueError(
                f"the model returned non-finite values: row {row}, simulation {self._num_steps}, "
                f"action {action} at node {node}"
            )
        self._num_steps += 1
        self._selection, self._following = self._following, self._selection
        self._selections.reverse()
        if self.settings.stop_early:
            self._rule.stop(self._num_places, self._num_steps, self._selection, self._num_planned)
            self._next_end = self._num_steps

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
            num_simulations=np.minimum(self._num_planned[:num_rows], self._num_steps),
        )
        self._rule.summarise(output)
        is_finite = np.isfinite(output.value) & np.isfinite(output.policy).all(axis=1)
        if not is_finite.all():
            row = int(np.argmin(is_finite))
            raise ValueError(
                f"row {row}: the model's rewards and values leave the range of {self._dtype}"
            )
        return output

    def keep_subtrees(
        self,
        actions: npt.NDArray[np.integer],
        outcomes: npt.NDArray[np.integer] | None = None,
    ) -> KeptSubtrees:
        """Make the subtree under the action that was played in each row its tree, for `begin` with `kept`.

        `actions` `[B]` are those played in the rows of the search; -1, or an unvisited action, lets a row start afresh. A
        search with chance nodes also needs the `outcomes` `[B]` that came of them; -1, or an unvisited outcome, lets a row
        start afresh. The model has to move its hidden states in the same way. Search results can no longer be read.
        """
        if not self._is_begun:
            raise RuntimeError("Search.keep_subtrees without a search that has begun")
        check_shape("actions", actions, (self._num_rows,))
        check_integers("actions", actions, -1, self.num_actions - 1, "where -1 starts afresh")
        num_outcomes = self.settings.num_chance_outcomes
        if (outcomes is not None) != self._has_chance:
            raise ValueError(
                f"outcomes={outcomes!r}: keep_subtrees takes them exactly when the search has chance nodes, "
                f"which is by num_chance_outcomes={num_outcomes}"
            )
        if outcomes is None:
            outcomes = np.full(self._num_rows, -1, np.int32)
        else:
            check_shape("outcomes", outcomes, (self._num_rows,))
            check_integers("outcomes", outcomes, -1, num_outcomes - 1, "where -1 starts afresh")
        self._is_begun = self._is_selected = False
        shape = (self._num_rows, self.tree.nodes.shape[1])
        kept = KeptSubtrees(np.empty(shape, np.int32), np.empty(self._num_rows, np.int32))
        self._threads.call(
            reuse.keep_subtrees,
            self._num_rows,
            self._has_chance,
            actions.astype(np.int32),
            outcomes.astype(np.int32),
            np.empty(shape, np.int32),
            kept.source,
            kept.num_nodes,
            *self.tree.arrays,
        )
        self._is_kept = True
        return kept

    def kept_state(self) -> dict[str, npt.NDArray[Any]]:
        """The trees that `keep_subtrees` has kept, as arrays to be saved; see `restore_kept`."""
        if not self._is_kept:
            raise RuntimeError("Search.kept_state without Search.keep_subtrees before it")
        return saved_trees.kept_arrays(self.tree)

    def restore_kept(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Stand where `kept_state` was taken, of a search with the same settings: `begin` with `kept` comes next.

        Raises ValueError if the arrays do not fit this search, or are damaged.
        """
        saved_trees.restore_kept(self.tree, arrays)
        self._num_rows = self.tree.num_rows
        self._is_begun = self._is_selected = False
        self._is_kept = True

    def _drop_finished_rows(self) -> None:
        """Take the rows that have made their simulations out of the selection."""
        planned = self._num_planned[: self._num_rows]
        rows = np.flatnonzero(planned > self._num_steps)
        count = len(rows)
        if count > 0:
            self._next_end = int(planned[rows].min())
        if count == self._num_places:
            return
        if count > 0:
            places = np.searchsorted(self._selections[0].row, rows)
            self._selection[:, :count] = self._selection[:, places]
            self._following[0, :count] = rows
        self._cut_selections(count)

    def _cut_selections(self, count: int) -> None:
        """Make the first `count` places of the selections what is searched."""
        self._num_places = count
        self._answer = self._no_answer
        both = self._selection, self._following
        self._selections = [Selection(*selection[:, :count]) for selection in both]

    def _fit_answer(self, output: ModelOutput) -> None:
        """Check the model's arrays, and remember them: most models fill the same ones again."""
        self._answer = (
            self._fit("reward", output.reward, self._reward),
            self._fit("discount", output.discount, self._discount),
            self._fit("prior_logits", output.prior_logits, self._logits),
            self._fit("value", output.value, self._value),
        )

    def _fit(self, name: str, array: FloatArray, buffer: FloatArray) -> FloatArray:
        """The array itself if the kernels take it as it is, else a copy in the buffer."""
        expected = (self._num_places, *buffer.shape[1:])
        if array.shape != expected:
            raise ValueError(f"the model's {name} has shape {array.shape}, expected {expected}")
        if array.dtype == self._dtype and array.flags.carray:
            return array
        buffer[: self._num_places] = array
        return buffer


def run(
    search: Search,
    model: Model,
    root: RootOutput,
    legal: BoolArray,
    noise: FloatArray | None = None,
    **options: Any,
) -> SearchOutput:
    """Search the roots with all their simulations; `options` are those of `Search.begin`."""
    search.begin(root, legal, noise, **options)
    while (selection := search.select()) is not None:
        search.update(model.recurrent(selection))
    return search.result()
