"""The command line of the training command: hydra's, with our answers to mistakes and our way to resume."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from muzero.config.effect import warnings
from muzero.config.schema import Config
from muzero.config.store import (
    config_dir,
    config_groups,
    load_config,
    parse_override,
    save_config,
    to_config,
)
from muzero.config.suggest import explain_unknown, free_form_parent
from muzero.config.validate import check

logger = logging.getLogger(__name__)

_NUMBER = re.compile(r"(?<=[=,])\d+(?=,|$)")

USER_ERROR = 2
"""Exit status after a mistake of the user's."""


def hydra_main(
    task: Callable[[Config], float | None], arguments: Sequence[str] | None = None
) -> None:
    """Run `task` with the config that the command line asks for; sweeps get the number it returns.

    A fresh run's config is checked and saved before `task` starts; with `resume=<run folder>` the saved one is
    taken, changed by this command's other overrides, and `config.resume` names the folder. A ValueError
    is the user's to mend: its message is printed without a traceback and the exit status is 2
    (`HYDRA_FULL_ERROR=1` shows where it was raised).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        prepared = prepare_arguments(given)
    except ValueError as error:
        fail(str(error))

    def run(composed: DictConfig) -> float | None:
        return _run(task, composed)

    program, previous = sys.argv[0], sys.argv
    sys.argv = [program, *prepared]
    try:
        hydra.main(version_base="1.3", config_path=config_dir(), config_name="config")(run)()
    finally:
        sys.argv = previous


def prepare_arguments(arguments: Sequence[str]) -> list[str]:
    """Hydra's arguments, checked as far as can be done before it composes anything.

    Keys below a free-form setting (`env.parameters.board_size=5`) need no `+`, and `run_dir=` sets hydra's folder.
    Raises ValueError for an unknown setting, or a `resume=` that cannot be.
    """
    if any(argument.startswith("--experimental-rerun") for argument in arguments):
        raise ValueError("--experimental-rerun would load a pickle; use resume=<run folder>")
    if message := explain_unknown(arguments, groups=config_groups()):
        raise ValueError(message)
    run_dir = _resumed_run(arguments)
    if run_dir is not None:
        if {"-m", "--multirun"} & set(arguments):
            raise ValueError("resume= continues one run and cannot be part of a sweep")
        if any(argument.startswith("run_dir=") for argument in arguments):
            raise ValueError("resume= continues in its own folder; leave run_dir= out")
        load_config(run_dir, [argument for argument in arguments if _is_override(argument)])
    return list(map(_for_hydra, arguments))


def fail(message: str) -> NoReturn:
    """Print a mistake of the user's and leave."""
    sys.stdout.flush()
    print(message, file=sys.stderr)
    raise SystemExit(USER_ERROR)


def shows_traceback(error: ValueError) -> bool:
    """Whether an error is not the user's (a subclass, such as a decoding error) or the trace is asked for."""
    return type(error) is not ValueError or os.environ.get("HYDRA_FULL_ERROR") == "1"


def _run(task: Callable[[Config], float | None], composed: DictConfig) -> float | None:
    """One job of hydra's."""
    job = HydraConfig.get()
    run_dir = Path(job.runtime.output_dir)
    try:
        config = _config_of(composed, run_dir, list(job.overrides.task))
    except ValueError as error:
        _remove_if_empty(run_dir)
        if shows_traceback(error):
            raise
        fail(str(error))
    for warning in warnings(config):
        logger.warning(warning)
    try:
        return task(config)
    except ValueError as error:
        if shows_traceback(error):
            raise
        written = _write_traceback(error)
        fail(f"{error}\n(the traceback is in {written})" if written else str(error))


def _config_of(composed: DictConfig, run_dir: Path, overrides: list[str]) -> Config:
    """The config of a resumed run, or that of a fresh one, which is saved."""
    if composed.resume:
        config = load_config(run_dir, overrides)
        config.resume = str(run_dir)
        check(config)
    else:
        config = to_config(composed)
        check(config)
        save_config(config, run_dir, header=" ".join(["muzero-train", *overrides]))
    return config


def _for_hydra(argument: str) -> str:
    if argument.startswith("run_dir="):
        return f"hydra.run.dir={argument.removeprefix('run_dir=')}"
    if argument.partition("=")[0] in config_groups():
        # Hydra takes the option's name for a number, and options are no numbers.
        return _NUMBER.sub(r"'\g<0>'", argument)
    return f"++{argument}" if free_form_parent(argument) else argument


def _is_override(argument: str) -> bool:
    return "=" in argument and not argument.startswith("-")


def _resumed_run(arguments: Sequence[str]) -> Path | None:
    """The folder that `resume=` names.

    Raises ValueError if it is no run folder.
    """
    for argument in arguments:
        if argument.startswith("resume="):
            value = parse_override(argument).value()
            return Path(str(value)) if value not in (None, "") else None
    return None


def _remove_if_empty(run_dir: Path) -> None:
    """Take back the folder that hydra made for a run that did not start."""
    with contextlib.suppress(OSError):
        run_dir.rmdir()
        run_dir.parent.rmdir()


def _write_traceback(error: Exception) -> str | None:
    """Write where `error` was raised to the log files; returns the name of the last one."""
    record = logger.makeRecord(
        logger.name,
        logging.ERROR,
        __file__,
        0,
        "stopped by an error",
        (),
        (type(error), error, error.__traceback__),
    )
    written = None
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
            written = handler.baseFilename
    return written
