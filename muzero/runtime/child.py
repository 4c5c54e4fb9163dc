"""A second process of a local run, which answers calls one at a time."""

import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from muzero.config.schema import Config
from muzero.runtime.build import configure_torch

_JOIN_SECONDS = 10.0


class Answers(NamedTuple):
    """What a child can do."""

    calls: dict[str, Callable[..., Any]]
    """By name."""
    close: Callable[[], None]
    """Frees what it holds, at the end."""


class ChildDied(RuntimeError):
    """A child has ended without having been asked to."""


class Child:
    """A process that makes what `<module>.answers(config)` returns and answers calls with it.

    The first answer, without a call, says that it is ready. It ends when its pipe is closed, whatever ends this process.

    Args:
        module: Has a function `answers`, from a config to `Answers`.
        who: Whose process it is, for errors, such as "self-play".
        advice: What is to be done if it dies, for that error.
        niceness: By which its priority is lower than this process's.
    """

    def __init__(
        self, module: str, config: Config, *, who: str, advice: str, niceness: int = 0
    ) -> None:
        self._who, self._advice = who, advice
        ours, theirs = socket.socketpair()
        # A fresh interpreter, since multiprocessing's would import the user's main module once more.
        command = f"from muzero.runtime.child import serve; serve({theirs.fileno()}, {module!r}, {niceness})"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", command], pass_fds=[theirs.fileno()], env=environment
        )
        theirs.close()
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        try:
            self.send("config", config)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def send(self, name: str, *arguments: Any) -> None:
        """Ask for something; `receive` has the answer. Raises ChildDied."""
        try:
            self._pipe.send((name, arguments))
        except OSError as error:
            raise self._died() from error

    def has_answered(self) -> bool:
        """Whether `receive` would return, or raise, without waiting."""
        return self._pipe.closed or self._pipe.poll()

    def receive(self) -> Any:
        """Wait for the next answer.

        Raises:
            ChildDied: It has died.
            ValueError: It failed by one, told with its traceback; other errors are RuntimeErrors.
        """
        try:
            failure, result = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if failure is not None:
            kind, text = failure
            error_type = ValueError if kind == "ValueError" else RuntimeError
            raise error_type(f"{self._who}'s process failed:\n{text}")
        return result

    def close(self, *, at_once: bool = False) -> None:
        """End it: when it has answered what it works at, or `at_once`."""
        self._pipe.close()
        if at_once:
            self._process.kill()
        try:
            self._process.wait(_JOIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _died(self) -> ChildDied:
        self.close()
        return ChildDied(
            f"{self._who}'s process died (exit code {self._process.returncode}); {self._advice}"
        )


def serve(file_descriptor: int, module: str, niceness: int) -> None:
    """The child: answer calls until the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides when to end
        signal.signal(number, signal.SIG_IGN)
    os.nice(niceness)
    pipe: Connection[Any, Any] = Connection(file_descriptor)
    try:
        _, (config,) = pipe.recv()
        configure_torch(config.runtime.learner_threads)
        answers: Answers = importlib.import_module(module).answers(config)
    except EOFError:
        return
    except Exception as error:
        pipe.send(((type(error).__name__, traceback.format_exc()), None))
        return
    pipe.send((None, None))
    while True:
        try:
            name, arguments = pipe.recv()
        except (EOFError, OSError):
            break
        try:
            answer: tuple[Any, Any] = (None, answers.calls[name](*arguments))
        except Exception as error:
            answer = ((type(error).__name__, traceback.format_exc()), None)
        try:
            pipe.send(answer)
        except OSError:
            break
    answers.close()
