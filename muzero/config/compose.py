"""A config from overrides alone, for scripts and tests: what `muzero-train` would run, without a run folder."""

from collections.abc import Sequence

import hydra
from hydra.errors import HydraException
from omegaconf import open_dict

from muzero.config.cli import prepare_arguments
from muzero.config.schema import Config
from muzero.config.store import config_dir, to_config
from muzero.config.validate import check


def compose(overrides: Sequence[str] = (), run_dir: str = "runs/composed") -> Config:
    """The checked config that `muzero-train` would make of `overrides`.

    Raises:
        ValueError: If a setting is unknown or cannot work.
    """
    arguments = prepare_arguments(overrides)
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=config_dir()):
            composed = hydra.compose("config", overrides=arguments)
    except HydraException as error:
        raise ValueError(str(error)) from error
    with open_dict(composed):
        composed.run_dir = run_dir
    config = to_config(composed)
    check(config)
    return config
