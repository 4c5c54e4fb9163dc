"""Which weights a fleet judges and which it uses: fake learners and judges, no process."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from muzero.runtime.fleet.candidates import Candidate, Candidates, Match

INTERVAL = 10


def published(version: int) -> Candidate:
    return Candidate(version, f"weights {version}")


class Fleet:
    """A learner that publishes after every step, and a judge that takes its time, in learner steps."""

    def __init__(self, judge: Callable[[Match], bool], *, duration: int = 1) -> None:
        self.candidates = Candidates(INTERVAL)
        self._judge, self._duration = judge, duration
        self._match: Match | None = None
        self._ends_at = 0
        self.step = 0
        self.matches: list[tuple[int, int]] = []
        """Versions of both sides, in order of their beginnings."""
        self.used: list[int] = []
        """Version in use after each step."""
        self._house(0)

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.step += 1
            self._house(self.step - 1)
            assert self.candidates.in_use is not None
            self.used.append(self.candidates.in_use.version)

    def kill_the_judge(self) -> None:
        assert self._match is not None
        self._match = None
        self.candidates.interrupt()

    def _house(self, before: int) -> None:
        candidates = self.candidates
        if self._match is not None and self.step >= self._ends_at:
            verdict, self._match = self._judge(self._match), None
            candidates.decide(is_accepted=verdict)
        candidates.note_steps(before, self.step)
        if candidates.wants_nomination:
            candidates.nominate(published(self.step))
        if (match := candidates.next_match()) is not None:
            self._match, self._ends_at = match, self.step + self._duration
            self.matches.append((match.candidate.version, match.in_use.version))


def test_the_first_weights_need_no_match():
    fleet = Fleet(lambda _: pytest.fail("there was a match"))
    fleet.train(INTERVAL - 1)
    assert fleet.candidates.in_use == published(0)
    assert fleet.used == [0] * (INTERVAL - 1) and fleet.matches == []


def test_a_judge_that_rejects_all_leaves_the_first_weights_in_use():
    fleet = Fleet(lambda _: False)
    fleet.train(55)
    assert fleet.matches == [(10, 0), (20, 0), (30, 0), (40, 0), (50, 0)]
    assert fleet.used == [0] * 55
    assert (fleet.candidates.num_accepted, fleet.candidates.num_rejected) == (0, 5)


def test_a_judge_that_accepts_all_puts_each_in_the_place_of_the_one_before():
    fleet = Fleet(lambda _: True, duration=2)
    fleet.train(35)
    assert fleet.matches == [(10, 0), (20, 10), (30, 20)]
    # The match of version 10 ends at step 12.
    assert fleet.used == [0] * 11 + [10] * 10 + [20] * 10 + [30] * 4
    assert fleet.candidates.in_use == published(30)
    assert (fleet.candidates.num_accepted, fleet.candidates.num_rejected) == (3, 0)


def test_while_a_slow_judge_plays_only_the_newest_candidate_waits():
    fleet = Fleet(lambda match: match.candidate.version == 10, duration=35)
    fleet.train(44)
    assert fleet.matches == [(10, 0)] and fleet.used == [0] * 44
    fleet.train(
        1
    )  # of 20, 30 and 40, which came meanwhile, the last one is left; it meets the weights in use by then
    assert fleet.matches == [(10, 0), (40, 10)] and fleet.used[-1] == 10
    fleet.train(35)
    assert fleet.matches == [(10, 0), (40, 10), (80, 10)] and fleet.used[-1] == 10
    assert (fleet.candidates.num_accepted, fleet.candidates.num_rejected) == (1, 1)


def test_a_match_whose_judge_died_is_played_again_before_a_newer_candidate():
    fleet = Fleet(lambda _: True, duration=15)
    fleet.train(22)
    fleet.kill_the_judge()
    assert not fleet.candidates.is_playing
    fleet.train(15)
    assert fleet.matches == [(10, 0), (10, 0)] and fleet.used[-1] == 0
    fleet.train(1)
    assert fleet.matches == [(10, 0), (10, 0), (30, 10)] and fleet.used[-1] == 10
    assert fleet.candidates.num_accepted == 1


def test_weights_that_are_no_newer_are_no_candidates():
    """The learner may publish seldom, or go on from an older checkpoint."""
    candidates = Candidates(INTERVAL)
    candidates.nominate(published(0))
    for version in (0, 7, 7, 5):
        candidates.note_steps(9, 10)
        assert candidates.wants_nomination
        candidates.nominate(published(version))
        assert not candidates.wants_nomination
        match = candidates.next_match()
        assert (match is not None) == (version == 7 and candidates.num_rejected == 0) or match
        if match is not None:
            assert match == (published(7), published(0))
            candidates.nominate(published(7))  # while it is being judged
            candidates.decide(is_accepted=candidates.num_rejected > 0)
    assert candidates.next_match() is None


def test_several_multiples_between_two_looks_are_one_candidate():
    candidates = Candidates(INTERVAL)
    candidates.nominate(published(0))
    candidates.note_steps(0, 35)
    candidates.nominate(published(33))
    assert not candidates.wants_nomination
    assert candidates.next_match() == (published(33), published(0))
    candidates.note_steps(35, 39)
    assert not candidates.wants_nomination


@pytest.mark.parametrize("pending", ["nothing", "due", "playing", "waiting"])
def test_a_continued_run_has_the_weights_in_use_and_makes_up_for_the_candidate_that_was_not_judged(
    pending,
):
    fleet = Fleet(lambda _: True, duration={"playing": 9, "waiting": 25}.get(pending, 1))
    fleet.train({"nothing": 15, "due": 15, "playing": 15, "waiting": 25}[pending])
    candidates = fleet.candidates
    if pending == "due":
        candidates.note_steps(15, 20)
    in_use = 10 if pending in ("nothing", "due") else 0
    state = json.loads(json.dumps(candidates.state()))
    accepted = int(in_use > 0)
    assert state == {
        "version": in_use,
        "accepted": accepted,
        "rejected": 0,
        "is_due": pending != "nothing",
    }
    again = Candidates(INTERVAL)
    again.restore(state, f"weights {in_use}")
    assert again.in_use == published(in_use) and again.num_accepted == accepted
    assert again.next_match() is None
    assert again.wants_nomination == (pending != "nothing")
    if pending != "nothing":
        again.nominate(published(26))
        assert again.next_match() == (published(26), published(in_use))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_only_what_won_its_match_is_used(seed):
    rng = np.random.default_rng(seed)
    candidates, running, won, step = Candidates(INTERVAL), None, {0}, 0
    candidates.nominate(published(0))
    named: list[int] = []
    lost: Match | None = None
    for _ in range(2000):
        match rng.integers(5):
            case 0 | 1:
                more = int(rng.integers(1, 8))
                candidates.note_steps(step, step + more)
                step += more
            case 2 if candidates.wants_nomination:
                named.append(step - int(rng.integers(0, 3)))  # published a little earlier
                candidates.nominate(published(named[-1]))
            case 3 if running is not None and rng.random() < 0.4:
                candidates.interrupt()
                running, lost = None, running
            case 3 if running is not None:
                accepted = bool(rng.integers(2))
                candidates.decide(is_accepted=accepted)
                won |= {running.candidate.version} if accepted else set()
                running = None
            case 4:
                began = candidates.next_match()
                if running is not None:
                    assert began is None
                elif began is not None:
                    running = began
                    assert began.candidate.version > began.in_use.version
                    assert began.in_use == candidates.in_use
                    assert began == (lost or began)
                    if lost is None:  # nothing newer was passed over
                        assert began.candidate.version == named[-1]
                    lost = None
        assert candidates.in_use is not None
        assert candidates.in_use.version == max(won)
        assert candidates.is_playing == (running is not None)
    assert len(won) > 10 and candidates.num_accepted == len(won) - 1
    assert candidates.num_rejected > 10
