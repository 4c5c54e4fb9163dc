"""A lease of reanalyze work: positions taken from the replay, searched, written back."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.replay.buffer import ReplayBuffer
from muzero.replay.storage import RootPositions
from reanalyze.refresh import Refreshed


@dataclass(frozen=True, slots=True)
class Lease:
    """Positions to refresh, keyed by slot and generation."""

    slot: npt.NDArray[np.int64]
    """`[n]` positions in the replay's ring."""
    positions: RootPositions
    """What a search needs of them."""


@dataclass(slots=True)
class _Totals:
    searched: int = 0
    written: int = 0
    dropped: int = 0


class ReanalyzeWorker:
    """Takes leases and brings the results back.

    Between `take` and `give_back` a `Refresher` searches the leased positions; it does not touch the replay, so it
    may run in another process.
    """

    def __init__(self) -> None:
        self.totals = _Totals()
        self._age = self._value_change = self._policy_change = 0.0
        self._batches = self._policy_batches = 0

    def take(
        self, replay: ReplayBuffer, count: int, *, version: int, learner_step: int
    ) -> Lease | None:
        """The `count` stalest positions; None if no position's target is older than the searching weights' `version`."""
        slots = replay.stalest(count, version)
        if len(slots) == 0:
            return None
        positions = replay.roots(slots)
        self._age += float(np.mean(learner_step - positions.target_version))
        return Lease(slots, positions)

    def give_back(self, replay: ReplayBuffer, lease: Lease, result: Refreshed) -> None:
        """Write the new targets over the old ones; positions evicted meanwhile are dropped and counted."""
        old = lease.positions
        self._value_change += float(np.abs(result.root_value - old.root_value).mean())
        policy_change = 0.5 * np.abs(result.policy - old.policy).sum(axis=1)[old.has_policy]
        if len(policy_change) > 0:  # what was searched fast has no policy that could change
            self._policy_change += float(policy_change.mean())
            self._policy_batches += 1
        written, dropped = replay.write_back(
            lease.slot,
            lease.positions.generation,
            result.policy,
            result.root_value,
            result.version,
        )
        self.totals.searched += len(lease.slot)
        self.totals.written += written
        self.totals.dropped += dropped
        self._batches += 1

    def report(self) -> dict[str, float]:
        """Totals, and means since the last report, under the names of the metrics reference."""
        report: dict[str, float] = {
            "reanalyze/positions": self.totals.searched,
            "reanalyze/written": self.totals.written,
            "reanalyze/dropped": self.totals.dropped,
        }
        if self._batches:
            report["reanalyze/target_age"] = self._age / self._batches
            report["reanalyze/value_change"] = self._value_change / self._batches
        if self._policy_batches:
            report["reanalyze/policy_change"] = self._policy_change / self._policy_batches
        self._age = self._value_change = self._policy_change = 0.0
        self._batches = self._policy_batches = 0
        return report

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        batches = [self._batches, self._policy_batches]
        sums = [self._age, self._value_change, self._policy_change, *batches]
        return {"totals": asdict(self.totals), "sums": sums}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.totals = _Totals(**state["totals"])
        self._age, self._value_change, self._policy_change, *batches = state["sums"]
        self._batches, self._policy_batches = batches[0], batches[-1]  # once there was but one
