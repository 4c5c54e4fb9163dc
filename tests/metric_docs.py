"""The names in docs/metrics.md, for tests that compare them with the code or with a run."""

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)
_GROUPS = "selfplay|search|replay|reanalyze|inference|fleet|learner|gatekeeping|evaluation|time|system|metrics"
_LITERAL = re.compile(rf'"((?:{_GROUPS})/[a-z0-9_/<>{{}}]+)"')


def documented_names() -> list[str]:
    """Names in the tables; `<...>` stands for any text without a slash."""
    return [name for name, _ in _ROW.findall(DOCUMENT.read_text())]


def documented_rows() -> dict[str, list[str]]:
    """The other columns by name: unit, meaning, healthy, alarm."""
    return {
        name: [cell.strip() for cell in cells.split("|")]
        for name, cells in _ROW.findall(DOCUMENT.read_text())
    }


def undocumented(names: Iterable[str]) -> list[str]:
    """Those names of a row that the document lacks."""
    patterns = [re.sub(r"<\w+>", "[^/]+", re.escape(name)) for name in documented_names()]
    known = re.compile("|".join(patterns))
    return sorted(name for name in names if not known.fullmatch(name))


def names_in_code() -> dict[str, Path]:
    """Metric names that stand as whole literals in the packages (names put together are left to real runs)."""
    files = [*(ROOT / "muzero").rglob("*.py"), *(ROOT / "reanalyze").rglob("*.py")]
    return {
        name: file
        for file in files
        for name in _LITERAL.findall(file.read_text())
        if "{" not in name and not name.endswith(("_", "/"))
    }
