import io
import logging
import re

import pytest
from rich.console import Console
from rich.logging import RichHandler

from muzero import progress
from muzero.config.schema import LoggerConfig
from muzero.progress import Progress, rich_handler, shared_console

ROW = {
    "learner_step": 1200,
    "env_steps": 50_000,
    "selfplay/games": 1000,
    "selfplay/env_steps_per_second": 4321.4,
    "selfplay/game_length": 7.25,
    "learner/steps_per_second": 12.34,
    "learner/loss": 1.2345,
    "learner/policy_loss": 0.9,
    "learner/value_loss": 0.3,
    "learner/skipped_steps": 0,
    "replay/size": 45_000,
    "replay/bytes": 154_000_000,
    "replay/samples_per_insert": 3.984,
    "replay/samples_per_insert_target": 4.0,
    "learner/wait_fraction": 0.031,
    "learner/wait_selfplay_fraction": 0.03,
    "learner/wait_sampling_fraction": 0.001,
    "learner/behaviour_age": 120.0,
    "learner/target_age": 40,
    "evaluation/rollout:100/win_rate": 0.6,
    "evaluation/random/win_rate": 0.97,
    "evaluation/random/draw_rate": 0.02,
    "evaluation/random/loss_rate": 0.01,
    "evaluation/score_mean": None,
}


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make(mode="auto", terminal=False, total_steps=10_000, interval=5.0, width=100):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, height=40)
    clock = Clock()
    config = LoggerConfig(progress=mode, progress_interval_seconds=interval)
    return Progress(config, total_steps, "tictactoe [cpu]", console, clock), console.file, clock


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_plain_lines_say_everything_once_per_interval():
    shown, output, clock = make()
    assert shown.mode == "plain"
    with shown:
        shown.update({"learner_step": 1000})
        for step in range(1001, 1200):
            clock.now += 0.02
            shown.update({"learner_step": step})
        clock.now = 60
        shown.update(ROW)
        shown.update(ROW)
    lines = output.getvalue().splitlines()
    assert lines == [
        "tictactoe [cpu]",
        "step 1,000/10,000 (10%)",
        "step 1,200/10,000 (12%), 0:44:00 left | speed 4,321 env steps/s, 12.3 learner steps/s"
        " | games 1,000 games, 50,000 env steps, length 7.2"
        " | replay 45,000 positions, 154 MB, 3.98 samples per insert (target 4), age behaviour 120/target 40"
        " | learner wait 3.1% for selfplay | loss 1.234, policy 0.9, value 0.3"
        " | evaluation random: win 97% draw 2% loss 1%, rollout:100: win 60%",
        lines[-1],
    ]
    assert lines[-1] == lines[-2]  # the last values are shown at the end


def test_force_and_end_show_what_is_new_and_nothing_twice():
    shown, output, _ = make(interval=1e9)
    with shown:
        shown.update({"learner_step": 1})
        shown.update({"learner_step": 2})
        shown.update({"learner_step": 3}, force=True)
        shown.update({"learner_step": 4})
    assert [line.split("/")[0] for line in output.getvalue().splitlines()[1:]] == [
        "step 1",
        "step 3",
        "step 4",
    ]


def test_nothing_at_all():
    shown, output, _ = make("none", terminal=True)
    with shown:
        shown.update(ROW, force=True)
        shown.message("hello")
    assert output.getvalue() == ""


def test_live_panel_on_a_terminal():
    shown, output, clock = make(terminal=True)
    assert shown.mode == "live"
    with shown:
        shown.update({"learner_step": 1000})
        clock.now = 60
        shown.message("evaluating [bold]now")
        shown.update(ROW)
    text = plain(output.getvalue())
    for expected in (
        "tictactoe [cpu]",
        "step 1,200/10,000 (12%), 0:44:00 left",
        "4,321 env steps/s, 12.3 learner steps/s",
        "3.98 samples per insert (target 4)",
        "3.1% for selfplay",
        "rollout:100: win 60%",
        "evaluating [bold]now",
        "━",
    ):
        assert expected in text


def test_live_draws_a_few_times_per_second_only():
    shown, output, clock = make(terminal=True)
    with shown:
        shown.update({"learner_step": 0})
        size = len(output.getvalue())
        for step in range(1, 20):
            clock.now += 0.01
            shown.update({"learner_step": step})
        assert len(output.getvalue()) == size
        clock.now += 0.25
        shown.update({"learner_step": 20})
        assert len(output.getvalue()) > size


def test_messages_and_log_records_stand_above_the_panel(monkeypatch):
    shown, output, _ = make(terminal=True)
    monkeypatch.setattr(progress, "shared_console", lambda: shown._console)
    log = logging.getLogger("test_progress")
    log.propagate = False
    handler = rich_handler()
    log.addHandler(handler)
    try:
        with shown:
            shown.update(ROW)
            log.warning("disk nearly [full]")
            shown.message("saved")
    finally:
        log.removeHandler(handler)
    lines = plain(output.getvalue()).splitlines()
    assert any("disk nearly [full]" in line and "│" not in line for line in lines)
    saved = next(index for index, line in enumerate(lines) if line.rstrip().endswith("saved"))
    assert any("step 1,200" in line for line in lines[saved:])


def test_a_modes_choice_is_obeyed_on_any_output():
    assert make("plain", terminal=True)[0].mode == "plain"
    assert make("live", terminal=False)[0].mode == "live"


@pytest.mark.parametrize("name", ROW)
@pytest.mark.parametrize("terminal", [False, True])
def test_any_key_may_be_missing_or_alone(name, terminal):
    shown, output, clock = make(terminal=terminal, interval=0)
    with shown:
        shown.update({})
        shown.update({key: value for key, value in ROW.items() if key != name})
        clock.now += 1
        shown.update({name: ROW.get(name, 3)})
        shown.update({name: None})
        shown.update({})
    assert output.getvalue()


def test_null_clears_a_value():
    shown, output, _ = make(interval=0)
    with shown:
        shown.update({"learner_step": 1, "learner/loss": 0.5})
        shown.update({"learner/loss": None})
    assert "loss 0.5" in output.getvalue().splitlines()[1]
    assert "loss" not in output.getvalue().splitlines()[2]


def test_time_left_counts_from_where_this_process_began():
    shown, output, clock = make(interval=0, total_steps=1000)
    with shown:
        shown.update({"learner_step": 900})  # resumed
        clock.now = 30
        shown.update({"learner_step": 950})
        clock.now = 60
        shown.update({"learner_step": 1000})
    lines = output.getvalue().splitlines()
    assert "left" not in lines[1]
    assert lines[2].endswith("0:00:30 left")
    assert lines[3] == "step 1,000/1,000 (100%), 0:00:00 left"


def test_skipped_steps_appear_when_there_are_some():
    shown, output, _ = make(interval=0)
    with shown:
        shown.update({"learner/loss": 1.0, "learner/skipped_steps": 0})
        shown.update({"learner/skipped_steps": 2})
    lines = output.getvalue().splitlines()
    assert "skipped" not in lines[1] and "2 steps skipped" in lines[2]


@pytest.mark.parametrize(("size", "text"), [(999, "999 B"), (12_000, "12 kB"), (2.5e9, "2.5 GB")])
def test_sizes(size, text):
    shown, output, _ = make(interval=0)
    with shown:
        shown.update({"replay/bytes": size})
    assert text in output.getvalue()


def test_zero_steps_and_narrow_terminals_do_not_break():
    shown, output, _ = make(terminal=True, total_steps=0, width=20)
    with shown:
        shown.update(ROW)
    assert "(100%)" in plain(output.getvalue())


def test_the_display_ends_when_training_fails():
    shown, output, _ = make(terminal=True)
    with pytest.raises(RuntimeError), shown:
        shown.update(ROW)
        raise RuntimeError
    assert shown._live is None
    assert output.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in output.getvalue()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LoggerConfig(progress="lively"), r"logger\.progress=lively: use auto, live, plain, none"),
        (LoggerConfig(progress_interval_seconds=-1), r"progress_interval_seconds=-1"),
    ],
)
def test_settings_are_checked(config, message):
    with pytest.raises(ValueError, match=message):
        Progress(config, 1, "x", Console(file=io.StringIO()))


def test_the_log_shares_the_console():
    handler = rich_handler()
    assert isinstance(handler, RichHandler)
    assert handler.console is shared_console() is shared_console()
