"""Every setting of every section is read by the code that the section is for (peers, row 88)."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import muzero.runtime.build as build
from mcts import SearchSettings
from muzero.config.compose import compose
from muzero.config.environments import AtariConfig
from muzero.config.networks import ResNetConfig
from muzero.config.schema import Config
from muzero.envs.registry import make_env
from muzero.network.base import NetworkSpec
from muzero.network.factory import make_network
from muzero.runtime.local import LocalRuntime

RUNS = [
    (
        "experiment=tictactoe",
        "evaluation.exhaustive=true",
        "learner.schedule=step",
        "gatekeeping.interval=2",
        "gatekeeping.games=2",
    ),
    (
        "experiment=cartpole",
        "search=puct",
        "reanalyze.fresh_fraction=0.9",
        "replay.prioritized=true",
        "learner.average_decay=0.9",
        "logger.progress=plain",
    ),
]
ELSEWHERE = {
    "LearnerConfig.max_nonfinite_steps",  # behind a step that is not finite: test_learner
    "LoggerConfig.wandb_project",  # where wandb is on: test_metrics
    "RuntimeConfig.kind",  # there is one runtime
    "RuntimeConfig.memory_limit_gb",  # before the run is made: test_memory
    "MLPConfig.kind",  # the section's class says it
    "ResNetConfig.kind",
    "AtariConfig.kind",
    "AtariConfig.name",  # by hydra, for the run folder
}


def fields_of(*schemas: Any) -> set[str]:
    """All settings, as `Section.setting`."""
    return {
        f"{each.__name__}.{field.name}" for each in schemas for field in dataclasses.fields(each)
    }


def watch(section: Any, seen: set[str]) -> None:
    """Note what our code reads of a section; neither what only checks it nor what walks over all of it."""
    schema = type(section)
    names = {field.name for field in dataclasses.fields(schema)}

    def reading(self: object, name: str) -> Any:
        if name in names:
            caller = sys._getframe(1).f_globals["__name__"]
            checks = caller.startswith("muzero.config.") and caller != "muzero.config.supports"
            if caller.startswith(("muzero.", "mcts.", "reanalyze.")) and not checks:
                seen.add(f"{schema.__name__}.{name}")
        return object.__getattribute__(self, name)

    members = {"__slots__": (), "__getattribute__": reading}
    object.__setattr__(section, "__class__", type(schema.__name__, (schema,), members))


def test_every_setting_is_read_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section by section: that `num_simulations` of the search is read says nothing about that of reanalyze."""
    seen: set[str] = set()
    make, sections = build.search_settings, set()

    def watched_settings(*arguments: Any, **options: Any) -> SearchSettings:
        # To be copied from the section into the search's own record is not to be used.
        settings = make(*arguments, **options)
        watch(settings, seen)
        return settings

    monkeypatch.setattr(build, "search_settings", watched_settings)
    for number, (recipe, *rest) in enumerate(RUNS):
        run_dir = tmp_path / str(number)
        config = compose(
            [
                recipe,
                "debug=smoke",
                "runtime.overlap=false",  # in another process nobody could watch
                "logger.progress=none",
                *rest,
                "learner.num_steps=4",
                "learner.batch_size=8",
            ],
            run_dir=str(run_dir),
        )
        for field in dataclasses.fields(Config):
            section = getattr(config, field.name)
            if dataclasses.is_dataclass(section):
                sections.add(type(section))
                watch(section, seen)
        run_dir.mkdir()
        LocalRuntime(config, run_dir).train()
    assert len(sections) == len(dataclasses.fields(Config)) - 3 + 1  # two kinds of environment
    unread = fields_of(*sections, SearchSettings) - seen
    assert unread <= ELSEWHERE, unread - ELSEWHERE


def test_every_setting_of_residual_networks_is_read() -> None:
    seen: set[str] = set()
    config = ResNetConfig(num_channels=4, num_blocks=1)
    watch(config, seen)
    make_network(config, NetworkSpec(observation_shape=(2, 3, 3), num_actions=9), 0)
    assert fields_of(ResNetConfig) - seen <= ELSEWHERE


@pytest.mark.atari
def test_every_setting_of_atari_is_read() -> None:
    seen: set[str] = set()
    config = AtariConfig(game="pong", name="pong")
    watch(config, seen)
    env = make_env(config, 1)
    env.reset(0)
    env.step(np.array([0]))
    env.close()
    assert fields_of(AtariConfig) - seen <= ELSEWHERE
