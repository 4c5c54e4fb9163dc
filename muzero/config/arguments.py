"""The command line of the smaller commands: `key=value` as hydra has it, typed by a dataclass, without hydra's run folder."""

import dataclasses
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from muzero.config.cli import fail, shows_traceback
from muzero.config.describe import field_sentences
from muzero.config.store import parse_override
from muzero.config.suggest import explain_unknown, setting_names

Schema = TypeVar("Schema")


def run_command(
    task: Callable[[Schema, list[str]], None],
    schema: type[Schema],
    *,
    program: str,
    arguments: Sequence[str] | None = None,
    overrides: bool = True,
) -> None:
    """Run `task(settings, overrides)`; a ValueError is printed without a traceback and the exit status is 2."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        task(*parse_arguments(given, schema, program=program, overrides=overrides))
    except ValueError as error:
        if shows_traceback(error):
            raise
        fail(str(error))


def parse_arguments(
    arguments: Sequence[str], schema: type[Schema], *, program: str, overrides: bool = True
) -> tuple[Schema, list[str]]:
    """The command's own settings, and the overrides of the run's config for `load_config`.

    A key with a dot, such as `search.num_simulations=64`, is an override, unless `overrides` is False. `--help`
    prints the schema's sentences and leaves.
    Raises ValueError for an unknown key, a value of the wrong type, or a setting without value.
    """
    if {"-h", "--help"} & set(arguments):
        print(help_text(schema, program, overrides))
        raise SystemExit(0)
    node, run_overrides = OmegaConf.structured(schema), []
    for argument in arguments:
        if argument.startswith("-") or "=" not in argument:
            raise ValueError(
                f"{argument!r} is not understood; write key=value, or --help for a list"
            )
        key = argument.partition("=")[0]
        if overrides and ("." in key or key == "seed") and key not in set(setting_names(schema)):
            if message := explain_unknown([argument]):
                raise ValueError(message)
            run_overrides.append(argument)
            continue
        if message := explain_unknown([argument], schema=schema):
            raise ValueError(message)
        value = parse_override(argument).value()
        try:
            OmegaConf.update(node, key, value)
        except OmegaConfBaseException as error:
            raise ValueError(f"{argument}: {str(error).splitlines()[0]}") from error
    if missing := sorted(OmegaConf.missing_keys(node)):
        key = missing[0]
        sentence = field_sentences(schema).get(key, "")
        raise ValueError(f"{key} has no value; give one with {key}=... ({sentence.rstrip('.')})")
    settings = OmegaConf.to_object(node)
    assert isinstance(settings, schema)
    return settings, run_overrides


def help_text(schema: type, program: str, overrides: bool = True) -> str:
    """Usage, with the sentence of each setting and its value if it is not given."""
    sentences = field_sentences(schema)
    purpose = (schema.__doc__ or "").strip().splitlines()[0]
    fields = dataclasses.fields(schema)
    required = [f"{field.name}=..." for field in fields if default_of(field) is MISSING]
    lines = [" ".join([program, *required, "[setting=value ...]"]), "", purpose, ""]
    hints = typing.get_type_hints(schema)
    width = max((len(field.name) for field in fields), default=0)
    for field in fields:
        value = default_of(field)
        default = "required" if value is MISSING else f"default {show(value)}"
        lines.append(
            f"  {field.name:<{width}}  {sentences.get(field.name, '')} [{type_name(hints[field.name])}, {default}]"
        )
    if overrides:
        lines += ["", "Settings of the run's config can be changed too: search.num_simulations=64"]
    return "\n".join(lines)


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """A field's value if none is given; MISSING where one has to be."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return MISSING if field.default is dataclasses.MISSING else field.default


def show(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(show, value))}]"
    return str(value)


def type_name(hint: Any) -> str:
    """A type as a reader of the docs wants it: `int`, `list[float]`, `int or null`."""
    if hint is type(None):
        return "null"
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (list, dict):
        return f"{typing.get_origin(hint).__name__}[{', '.join(map(type_name, arguments))}]"
    if arguments:
        return " or ".join(map(type_name, arguments))
    return "any" if hint is Any else str(hint.__name__)


def check_checkpoint(checkpoint: str, step: int | None) -> None:
    """Refuse arguments that name no checkpoint of a run, or two: `newest` or `best`, or a learner step."""
    if checkpoint not in ("newest", "best"):
        raise ValueError(
            f"checkpoint={checkpoint!r} must be newest or best; step=... takes one by its learner step"
        )
    if step is not None and checkpoint == "best":
        raise ValueError(f"step={step} and checkpoint=best name two checkpoints; give one")
