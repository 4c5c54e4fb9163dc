"""Every setting of every section is read by the code that the section is for (peers, row 88)."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import muzero.runtime.build as build
from muzero.config.compose import compose
from muzero.config.schema import ENVS, NETWORKS, Config
from muzero.envs.registry import make_env, make_spec
from muzero.network.base import NetworkSpec
from muzero.network.factory import make_network
from muzero.runtime.local import LocalRuntime

OWN = ("muzero.", "mcts.", "reanalyze.")
RUNS = [
    ("experiment=tictactoe", "evaluation.exhaustive=true", "learner.schedule=step"),
    (
        "experiment=cartpole",
        "search=puct",
        "reanalyze.fresh_fraction=0.9",
        "replay.prioritized=true",
        "learner.optimizer=sgd",
        "learner.average_decay=0.9",
        "logger.progress=plain",
    ),
]
READ_ELSEWHERE = {
    "EnvConfig.name": "by hydra, for the run folder's name",
    "LoggerConfig.wandb_project": "where wandb is on; see test_metrics",
    "LoggerConfig.wandb_mode": "where wandb is on; see test_metrics",
    "RuntimeConfig.kind": "there is one kind",
    "EnvConfig.kind": "as ENVS' key",
}


def watch(thing: object, label: str, seen: set[str]) -> None:
    """Note which fields our code reads of a settings object; not those that `asdict` and the like walk over."""
    schema = type(thing)
    names = {field.name for field in dataclasses.fields(schema)}  # type: ignore[arg-type]

    def reading(self: object, name: str) -> object:
        if name in names:
            caller = sys._getframe(1).f_globals["__name__"]
            checks = caller.startswith("muzero.config.") and caller != "muzero.config.supports"
            if caller.startswith(OWN) and not checks:
                seen.add(f"{label}.{name}")
        return object.__getattribute__(self, name)

    watched = type(schema.__name__, (schema,), {"__slots__": (), "__getattribute__": reading})
    object.__setattr__(thing, "__class__", watched)


def watch_sections(config: Config, seen: set[str]) -> None:
    for field in dataclasses.fields(config):
        section = getattr(config, field.name)
        if dataclasses.is_dataclass(section):
            watch(section, type(section).__name__, seen)


def expected() -> Iterator[str]:
    schemas = [
        *(field.type for field in dataclasses.fields(Config)),
        *ENVS.values(),
        *NETWORKS.values(),
    ]
    bases = {"env", "network"}
    for schema in schemas:
        if dataclasses.is_dataclass(schema) and schema.__name__ not in ("EnvConfig", "NetworkConfig"):
            for field in dataclasses.fields(schema):
                yield f"{schema.__name__}.{field.name}"
    assert bases


def test_every_setting_is_read_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    make = build.search_settings

    def watched_settings(*arguments):
        # A copy of the section that the search reads: to be copied is not to be read.
        settings = make(*arguments)
        watch(settings, "SearchSettings", seen)
        return settings

    monkeypatch.setattr(build, "search_settings", watched_settings)
    for number, overrides in enumerate(RUNS):
        recipe, *rest = overrides
        config = compose(
            [recipe, "debug=smoke", "logger.progress=none", *rest, "learner.num_steps=4"],
            run_dir=str(tmp_path / str(number)),
        )
        Path(config.run_dir).mkdir()
        watch_sections(config, seen)
        LocalRuntime(config, Path(config.run_dir)).train()
    print(sorted(set(expected()) - seen))
    print(sorted(x for x in seen if x.startswith("SearchS")))
    assert 0
