"""A run's agent as it is looked into: searches positions, and compares what it imagined with what came.

Letters: `n` positions or moves, `A` actions.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from mcts import Search
from mcts.base import ROOT_INDEX, Selection
from muzero.checkpoint import CheckpointError, CheckpointManager
from muzero.envs.states import State
from muzero.evaluation.players import AgentPlayer
from muzero.inference.rules import SearchModel, plant_roots
from muzero.inference.stochastic import StochasticLocalModel
from muzero.play.analysis import Analysis
from muzero.play.refusal import Refusal
from muzero.runtime.build import Builder, search_settings
from muzero.runtime.players import acting_weights, agent_player, open_checkpoint

MAX_SIMULATIONS = 10_000
MAX_UNROLL = 16
"""Moves that `Analyst.unroll` follows at most."""


class Checkpoints(Protocol):
    """Weights to choose from."""

    def steps(self) -> list[int]:
        """Learner steps, oldest first."""
        ...

    def load(self, step: int) -> tuple[Mapping[str, Tensor], int]:
        """Weights and their version; raises ValueError if there are none."""
        ...


class RunCheckpoints:
    """The checkpoints of a run's folder; reads only."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._manager = CheckpointManager(run_dir / "checkpoints", owner=False)

    def steps(self) -> list[int]:
        """See `Checkpoints`."""
        return self._manager.steps()

    def load(self, step: int) -> tuple[Mapping[str, Tensor], int]:
        """See `Checkpoints`."""
        return acting_weights(open_checkpoint(self._run_dir, step))


@dataclass(frozen=True, slots=True)
class Imagined:
    """One step of the model along given moves."""

    reward: float
    """Of the move, seen by who moved."""
    discount: float
    """Signed discount of the move."""
    value: float
    """The network's value of what the move led to, seen by its player to move."""


class Analyst:
    """Searches with the weights and the number of simulations that each question names, one question at a time.

    Args:
        time_limit: Seconds that a question may take; a search that takes longer ends with the simulations it has made.
        clock: Seconds, rising.
    """

    def __init__(
        self,
        builder: Builder,
        checkpoints: Checkpoints,
        *,
        time_limit: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not time_limit > 0:
            raise ValueError(f"time_limit={time_limit:g}: a search needs more than 0 seconds")
        self.builder, self.checkpoints, self.time_limit = builder, checkpoints, time_limit
        self._clock = clock
        self._lock = threading.Lock()
        self._player: AgentPlayer = agent_player(builder, builder.agent(1, 0))
        self._unroller: SearchModel = builder.model(
            1, 2 * MAX_UNROLL
        )  # with codes, two for each move
        self._search: Search | None = None
        self._model: SearchModel | None = None
        self._weights: Mapping[str, Tensor] = {}
        self._step: int | None = None
        self._num_simulations = 0

    @property
    def discount(self) -> float:
        """Discount per move, gamma."""
        return self.builder.config.targets.discount

    def check_simulations(self, num_simulations: int) -> None:
        """Raise Refusal unless a search can have as many."""
        if not 1 <= num_simulations <= MAX_SIMULATIONS:
            raise Refusal(
                "bad_value",
                f"simulations={num_simulations}: give 1 to {MAX_SIMULATIONS} simulations per move",
            )

    def check_step(self, step: int) -> None:
        """Raise Refusal if there is no checkpoint of that learner step that can be loaded."""
        steps = self.checkpoints.steps()
        if step not in steps:
            raise Refusal("bad_value", f"step={step}: there are checkpoints of the steps {steps}")
        with self._turn():
            self._load(step)

    def analyse(
        self,
        state: State,
        step: int,
        num_simulations: int,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Analysis:
        """Search a position at which a player is to move, without noise.

        Args:
            is_cancelled: Is asked between simulations.

        Raises:
            Refusal: `stale` if it was cancelled before the first simulation ended, `busy` if others were before it for too long.
        """
        deadline = self._clock() + self.time_limit
        with self._turn():
            search, model = self._prepare(step, num_simulations)
            legal = self._player.legal([state])
            root = plant_roots(model, self._player.observations([state]), [state])
            search.begin(root, legal)
            while (selection := search.select()) is not None:
                search.update(model.recurrent(selection))
                if is_cancelled():
                    raise Refusal("stale", "the position has changed while it was searched")
                if self._clock() >= deadline:
                    break
            return Analysis.of(
                search.tree,
                search.result(),
                legal[0],
                step=step,
                planned=num_simulations,
                to_play=int(state.current_player()),
            )

    def values(self, states: Sequence[State], step: int) -> list[float]:
        """The network's values `[n]` of positions, each seen by its player to move."""
        if not states:
            return []
        with self._turn():
            self._load(step)
            return [
                float(value)
                for value in self._unroller.values(self._player.observations(states)).tolist()
            ]

    def unroll(self, state: State, actions: Sequence[int], step: int) -> list[Imagined]:
        """What the model makes of moves played from `state`, without ever seeing what they led to; the first `MAX_UNROLL` of them.

        Learned dynamics imagine, with chance codes the most likely of them; with `search.dynamics=rules` the moves are played.
        """
        with self._turn():
            self._load(step)
            model, told = self._unroller, []
            plant_roots(model, self._player.observations([state]), [state])
            node = ROOT_INDEX
            for action in actions[:MAX_UNROLL]:
                output = model.recurrent(_edge(node, action))
                node += 1
                if isinstance(model, StochasticLocalModel):
                    output = model.recurrent(_edge(node, int(output.prior_logits[0].argmax())))
                    node += 1
                told.append(
                    Imagined(
                        float(output.reward[0]), float(output.discount[0]), float(output.value[0])
                    )
                )
            return told

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One question at a time: models and trees are shared."""
        if not self._lock.acquire(timeout=self.time_limit + 1.0):
            raise Refusal("busy", "other searches are going on; try again")
        try:
            yield
        finally:
            self._lock.release()

    def _load(self, step: int) -> None:
        if step == self._step:
            return
        try:
            self._weights, _ = self.checkpoints.load(step)
        except (
            CheckpointError,
            ValueError,
            OSError,
        ) as error:  # a run that goes on removes old ones
            raise Refusal("unknown", f"checkpoint {step} cannot be loaded: {error}") from error
        self._step = None  # until all have them
        for model in (self._unroller, self._model):
            if model is not None:
                model.load(self._weights, step)
        self._step = step

    def _prepare(self, step: int, num_simulations: int) -> tuple[Search, SearchModel]:
        """Search and model of that size, with these weights."""
        self.check_simulations(num_simulations)
        self._load(step)
        if self._search is None or self._model is None or num_simulations != self._num_simulations:
            config = self.builder.config
            settings = search_settings(
                config.search, num_simulations, num_chance_codes=config.network.num_chance_codes
            )
            self._search = self.builder.search(1, settings)
            self._model = self.builder.model(1, num_simulations)
            self._model.load(self._weights, step)
            self._num_simulations = num_simulations
        return self._search, self._model


def _edge(parent: int, action: int) -> Selection:
    """From node `parent` of the only row to the node behind it."""
    return Selection(*(np.array([number], np.int32) for number in (0, parent, action, parent + 1)))
