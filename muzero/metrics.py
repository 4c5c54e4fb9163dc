"""Metrics of a run: values are collected between two rows, reduced once, and written by one logger."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from muzero.config.schema import LoggerConfig
from muzero.metrics_file import MetricsFile, Row, finite_or_none, read_rows
from muzero.stopwatch import Stopwatch, time_metrics, wait_metrics
from muzero.writers import Writers

__all__ = [
    "Last",
    "Maximum",
    "Mean",
    "MetricsLogger",
    "Rate",
    "Row",
    "Stopwatch",
    "Total",
    "is_timing",
    "read_rows",
    "strip_timing",
    "time_metrics",
    "wait_metrics",
]

NONFINITE = "metrics/nonfinite_values"
ELAPSED = "time/elapsed_seconds"

TIMING_PREFIXES = (
    "time/",
    "system/",
    "fleet/",
    "inference/",
    "learner/wait_",
    "learner/busy_",
    "learner/ready_",
)
TIMING_SUFFIXES = ("_per_second", "_seconds", "/seconds", "_time_fraction")


def is_timing(name: str) -> bool:
    """Tell whether a metric depends on the clock or the machine, not only on the seed and the settings."""
    return name.startswith(TIMING_PREFIXES) or name.endswith(TIMING_SUFFIXES)


def strip_timing(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two runs of one seed have in common: the row without clock and machine."""
    return {name: value for name, value in row.items() if not is_timing(name)}


class Reduction(Protocol):
    """Collects the values of one metric between two rows."""

    kind: ClassVar[str]

    def take(self, elapsed_seconds: float) -> float | None:
        """Return the value for the row, None for none, and begin the next interval."""


@dataclass(slots=True)
class Mean:
    """Weighted mean of the values since the last row; left out of a row without any."""

    kind: ClassVar[str] = "mean"
    total: float = 0.0
    weight: float = 0.0

    def take(self, elapsed_seconds: float) -> float | None:
        """Return the mean."""
        mean = self.total / self.weight if self.weight else None
        self.total = self.weight = 0.0
        return mean


@dataclass(slots=True)
class Maximum:
    """Largest value since the last row; left out of a row without any."""

    kind: ClassVar[str] = "maximum"
    largest: float | None = None

    def take(self, elapsed_seconds: float) -> float | None:
        """Return the largest value."""
        largest, self.largest = self.largest, None
        return largest


@dataclass(slots=True)
class Last:
    """The newest value since the last row; left out of a row without any."""

    kind: ClassVar[str] = "last"
    newest: float | None = None

    def take(self, elapsed_seconds: float) -> float | None:
        """Return the newest value."""
        newest, self.newest = self.newest, None
        return newest


@dataclass(slots=True)
class Total:
    """Sum since the start of the run, resumed runs included."""

    kind: ClassVar[str] = "total"
    total: float = 0

    def take(self, elapsed_seconds: float) -> float | None:
        """Return the sum so far."""
        return self.total


@dataclass(slots=True)
class Rate:
    """Amount per second of wall time since the last row."""

    kind: ClassVar[str] = "rate"
    amount: float = 0.0

    def take(self, elapsed_seconds: float) -> float | None:
        """Return the rate; None for an interval of no length."""
        amount, self.amount = self.amount, 0.0
        return amount / elapsed_seconds if elapsed_seconds > 0 else None


_REDUCTIONS: tuple[type[Mean | Maximum | Last | Total | Rate], ...] = (
    Mean,
    Maximum,
    Last,
    Total,
    Rate,
)
_R = TypeVar("_R", Mean, Maximum, Last, Total, Rate)


class MetricsLogger:
    """Collects metrics by name and writes one row at a time, to `metrics.jsonl` and the optional writers.

    A name belongs to one reduction, the one it was first used with. Not to be shared between threads.
    """

    def __init__(
        self,
        run_dir: Path,
        config: LoggerConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._writers = Writers(Path(run_dir), config)
        self._file = MetricsFile(Path(run_dir) / "metrics.jsonl")
        self._clock = clock
        self._reductions: dict[str, Mean | Maximum | Last | Total | Rate] = {}
        self._nonfinite = 0
        self._first_step = 0
        self._earlier_seconds = 0.0
        self._start = self._last = clock()

    def mean(self, name: str, value: float, weight: float = 1.0) -> None:
        """Add a value to the mean over the interval between two rows."""
        reduction = self._get(name, Mean)
        reduction.total += float(value) * weight
        reduction.weight += weight

    def maximum(self, name: str, value: float) -> None:
        """Keep the largest value of the interval."""
        reduction = self._get(name, Maximum)
        value = float(value)
        reduction.largest = value if reduction.largest is None else max(reduction.largest, value)

    def last(self, name: str, value: float) -> None:
        """Keep the newest value of the interval."""
        self._get(name, Last).newest = value

    def total(self, name: str, amount: float = 1) -> None:
        """Add to a sum that runs from the start of the run."""
        self._get(name, Total).total += amount

    def rate(self, name: str, amount: float) -> None:
        """Add to an amount that is written per second of wall time."""
        self._get(name, Rate).amount += float(amount)

    def means(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Add many values to their means."""
        for name, value in values.items():
            self.mean(name, value, weight)

    def lasts(self, values: Mapping[str, float]) -> None:
        """Keep many newest values."""
        for name, value in values.items():
            self.last(name, value)

    def write(self, learner_step: int, env_steps: int) -> Row:
        """Reduce everything to a row, write it, and return it."""
        now = self._clock()
        elapsed, self._last = now - self._last, now
        values: Row = {}
        for name in sorted(self._reductions):
            value = self._reductions[name].take(elapsed)
            if value is not None:
                values[name] = finite_or_none(value)
        self._nonfinite += sum(value is None for value in values.values())
        values[NONFINITE] = self._nonfinite
        values[ELAPSED] = self._earlier_seconds + now - self._start
        row: Row = {"learner_step": learner_step, "env_steps": env_steps, **values}
        self._file.append(row)
        finite = {name: value for name, value in values.items() if value is not None}
        self._writers.write({"env_steps": env_steps, **finite}, learner_step, self._first_step)
        return row

    @property
    def shows_images(self) -> bool:
        """Whether `image` does anything: TensorBoard is on."""
        return self._writers.shows_images

    def image(self, name: str, image: npt.NDArray[np.uint8], learner_step: int) -> None:
        """Write a picture `[H, W, 3]` at once, if TensorBoard is on."""
        self._writers.write_image(name, image, learner_step, self._first_step)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs, as JSON: sums, the unfinished interval, the length of the file."""
        return {
            "num_rows": self._file.num_rows,
            "nonfinite": self._nonfinite,
            "elapsed_seconds": self._earlier_seconds + self._clock() - self._start,
            "reductions": {
                name: {"kind": reduction.kind, **asdict(reduction)}
                for name, reduction in self._reductions.items()
            },
        }

    def restore(self, state: Mapping[str, Any], learner_step: int) -> None:
        """Go on from a checkpoint: rows that were written after it are dropped from the file."""
        self.rewind(learner_step, state["num_rows"])
        kinds = {reduction.kind: reduction for reduction in _REDUCTIONS}
        self._reductions = {
            name: kinds[fields["kind"]](**{key: fields[key] for key in fields if key != "kind"})
            for name, fields in state["reductions"].items()
        }
        for reduction in self._reductions.values():
            if isinstance(reduction, Rate):
                # The rest of its interval's wall time is gone with the process that counted it.
                reduction.amount = 0.0
        self._nonfinite = state["nonfinite"]
        self._earlier_seconds = state["elapsed_seconds"]
        self._start = self._last = self._clock()

    def rewind(self, learner_step: int, num_rows: int | None = None) -> None:
        """Drop rows beyond a learner step, and beyond the first `num_rows`; a run that starts over drops all."""

        def keeps(index: int, row: Row) -> bool:
            step = row.get("learner_step")
            in_time = isinstance(step, int) and step <= learner_step
            return in_time and (num_rows is None or index < num_rows)

        self._file.keep(keeps)
        self._first_step = learner_step + 1

    def close(self) -> None:
        """Close the file and the writers."""
        self._file.close()
        self._writers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, name: str, kind: type[_R]) -> _R:
        reduction = self._reductions.get(name)
        if reduction is None:
            reduction = self._reductions[name] = kind()
        if not isinstance(reduction, kind):
            raise TypeError(
                f"metric {name} is a {reduction.kind} and cannot be a {kind.kind} as well"
            )
        return reduction
