"""Who works on what: leases for the workers that have too few, and what they report."""

import time
from functools import partial

from muzero.runtime.fleet.hiring import WORKER
from muzero.runtime.fleet.leasing import LEASES_AHEAD, Leasing
from muzero.runtime.fleet.messages import Lease, LeaseReport, ShardAddress
from muzero.runtime.fleet.report import FleetReporter
from muzero.runtime.fleet.staff import Staff


class Granting:
    """Gives out the leases that `Leasing` plans, and books what came of them."""

    def __init__(self, staff: Staff, leasing: Leasing, reporter: FleetReporter) -> None:
        self._staff, self._leasing, self._reporter = staff, leasing, reporter
        self._lease_number = 0
        self.is_blocked = False
        """Whether a worker got no lease the last time, because the limiter allows none."""

    def grant(self, learner_step: int, *, is_open: bool) -> None:
        """Give leases to all workers that have too few.

        Args:
            is_open: Whether there are weights to search with, as far as others decide on it.
        """
        now = time.monotonic()
        self.is_blocked = False
        staff = self._staff
        if not staff.is_manned or staff.newest_version < 0 or not is_open:
            return
        for ahead in range(1, LEASES_AHEAD + 1):
            for member in staff.crew.serving(WORKER):
                if member.index >= staff.num_workers or member.num_calls >= ahead:
                    continue
                plan = self._leasing.plan(now)
                if plan is None:
                    self.is_blocked = True
                    return
                self._lease_number += 1
                lease = Lease(
                    number=self._lease_number,
                    kind=plan.kind,
                    amount=plan.amount,
                    reserved=plan.reserved,
                    learner_step=learner_step,
                    version=staff.newest_version,
                    shard=self._shard_for(plan.kind),
                    store=staff.store,
                    server=staff.server(member.index),
                )
                self._leasing.note_directed(lease)
                staff.crew.call(
                    member,
                    f"work off a lease of {plan.kind}",
                    member.actor.work.remote(lease),
                    self._note_report,
                    failed=partial(self._leasing.lost, lease),
                )

    def _shard_for(self, kind: str) -> ShardAddress:
        shards = self._staff.shards
        return shards[self._leasing.choose_shard(kind, sorted(shards))]

    def _note_report(self, report: LeaseReport) -> None:
        self._leasing.done(report, time.monotonic())
        index = report.lease.shard.index
        confirmed = self._staff.confirmed
        confirmed[index] = confirmed.get(index, 0) + report.inserted
        self._reporter.note_lease(report)
