"""What the user may have meant by a setting that does not exist."""

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from muzero.config.schema import Config

_KEY = re.compile(r"([A-Za-z_][\w./@]*)=")


def setting_names(schema: type, prefix: str = "") -> Iterator[str]:
    """Dotted names of all settings, subclasses of a section included; `x.*` stands for a free-form dict."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        kind, name = hints[field.name], prefix + field.name
        yield name
        if typing.get_origin(kind) is dict:
            yield name + ".*"
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            for section in (kind, *kind.__subclasses__()):
                yield from setting_names(section, name + ".")


def explain_unknown(
    arguments: Sequence[str], *, schema: type = Config, groups: Iterable[str] = ()
) -> str | None:
    """A message for the first `key=value` whose key is no setting of `schema` and no group; None if all are known.

    `+key=`, `~key` and options (`--cfg`) are hydra's business.
    """
    known, groups = set(setting_names(schema)), set(groups)
    for match in filter(None, map(_KEY.match, arguments)):
        name = match[1].split("@")[0]
        if (
            re.split(r"[./]", name)[0] == "hydra"
            or name in known | groups
            or _free_form_parent(name, known)
        ):
            continue
        parent, _, leaf = name.rpartition(".")
        return _message(name, parent, leaf, {k for k in known if not k.endswith("*")}, groups)
    return None


def free_form_parent(argument: str, schema: type = Config) -> str | None:
    """The free-form setting that `argument` sets a key of: `env.parameters` of `env.parameters.size=5`; else None."""
    match = _KEY.match(argument)
    return _free_form_parent(match[1], set(setting_names(schema))) if match else None


def _free_form_parent(name: str, known: set[str]) -> str | None:
    parents = accumulate(name.split(".")[:-1], "{}.{}".format)
    return next((parent for parent in parents if f"{parent}.*" in known), None)


def _message(name: str, parent: str, leaf: str, known: set[str], groups: set[str]) -> str:
    sections = {k.rpartition(".")[0] for k in known} - {""}
    leaves = {k.rpartition(".")[2] for k in known}
    # Many sections may have a setting of that name: the nearest of them first.
    hints = sorted(
        (k for k in known if k.rpartition(".")[2] == leaf),
        key=lambda k: (-difflib.SequenceMatcher(None, name, k).ratio(), k),
    )
    if not hints and parent in sections:
        own = sorted(k for k in known if k.startswith(parent + "."))
        hints = difflib.get_close_matches(name, own, n=2, cutoff=0.8)
    elif not hints:
        hints = difflib.get_close_matches(name, sorted(known | groups), n=3, cutoff=0.7)
        if not hints:  # the section is missing or misspelt as well
            near = difflib.get_close_matches(leaf, sorted(leaves), n=2, cutoff=0.75)
            hints = sorted(k for k in known if k.rpartition(".")[2] in near)
    message = f"no setting named {name!r}"
    if hints:
        return f"{message}; did you mean {' or '.join(hints[:3])}?"
    if parent in sections:
        names = sorted(k.rpartition(".")[2] for k in known if k.startswith(parent + "."))
        return f"{message}; the section {parent} has {', '.join(names)}"
    return f"{message}; the sections are {', '.join(sorted(sections))}"
