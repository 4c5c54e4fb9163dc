"""Hydra's view of the schema, and the config file of a run: written once, loaded for resume and evaluation."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from muzero.config.schema import VARIANTS, Config
from muzero.config.suggest import explain_unknown

FIXED_SECTIONS = ("env", "network")
"""What a run keeps from its start to its end."""
CONFIG_FILE = "config.yaml"
_HERE = ("run_dir", "resume")  # of one command, not of the run


def config_dir() -> str:
    """conf/ inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / CONFIG_FILE).is_file():
            return str(candidate)
    raise FileNotFoundError("no conf/config.yaml inside or beside the muzero package")


def config_groups() -> dict[str, list[str]]:
    """Groups of conf/ and their options, hydra's own left out."""
    groups: dict[str, list[str]] = {}
    for path in sorted(Path(config_dir()).glob("*/*.yaml")):
        groups.setdefault(path.parent.name, []).append(path.stem)
    return groups


def first(*values: Any) -> Any:
    """The first value that is given: `${first:${resume},somewhere/else}`."""
    return next((value for value in values if value not in (None, "", "None")), None)


def folder_name(key: str, *, _root_: DictConfig) -> str:
    """A setting's value as the name of a folder, for example `ALE-Pong-v5`; `unnamed` where it is not set.

    It never fails: hydra needs the run folder before it can say which mandatory setting is missing.
    """
    try:
        value = OmegaConf.select(_root_, key)
    except OmegaConfBaseException:
        value = None
    return re.sub(r"[^\w.]+", "-", str(value or "")).strip("-.") or "unnamed"


def choices() -> str:
    """The groups and their options, one group a line."""
    groups = config_groups()
    width = max(map(len, groups))
    return "\n".join(
        f"  {group:<{width}}  {', '.join(options)}" for group, options in groups.items()
    )


def register() -> None:
    """Tell hydra the schemas and the resolvers. Harmless to repeat."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for section, variants in VARIANTS.items():
        for kind, variant in variants.items():
            store.store(group=f"schema/{section}", name=kind, node=variant)
    OmegaConf.register_new_resolver("first", first, replace=True)
    OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)
    OmegaConf.register_new_resolver("choices", choices, replace=True)


def to_config(composed: DictConfig) -> Config:
    """The typed config.

    Raises ValueError if a mandatory setting has no value or a value has the wrong type.
    """
    if missing := list(_missing(OmegaConf.to_container(composed, resolve=False))):
        raise ValueError(
            "\n".join(f"{key} has no value; give one with {key}=..." for key in missing)
        )
    try:
        config = OmegaConf.to_object(composed)
    except OmegaConfBaseException as error:
        raise ValueError(str(error)) from error
    if not isinstance(config, Config):
        raise TypeError(f"composed without the schema: {type(config).__name__}")
    return config


def save_config(config: Config, run_dir: str | Path, header: str = "") -> Path:
    """Write `<run_dir>/config.yaml`: whole or not at all, and never over another one.

    `header` becomes a comment at the top, such as the command line.
    Raises ValueError if the folder already has one.
    """
    target = Path(run_dir) / CONFIG_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    node = OmegaConf.structured(config)
    OmegaConf.set_struct(node, False)
    plain = OmegaConf.to_container(node, resolve=False)
    assert isinstance(plain, dict)
    for key in _HERE:
        plain.pop(key)
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    text = comment + OmegaConf.to_yaml(OmegaConf.create(plain))
    handle, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{CONFIG_FILE}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, target)  # unlike a rename, a link never replaces
    except FileExistsError:
        raise ValueError(
            f"{target.parent} already holds a run: continue it with resume={target.parent}, or choose another folder "
            "with run_dir=..."
        ) from None
    finally:
        os.unlink(aside)
    return target


def load_config(run_dir: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The config that a run was started with, changed by `overrides` such as `learner.num_steps=20000`.

    Raises ValueError if there is no run, or an override is unknown, of the wrong type, or not allowed to change.
    """
    run = Path(run_dir)
    path = run / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{run} is no run folder: it has no {CONFIG_FILE}")
    try:
        saved = OmegaConf.load(path)
        assert isinstance(saved, DictConfig)
        schema = Config(**{name: kinds[saved[name].kind]() for name, kinds in VARIANTS.items()})
        merged = OmegaConf.merge(OmegaConf.structured(schema), saved)
        assert isinstance(merged, DictConfig)
        merged.run_dir, merged.resume = str(run), None
    except (
        Exception
    ) as error:  # whatever is wrong with the file, the user has to know which file it was
        raise ValueError(f"{path} cannot be read: {error}") from error
    for override in overrides:
        _apply(merged, override, run)
    return to_config(merged)


def parse_override(text: str) -> Override:
    """Parse `section.setting=value` as hydra does; raises ValueError if it cannot be."""
    try:
        return OverridesParser.create().parse_overrides([text])[0]
    except HydraException as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{text!r} cannot be read ({reason}); write setting=value, and quote a value with special characters: "
            "\"setting='my value'\""
        ) from error


def _apply(config: DictConfig, text: str, run: Path) -> None:
    """Change one value of `config`."""
    override = parse_override(text)
    key = override.key_or_group
    if key == "resume":
        return
    if override.is_sweep_override() or override.type != OverrideType.CHANGE:
        raise ValueError(
            f"{text!r}: only plain section.setting=value can change the settings of {run}"
        )
    if key not in config_groups() and (unknown := explain_unknown([text])):
        raise ValueError(unknown)
    section = key.partition(".")[0]
    if (
        section in FIXED_SECTIONS
        or OmegaConf.is_dict(OmegaConf.select(config, key))
        or key not in _settings(config)
    ):
        raise ValueError(
            f"{key} cannot change for the run in {run}: {' and '.join(FIXED_SECTIONS)} are fixed, and of the other "
            "sections only single settings can change"
        )
    try:
        OmegaConf.update(config, key, override.value())
    except OmegaConfBaseException as error:
        raise ValueError(f"{text}: {str(error).splitlines()[0]}") from error


def _missing(node: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of mandatory settings without a value."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _missing(value, f"{prefix}{key}.")
        elif value == MISSING:
            yield prefix + key


def _settings(config: DictConfig) -> set[str]:
    """Dotted names of single settings, sections left out."""
    names = {"seed", "run_dir"}
    for section in map(str, config):
        values = config[section]
        if OmegaConf.is_dict(values):
            names.update(f"{section}.{name}" for name in values)
    return names


register()
