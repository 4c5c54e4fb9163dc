"""The fleet's members as the supervisor keeps them: made, asked with deadlines, missed, made anew."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from muzero.runtime.fleet.failures import Failures
from muzero.runtime.fleet.faults import describe, own_error

logger = logging.getLogger(__name__)

_MOST_ANSWERS = 256  # handled between two looks at the clock


@dataclass(slots=True)
class Member:
    """One role of the fleet; `incarnation` rises each time its process is made anew."""

    role: str
    index: int
    failures: Failures
    incarnation: int = -1
    actor: Any = None
    """None while it waits to be made anew."""
    is_ready: bool = False
    retry_at: float = 0.0
    process_id: int = 0
    memory_bytes: int = 0
    num_calls: int = 0
    """Answers awaited of it."""
    serves: bool = False
    """Whether it has been given all that it needs, and works."""

    @property
    def name(self) -> str:
        """For people: `search worker 3`."""
        return f"{self.role} {self.index}"


@dataclass(slots=True)
class _Call:
    member: Member
    what: str
    then: Callable[[Any], None]
    failed: Callable[[], None] | None
    deadline: float


class Crew:
    """Makes actors and watches over their calls.

    A member is lost when a call says that its process is gone, when it raises an error of its own, or when it has not answered by
    the call's deadline; its process is killed then, its calls are dropped (each told by its `failed`), and it is made anew after
    a back-off. One that fails too often ends the run (`RoleFailed`).

    Args:
        make: Makes the actor of a member.
        on_ready: Is told of each member whose constructor is through.
        on_lost: Is told of each lost member, before its calls' `failed`.
        fatal: Errors of a role that end the run at once, because they would only be repeated.
        seconds: A member's time to get ready.
    """

    def __init__(
        self,
        make: Callable[[Member], Any],
        *,
        on_ready: Callable[[Member], None],
        on_lost: Callable[[Member, str], None],
        fatal: tuple[type[BaseException], ...],
        max_failures: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._on_ready, self._on_lost = make, on_ready, on_lost
        self._fatal, self._max_failures = fatal, max_failures
        self._seconds, self._clock = seconds, clock
        self._members: dict[tuple[str, int], Member] = {}
        self._calls: dict[Any, _Call] = {}
        self.restarts = 0
        """Members made anew since the start."""

    def add(self, role: str, index: int) -> Member:
        """Make a new member."""
        failures = Failures(f"{role} {index}", self._max_failures, self._clock)
        member = self._members[role, index] = Member(role, index, failures)
        self._begin(member)
        return member

    def remove(self, member: Member) -> None:
        """End a member for good; its calls are dropped."""
        self._members.pop((member.role, member.index), None)
        self._end(member)

    def get(self, role: str, index: int = 0) -> Member | None:
        """A member that works; None while it does not."""
        member = self._members.get((role, index))
        return member if member is not None and member.serves else None

    def all(self, role: str | None = None) -> list[Member]:
        """Members of a role (or all), ready or not."""
        return [m for m in self._members.values() if role is None or m.role == role]

    def serving(self, role: str) -> list[Member]:
        """Members of a role that work."""
        return [m for m in self.all(role) if m.serves]

    def call(
        self,
        member: Member,
        what: str,
        reference: Any,
        then: Callable[[Any], None],
        *,
        failed: Callable[[], None] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Await the answer `reference` of a member, and pass it to `then`.

        Args:
            what: For people: what it was asked.
            failed: Is called instead if the member is lost.
            seconds: Deadline; infinity waits as long as the member lives.
        """
        deadline = self._clock() + (self._seconds if seconds is None else seconds)
        member.num_calls += 1
        self._calls[reference] = _Call(member, what, then, failed, deadline)

    def poll(self, seconds: float) -> None:
        """Handle answers, for at most about `seconds` while there are none; look at deadlines; make anew who is due.

        Raises:
            RoleFailed: See `Failures`.
        """
        references = list(self._calls)
        if references:
            done, _ = ray.wait(
                references, num_returns=min(len(references), 1), timeout=seconds, fetch_local=True
            )
            if done:
                done, _ = ray.wait(
                    references, num_returns=min(len(references), _MOST_ANSWERS), timeout=0
                )
            for reference in done:
                self._answer(reference)
        else:
            time.sleep(seconds)
        now = self._clock()
        for reference, call in list(self._calls.items()):
            if now > call.deadline and reference in self._calls:  # not dropped with one before it
                self.lose(call.member, f"no answer to {call.what!r} by its deadline")
        for member in list(self._members.values()):
            if member.actor is None and now >= member.retry_at:
                self.restarts += 1
                self._begin(member)

    def lose(self, member: Member, reason: str) -> None:
        """A member is lost: end it, and have it made anew after a back-off."""
        if member.actor is None:
            return
        dropped = self._end(member)
        self._on_lost(member, reason)
        for call in dropped:
            if call.failed is not None:
                call.failed()
        member.retry_at = self._clock() + member.failures.note(reason)

    def close(self) -> None:
        """End all members."""
        for member in list(self._members.values()):
            self.remove(member)

    def _begin(self, member: Member) -> None:
        member.incarnation += 1
        member.is_ready = member.serves = False
        member.actor = self._make(member)

        def note(process_id: int) -> None:
            member.is_ready, member.process_id = True, process_id
            self._on_ready(member)

        self.call(member, "get ready", member.actor.ready.remote(), note)

    def _end(self, member: Member) -> list[_Call]:
        actor, member.actor = member.actor, None
        member.is_ready = member.serves = False
        dropped = [ref for ref, call in self._calls.items() if call.member is member]
        calls = [self._calls.pop(reference) for reference in dropped]
        member.num_calls = 0
        if actor is not None:
            try:
                ray.kill(actor)
            except Exception as error:  # it is gone, and may be gone in ways that Ray cannot tell
                logger.debug("%s could not be killed: %r", member.name, error)
        return calls

    def _answer(self, reference: Any) -> None:
        call = self._calls.pop(reference, None)
        if call is None:  # dropped while the answers before it were handled
            return
        member = call.member
        member.num_calls -= 1
        try:
            answer = ray.get(reference, timeout=self._seconds)
        except ray.exceptions.RayError as error:
            if isinstance(own_error(error), self._fatal):
                raise own_error(error) from error
            self.lose(member, f"asked to {call.what}: {describe(error)}")
            if call.failed is not None:
                call.failed()
            return
        call.then(answer)
