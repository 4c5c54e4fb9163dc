"""The searches of self-play: in full or fast, with noise or without, from a fresh root or from the tree of the move before.

Letters: `B` games, `n` of them searched, `A` actions.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mcts import RootOutput, Search, SearchOutput, SearchSettings, draw_noise, run, select_actions
from mcts.pipeline import SearchPair, run_pipelined, split_rows
from muzero.config.schema import SelfPlayConfig
from muzero.envs.states import State
from muzero.inference.pair import ModelPair
from muzero.inference.rules import RulesModel, SearchModel, plant_roots
from muzero.selfplay.counted import CountedModel

BoolArray = npt.NDArray[np.bool_]
RowArray = npt.NDArray[np.intp]
NO_TREE = -1
_PREFIX = "tree_"  # of the arrays in a checkpoint


class Decision(NamedTuple):
    """What the searches of `n` positions came to."""

    action: npt.NDArray[np.int32]
    """`[n]` action to play."""
    policy: npt.NDArray[np.floating]
    """`[n, A]` policy target; 0 where there is none."""
    has_policy: BoolArray
    """`[n]` whether the search was a full one, and its policy so a target."""
    root_value: npt.NDArray[np.floating]
    """`[n]` search value, seen by the player to move."""
    depth: npt.NDArray[np.floating]
    """`[n]` mean depth in edges of the simulations."""
    num_simulations: npt.NDArray[np.int32]
    """`[n]` simulations made."""


class MoveSearcher:
    """Searches the positions of a move and chooses the actions.

    Playout caps (KataGo, section 3.1): with probability `full_search_fraction` a position is searched in full, with noise and
    forced playouts, and its policy is a target; otherwise it is searched fast and without either. Drawn anew for every row
    and move; full and fast searches share a batch.

    Progressive simulations (MiniZero): `decide` is told how many a full search of this moment makes; a fast one never makes
    more than that.

    With `reuse_subtree` the tree below the move played stays and is searched on. Rows of the search are then those of the
    games: a row without a position to search gets a single simulation that nobody looks at.

    Args:
        search: Has room for `B` rows; `settings` are its own. A pair of searches goes with a pair of models.
        root_value: `mean` or `best`, see `SearchConfig.root_value`.
    """

    def __init__(
        self,
        model: SearchModel | ModelPair,
        search: Search | SearchPair,
        settings: SearchSettings,
        config: SelfPlayConfig,
        *,
        root_value: str,
    ) -> None:
        self.model, self.search = model, search
        self._settings, self._root_value = settings, root_value
        self._full_fraction = config.full_search_fraction
        self._num_fast = config.fast_simulations
        if self._full_fraction < 1.0 and self._num_fast is None:
            raise ValueError(
                f"selfplay.full_search_fraction={self._full_fraction:g} needs selfplay.fast_simulations"
            )
        self._reuses = config.reuse_subtree
        self._keeps_trees = False
        self.num_simulations_made = 0
        """By the last `decide`, rows that nobody looks at included."""
        halves = model.halves if isinstance(model, ModelPair) else (model,)
        self._counted = [CountedModel(half) for half in halves]

    @property
    def network_calls(self) -> tuple[int, int]:
        """Calls of the network that the last `decide` made, and positions that they evaluated together."""
        return (
            sum(model.num_calls for model in self._counted),
            sum(model.num_rows for model in self._counted),
        )

    def decide(
        self,
        rows: RowArray,
        observation: npt.NDArray[Any],
        legal: BoolArray,
        states_of: Callable[[RowArray], list[State] | None],
        temperature: npt.NDArray[np.float64],
        rng: np.random.Generator,
        num_simulations: int,
    ) -> Decision:
        """Search the positions of `rows` `[n]` of `observation` `[B, *O]` and `legal` `[B, A]`; at least one.

        Args:
            states_of: The game states of rows, if the model plays the rules.
            temperature: `[n]` of the visit counts that the actions are drawn from.
            num_simulations: Of a full search, at least 1 and at most those that the search has room for.
        """
        # Kept trees stand in their games' rows; without them those that need no search are left out.
        batch = np.arange(len(legal)) if self._reuses else rows
        if len(batch) < len(legal):
            observation, legal = observation[batch], legal[batch]
        self._count_roots(len(batch))
        root = plant_roots(self.model, observation, states_of(batch))
        is_full, options = self._caps(np.isin(batch, rows), num_simulations, rng)
        noise = draw_noise(self._settings, legal, rng)
        if self._keeps_trees:
            options["kept"] = True
        output = self._search(root, legal, noise, options)
        self.num_simulations_made = int(output.num_simulations.sum())
        if len(rows) < len(batch):
            output = SearchOutput(
                **{field.name: getattr(output, field.name)[rows] for field in fields(output)}
            )
            is_full, legal = is_full[rows], legal[rows]
        # What was visited because it was forced to be is not played for it either.
        weights = output.policy if self._settings.forced_playouts > 0 else None
        action = select_actions(output, legal, temperature, rng, weights=weights)
        policy = output.policy
        if not is_full.all():
            policy = np.where(is_full[:, None], policy, np.zeros_like(policy))
        value = output.value if self._root_value == "mean" else output.best_value
        return Decision(action, policy, is_full, value, output.depth, output.num_simulations)

    def follow(self, action: npt.NDArray[np.integer], goes_on: BoolArray) -> None:
        """After `decide`: `action` `[B]` was played; rows where not `goes_on` `[B]` begin with a fresh tree."""
        if not self._reuses:
            return
        kept = self.search.keep_subtrees(np.where(goes_on, action, NO_TREE).astype(np.int32))
        self.model.move_nodes(kept.source, kept.num_nodes)
        self._keeps_trees = True

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any] | None]:
        """Arrays and JSON of the trees that the next searches begin with; empty and None if they begin afresh."""
        if not self._keeps_trees:
            return {}, None
        arrays = self.search.kept_state()
        if not isinstance(self.model, RulesModel):
            arrays["latents"] = self.model.latents(arrays["num_nodes"])
        return {_PREFIX + name: array for name, array in arrays.items()}, self._tree_kind()

    def restore(
        self,
        arrays: dict[str, npt.NDArray[Any]],
        meta: dict[str, Any] | None,
        observation: npt.NDArray[Any],
        states_of: Callable[[RowArray], list[State] | None],
    ) -> None:
        """Continue from `state` at the positions `observation` `[B, *O]`; see `decide`.

        Trees of other settings of the search, or with hidden states of another device's or precision's form, are left: the
        next searches then begin afresh.
        """
        self._keeps_trees = self._reuses and meta == self._tree_kind()
        if not self._keeps_trees:
            return
        trees = {
            name.removeprefix(_PREFIX): array
            for name, array in arrays.items()
            if name.startswith(_PREFIX)
        }
        self.search.restore_kept(trees)
        num_nodes = trees["num_nodes"]
        if not isinstance(self.model, RulesModel):
            self.model.restore_latents(num_nodes, trees["latents"])
            return
        assert isinstance(self.search, Search)
        tree, states = self.search.tree, states_of(np.arange(len(num_nodes)))
        assert states is not None
        is_node = np.arange(tree.num_nodes) < num_nodes[:, None]
        parents, actions = tree.parents[is_node], tree.actions[is_node]
        self.model.replay_nodes(states, observation, num_nodes, parents, actions)

    def _search(
        self,
        root: RootOutput,
        legal: BoolArray,
        noise: npt.NDArray[np.floating],
        options: dict[str, Any],
    ) -> SearchOutput:
        if isinstance(self.search, SearchPair):
            first, second = self._counted
            return run_pipelined(self.search.halves, (first, second), root, legal, noise, **options)
        return run(self.search, self._counted[0], root, legal, noise, **options)

    def _count_roots(self, num_rows: int) -> None:
        """Begin a new count with the call, or one for each half, that evaluates the roots."""
        first = num_rows if len(self._counted) == 1 else split_rows(num_rows)
        for model, rows in zip(self._counted, (first, num_rows - first), strict=False):
            model.clear()
            if rows > 0:
                model.note(rows)

    def _tree_kind(self) -> dict[str, Any]:
        """What saved trees must have in common with those of this search."""
        settings = self._settings
        return {
            "kind": settings.kind,
            "num_simulations": settings.num_simulations,
            "model": "rules" if isinstance(self.model, RulesModel) else self.model.latent_format,
        }

    def _caps(
        self, is_looked_at: BoolArray, num_full: int, rng: np.random.Generator
    ) -> tuple[BoolArray, dict[str, Any]]:
        """Which rows of the batch are searched in full, and what `Search.begin` is told of it."""
        count = len(is_looked_at)
        is_full = np.ones(count, np.bool_)
        if self._full_fraction < 1.0:
            is_full = rng.random(count) < self._full_fraction
        if is_full.all() and is_looked_at.all() and num_full == self._settings.num_simulations:
            return is_full, {}
        num_simulations = np.where(is_full, num_full, min(self._num_fast or 1, num_full))
        num_simulations[~is_looked_at] = 1
        return is_full, {"num_simulations": num_simulations, "explored": is_full}
