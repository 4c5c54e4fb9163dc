"""The controller keeps the learner fed: how the workers' time is split, how far ahead batches are made, how many workers.

It is a function of what it perceived and of its own small state: no clock, no I/O, no Ray. Self-play gets what the learner's
demand asks for (feed-forward from measured rates) corrected by the limiter's error (proportional and integral); reanalyze gets
what the wished freshness asks for; what is left goes to the larger error. Within the band that error is the limiter's own; at
the band's edges it goes on as the time that the learner, or self-play, has to wait.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from muzero.runtime.demand import (
    HEADROOM,
    HYSTERESIS,
    WAIT_TOLERATED,
    Demand,
    Need,
    limiter_pressure,
)
from muzero.runtime.perception import Decision, Perceived

__all__ = [
    "Controller",
    "Decision",
    "Perceived",
    "Replayed",
    "record",
    "replay_decisions",
    "start_record",
]

STEP = 0.10
"""Largest change per decision, as a share of all workers (but always one worker)."""
MEMORY_HIGH, MEMORY_LOW = 0.90, 0.80
"""Memory counts as short from the first until it is below the second."""
_STATE = ("share", "threads", "prefetch", "wished", "seen_workers", "memory_high")


class Controller:
    """Decides once per interval.

    Example:
        >>> controller = Controller(max_workers=8, reanalyzes=True)
        >>> decision = controller.decide(perceived)

    Args:
        max_workers: Most workers to ask for.
        reanalyzes: Whether there is reanalyze work; without it all leases are self-play.
        min_selfplay_share: Exploration never stops: at least this share of the leases is self-play.
        assembly_threads: Batches being assembled at once, at first; up to `max_assembly_threads`.
        prefetch: Depth of the learner's queue, at first; up to `max_prefetch`.
        cpus_per_worker: Cores a worker takes; more workers than the live cores hold are only asked for if `autoscales`.
    """

    def __init__(
        self,
        *,
        max_workers: int,
        reanalyzes: bool,
        min_selfplay_share: float = 0.125,
        assembly_threads: int = 1,
        max_assembly_threads: int = 8,
        prefetch: int = 4,
        max_prefetch: int = 16,
        cpus_per_worker: float = 1.0,
        autoscales: bool = False,
    ) -> None:
        """Raises ValueError for settings out of range."""
        if max_workers < 1:
            raise ValueError(f"max_workers is {max_workers}; it must be at least 1")
        if not 0.0 < min_selfplay_share <= 1.0:
            raise ValueError(
                f"min_selfplay_share is {min_selfplay_share}; it must be above 0 and at most 1"
            )
        if not 1 <= assembly_threads <= max_assembly_threads:
            raise ValueError(
                f"assembly_threads is {assembly_threads}; it must be between 1 and max_assembly_threads="
                f"{max_assembly_threads}"
            )
        if not assembly_threads <= prefetch <= max_prefetch:
            raise ValueError(
                f"prefetch is {prefetch}; it must be between assembly_threads={assembly_threads} and max_prefetch={max_prefetch}"
            )
        if not (math.isfinite(cpus_per_worker) and cpus_per_worker > 0.0):
            raise ValueError(f"cpus_per_worker is {cpus_per_worker}; it must be above 0")
        self._settings: dict[str, Any] = {
            "max_workers": max_workers,
            "reanalyzes": reanalyzes,
            "min_selfplay_share": min_selfplay_share,
            "assembly_threads": assembly_threads,
            "max_assembly_threads": max_assembly_threads,
            "prefetch": prefetch,
            "max_prefetch": max_prefetch,
            "cpus_per_worker": cpus_per_worker,
            "autoscales": autoscales,
        }
        self._share = max(0.5, min_selfplay_share) if reanalyzes else 1.0
        self._demand = Demand()
        self._threads, self._prefetch = assembly_threads, prefetch
        self._wished = self._seen_workers = 0
        self._memory_high = False

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return dict(self._settings)

    def decide(self, perceived: Perceived) -> Decision:
        """What to do after this interval. Numbers that are not finite count as unknown."""
        seen = perceived.cleaned()
        self._welcome(seen.num_workers)
        if seen.seconds <= 0.0:
            return self._decision(["no time has passed"])
        self._demand.note(seen)
        pressure = limiter_pressure(seen, self._share)
        need = self._demand.need(seen, self._share, pressure)
        reasons = [self._move_share(seen, need, pressure)]
        self._watch_memory(seen.memory_fraction)
        reasons += self._move_assembly(seen)
        reasons += self._move_workers(seen, need)
        return self._decision([reason for reason in reasons if reason])

    def _move_share(self, seen: Perceived, need: Need, pressure: float) -> str:
        """Move the share of self-play, by one step at most."""
        if not self._settings["reanalyzes"]:
            return "reanalyze is off, so all leases are self-play"
        if seen.num_workers < 1:
            return "no worker is alive, so the split stays"
        step = max(1.0 / seen.num_workers, STEP)
        if need.selfplay is None:
            if pressure <= 0.0:
                return "rates are unknown yet, so the split stays"
            self._share = min(1.0, self._share + step)
            return f"the learner waits for the limiter at unknown rates, so self-play gets {self._share:.0%}"
        least: float = self._settings["min_selfplay_share"]
        aim = need.selfplay / seen.num_workers
        target = min(max(aim, least), 1.0)
        old = self._share
        holds = abs(aim / old - 1.0) <= HYSTERESIS or target == old
        if not holds:
            self._share = min(max(target, old - step), old + step)
        at_end = old >= 1.0 if pressure > 0.0 else old <= least
        if self._share != old or (pressure != 0.0 and at_end):
            self._demand.reset_integral()
        else:
            self._demand.integrate(pressure, seen.seconds)
        if self._share == old:
            return f"demand asks for {aim:.0%} self-play, so {old:.0%} stays"
        return f"demand asks for {aim:.0%} self-play, so its share goes from {old:.0%} to {self._share:.0%}"

    def _watch_memory(self, fraction: float) -> None:
        """Memory counts as short from `MEMORY_HIGH` on until it is below `MEMORY_LOW`."""
        if fraction > MEMORY_HIGH:
            self._memory_high = True
        elif fraction < MEMORY_LOW:
            self._memory_high = False

    def _move_assembly(self, seen: Perceived) -> list[str]:
        """More batches assembled at once, or more held ready, if the learner waits for that."""
        reasons = []
        waits = seen.wait_fractions
        if self._memory_high:
            return []
        if waits.get("assembly", 0.0) > WAIT_TOLERATED:
            self._threads = min(self._threads + 1, self._settings["max_assembly_threads"])
            self._prefetch = max(self._prefetch, self._threads)
            reasons.append(
                f"the learner waits for assembly, so {self._threads} batches are made at once"
            )
        if waits.get("transfer", 0.0) > WAIT_TOLERATED:
            self._prefetch = min(self._prefetch + 1, self._settings["max_prefetch"])
            reasons.append(
                f"the learner waits for transfers, so {self._prefetch} batches are held ready"
            )
        return reasons

    def _welcome(self, alive: int) -> None:
        """Workers that joined on their own raise the wish; lost ones stay wished for."""
        if alive > self._seen_workers:
            self._wished = max(self._wished, alive)
        self._seen_workers = alive
        self._wished = min(max(self._wished, 1), self._settings["max_workers"])

    def _move_workers(self, seen: Perceived, need: Need) -> list[str]:
        """Ask for fewer workers if memory is short or they idle, for more if both kinds of work need them."""
        alive, old = seen.num_workers, self._wished
        step = max(1, int(STEP * old))
        # Reanalyze stops at its target, so the fraction stays just below it.
        fresh = seen.fresh_fraction >= (1.0 - WAIT_TOLERATED) * seen.fresh_fraction_target
        stale = seen.fresh_fraction < (1.0 - HYSTERESIS) * seen.fresh_fraction_target
        stale &= seen.idle_fraction <= HYSTERESIS  # more workers would idle as well
        short = seen.wait_fractions.get("limiter", 0.0) > WAIT_TOLERATED
        if self._memory_high:
            if seen.memory_fraction > MEMORY_HIGH:
                self._wished = min(old, max(1, alive - max(1, int(STEP * alive))))
                return [
                    f"memory is at {seen.memory_fraction:.0%}, so {self._wished} workers are asked for"
                ]
        elif seen.wait_fraction <= WAIT_TOLERATED and fresh and seen.idle_fraction > HYSTERESIS:
            busy = math.ceil(alive * (1.0 - seen.idle_fraction + HEADROOM - 1.0))
            self._wished = max(1, min(old, max(busy, old - step)))
            if self._wished < old:
                return [
                    f"learner and freshness are satisfied and {seen.idle_fraction:.0%} of the workers idle, so "
                    f"{self._wished} are asked for"
                ]
        elif (short or stale) and need.selfplay is not None:
            wanted = need.selfplay + need.reanalyze
            most: float = self._settings["max_workers"]
            if not self._settings["autoscales"]:
                most = min(most, max(alive, seen.num_cpus // self._settings["cpus_per_worker"]))
            if wanted > (1.0 + HYSTERESIS) * old:
                self._wished = max(old, int(min(wanted + 1.0, old + step, most)))
            if self._wished > old:
                return [f"{wanted:.0f} workers are needed, so {self._wished} are asked for"]
        return []

    def _decision(self, reasons: list[str]) -> Decision:
        return Decision(
            selfplay_share=self._share,
            assembly_threads=self._threads,
            prefetch=self._prefetch,
            num_workers=self._wished,
            reason="; ".join(reasons),
        )

    def state(self) -> dict[str, Any]:
        """JSON that `restore` continues from."""
        own = {name: getattr(self, "_" + name) for name in _STATE}
        return own | {"demand": self._demand.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`; the settings are this controller's."""
        for name in _STATE:
            setattr(self, "_" + name, state[name])
        self._demand.restore(state["demand"])


def start_record(controller: Controller) -> dict[str, Any]:
    """The line of controller.jsonl that a process begins with: what its decisions start from."""
    return {"settings": controller.settings, "state": controller.state()}


def record(perceived: Perceived, decision: Decision) -> dict[str, Any]:
    """One line of controller.jsonl."""
    return {"perceived": asdict(perceived), "decision": asdict(decision)}


class Replayed(NamedTuple):
    """A recorded decision and the one that its inputs lead to now."""

    line: int
    """In the file, from 1."""
    perceived: Perceived
    recorded: Decision
    decided: Decision


def replay_decisions(path: Path) -> list[Replayed]:
    """Decide again what controller.jsonl holds: the same inputs lead to the same decisions.

    A run that was resumed has several start lines; each begins anew from its own state.

    Raises:
        ValueError: If the first line is no start line, or a line has something else than a decision in it.
    """
    replayed: list[Replayed] = []
    controller: Controller | None = None
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        row = json.loads(line)
        if "settings" in row:
            controller = Controller(**row["settings"])
            controller.restore(row["state"])
        elif controller is None or "perceived" not in row:
            raise ValueError(
                f"{path}, line {number}: expected {'a decision' if controller else 'the settings that a process starts with'}, "
                f"found {', '.join(map(str, row))}; is this a controller.jsonl from its first line on?"
            )
        else:
            perceived = Perceived(**row["perceived"])
            decision = Decision(**row["decision"])
            replayed.append(Replayed(number, perceived, decision, controller.decide(perceived)))
    return replayed
