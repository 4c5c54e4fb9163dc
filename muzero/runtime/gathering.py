"""Gathering data: self-play and reanalyze's searches, in this process or in a second one beside the learner.

Both forms do the same work with the same seeds, so which one is used changes the speed and not the result.
"""

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

from muzero.config.schema import Config
from muzero.metrics import Stopwatch
from muzero.replay.episode import Segment
from muzero.replay.storage import RootPositions
from muzero.runtime.build import Builder, configure_torch
from muzero.selfplay import Totals
from muzero.weights import Arrays
from reanalyze import Refreshed

_JOIN_SECONDS = 10.0


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
    without overlap). The child ends when its pipe is closed, whatever ends this process.
    """

    def __init__(self, config: Config) -> None:
        ours, theirs = socket.socketpair()
        # A fresh interpreter, since multiprocessing's would import the user's main module once more.
        command = f"from muzero.runtime.gathering import serve; serve({theirs.fileno()})"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", command], pass_fds=[theirs.fileno()], env=environment
        )
        theirs.close()
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        try:
            self._send("config", config)
            self._receive()  # it is ready, or tells why not
        except BaseException:
            self.close()
            raise

    def begin(self, work: Work) -> None:
        """See `Gatherer`."""
        self._send("quantum", work)

    def finish(self) -> Gathered:
        """See `Gatherer`. Raises RuntimeError with the child's traceback if it failed."""
        gathered: Gathered = self._receive()
        return gathered

    def report(self) -> dict[str, float]:
        """See `Gatherer`."""
        self._send("report")
        report: dict[str, float] = self._receive()
        return report

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """See `Gatherer`."""
        self._send("state")
        state: tuple[Arrays, dict[str, Any]] = self._receive()
        return state

    def restore(self, arrays: Arrays, meta: dict[str, Any], work: Work) -> Totals:
        """See `Gatherer`."""
        self._send("restore", arrays, meta, work)
        totals: Totals = self._receive()
        return totals

    def close(self) -> None:
        """See `Gatherer`."""
        self._pipe.close()
        try:
            self._process.wait(_JOIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, name: str, *arguments: Any) -> None:
        try:
            self._pipe.send((name, arguments))
        except OSError as error:
            raise self._died() from error

    def _receive(self) -> Any:
        try:
            failure, result = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if failure is not None:
            kind, text = failure
            error_type = ValueError if kind == "ValueError" else RuntimeError
            raise error_type(f"self-play's process failed:\n{text}")
        return result

    def _died(self) -> RuntimeError:
        self.close()
        return RuntimeError(
            f"self-play's process died (exit code {self._process.returncode}); resume the run from its last checkpoint"
        )


def serve(file_descriptor: int) -> None:
    """The child: answer calls until the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides when to end
        signal.signal(number, signal.SIG_IGN)
    pipe: Connection[Any, Any] = Connection(file_descriptor)
    try:
        _, (config,) = pipe.recv()
        configure_torch(config.runtime.learner_threads)
        gatherer = LocalGatherer(Builder.of(config))
    except EOFError:
        return
    except Exception as error:
        pipe.send(((type(error).__name__, traceback.format_exc()), None))
        return
    pipe.send((None, None))

    def quantum(work: Work) -> Gathered:
        gatherer.begin(work)
        return gatherer.finish()

    calls: dict[str, Callable[..., Any]] = {
        "quantum": quantum,
        "report": gatherer.report,
        "state": gatherer.state,
        "restore": gatherer.restore,
    }
    while True:
        try:
            name, arguments = pipe.recv()
        except (EOFError, OSError):
            break
        try:
            answer: tuple[Any, Any] = (None, calls[name](*arguments))
        except Exception as error:
            answer = ((type(error).__name__, traceback.format_exc()), None)
        try:
            pipe.send(answer)
        except OSError:
            break
    gatherer.close()
