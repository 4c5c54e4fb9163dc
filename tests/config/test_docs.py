"""Docs that describe the settings: complete, up to date, and their commands can be typed."""

import dataclasses
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from muzero.config.arguments import parse_arguments
from muzero.config.compose import compose
from muzero.config.describe import field_sentences
from muzero.config.schema import VARIANTS, Config
from muzero.config.store import load_config, save_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SECTIONS = [
    field.type for field in dataclasses.fields(Config) if dataclasses.is_dataclass(field.type)
]


KINDS = [kind for kinds in VARIANTS.values() for kind in kinds.values()]


@pytest.mark.parametrize("schema", [*SECTIONS, *KINDS])
def test_every_setting_has_its_sentence(schema: type) -> None:
    sentences = field_sentences(schema)
    for field in dataclasses.fields(schema):
        assert sentences.get(field.name, "").endswith("."), f"{schema.__name__}.{field.name}"
    assert (schema.__doc__ or "").endswith(".")


def test_the_table_of_settings_is_up_to_date() -> None:
    """If this fails: `make docs`."""
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_config_docs.py"), "--check"],
        check=True,
        cwd=ROOT,
    )


def test_every_setting_is_read_somewhere() -> None:
    """A setting that nothing reads has no effect and deceives."""
    files = [
        path
        for package in ("muzero", "mcts", "reanalyze")
        for path in (ROOT / package).rglob("*.py")
    ]
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for path in files
        if path.parent.name != "config" or path.stem == "supports"  # the others only check
    )
    read = set(re.findall(r"\.([a-z_0-9]+)", source))
    schemas = [*SECTIONS, *KINDS]
    names = {field.name for schema in schemas for field in dataclasses.fields(schema)}
    assert names - read == set()


def commands() -> list[str]:
    """Our commands in the docs' code blocks, continued lines joined and comments dropped."""
    found: set[str] = set()
    for page in PAGES:
        for block in re.findall(r"```\w*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if re.match(r"\s*\$?\s*muzero-[a-z-]+ ", line) and "<" not in line:
                    found.add(" ".join(line.partition(" #")[0].strip("$ ").split()))
    return sorted(found)


@pytest.mark.parametrize("line", commands())
def test_commands_of_the_docs_can_be_typed(line: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(line)
    if arguments[0] == "ladder":
        program, arguments = f"{program} ladder", arguments[1:]
    own = [argument for argument in arguments if not argument.startswith("-")]
    run = tmp_path / "run"
    if any(argument.startswith(("resume=", "run=")) for argument in own):
        save_config(compose(), run)
    if program == "muzero-train":
        overrides = [argument for argument in own if not argument.startswith("resume=")]
        if len(overrides) < len(own):
            load_config(run, overrides)
        elif not {"--cfg", "--info", "--help", "-m", "--multirun", "-cd"} & set(arguments):
            compose(overrides)
    elif program == "muzero-check-env":
        compose(own)
    else:
        module, schema = {
            "muzero-evaluate": ("muzero.evaluate", "EvaluateArguments"),
            "muzero-evaluate ladder": ("muzero.evaluate_ladder", "LadderArguments"),
            "muzero-inspect": ("muzero.inspect_run", "InspectArguments"),
            "muzero-export": ("muzero.export", "ExportArguments"),
            "muzero-play": ("muzero.play.__main__", "PlayArguments"),
        }[program]
        if "--help" not in arguments:
            parsed = getattr(importlib.import_module(module), schema)
            settings, overrides = parse_arguments(own, parsed, program=program)
            assert settings.run
            load_config(run, overrides)
