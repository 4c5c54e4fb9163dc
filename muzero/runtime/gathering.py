"""Gathering data: self-play and reanalyze's searches, in this process or in a second one beside the learner.

Both forms do the same work with the same seeds, so which one is used changes the speed and not the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from muzero.config.schema import Config
from muzero.metrics import Stopwatch
from muzero.replay.episode import Segment
from muzero.replay.storage import RootPositions
from muzero.runtime.build import Builder
from muzero.runtime.child import Answers, Child
from muzero.selfplay import Totals
from muzero.weights import Arrays
from reanalyze import Refreshed

_ADVICE = "resume the run from its last checkpoint"


@dataclass(frozen=True, slots=True)
class Work:
    """One quantum: a move in every game, and positions to search again."""

    learner_step: int
    """Decides the temperature."""
    version: int
    """Weights version of `weights`."""
    weights: Arrays | None
    """Newer weights to load before anything else; None keeps those in use."""
    positions: RootPositions | None
    """Positions of a reanalyze lease; None if nothing is due."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What came of a quantum."""

    segments: list[Segment]
    """Segments that are complete."""
    refreshed: Refreshed | None
    """New targets of the leased positions."""
    totals: Totals
    """What self-play has done since the start of the run."""


class Gatherer(Protocol):
    """Does one quantum at a time: `begin`, then `finish`."""

    def begin(self, work: Work) -> None:
        """Start a quantum; the work's arrays must stay as they are until `finish`."""

    def finish(self) -> Gathered:
        """Wait for the quantum that was begun."""

    def report(self) -> dict[str, float]:
        """See `SelfPlay.report`; also the share of the time since the last report that quanta took."""

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """See `SelfPlay.state`."""

    def restore(self, arrays: Arrays, meta: dict[str, Any], work: Work) -> Totals:
        """Go back to `state`, with the weights of `work`; returns what had been done by then."""

    def close(self) -> None:
        """Free what it holds."""


class LocalGatherer:
    """Gathers in this process, when `finish` is called."""

    def __init__(self, builder: Builder) -> None:
        self.selfplay, self.refresher = builder.selfplay(), builder.refresher()
        self._work: Work | None = None
        self._timer = Stopwatch()

    def begin(self, work: Work) -> None:
        """See `Gatherer`."""
        self._work = work

    def finish(self) -> Gathered:
        """See `Gatherer`."""
        work, self._work = self._work, None
        if work is None:
            raise AssertionError("finish without begin")
        with self._timer.measure("busy"):
            self._load(work)
            segments = self.selfplay.play(work.learner_step)
            refreshed = None
            if work.positions is not None and self.refresher is not None:
                refreshed = self.refresher.refresh(work.positions)
        return Gathered(segments, refreshed, replace(self.selfplay.totals))

    def report(self) -> dict[str, float]:
        """See `Gatherer`."""
        busy = self._timer.fractions().get("busy", 0.0)
        return self.selfplay.report() | {"selfplay/busy_time_fraction": busy}

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """See `Gatherer`."""
        return self.selfplay.state()

    def restore(self, arrays: Arrays, meta: dict[str, Any], work: Work) -> Totals:
        """See `Gatherer`."""
        self.selfplay.restore(arrays, meta)
        self._load(work)
        return replace(self.selfplay.totals)

    def close(self) -> None:
        """See `Gatherer`."""
        self.selfplay.env.close()

    def _load(self, work: Work) -> None:
        if work.weights is None:
            return
        state = {name: torch.from_numpy(array) for name, array in work.weights.items()}
        self.selfplay.model.load(state, work.version)
        if self.refresher is not None:
            self.refresher.model.load(state, work.version)


class ProcessGatherer:
    """Gathers in a process of its own, between `begin` and `finish`.

    A thread would not do: self-play and a small network's learner step are both short compiled calls with Python
    between them, and the interpreter runs one thread's Python at a time (measured: 58 learner steps/s against 53
    without overlap).
    """

    def __init__(self, config: Config) -> None:
        self._child = Child(__name__, config, who="self-play", advice=_ADVICE)
        try:
            self._child.receive()  # it is ready, or tells why not
        except BaseException:
            self.close()
            raise

    def begin(self, work: Work) -> None:
        """See `Gatherer`."""
        self._child.send("quantum", work)

    def finish(self) -> Gathered:
        """See `Gatherer`. Raises RuntimeError with the child's traceback if it failed."""
        gathered: Gathered = self._child.receive()
        return gathered

    def report(self) -> dict[str, float]:
        """See `Gatherer`."""
        self._child.send("report")
        report: dict[str, float] = self._child.receive()
        return report

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """See `Gatherer`."""
        self._child.send("state")
        state: tuple[Arrays, dict[str, Any]] = self._child.receive()
        return state

    def restore(self, arrays: Arrays, meta: dict[str, Any], work: Work) -> Totals:
        """See `Gatherer`."""
        self._child.send("restore", arrays, meta, work)
        totals: Totals = self._child.receive()
        return totals

    def close(self) -> None:
        """See `Gatherer`."""
        self._child.close()


def answers(config: Config) -> Answers:
    """What the second process does; see `Child`."""
    gatherer = LocalGatherer(Builder.of(config))

    def quantum(work: Work) -> Gathered:
        gatherer.begin(work)
        return gatherer.finish()

    calls: dict[str, Callable[..., Any]] = {
        "quantum": quantum,
        "report": gatherer.report,
        "state": gatherer.state,
        "restore": gatherer.restore,
    }
    return Answers(calls, gatherer.close)
