"""What the actors of all roles share."""

import os
import signal

import psutil

from muzero.config.schema import Config
from muzero.runtime.build import configure_torch


def prepare_process(config: Config) -> None:
    """What every role's process does first: threads, and whose signals it heeds."""
    configure_torch(config.runtime.learner_threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides when to end


class Actor:
    """What every role answers."""

    def ready(self) -> int:
        """Answers once the constructor is through, with the process id."""
        return os.getpid()

    def memory_bytes(self) -> int:
        """Resident memory; also the sign of life."""
        return int(psutil.Process().memory_info().rss)
