"""Gatekeeping in a fleet: which weights are judged next, and which are in use. Decisions only; the matches are others' work."""

from dataclasses import dataclass
from typing import Any, NamedTuple


class Candidate(NamedTuple):
    """Weights that the learner published."""

    version: int
    weights: Any
    """What stands for them, such as a reference into the object store; nothing here looks at it."""


class Match(NamedTuple):
    """Two sides that are to play each other."""

    candidate: Candidate
    in_use: Candidate


@dataclass(slots=True)
class Candidates:
    """The weights in use, the candidate that is being judged, and the newest one that waits.

    The first weights there are need no match. A candidate that comes while a match is running waits for its end, in the place
    of any that waited before.

    Example:
        >>> candidates.note_steps(1990, 2003)  # learner steps: a multiple of the interval has been crossed
        >>> candidates.nominate(newest)
        >>> match = candidates.next_match()  # to be played until `decide` or `interrupt`
        >>> candidates.decide(is_accepted=True)
    """

    interval: int
    """Learner steps between two candidates."""
    in_use: Candidate | None = None
    """What those who search use; None before the first weights."""
    num_accepted: int = 0
    num_rejected: int = 0
    """Matches so far, by outcome."""
    is_due: bool = False
    """Whether a multiple of the interval has been crossed whose candidate is still to be named."""
    _judged: Candidate | None = None
    _is_playing: bool = False
    _waiting: Candidate | None = None

    @property
    def wants_nomination(self) -> bool:
        """Whether the newest published weights are to be nominated now."""
        return self.is_due or self.in_use is None

    @property
    def is_playing(self) -> bool:
        """Whether a match is running."""
        return self._is_playing

    def note_steps(self, before: int, after: int) -> None:
        """The learner has gone from one step to another."""
        if after // self.interval > before // self.interval:
            self.is_due = True

    def nominate(self, newest: Candidate) -> None:
        """Take the newest published weights as a candidate; what is no newer than all before is none."""
        if self.in_use is None:
            self.in_use = newest
            return
        self.is_due = False
        known = self._waiting or self._judged or self.in_use
        if newest.version > known.version:
            self._waiting = newest

    def next_match(self) -> Match | None:
        """The match to begin now, one that was interrupted first; None while one is running, or without a candidate."""
        if self._is_playing or self.in_use is None:
            return None
        if self._judged is None:
            self._judged, self._waiting = self._waiting, None
        if self._judged is None:
            return None
        self._is_playing = True
        return Match(self._judged, self.in_use)

    def decide(self, *, is_accepted: bool) -> None:
        """The match that is running has come to its end."""
        assert self._judged is not None and self._is_playing
        if is_accepted:
            self.in_use = self._judged
            self.num_accepted += 1
        else:
            self.num_rejected += 1
        self._judged, self._is_playing = None, False

    def interrupt(self) -> None:
        """Whoever judged is gone: the match is to be played again."""
        self._is_playing = False

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from, the weights in use aside.

        Candidates are not in it: instead of one that was not judged to the end the continued run names its newest weights.
        """
        assert self.in_use is not None
        unjudged = self._judged is not None or self._waiting is not None
        return {
            "version": self.in_use.version,
            "accepted": self.num_accepted,
            "rejected": self.num_rejected,
            "is_due": self.is_due or unjudged,
        }

    def restore(self, state: dict[str, Any], weights: Any) -> None:
        """Continue from `state`, with these weights in use."""
        self.in_use = Candidate(state["version"], weights)
        self.num_accepted, self.num_rejected = state["accepted"], state["rejected"]
        self.is_due = state["is_due"]
