"""What the supervisor asks again and again: how far the learner is, what shards and servers hold, and whether all live."""

import math
from collections.abc import Callable
from typing import Any

from muzero.config.runtime import RayRuntimeConfig
from muzero.runtime.fleet.crew import Member
from muzero.runtime.fleet.hiring import (
    EVALUATOR,
    GATEKEEPER,
    LEARNER,
    SERVER,
    SHARD,
    WORKER,
)
from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.fleet.messages import LearnerStatus
from muzero.runtime.fleet.report import FleetReporter
from muzero.runtime.fleet.staff import Staff

_EXCHANGE_SECONDS = 0.05
_STATISTICS_SECONDS = 1.0
_ANSWER_BY_WORK = (WORKER, EVALUATOR, GATEKEEPER)


class Inquiries:
    """Asks every member in its rhythm, each question once at a time.

    Args:
        on_status: Is told what the learner answers.
        on_freshness: Is told the share of fresh targets in the replay, as it was counted last.
    """

    def __init__(
        self,
        runtime: RayRuntimeConfig,
        staff: Staff,
        reporter: FleetReporter,
        limiter: FleetLimiter,
        *,
        on_status: Callable[[LearnerStatus], None],
        on_freshness: Callable[[float], None],
    ) -> None:
        self._runtime, self._staff, self._crew = runtime, staff, staff.crew
        self._reporter, self._limiter = reporter, limiter
        self._on_status, self._on_freshness = on_status, on_freshness
        self._asked: set[tuple[str, str]] = set()  # member and question
        self._times: dict[str, float] = {}

    @property
    def awaits_shards(self) -> bool:
        """Whether a shard's statistics are on their way."""
        return any(name.startswith(SHARD) for name, _ in self._asked)

    def ask(self, now: float, allowance: int) -> None:
        """Ask what is due at `now` (seconds); the learner gets its `allowance` with the question."""
        learner = self._crew.get(LEARNER)
        if learner is not None and self._is_due("exchange", now, _EXCHANGE_SECONDS):
            self._ask(
                learner,
                "exchange allowance and status",
                lambda: learner.actor.exchange.remote(allowance),
                self._on_status,
            )
        if self._is_due("statistics", now, _STATISTICS_SECONDS):
            self.ask_shards()
            for server in self._crew.serving(SERVER):
                self._ask_server(server)
        if self._is_due("heartbeat", now, self._runtime.heartbeat_seconds):
            for member in self._crew.all():
                self._ask_whether_alive(member)

    def ask_shards(self) -> None:
        """Ask all shards for their statistics now."""
        for member in self._crew.serving(SHARD):
            self._ask_shard(member)

    def _ask_shard(self, member: Member) -> None:
        def note(statistics: dict[str, float]) -> None:
            self._reporter.note_shard(member.index, statistics)
            self._limiter.held = self._reporter.held
            self._on_freshness(self._reporter.fresh_fraction)

        version = max(0, self._staff.newest_version)
        self._ask(
            member, "tell its statistics", lambda: member.actor.statistics.remote(version), note
        )

    def _ask_server(self, member: Member) -> None:
        def note(statistics: dict[str, float]) -> None:
            self._reporter.note_server(member.index, statistics)

        self._ask(member, "tell its statistics", lambda: member.actor.report.remote(), note)

    def _ask_whether_alive(self, member: Member) -> None:
        # The learner trains in the thread that would answer; who has a lease, an evaluation or a match answers by its outcome,
        # for which there is a deadline of its own.
        if not member.serves or member.role == LEARNER:
            return
        if member.role in _ANSWER_BY_WORK and member.num_calls > 0:
            return

        def note(memory_bytes: int) -> None:
            member.memory_bytes = memory_bytes

        self._ask(member, "show a sign of life", lambda: member.actor.memory_bytes.remote(), note)

    def _ask(
        self, member: Member, what: str, question: Callable[[], Any], note: Callable[[Any], None]
    ) -> None:
        """Ask, unless the same question is open."""
        key = member.name, what
        if key in self._asked:
            return
        self._asked.add(key)

        def answered(answer: Any) -> None:
            self._asked.discard(key)
            note(answer)

        self._crew.call(member, what, question(), answered, failed=lambda: self._asked.discard(key))

    def _is_due(self, what: str, now: float, seconds: float) -> bool:
        if now - self._times.get(what, -math.inf) < seconds:
            return False
        self._times[what] = now
        return True
