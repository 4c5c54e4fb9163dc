"""The training display: a live panel on a terminal, plain lines in a pipe, one console shared with the log."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.logging import RichHandler
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from muzero.config.schema import LoggerConfig

MODES = ("auto", "live", "plain", "none")
_FRAMES_PER_SECOND = 4.0

Values = dict[str, float]
"""The newest known value of each metric."""


@cache
def shared_console() -> Console:
    """Return the one console of this process; a second one would tear the live display."""
    return Console()


def rich_handler(level: int | str = 0) -> RichHandler:
    """Make the log handler that prints above the live display.

    For hydra: `handlers: {console: {(): muzero.progress.rich_handler}}` in a `job_logging` config.
    """
    return RichHandler(level, console=shared_console(), show_path=False, omit_repeated_times=False)


class Progress:
    """Shows how a run is doing; knows metrics by name and does without those that are missing.

    `total_steps` are learner steps. `update` may be called as often as convenient: it draws a few times per second,
    or prints a line every `progress_interval_seconds`.
    """

    def __init__(
        self,
        config: LoggerConfig,
        total_steps: int,
        title: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        if config.progress not in MODES:
            raise ValueError(f"logger.progress={config.progress}: use {', '.join(MODES)}")
        if config.progress_interval_seconds < 0:
            raise ValueError(
                f"logger.progress_interval_seconds={config.progress_interval_seconds}: use 0 or more"
            )
        self._console = console or shared_console()
        automatic = "live" if self._console.is_terminal else "plain"
        self.mode = automatic if config.progress == "auto" else config.progress
        self._interval = (
            1 / _FRAMES_PER_SECOND if self.mode == "live" else config.progress_interval_seconds
        )
        self._total_steps = total_steps
        self._title = title
        self._clock = clock
        self._values: Values = {}
        self._began: tuple[float, float] | None = None
        self._shown_at: float | None = None
        self._unseen = False
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.mode == "live":
            self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._panel)
            self._live.start()
        elif self.mode == "plain":
            self.message(self._title)
        return self

    def __exit__(self, *_: object) -> None:
        if self._unseen:
            self._show(self._clock())
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, row: Mapping[str, float | None], force: bool = False) -> None:
        """Take in newer values (null clears one) and show them if it is time, or if `force` says so."""
        for name, value in row.items():
            if value is None:
                self._values.pop(name, None)
            else:
                self._values[name] = value
        now = self._clock()
        if self._began is None and self._step is not None:
            self._began = now, self._step
        self._unseen = True
        if force or self._shown_at is None or now - self._shown_at >= self._interval:
            self._show(now)

    def message(self, text: str) -> None:
        """Print a line above the display."""
        if self.mode != "none":
            self._console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)

    @property
    def _step(self) -> float | None:
        return self._values.get("learner_step")

    def _show(self, now: float) -> None:
        self._shown_at, self._unseen = now, False
        if self._live is not None:
            self._live.refresh()
        elif self.mode == "plain":
            self.message(self._line())

    def _line(self) -> str:
        shown = [self._steps_text(), *(f"{name} {text}" for name, text in _sections(self._values))]
        return " | ".join(shown)

    def _panel(self) -> Panel:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        for name, text in _sections(self._values):
            table.add_row(name, Text(text))
        step = min(self._step or 0, self._total_steps)
        bar = Table.grid(expand=True)  # a bare ProgressBar does not end its line
        bar.add_row(ProgressBar(total=max(1, self._total_steps), completed=step, width=None))
        content = Group(Text(self._steps_text()), bar, table)
        return Panel(content, title=Text(self._title), title_align="left", border_style="dim")

    def _steps_text(self) -> str:
        step = self._step or 0
        share = step / self._total_steps if self._total_steps else 1.0
        text = f"step {step:,.0f}/{self._total_steps:,} ({share:.0%})"
        seconds = self._remaining_seconds(step)
        return text if seconds is None else f"{text}, {timedelta(seconds=round(seconds))} left"

    def _remaining_seconds(self, step: float) -> float | None:
        """Extrapolate from the mean pace of this process, pauses for evaluation and checkpoints included."""
        if self._began is None:
            return None
        began_at, first_step = self._began
        elapsed = self._clock() - began_at
        if step <= first_step or elapsed <= 0:
            return None
        return max(0.0, (self._total_steps - step) * elapsed / (step - first_step))


def _sections(values: Values) -> list[tuple[str, str]]:
    """Texts of what is known, by heading."""
    sections = {
        "speed": [
            _number(values, "selfplay/env_steps_per_second", "{:,.0f} env steps/s"),
            _number(values, "learner/steps_per_second", "{:,.1f} learner steps/s"),
            _number(values, "reanalyze/positions_per_second", "{:,.0f} reanalyzed/s"),
        ],
        "games": [
            _number(values, "selfplay/games", "{:,.0f} games"),
            _number(values, "env_steps", "{:,.0f} env steps", "selfplay/env_steps"),
            _number(values, "selfplay/game_length", "length {:.1f}"),
            _number(values, "selfplay/score", "score {:.4g}"),
        ],
        "replay": [
            _number(values, "replay/size", "{:,.0f} positions"),
            _number(values, "replay/bytes", "{:,.0f} bytes"),
            _ratio(values),
            _ages(values),
        ],
        "learner wait": [_wait(values)],
        "loss": [
            _number(values, "learner/loss", "{:.4g}"),
            *(
                _number(values, f"learner/{part}_loss", part + " {:.4g}")
                for part in ("policy", "value", "reward", "consistency", "turn")
            ),
            _number(values, "learner/skipped_steps", "{:,.0f} steps skipped", hide_zero=True),
        ],
        "evaluation": _evaluation(values),
    }
    texts = {name: ", ".join(filter(None, items)) for name, items in sections.items()}
    return [(name, text) for name, text in texts.items() if text]


def _number(
    values: Values, name: str, template: str, fallback: str = "", *, hide_zero: bool = False
) -> str | None:
    value = values.get(name, values.get(fallback))
    if value is None or (hide_zero and not value):
        return None
    if name == "replay/bytes":
        return _bytes(value)
    return template.format(value)


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _ratio(values: Values) -> str | None:
    """Tell samples per insert, against the target."""
    ratio, target = (values.get(f"replay/samples_per_insert{end}") for end in ("", "_target"))
    if ratio is None:
        return None
    return f"{ratio:.2f} samples per insert" + ("" if target is None else f" (target {target:g})")


def _ages(values: Values) -> str | None:
    """How many learner steps old the data and its targets are."""
    ages = [
        f"{kind} {values[name]:,.0f}"
        for kind in ("behaviour", "target")
        if (name := f"learner/{kind}_age") in values
    ]
    return "age " + "/".join(ages) if ages else None


def _wait(values: Values) -> str | None:
    """Tell the share of time that the learner waits, and what for."""
    share = values.get("learner/wait_fraction")
    if share is None:
        return None
    prefix, suffix = "learner/wait_", "_fraction"
    causes = {
        name.removeprefix(prefix).removesuffix(suffix): value
        for name, value in values.items()
        if name.startswith(prefix) and name.endswith(suffix) and name != "learner/wait_fraction"
    }
    cause = max(causes, key=lambda name: causes[name], default=None)
    return f"{share:.1%}" + (f" for {cause}" if cause is not None and causes[cause] > 0 else "")


def _evaluation(values: Values) -> list[str | None]:
    """Tell the newest evaluation: one text per opponent, then scores."""
    prefix, suffix = "evaluation/", "/win_rate"
    opponents = [
        name.removeprefix(prefix).removesuffix(suffix)
        for name in values
        if name.startswith(prefix) and name.endswith(suffix)
    ]
    against = []
    for opponent in sorted(opponents):
        rates = (
            (kind, values.get(f"{prefix}{opponent}/{kind}_rate"))
            for kind in ("win", "draw", "loss")
        )
        text = " ".join(f"{kind} {rate:.0%}" for kind, rate in rates if rate is not None)
        against.append(f"{opponent}: {text}")
    return [
        *against,
        _number(values, "evaluation/score_mean", "score {:.4g}"),
        _number(values, "evaluation/optimal_move_rate", "optimal moves {:.1%}"),
        _number(values, "evaluation/losing_lines", "losing lines {:,.0f}"),
    ]
