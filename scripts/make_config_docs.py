"""Writes docs/configuration.md from the schema: every setting with its type, its value and its sentence.

Run: python scripts/make_config_docs.py [--check]
"""

import dataclasses
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from muzero.config.arguments import default_of, show, type_name
from muzero.config.describe import field_sentences
from muzero.config.limits import CHOICES, RANGES
from muzero.config.schema import VARIANTS, Config
from muzero.config.store import config_groups

TARGET = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

HEADER = """# Configuration

<!-- Written by scripts/make_config_docs.py from muzero/config/schema.py; `make docs` writes it anew. -->

A command is a list of choices (`group=option`) and values (`section.setting=value`):

```
muzero-train experiment=tictactoe
muzero-train env=connect_four network=resnet search.num_simulations=32 seed=1
muzero-train env=open_spiel env.game=hex env.parameters.board_size=5
muzero-train env=gym env.id=Acrobot-v1
```

- **Order.** Groups come first, then what the environment suggests for other groups (`env=atari` brings
  `network=resnet_atari`, `targets=td` and so on), then the experiment, then the command line. Later wins.
- **Look first.** `muzero-train <command> --cfg job` prints the settings composed, `--info defaults-tree` which file each
  group comes from.
- **Your own files.** `muzero-train -cd my_conf experiment=mine` reads `my_conf/experiment/mine.yaml` beside ours.
- **Mistakes.** An unknown setting gets a suggestion; settings that cannot work together are refused before anything starts,
  all of them at once; settings that have no effect are warned about.
- **The saved config.** A run's folder holds `config.yaml`, every setting spelt out. `resume=` and the other
  commands read it; single settings of sections other than `env` and `network` can be changed there.

The columns below: the value that holds if nothing sets the setting, and what is allowed. `null` means "not set".
An option of a group may bring another value; `--cfg job` shows what a command really uses.
"""


def main() -> None:
    """Write the page, or with `--check` compare it."""
    text = page()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{TARGET} is out of date: python scripts/make_config_docs.py")


def page() -> str:
    """The whole page."""
    hints = typing.get_type_hints(Config)
    sections: dict[str, type[Any]] = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and dataclasses.is_dataclass(hint)
    }
    parts = [HEADER, _groups(), "## The run\n\n" + _table("", Config, skip=set(sections))]
    for section, schema in sections.items():
        parts.append(f"## {section}\n\n{schema.__doc__}\n\n{_table(section, schema)}")
        for kind, variant in VARIANTS.get(section, {}).items():
            if variant is schema:
                continue
            inherited = {field.name for field in dataclasses.fields(schema)} - _changed(
                variant, schema
            )
            parts.append(
                f"### {section}: {kind}\n\n{variant.__doc__}\n\n{_table(section, variant, skip=inherited)}"
            )
    return "\n".join(parts)


def _changed(variant: type[Any], base: type[Any]) -> set[str]:
    """Inherited settings that a variant gives another default; `kind` goes without saying."""
    defaults = {field.name: default_of(field) for field in dataclasses.fields(base)}
    return {
        field.name
        for field in dataclasses.fields(variant)
        if field.name in defaults
        and field.name != "kind"
        and default_of(field) != defaults[field.name]
    }


def _groups() -> str:
    rows = [
        f"| `{group}` | {', '.join(f'`{o}`' for o in options)} |"
        for group, options in config_groups().items()
    ]
    return "\n".join(["## Groups\n", "| group | options |", "| --- | --- |", *rows, ""])


def _table(section: str, schema: type[Any], skip: set[str] | None = None) -> str:
    return "\n".join(
        [
            "| setting | type | value | allowed | |",
            "| --- | --- | --- | --- | --- |",
            *_rows(section, schema, skip or set()),
            "",
        ]
    )


def _rows(section: str, schema: type[Any], skip: set[str]) -> Iterator[str]:
    hints, sentences = typing.get_type_hints(schema), field_sentences(schema)
    for field in dataclasses.fields(schema):
        if field.name in skip:
            continue
        name = f"{section}.{field.name}".removeprefix(".")
        default = default_of(field)
        value = "required" if default is MISSING else f"`{show(default)}`"
        allowed = ", ".join(f"`{choice}`" for choice in CHOICES.get(name, ()))
        cells = [
            f"`{name}`",
            type_name(hints[field.name]),
            value,
            allowed or _range(name),
            sentences[field.name],
        ]
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _range(name: str) -> str:
    return str(RANGES[name]) if name in RANGES else ""


if __name__ == "__main__":
    main()
