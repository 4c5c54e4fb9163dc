"""Gatekeeping in a fleet: candidates out of the weight store, matches in a process of their own, what passes back to the store."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ray

from muzero.checkpoint import Checkpoint, Part
from muzero.config.schema import Config
from muzero.runtime.fleet.candidates import Candidate, Candidates, Match
from muzero.runtime.fleet.crew import Member
from muzero.runtime.fleet.hiring import GATEKEEPER, STORE
from muzero.runtime.fleet.report import FleetReporter
from muzero.runtime.fleet.staff import Staff
from muzero.runtime.gatekeeping import Verdict
from muzero.weights import Arrays, to_arrays, to_tensors

_MATCH_SECONDS = 3600.0  # it gives way to all others for the processor
_STATE, _WEIGHTS = "gatekeeping", "weights"


class Gating:
    """Has the learner's weights judged beside training, and gives the store those that all who search are to use.

    The weights in use, and the candidates, are kept here: a store or a gatekeeper that dies loses none of them. Without
    `gatekeeping.interval` it does nothing, and the newest weights are used.

    Args:
        tell: Says something to the user.
    """

    def __init__(
        self, config: Config, staff: Staff, reporter: FleetReporter, *, tell: Callable[[str], None]
    ) -> None:
        self._is_on = config.gatekeeping.interval > 0
        self._candidates = Candidates(max(1, config.gatekeeping.interval))
        self._staff, self._crew = staff, staff.crew
        self._reporter, self._tell = reporter, tell
        self._is_asking = False
        self._given: tuple[int, int] | None = None  # incarnation of the store, version
        self._has_given = False

    @property
    def is_open(self) -> bool:
        """Whether there are weights to search with, as far as it depends on this."""
        return self._has_given or not self._is_on

    @property
    def is_playing(self) -> bool:
        """Whether a match is running."""
        return self._candidates.is_playing

    def note_steps(self, before: int, after: int) -> None:
        """The learner has gone from one step to another."""
        if self._is_on:
            self._candidates.note_steps(before, after)

    def poll(self) -> None:
        """Do what is due: name a candidate, begin a match, give the weights in use to a store that has not got them."""
        if not self._is_on:
            return
        store = next(iter(self._crew.serving(STORE)), None)
        if store is not None:
            if self._candidates.wants_nomination and not self._is_asking:
                self._ask_for_newest(store)
            self._give(store)
        gatekeeper = self._crew.get(GATEKEEPER)
        if gatekeeper is not None and (match := self._candidates.next_match()) is not None:
            self._begin(gatekeeper, match)

    def report(self) -> dict[str, float]:
        """Counters, under the names of the metrics reference."""
        in_use = self._candidates.in_use
        if not self._is_on or in_use is None:
            return {}
        return {
            "gatekeeping/accepted": self._candidates.num_accepted,
            "gatekeeping/rejected": self._candidates.num_rejected,
            "gatekeeping/version": in_use.version,
        }

    def parts(self) -> dict[str, Part]:
        """Parts of a checkpoint that `restore` continues from."""
        in_use = self._candidates.in_use
        if not self._is_on or in_use is None:
            return {}
        weights: Arrays = ray.get(
            in_use.weights
        )  # out of this host's store, where this process put it
        return {_WEIGHTS: to_tensors(weights), _STATE: self._candidates.state()}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint; one of a run without gatekeeping has nothing to say."""
        if self._is_on and _STATE in checkpoint.parts:
            weights = to_arrays(checkpoint.tensors(_WEIGHTS))
            self._candidates.restore(checkpoint.json(_STATE), ray.put(weights))

    def _ask_for_newest(self, store: Member) -> None:
        def note(newest: tuple[int, Arrays] | None) -> None:
            self._is_asking = False
            if newest is not None:
                version, weights = newest
                # Put once more by this process: an object goes with the process that put it.
                self._candidates.nominate(Candidate(version, ray.put(weights)))
                self._hire()

        def failed() -> None:
            self._is_asking = False

        self._is_asking = True
        self._crew.call(store, "name a candidate", store.actor.newest.remote(), note, failed=failed)

    def _hire(self) -> None:
        """Have a gatekeeper: it is made when the first weights are there, to be ready for the first candidate."""
        if not self._crew.all(GATEKEEPER):
            self._crew.add(GATEKEEPER, 0)

    def _give(self, store: Member) -> None:
        in_use = self._candidates.in_use
        if in_use is None or self._given == (store.incarnation, in_use.version):
            return

        def note(_: Any) -> None:
            self._has_given = True

        self._given = store.incarnation, in_use.version
        accepted = store.actor.accept.remote(in_use.version, [in_use.weights])
        self._crew.call(store, "take the accepted weights", accepted, note)

    def _begin(self, gatekeeper: Member, match: Match) -> None:
        verdict = gatekeeper.actor.judge.remote(*match.candidate, *match.in_use)
        self._crew.call(
            gatekeeper,
            "judge a candidate",
            verdict,
            partial(self._note_verdict, match),
            failed=self._candidates.interrupt,
            seconds=_MATCH_SECONDS,
        )

    def _note_verdict(self, match: Match, verdict: Verdict) -> None:
        self._candidates.decide(is_accepted=verdict.is_accepted)
        self._reporter.note_match(verdict.score)
        outcome = "accepted" if verdict.is_accepted else "rejected"
        self._tell(
            f"weights {match.candidate.version} {outcome}: {verdict.score:.1%} of the points of {verdict.num_games} games "
            f"against weights {match.in_use.version}"
        )
