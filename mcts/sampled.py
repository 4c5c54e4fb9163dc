"""Sampled MuZero: a search over `K` sampled actions per node, for huge and for continuous action spaces.

Letters: `B` rows, `b` rows of one call, `N` simulations, `K` slots, `P` policy parameters, `*S` shape of one action.

The tree is over slots, `Search(settings, num_actions=K, ...)`. `SampledModel` stands between it and the model: it draws the
actions of every node that is expanded, gives the search the corrected prior of the distinct ones as logits, and the model
the actions that the slots stand for. Both PUCT and Gumbel search it unchanged.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mcts.base import (
    ROOT_INDEX,
    BoolArray,
    FloatArray,
    IntArray,
    ModelOutput,
    RootOutput,
    SearchOutput,
    Selection,
)
from mcts.counter_random import Keys
from mcts.sampling import ActionArray, ActionSampler, Samples
from mcts.threads import MIN_ROWS_PER_THREAD, RowThreads
from mcts.tree import Tree


class ActionModel(Protocol):
    """A model that takes real actions; one of `mcts.Model` over `A` actions is one for a `CategoricalSampler`."""

    def recurrent(self, selection: Selection) -> ModelOutput:
        """As `mcts.Model.recurrent`, with real actions and policy parameters.

        `selection.action` is `[b, *S]` in the sampler's type (float32 in a box); the answer's `prior_logits` `[b, P]` are
        the policy parameters that the sampler reads.
        """
        ...


class SampledRoots(NamedTuple):
    """What a search of sampled actions begins with."""

    root: RootOutput
    """Logits of the root's slots `[B, K]`, and its value."""
    legal: BoolArray
    """`[B, K]` slots that hold an action: the mask for `draw_noise`, `Search.begin` and `select_actions`."""


class SampledTarget(NamedTuple):
    """A policy target on sampled actions; the loss is `-sum_i policy_i ln pi_theta(action_i)`.

    The weights mean nothing without their actions: another search of the position, as reanalyze makes, draws other ones.
    Store both with the position, and replace both together.
    """

    actions: ActionArray
    """`[B, K, *S]` distinct actions; a slot without one repeats the row's first."""
    policy: FloatArray
    """`[B, K]` visit fractions (PUCT) or the improved policy (Gumbel); 0 at slots without an action."""


class SampledModel:
    """The model of a search over slots; keeps the sampled actions of every node of `batch_size` trees.

    What a node samples depends on its row's key, its index and its policy alone: other rows, threads and the order of
    calls change nothing. At most `num_nodes` (simulations + 1) nodes per row.

    Example:
        >>> sampler = SquashedGaussianSampler(low=[-2.0], high=[2.0], num_samples=20)
        >>> sampled = SampledModel(model, sampler, batch_size=64, num_nodes=51)
        >>> search = Search(settings, batch_size=64, num_actions=20)
        >>> root, legal = sampled.roots(model.roots(observation), draw_keys(rng, 64))
        >>> output = run(search, sampled, root, legal, draw_noise(settings, legal, rng))
        >>> actions = sampled.actions_of(select_actions(output, legal, 1.0, rng))  # to play
        >>> target = sampled.target(output)  # to store

    Args:
        dtype: Of logits and policy parameters; take the search's.
    """

    def __init__(
        self,
        model: ActionModel,
        sampler: ActionSampler,
        *,
        batch_size: int,
        num_nodes: int,
        num_threads: int = 1,
        dtype: npt.DTypeLike = np.float32,
        min_rows_per_thread: int = MIN_ROWS_PER_THREAD,
    ) -> None:
        for name, count in (("batch_size", batch_size), ("num_nodes", num_nodes)):
            if count < 1:
                raise ValueError(f"{name}={count}: must be at least 1")
        self.model = model
        self.sampler = sampler
        self.batch_size, self.num_nodes = batch_size, num_nodes
        self._dtype = np.dtype(dtype)
        self._threads = RowThreads(num_threads, min_rows_per_thread)
        self._samples = Samples(
            sampler, batch_size=batch_size, num_nodes=num_nodes, dtype=self._dtype
        )
        self._logits = np.zeros((batch_size, sampler.num_samples), self._dtype)
        self._num_rows = 0
        # `[rows]` nodes that each row has kept, between `move_nodes` and `roots`.
        self._num_kept: IntArray | None = None

    @property
    def actions(self) -> ActionArray:
        """`[rows, num_nodes, K, *S]` actions of the slots of every node; a view."""
        actions = self._samples.actions[: self._num_rows]
        return actions.reshape(*actions.shape[:3], *self.sampler.action_shape)

    @property
    def is_sampled(self) -> BoolArray:
        """`[rows, num_nodes, K]` slots that hold an action, at nodes of the running search."""
        return self._samples.log_weights[: self._num_rows] > -np.inf

    def roots(
        self, root: RootOutput, keys: Keys, legal: BoolArray | None = None, *, kept: bool = False
    ) -> SampledRoots:
        """Sample the root's actions, `B` up to `batch_size` rows.

        Args:
            root: `prior_logits` `[B, P]` are the policy parameters.
            keys: `[B]` fresh ones from `draw_keys`; one search of a position, one key.
            legal: `[B, P]` legal categories (`[B, A]` for a `CategoricalSampler`), None if all are: illegal ones have no
                share in beta or pi. Below the root all actions are allowed.
            kept: After `move_nodes` with the same rows: roots with kept children keep their actions, on which those
                children stand; the prior is that of the new policy, `beta_hat / beta * pi_new`, and illegal actions are
                absent. All other roots are sampled afresh.

        Raises:
            ValueError: If shapes do not fit, or a row has no legal action (of those kept).
        """
        num_rows = len(root.value)
        sampler, samples = self.sampler, self._samples
        if not 1 <= num_rows <= self.batch_size:
            raise ValueError(f"root has {num_rows} rows; this model has room for {self.batch_size}")
        shape = (num_rows, sampler.num_parameters)
        parameters = self._fit("root.prior_logits", root.prior_logits, shape)
        if keys.shape != (num_rows,) or keys.dtype != np.uint64:
            raise ValueError(
                f"keys are {keys.dtype} of shape {keys.shape}; take draw_keys(rng, {num_rows})"
            )
        if legal is not None:
            if legal.shape != shape:
                raise ValueError(f"legal has shape {legal.shape}, expected {shape}")
            sampler.check_legal(legal)
        is_kept = self._rows_kept(num_rows) if kept else np.zeros(num_rows, np.bool_)
        self._num_kept = None
        samples.keys[:num_rows] = keys
        self._num_rows = num_rows
        logits = np.empty((num_rows, sampler.num_samples), self._dtype)
        for rows, fill in (
            (np.flatnonzero(~is_kept), self._draw_roots),
            (np.flatnonzero(is_kept), self._prior_of_kept),
        ):
            if len(rows):
                mask = None if legal is None else legal[rows]
                logits[rows] = fill(rows.astype(np.int32), parameters[rows], mask)
        is_present = ~(logits == -np.inf)
        if not is_present.any(axis=1).all():
            row = int(np.argmin(is_present.any(axis=1)))
            raise ValueError(
                f"row {row}: none of the kept actions is legal; let `keepable` choose the rows that start afresh"
            )
        return SampledRoots(RootOutput(logits, root.value), is_present)

    def recurrent(self, selection: Selection) -> ModelOutput:
        """See `mcts.Model`: the model's step by the actions of the slots, then samples of the new nodes."""
        rows, parents, slots, nodes = selection
        num_rows = len(rows)
        actions = self._samples.actions[rows, parents, slots]
        actions = actions.reshape(num_rows, *self.sampler.action_shape)
        answer = self.model.recurrent(Selection(rows, parents, actions, nodes))
        shape = (num_rows, self.sampler.num_parameters)
        parameters = self._fit("prior_logits", answer.prior_logits, shape)
        logits = self._logits[:num_rows]
        self.sampler.draw(self._threads, self._samples, rows, nodes, parameters, None, logits)
        return ModelOutput(answer.reward, answer.discount, logits, answer.value)

    def actions_of(self, slots: npt.NDArray[np.integer[Any]]) -> ActionArray:
        """The actions `[B, *S]` of the root's `slots` `[B]`: of `select_actions`, or `SearchOutput.best_action`."""
        return self.actions[np.arange(self._num_rows), ROOT_INDEX, slots]

    def target(self, output: SearchOutput) -> SampledTarget:
        """The policy target of a finished search, in fresh arrays."""
        return SampledTarget(self.actions[:, ROOT_INDEX].copy(), output.policy.copy())

    def keepable(
        self, tree: Tree, slots: npt.NDArray[np.integer[Any]], legal: BoolArray | None = None
    ) -> IntArray:
        """What to give `Search.keep_subtrees` after the `slots` `[B]` have been played: -1 where a row must start afresh.

        It must where the slot is -1 or the next position, with its `legal` `[B, P]`, allows none of the actions that were
        sampled there.
        """
        is_child = (tree.parents == ROOT_INDEX) & (tree.actions == slots[:, None])
        nodes = np.argmax(is_child, axis=1)
        rows = np.arange(self._num_rows)
        is_fine = is_child[rows, nodes]
        if legal is not None:
            is_allowed = self.sampler.allows(legal, self.actions[rows, nodes])
            is_fine &= (is_allowed & self.is_sampled[rows, nodes]).any(axis=1)
        return np.where(is_fine, slots, -1).astype(np.int32)

    def move_nodes(self, source: IntArray, num_nodes: IntArray) -> None:
        """Follow `Search.keep_subtrees`: node `n` of row `r` gets the samples of node `source[r, n]`, for `n` below `num_nodes[r]`.

        The model's own hidden states are the driver's to move. Then begin with `roots(..., kept=True)`.
        """
        samples = self._samples
        for row, count in enumerate(num_nodes.tolist()):
            before = source[row, :count]
            samples.actions[row, :count] = samples.actions[row, before]
            samples.log_weights[row, :count] = samples.log_weights[row, before]
        self._num_kept = num_nodes.copy()

    def _rows_kept(self, num_rows: int) -> BoolArray:
        if self._num_kept is None:
            raise RuntimeError("SampledModel.roots(kept=True) without move_nodes before it")
        if len(self._num_kept) != num_rows:
            raise ValueError(
                f"root has {num_rows} rows; subtrees were kept of {len(self._num_kept)}, all of which begin together"
            )
        return self._num_kept > 1

    def _draw_roots(
        self, rows: IntArray, parameters: FloatArray, legal: BoolArray | None
    ) -> FloatArray:
        """Sample the roots of `rows` afresh; logits `[b, K]`."""
        logits = np.empty((len(rows), self.sampler.num_samples), self._dtype)
        at_root = np.full(len(rows), ROOT_INDEX, np.int32)
        self.sampler.draw(self._threads, self._samples, rows, at_root, parameters, legal, logits)
        return logits

    def _prior_of_kept(
        self, rows: IntArray, parameters: FloatArray, legal: BoolArray | None
    ) -> FloatArray:
        """Logits `[b, K]` of the samples that the roots of `rows` have, under their new policies."""
        density = self.sampler.log_density(parameters, self.actions[rows, ROOT_INDEX], legal)
        return self._samples.log_weights[rows, ROOT_INDEX] + density

    def _fit(self, name: str, parameters: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        if parameters.shape != shape:
            raise ValueError(
                f"the model's {name} has shape {parameters.shape}, expected {shape}: the policy parameters of "
                f"{type(self.sampler).__name__}"
            )
        return np.require(parameters, self._dtype, ["C", "A", "W"])
