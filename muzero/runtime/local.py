"""The local runtime: all roles in one process, on a schedule that counters alone decide."""

import logging
from pathlib import Path
from typing import Self

import numpy as np
from torch import Tensor

from muzero.checkpoint import Checkpoint, CheckpointError, CheckpointManager
from muzero.config.schema import Config
from muzero.metrics import MetricsLogger, Stopwatch
from muzero.progress import Progress
from muzero.runtime import snapshot
from muzero.runtime.build import Builder, configure_torch
from muzero.runtime.evaluations import Evaluations
from muzero.runtime.gatekeeping import Gatekeeper, Versioned
from muzero.runtime.gathering import Gathered, LocalGatherer, ProcessGatherer, Work
from muzero.runtime.report import Reporter
from muzero.runtime.signals import GracefulStop
from muzero.selfplay import Totals
from muzero.weights import WeightStore, to_arrays
from reanalyze import Lease, ReanalyzeWorker, Schedule

logger = logging.getLogger(__name__)


class LocalRuntime:
    """Trains on this machine: self-play, replay, learner, reanalyze and evaluation take turns.

    What happens next depends on counters alone, so two runs of one config give the same bytes, and a run that was
    stopped and resumed equals one that was not. With `runtime.overlap` self-play and reanalyze work in a second process
    beside the learner; what they made enters the replay when both are done. Evaluations go on in a third one, and training
    does not wait for them. With `gatekeeping.interval` newer weights are used by self-play and reanalyze only after they
    have won a match, for which all else stands still.

    Example:
        >>> metrics = LocalRuntime(config, Path(config.run_dir)).train()

    Args:
        checkpoint: Where to continue from; None starts afresh.
    """

    def __init__(self, config: Config, run_dir: Path, checkpoint: Checkpoint | None = None) -> None:
        configure_torch(config.runtime.learner_threads)
        self.config, self.run_dir = config, run_dir
        builder = Builder.of(config)
        self._progress: Progress | None = None
        self.checkpoints = CheckpointManager(
            run_dir / "checkpoints",
            config.runtime.checkpoints_kept,
            config.runtime.checkpoint_keep_interval,
        )
        self.metrics = MetricsLogger(run_dir, config.logger)
        self.evaluations = Evaluations(builder, run_dir, self.checkpoints, self.metrics, self._say)
        self.learner, self.replay = builder.learner(), builder.replay()
        self.gatherer = ProcessGatherer(config) if self._overlaps else LocalGatherer(builder)
        self.reanalyze = ReanalyzeWorker() if config.reanalyze.fresh_fraction > 0.0 else None
        self.augmenter = builder.augmenter()
        self.gatekeeper = Gatekeeper(builder) if config.gatekeeping.interval > 0 else None
        self.schedule = Schedule(config.reanalyze)
        self.weights = WeightStore()
        self.timer = Stopwatch()
        self.totals = Totals()
        self.acting_version = 0
        self._has_new_weights = False  # that the gatherer has yet to load
        self.saved_step = -1
        self._stop_step: int | None = None
        self.reporter = Reporter(self)
        try:
            self.evaluations.prepare()
            if checkpoint is not None:
                snapshot.restore(self, checkpoint)
        except BaseException:
            self.close()
            raise
        if checkpoint is None:
            self.weights.publish(0, self.learner.acting_weights())
        else:
            self.saved_step = checkpoint.step

    @property
    def _overlaps(self) -> bool:
        return self.config.runtime.overlap

    @property
    def learner_step(self) -> int:
        """Learner steps done."""
        return self.learner.num_steps_done

    def stop_after(self, learner_step: int) -> None:
        """Save and end at this learner step, as if a signal came then (overlapped: at the end of its tick)."""
        self._stop_step = learner_step

    def train(self) -> dict[str, float]:
        """Train until `learner.num_steps`, or until a signal asks for the end; returns the last evaluation's metrics.

        Either way the run is saved. A KeyboardInterrupt (second signal) ends at once without saving.
        """
        config = self.config
        progress = Progress(
            config.logger, total_steps=config.learner.num_steps, title=str(self.run_dir)
        )
        with self, progress, GracefulStop(progress.message) as stop:
            self._progress = progress
            while self.learner_step < config.learner.num_steps and not stop.requested:
                before = self.learner_step
                self._tick()
                if self.learner_step != before:
                    self._keep_house(before)
                if self._stop_step is not None and self.learner_step >= self._stop_step:
                    stop.request(f"stopping after learner step {self.learner_step}")
            if not stop.requested:
                self._evaluate_last()
            self._save()
            self.checkpoints.wait()
        return self.evaluations.outcomes.newest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what the run holds; a background save is finished first."""
        self.checkpoints.close()
        self.metrics.close()
        self.gatherer.close()
        self.evaluations.close()

    def _tick(self) -> None:
        """One piece of the schedule: a learner step or a move of every game, or both beside each other."""
        if self._overlaps:
            self._tick_overlapped()
        elif self.replay.limiter.can_sample(self.config.learner.batch_size):
            self._learn()
        else:
            lease = self._begin_gathering()
            self._store(self._finish_gathering(), lease)

    def _tick_overlapped(self) -> None:
        """A move of every game in the second process, and here the learner's steps that the limiter allows by now."""
        limiter, batch_size = self.replay.limiter, self.config.learner.batch_size
        gathers = limiter.can_insert(1)
        lease = self._begin_gathering() if gathers else None
        left = self.config.learner.num_steps - self.learner_step
        while left > 0 and limiter.can_sample(batch_size):
            self._learn()
            left -= 1
        if gathers:
            self._store(self._finish_gathering(), lease)

    def _begin_gathering(self) -> Lease | None:
        """Start a quantum of self-play, and of reanalyze if a lease is due, with the weights of this moment."""
        step, weights = self.learner_step, None
        with self.timer.measure("selfplay"):
            is_due = step - self.acting_version >= self.config.selfplay.weights_interval
            if self.gatekeeper is None and is_due:
                self._publish(self.learner.acting_weights())
            if self._has_new_weights:
                weights, self._has_new_weights = self.acting_weights(), False
        lease = self._lease()
        positions = None if lease is None else lease.positions
        with self.timer.measure("selfplay"):
            self.gatherer.begin(Work(step, self.acting_version, weights, positions))
        return lease

    def _finish_gathering(self) -> Gathered:
        with self.timer.measure("selfplay"):  # this is what the learner waits for
            return self.gatherer.finish()

    def _publish(self, weights: dict[str, Tensor]) -> None:
        """Make the learner's acting weights of this moment those that self-play and reanalyze use from the next quantum on."""
        self.weights.publish(self.learner_step, weights)
        self.acting_version, self._has_new_weights = self.learner_step, True

    def acting_weights(self) -> dict[str, np.ndarray]:
        """The weights that self-play and reanalyze use, as arrays."""
        published = self.weights.pull_if_newer(None)
        assert published is not None
        return to_arrays(published[1])

    def _lease(self) -> Lease | None:
        """The positions that are due for a refresh."""
        if self.reanalyze is None:
            return None
        with self.timer.measure("reanalyze"):
            due = self.schedule.due(
                self.replay,
                learner_step=self.learner_step,
                refreshed=self.reanalyze.totals.searched,
                played=self.totals.env_steps,
            )
            if due == 0:
                return None
            version, step = self.acting_version, self.learner_step
            return self.reanalyze.take(self.replay, due, version=version, learner_step=step)

    def _store(self, gathered: Gathered, lease: Lease | None) -> None:
        """Put what was gathered into the replay."""
        self.totals = gathered.totals
        with self.timer.measure("replay"):
            for segment in gathered.segments:
                self.replay.add(segment)
            if lease is not None and gathered.refreshed is not None and self.reanalyze is not None:
                self.reanalyze.give_back(self.replay, lease, gathered.refreshed)
            self.replay.expire(self.learner_step)

    def _learn(self) -> None:
        with self.timer.measure("sampling"):
            batch = self.replay.sample(self.config.learner.batch_size)
            if self.augmenter is not None:
                batch = self.augmenter(batch)
        with self.timer.measure("learner"):
            report = self.learner.step(batch)
        with self.timer.measure("sampling"):
            if not report.skipped:
                self.replay.update_priorities(batch.slot, batch.generation, report.priorities)
            self.reporter.note_step(batch, report)
            self.replay.expire(self.learner_step)

    def _keep_house(self, before: int) -> None:
        """Judge, log, evaluate and save where the steps since `before` have crossed the interval."""
        config, after = self.config, self.learner_step

        def crossed(interval: int) -> bool:
            return interval > 0 and after // interval > before // interval

        if self.gatekeeper is not None and crossed(config.gatekeeping.interval):
            self._judge(self.gatekeeper)
        is_last = after >= config.learner.num_steps
        evaluates = config.evaluation.games > 0
        found = None
        if not is_last:
            with self.timer.measure("evaluation"):
                if crossed(config.evaluation.interval):
                    self.evaluations.begin(after, self.learner.acting_weights())
                found = self.evaluations.take(after)
        # The last row is written behind the loop, by the last evaluation if there is one.
        logs = not evaluates if is_last else crossed(config.runtime.log_interval)
        if logs or found is not None:
            self.reporter.write(found)
        self._show(force=found is not None)
        # What is being evaluated is saved as well: it may turn out to be the best.
        is_wanted = self.evaluations.is_best or after in self.checkpoints.awaited
        if crossed(config.runtime.checkpoint_interval) or is_wanted:
            self._save_or_tell()

    def _judge(self, gatekeeper: Gatekeeper) -> None:
        """Let the learner's weights play against those in use, and use them if they win."""
        step, weights = self.learner_step, self.learner.acting_weights()
        in_use = self.weights.pull_if_newer(None)
        assert in_use is not None
        with self.timer.measure("gatekeeping"):
            verdict = gatekeeper.judge(Versioned(step, weights), Versioned(*in_use))
        self.metrics.last("gatekeeping/score", verdict.score)
        outcome = "accepted" if verdict.is_accepted else "rejected"
        self._say(
            f"weights of learner step {step} {outcome}: {verdict.score:.1%} of the points of {verdict.num_games} games against "
            f"those of step {in_use[0]}"
        )
        if verdict.is_accepted:
            self._publish(weights)

    def _evaluate_last(self) -> None:
        """Evaluate what training has come to, after all that is still being evaluated."""
        step = self.learner_step
        if self.config.evaluation.games == 0 or self.evaluations.outcomes.newest_step == step:
            return
        while self.evaluations.due:
            if (earlier := self._await_evaluation()) is not None:
                self.reporter.write(earlier)
        with self.timer.measure("evaluation"):
            self.evaluations.begin(step, self.learner.acting_weights())
        self.reporter.write(self._await_evaluation())
        self._show(force=True)

    def _await_evaluation(self) -> dict[str, float] | None:
        with self.timer.measure("evaluation"):
            return self.evaluations.take(self.learner_step, waits=True)

    def _say(self, text: str, level: int = logging.INFO) -> None:
        logger.log(level, "%s", text)  # the console's handler prints above the live display

    def _show(self, *, force: bool) -> None:
        if self._progress is not None:
            self._progress.update(self.reporter.newest, force=force)

    def _save_or_tell(self) -> None:
        """Save in mid-run; a failure is told, and training goes on with the older checkpoints intact."""
        for attempt in (
            self.checkpoints.wait,
            self._save,
        ):  # the save before this one, and this one
            try:
                attempt()
            except CheckpointError as error:
                self._say(str(error), logging.ERROR)

    def _save(self) -> None:
        step, best = self.learner_step, self.evaluations.is_best
        self.evaluations.is_best = False
        with self.timer.measure("checkpoint"):
            if step != self.saved_step:
                # The parts are copies, so writing goes on in a thread while training continues.
                self.checkpoints.save(step, snapshot.take(self), background=True, best=best)
            elif best:
                self.checkpoints.mark_best(step)
        self.saved_step = step
