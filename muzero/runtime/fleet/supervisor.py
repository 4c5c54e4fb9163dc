"""The supervisor of a fleet: has leases granted, keeps the limiter, watches, decides, saves."""

import logging
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

from muzero.checkpoint import Checkpoint, CheckpointManager
from muzero.config.runtime import RayRuntimeConfig
from muzero.config.schema import Config
from muzero.metrics import MetricsLogger
from muzero.progress import Progress
from muzero.runtime.build import Builder, configure_torch
from muzero.runtime.fleet.cluster import Cluster, store_bytes
from muzero.runtime.fleet.crew import Member
from muzero.runtime.fleet.gating import Gating
from muzero.runtime.fleet.granting import Granting
from muzero.runtime.fleet.hiring import LEARNER, SHARD, WORKER
from muzero.runtime.fleet.inquiries import Inquiries
from muzero.runtime.fleet.leasing import LEASES_AHEAD, Account, Leasing
from muzero.runtime.fleet.limiter import FleetLimiter
from muzero.runtime.fleet.messages import LearnerStatus
from muzero.runtime.fleet.report import FleetReporter
from muzero.runtime.fleet.saving import Saver
from muzero.runtime.fleet.staff import Staff
from muzero.runtime.fleet.steering import Steering
from muzero.runtime.fleet.watchdog import Watchdog
from muzero.runtime.memory import available_memory, memory_need
from muzero.runtime.signals import GracefulStop
from muzero.selfplay import Totals

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_LAST_LEASES_SECONDS = 60.0


class FleetRuntime:
    """Trains with a fleet of Ray actors; the counterpart of `LocalRuntime`.

    The schedule depends on the machines' speed, so two runs of one seed differ; a run that was stopped, or killed, continues
    from its newest checkpoint with all of its state.

    Example:
        >>> metrics = FleetRuntime(config, Path(config.run_dir)).train()

    Args:
        checkpoint: Where to continue from; None starts afresh.

    Raises:
        ClusterError: Ray cannot be had, or has not the cores that the config asks for.
    """

    def __init__(self, config: Config, run_dir: Path, checkpoint: Checkpoint | None = None) -> None:
        runtime = config.runtime
        assert isinstance(runtime, RayRuntimeConfig)
        configure_torch(1)
        self.config, self.run_dir, self._runtime = config, run_dir, runtime
        self._learner_step = 0 if checkpoint is None else checkpoint.step
        self._stop_step: int | None = None
        self._is_learning = True
        self._sampled = 0  # of the learner's present incarnation, as it told last
        self._sampled_before = 0  # when that incarnation began
        self._progress: Progress | None = None
        builder = Builder.of(config)
        weights = sum(p.numel() * 4 for p in builder.network().parameters())
        replay = memory_need(builder).replay
        size = store_bytes(available_memory(), replay, weights, psutil.cpu_count() or 1)
        self._cluster = Cluster(runtime, f"muzero-{uuid.uuid4().hex[:12]}", size)
        try:
            self._build(checkpoint)
        except BaseException:
            self._cluster.close()
            raise

    def _build(self, checkpoint: Checkpoint | None) -> None:
        config, runtime = self.config, self._runtime
        reanalyzes = config.reanalyze.fresh_fraction > 0.0
        self.checkpoints = CheckpointManager(
            self.run_dir / "checkpoints",
            runtime.checkpoints_kept,
            runtime.checkpoint_keep_interval,
        )
        self._limiter = FleetLimiter(
            samples_per_insert=config.replay.samples_per_insert,
            min_size=config.replay.min_size,
            batch_size=config.learner.batch_size,
            capacity=config.replay.capacity,
            num_games=config.selfplay.num_games,
            num_leases=1,
            num_batches=runtime.prefetch,
            error_buffer=config.replay.error_buffer,
        )
        self._leasing = Leasing(
            config, self._limiter, lease_seconds=runtime.lease_seconds, reanalyzes=reanalyzes
        )
        self._staff = Staff(
            config,
            self.run_dir,
            self._cluster,
            checkpoint,
            self.checkpoints,
            self._leasing,
            tell=self._tell,
            on_learner_done=self._note_learner_done,
            on_learner_rewound=self._note_rewound,
            on_member_lost=self._note_lost,
        )
        self._crew = self._staff.crew
        self._limiter.resize(LEASES_AHEAD * self._staff.num_workers)
        self._reporter = FleetReporter(
            config, MetricsLogger(self.run_dir, config.logger), self._leasing
        )
        self._granting = Granting(self._staff, self._leasing, self._reporter)
        self._gating = Gating(config, self._staff, self._reporter, tell=self._tell)
        self._saver = Saver(
            config,
            self.run_dir,
            self._staff,
            self.checkpoints,
            self._reporter,
            state=self._state,
            gating=self._gating.parts,
            tell=self._tell,
        )
        self._inquiries = Inquiries(
            runtime,
            self._staff,
            self._reporter,
            self._limiter,
            on_status=self._note_status,
            on_freshness=self._note_freshness,
        )
        self._steering = Steering(
            config, self.run_dir, self._cluster, self._staff, self._leasing, self._reporter
        )
        self._watchdog = Watchdog(runtime.watchdog_seconds)
        if checkpoint is not None:
            self._restore(checkpoint)
        self._steering.begin()

    @property
    def learner_step(self) -> int:
        """Learner steps done, as the learner told last."""
        return self._learner_step

    @property
    def totals(self) -> Totals:
        """What self-play has done since the start of the run."""
        return self._leasing.totals

    @property
    def members(self) -> list[Member]:
        """The fleet's members: their roles, processes and incarnations."""
        return self._crew.all()

    @property
    def account(self) -> Account:
        """What leases have brought since the start of the run."""
        return self._leasing.account

    @property
    def confirmed(self) -> dict[int, int]:
        """Positions that each replay shard has confirmed."""
        return dict(self._staff.confirmed)

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being collected."""
        return self._saver.is_collecting

    @property
    def is_judging(self) -> bool:
        """Whether a match of gatekeeping is running."""
        return self._gating.is_playing

    @property
    def limiter(self) -> FleetLimiter:
        """The fleet's rate limiter."""
        return self._limiter

    def stop_after(self, learner_step: int) -> None:
        """Save and end at about this learner step, as if a signal came then."""
        self._stop_step = learner_step

    def train(self) -> dict[str, float]:
        """Train until `learner.num_steps`, or until a signal asks for the end; returns the last evaluation's metrics.

        Either way the run is saved. A KeyboardInterrupt (second signal) ends at once without saving.

        Raises:
            RoleFailed: A role failed too often.
            FleetStalled: Nothing moved for `runtime.watchdog_seconds`.
            TrainingDiverged: See `Learner`.
        """
        config = self.config
        progress = Progress(
            config.logger, total_steps=config.learner.num_steps, title=str(self.run_dir)
        )
        try:
            with progress, GracefulStop(progress.message) as stop:
                self._progress = progress
                self._staff.hire()
                while self._is_learning and not stop.requested:
                    self._turn()
                    if self._stop_step is not None and self.learner_step >= self._stop_step:
                        stop.request(f"stopping after learner step {self.learner_step}")
                self._end(stopped=stop.requested and self._is_learning)
            return self._saver.outcomes.newest
        finally:
            self.close()

    def close(self) -> None:
        """End the fleet and leave Ray; a background save is finished first."""
        try:
            self.checkpoints.close()
        finally:
            self._crew.close()
            self._reporter.close()
            self._steering.close()
            self._cluster.close()

    def _turn(self, *, grants: bool = True) -> None:
        """One round of the supervisor's loop."""
        before = time.monotonic()
        self._crew.poll(_POLL_SECONDS)
        if grants:
            self._granting.grant(self.learner_step, is_open=self._gating.is_open)
        now = time.monotonic()
        self._inquiries.ask(now, max(0, self._limiter.allowance - self._sampled_before))
        workers = self._crew.serving(WORKER)
        idle = sum(member.num_calls == 0 for member in workers)
        self._reporter.note_workers(
            now - before, workers=len(workers), idle=idle, blocked=self._granting.is_blocked
        )
        self._saver.poll()
        if grants:
            self._gating.poll()
            self._steering.steer(now)
            # Whoever is being made, or filled from a checkpoint, has deadlines of its own.
            is_complete = all(member.serves for member in self._crew.all())
            self._watchdog.check(
                now, self._progress_made if is_complete else None, self._account_of_waits
            )

    def _note_status(self, status: LearnerStatus) -> None:
        before = self.learner_step
        sampled, self._sampled = status.sampled - self._sampled, status.sampled
        self._limiter.record_samples(sampled)
        self._reporter.note_status(status)
        self._learner_step = status.step
        self._staff.newest_version = max(self._staff.newest_version, status.version)
        if status.step > before:
            self._keep_house(before)

    def _note_freshness(self, fraction: float) -> None:
        self._leasing.is_fresh = fraction >= self.config.reanalyze.fresh_fraction

    def _keep_house(self, before: int) -> None:
        """Log, evaluate and save where the steps since `before` have crossed an interval."""
        config, after = self.config, self.learner_step

        def crossed(interval: int) -> bool:
            return interval > 0 and after // interval > before // interval

        self._gating.note_steps(before, after)
        if crossed(config.runtime.log_interval):
            self._write_row()
        is_last = after >= config.learner.num_steps
        evaluates = config.evaluation.games > 0 and crossed(config.evaluation.interval)
        if not is_last and (evaluates or crossed(config.runtime.checkpoint_interval)):
            self._saver.begin(evaluates=evaluates)

    def _write_row(self) -> None:
        members = self._crew.all()
        extra = {
            "fleet/workers": len(self._crew.serving(WORKER)),
            "fleet/restarts": self._crew.restarts,
            "fleet/memory_bytes": sum(member.memory_bytes for member in members),
            **self._gating.report(),
        }
        evaluation = self._saver.take_evaluation()
        row = self._reporter.write(self.learner_step, extra, evaluation)
        if self._progress is not None:
            self._progress.update(row, force=evaluation is not None)

    def _note_learner_done(self, step: int) -> None:
        self._learner_step = step
        self._is_learning = False

    def _note_rewound(self, step: int) -> None:
        self._learner_step = step
        self._reporter.rewind(step)

    def _note_lost(self, member: Member) -> None:
        """A member is lost; the crew makes another."""
        self._saver.note_lost(member)
        if member.role == LEARNER:
            self._sampled, self._sampled_before = 0, self._limiter.samples
        elif member.role == SHARD:
            self._reporter.forget_shard(member.index)

    def _end(self, *, stopped: bool) -> None:
        """Bring everything to rest: the learner stops, leases run out; then evaluate, save, and say the last."""
        learner = self._crew.get(LEARNER)
        if stopped and learner is not None:
            learner.actor.stop.remote()
        deadline = time.monotonic() + _LAST_LEASES_SECONDS
        while time.monotonic() < deadline and (
            (stopped and self._is_learning and self._crew.get(LEARNER) is not None)
            or any(member.num_calls for member in self._crew.serving(WORKER))
        ):
            self._turn(grants=False)
        self._saver.finish(self._turn_quietly, evaluates=not stopped)
        deadline = time.monotonic() + _LAST_LEASES_SECONDS
        self._inquiries.ask_shards()
        while time.monotonic() < deadline and self._inquiries.awaits_shards:
            self._turn(grants=False)
        self._staff.settle_all(self._reporter.inserted)
        self._write_row()

    def _turn_quietly(self) -> None:
        self._turn(grants=False)

    def _state(self) -> dict[str, Any]:
        """The supervisor's own part of a checkpoint."""
        return {
            "leasing": self._leasing.state(),
            "confirmed": {str(index): n for index, n in self._staff.confirmed.items()},
            "reporter": self._reporter.state(),
            "controller": self._steering.state(),
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.json("state")
        self._leasing.restore(state["leasing"])
        saved = {int(index): int(count) for index, count in state["confirmed"].items()}
        self._staff.saved_confirmed = saved
        self._reporter.restore(state["reporter"], checkpoint.step)
        self._steering.restore(state["controller"])
        self._saver.restore(state["saver"])
        self._gating.restore(checkpoint)
        self._sampled_before = self._limiter.samples

    def _progress_made(self) -> tuple[int, ...]:
        account = self._leasing.account
        return self.learner_step, account.leases, self._crew.restarts, self._limiter.samples

    def _account_of_waits(self) -> str:
        limiter = self._limiter
        roles = ", ".join(
            f"{member.name} {'works' if member.serves else 'is being made'}"
            f" ({member.num_calls} answers awaited)"
            for member in self._crew.all()
        )
        return (
            f"learner step {self.learner_step}; {limiter.inserts} positions inserted, {limiter.reserved} reserved, "
            f"{limiter.samples} sampled of {limiter.allowance} allowed, {limiter.held} held; roles: {roles}"
        )

    def _tell(self, text: str) -> None:
        logger.info("%s", text)  # the console's handler prints above the live display
