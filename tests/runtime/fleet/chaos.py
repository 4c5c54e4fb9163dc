"""Runs of a small fleet, with a hand that kills its processes."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from muzero.config.compose import compose
from muzero.config.schema import Config
from muzero.runtime.fleet.crew import Member
from muzero.runtime.fleet.supervisor import FleetRuntime
from muzero.runtime.players import open_checkpoint

SMALL = (
    "experiment=tictactoe",
    "debug=smoke",
    "runtime=ray",
    "selfplay.num_games=16",
    "replay.capacity=4000",
    "replay.min_size=200",
    "learner.batch_size=32",
    "evaluation.games=0",
    "evaluation.interval=0",
    "logger.progress=none",
    "logger.tensorboard=false",
    "runtime.log_interval=20",
    "runtime.heartbeat_seconds=0.5",
    "runtime.lease_seconds=0.1",
    "runtime.deadline_seconds=60",
)


def small_config(run_dir: Path, *overrides: str) -> Config:
    return compose([*SMALL, *overrides], run_dir=str(run_dir))


def make(run_dir: Path, *overrides: str, resumes: bool = False) -> FleetRuntime:
    run_dir.mkdir(exist_ok=resumes)
    checkpoint = open_checkpoint(run_dir) if resumes else None
    return FleetRuntime(small_config(run_dir, *overrides), run_dir, checkpoint)


DEADLINE_SECONDS = 300.0
"""A run that waits for a deed for so long is ended: generous, for machines that do other things as well."""

Step = Callable[[FleetRuntime], bool]


class Hand(threading.Thread):
    """Does one thing after the other, each as soon as its moment has come.

    A step looks at the run and says whether it has done its deed. A run whose steps are not all done by its end has not met
    what the test is about: `assert_done`.
    """

    def __init__(self, runtime: FleetRuntime, steps: Sequence[Step]) -> None:
        super().__init__(name="hand", daemon=True)
        self._runtime, self._steps = runtime, list(steps)
        self._ended = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            while self._steps and not self._ended.is_set():
                if time.monotonic() > deadline:
                    raise AssertionError(f"{len(self._steps)} steps were not done in time")
                if self._steps[0](self._runtime):
                    self._steps.pop(0)
                time.sleep(0.02)
        except BaseException as failure:
            self._failure = failure
            self._runtime.stop_after(0)

    def assert_done(self) -> None:
        self._ended.set()
        self.join(5.0)
        if self._failure is not None:
            raise self._failure
        assert not self._steps, f"{len(self._steps)} steps were never done"


def members(runtime: FleetRuntime, role: str) -> list[Member]:
    return [member for member in runtime.members if member.role == role and member.serves]


def kill(role: str, *, at_step: int = 0, index: int = 0) -> Step:
    """Kill -9 the process of a role once the learner has made so many steps and the role works."""

    def step(runtime: FleetRuntime) -> bool:
        if runtime.learner_step < at_step:
            return False
        for member in members(runtime, role):
            if member.index == index:
                os.kill(member.process_id, signal.SIGKILL)
                return True
        return False

    return step


def back(role: str, *, incarnation: int = 1, index: int = 0) -> Step:
    """Wait until a role works again."""

    def step(runtime: FleetRuntime) -> bool:
        return any(
            member.index == index and member.incarnation >= incarnation
            for member in members(runtime, role)
        )

    return step


def end_in(steps: int) -> Step:
    """Have the run end so many learner steps later."""

    def step(runtime: FleetRuntime) -> bool:
        runtime.stop_after(runtime.learner_step + steps)
        return True

    return step
