"""What the learner's demand asks of the workers: measured rates, the limiter's error, and their feedback."""

import math
from typing import Any, NamedTuple

from muzero.runtime.perception import Perceived

WAIT_TOLERATED = 0.02
"""Share of time the learner may wait before something is done about it."""
BLOCKED_TOLERATED = 0.05
"""Share of the workers' time that the limiter may refuse self-play before its share shrinks."""
HYSTERESIS = 0.10
"""Relative change below which an actuator stays where it is."""
HEADROOM = 1.05
"""Self-play is aimed so far above demand: a surplus is refused by the limiter and costs nothing, a shortage stops the learner."""
_BAND_GAIN, _INTEGRAL_GAIN, _FADING = 0.03, 0.5, 0.8
_INTEGRAL_BOUND = 2.0 * HYSTERESIS  # enough to leave the hysteresis, and no more to wind up
_NOMINAL_SECONDS = 10.0
_SMOOTHING = 0.5
_MOST = 1e12


class Need(NamedTuple):
    """Workers asked for, which may be more than there are."""

    selfplay: float | None
    """None while a rate is unknown."""
    reanalyze: float


class Demand:
    """Keeps smoothed rates and the integral of the limiter's error; says how many workers each kind of work needs."""

    def __init__(self) -> None:
        self._integral = 0.0
        self._demand = self._selfplay_rate = self._reanalyze_rate = 0.0

    def note(self, seen: Perceived) -> None:
        """Smooth the measured rates; one that was not measured keeps its value."""

        def smooth(old: float, new: float) -> float:
            if not 0.0 < new < math.inf:
                return old
            return new if old == 0.0 else old + _SMOOTHING * (new - old)

        taken, busy = seen.learner_samples_per_second, seen.learner_busy_fraction
        self._demand = smooth(self._demand, taken / busy if busy > 1e-3 else 0.0)
        self._selfplay_rate = smooth(self._selfplay_rate, seen.selfplay_positions_per_second)
        self._reanalyze_rate = smooth(self._reanalyze_rate, seen.reanalyze_positions_per_second)

    def need(self, seen: Perceived, selfplay_share: float, pressure: float) -> Need:
        """Feed-forward and feedback; what both kinds of work leave goes to the larger error, as far as it asks for it.

        The limiter decides whether self-play needs more or less than it has, the rates how much.
        """
        per_worker = seen.samples_per_insert * self._selfplay_rate
        reanalyze = staleness = behind = 0.0
        if seen.fresh_fraction_target > 0.0:
            staleness = max(0.0, 1.0 - seen.fresh_fraction / seen.fresh_fraction_target)
            if self._reanalyze_rate > 0.0:
                targets = self._demand * (seen.num_unroll_steps + 1)
                reanalyze = min(seen.fresh_fraction_target * targets / self._reanalyze_rate, _MOST)
        if per_worker <= 0.0 or self._demand <= 0.0:
            return Need(None, reanalyze)
        if seen.error_buffer > 0.0:
            behind = min(max(seen.limiter_error / seen.error_buffer, -1.0), 1.0)
        wanted = HEADROOM * self._demand / per_worker * math.exp(-_BAND_GAIN * behind)
        present = selfplay_share * seen.num_workers
        if pressure > 0.0:
            selfplay = max(wanted, present * (1.0 + pressure))
        elif pressure < 0.0:
            # Never below what the rates ask for: the refused time is late by a lease, and reanalyze has had it.
            selfplay = min(present, max(wanted, HEADROOM * present * (1.0 + pressure)))
        else:  # in the band: towards its upper half, where a surplus is refused, and not back
            selfplay = max(present, wanted) if behind < 0.0 else present
        selfplay = min(selfplay * math.exp(self._integral), _MOST)
        rest = seen.num_workers - selfplay - reanalyze
        if rest > 0.0 and pressure > staleness:
            selfplay += min(rest, pressure * selfplay)
        return Need(selfplay, reanalyze)

    def integrate(self, pressure: float, seconds: float) -> None:
        """Add up the shortage of an interval in which the share stayed; without any, the sum fades.

        Surpluses are not added up: reanalyze has what self-play is refused, so they cost nothing.
        """
        intervals = min(seconds / _NOMINAL_SECONDS, 3.0)
        if pressure == 0.0:
            self._integral *= _FADING**intervals
            return
        grown = self._integral + _INTEGRAL_GAIN * pressure * intervals
        self._integral = min(max(grown, 0.0), _INTEGRAL_BOUND)

    def reset_integral(self) -> None:
        """The share has moved, or cannot move further: the sum has done its work, or would only wind up."""
        self._integral = 0.0

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        return {
            "integral": self._integral,
            "demand": self._demand,
            "selfplay_rate": self._selfplay_rate,
            "reanalyze_rate": self._reanalyze_rate,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._integral, self._demand = float(state["integral"]), float(state["demand"])
        self._selfplay_rate = float(state["selfplay_rate"])
        self._reanalyze_rate = float(state["reanalyze_rate"])


def limiter_pressure(seen: Perceived, selfplay_share: float) -> float:
    """The limiter's error beyond its band, -1 to 1: positive if self-play is short, negative if it is refused."""
    waits = seen.wait_fractions.get("limiter", 0.0)
    if waits > WAIT_TOLERATED:
        return min(waits / max(1.0 - waits, 1e-9), 1.0)
    # Who was refused and idled instead had no reanalyze to do: a smaller share would give it none.
    refused = seen.insert_blocked_fraction - seen.idle_fraction
    surplus = refused / selfplay_share
    if refused > BLOCKED_TOLERATED and surplus > HEADROOM - 1.0 + HYSTERESIS:
        return -min(surplus, 1.0)
    return 0.0
