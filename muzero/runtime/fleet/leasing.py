"""Who does what next: the mix of leases, their lengths, and the account of what they brought."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from muzero.config.schema import Config
from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.fleet.messages import REANALYZE, SELFPLAY, Lease, LeaseReport
from muzero.selfplay import Totals

LEASES_AHEAD = 2
"""Leases that a worker holds at once: one it works on, one that it begins without asking."""
_SMOOTHING = 0.2  # weight of a new measurement
_KEPT = 0.98  # of the account of work, with every lease
_NOTHING_STALE_SECONDS = 1.0  # until a worker looks for stale positions again where there were none


class Plan(NamedTuple):
    """What a lease shall be."""

    kind: str
    amount: int
    reserved: int


@dataclass(slots=True)
class Account:
    """What leases have brought since the start of the run."""

    inserted: int = 0
    """Positions that shards confirmed."""
    lost: int = 0
    """Positions that no shard took, as far as they were told."""
    searched: int = 0
    """Positions that reanalyze searched."""
    leases: int = 0
    """Leases that ended."""
    lost_leases: int = 0
    """Leases of workers that died."""


class Leasing:
    """Plans leases in the controller's mix; the limiter has the last word on self-play.

    Lengths follow the measured speed: a lease lasts `runtime.lease_seconds`, within what the limiter's band allows.

    Args:
        reanalyzes: Whether there is reanalyze work.
    """

    def __init__(
        self, config: Config, limiter: FleetLimiter, *, lease_seconds: float, reanalyzes: bool
    ) -> None:
        self.limiter = limiter
        self._num_games = config.selfplay.num_games
        self._batch_size = config.reanalyze.batch_size
        self._lease_seconds, self._reanalyzes = lease_seconds, reanalyzes
        self.selfplay_share = 1.0 if not reanalyzes else 0.5
        """Share of self-play in the workers' time, set by the controller."""
        self.selfplay_rate = self.reanalyze_rate = 0.0
        """Positions per second of one worker; 0 until it is known."""
        self._seconds = {SELFPLAY: 0.0, REANALYZE: 0.0}  # of work, forgotten slowly
        self._out = {SELFPLAY: 0, REANALYZE: 0}  # leases
        self.is_fresh = False
        """Whether the wished share of the targets is fresh: reanalyze then rests."""
        self._nothing_stale_until = 0.0
        self._is_refused = False
        self._directed: dict[int, int] = {}  # positions reserved for each shard so far
        self._turn = 0
        self.totals = Totals()
        self.account = Account()

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        return {
            "limiter": self.limiter.state(),
            "selfplay_share": self.selfplay_share,
            "totals": asdict(self.totals),
            "account": asdict(self.account),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`; speeds are measured anew."""
        self.limiter.restore(state["limiter"])
        self.selfplay_share = state["selfplay_share"] if self._reanalyzes else 1.0
        self.totals = Totals(**state["totals"])
        self.account = Account(**state["account"])

    def plan(self, now: float) -> Plan | None:
        """The next lease; None if there is nothing to do at `now` (seconds): self-play is ahead, and no target is stale."""
        can_reanalyze = self._reanalyzes and not self.is_fresh and now >= self._nothing_stale_until
        selfplay, reanalyze = (self._work(kind) for kind in (SELFPLAY, REANALYZE))
        wants_selfplay = selfplay * (1.0 - self.selfplay_share) <= reanalyze * self.selfplay_share
        if wants_selfplay or not can_reanalyze:
            plan = self._plan_selfplay()
            if plan is not None or not can_reanalyze:
                return plan
        seconds = self._lease_seconds
        amount = max(1, round(self.reanalyze_rate * seconds / self._batch_size))
        self._out[REANALYZE] += 1
        return Plan(REANALYZE, amount, 0)

    def choose_shard(self, kind: str, indices: Sequence[int]) -> int:
        """The shard of the next lease: inserts go where the fewest have gone, reanalyze takes from all in turn."""
        if kind == SELFPLAY:
            return min(indices, key=lambda index: (self._directed.get(index, 0), index))
        self._turn += 1
        return indices[self._turn % len(indices)]

    def note_directed(self, lease: Lease) -> None:
        """A lease has been given, whose positions will go to its shard."""
        index = lease.shard.index
        self._directed[index] = self._directed.get(index, 0) + lease.reserved

    def done(self, report: LeaseReport, now: float) -> None:
        """A lease has ended."""
        lease = report.lease
        self._out[lease.kind] -= 1
        for kind in self._seconds:
            self._seconds[kind] *= _KEPT
        # Reanalyze that filled a gap, because the limiter refused self-play, is no reason for more self-play later.
        if lease.kind == SELFPLAY or not self._is_refused:
            self._seconds[lease.kind] += report.seconds
        self.limiter.settle(lease.reserved, report.inserted)
        account = self.account
        account.inserted += report.inserted
        account.lost += report.lost
        account.searched += report.searched
        account.leases += 1
        for field in fields(Totals):
            total = getattr(self.totals, field.name) + getattr(report.totals, field.name)
            setattr(self.totals, field.name, total)
        if report.seconds <= 0.0:
            return
        if lease.kind == SELFPLAY:
            rate = (report.totals.env_steps + report.totals.opening_steps) / report.seconds
            self.selfplay_rate = _smooth(self.selfplay_rate, rate)
        elif report.searched:
            self.reanalyze_rate = _smooth(self.reanalyze_rate, report.searched / report.seconds)
        else:
            self._nothing_stale_until = now + _NOTHING_STALE_SECONDS

    def lost(self, lease: Lease) -> None:
        """The worker of a lease died: what it had not handed in is played by nobody, and was never counted."""
        self._out[lease.kind] -= 1
        self.limiter.settle(lease.reserved, 0)
        self.account.lost_leases += 1

    def _plan_selfplay(self) -> Plan | None:
        moves = max(1, round(self.selfplay_rate * self._lease_seconds / self._num_games))
        moves = min(moves, self.limiter.longest_lease // self._num_games)
        positions = moves * self._num_games
        self._is_refused = not self.limiter.reserve(positions)
        if self._is_refused:
            return None
        self._out[SELFPLAY] += 1
        return Plan(SELFPLAY, moves, positions)

    def _work(self, kind: str) -> float:
        """Seconds of work of a kind, leases that are out included."""
        return self._seconds[kind] + self._out[kind] * self._lease_seconds


def _smooth(old: float, new: float) -> float:
    return new if old == 0.0 else old + _SMOOTHING * (new - old)
