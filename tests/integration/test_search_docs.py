"""docs/search.md: every snippet runs, in the order of the page, and prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "search.md"
BLOCK = re.compile(r"(<!-- defined below -->\n)?```(\w+)\n(.*?)```\n", re.DOTALL)


def test_the_snippets_print_what_the_page_says():
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    sources = [(late, text) for late, kind, text in blocks if kind == "python"]
    # The first snippet shows the use of a class that the page defines behind it.
    definition = next(text for _, text in sources if "class TicTacToe" in text)
    namespace: dict = {"__name__": "page"}
    exec(compile(definition, str(PAGE), "exec"), namespace)
    assert sum(bool(late) for late, _ in sources) == 1
    compared, printed = 0, ""
    for _, kind, text in blocks:
        if kind == "python":
            assert printed == "", "a snippet prints, and nothing on the page says what"
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, str(PAGE), "exec"), namespace)
            printed = "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip()
        elif kind == "text":
            assert text.strip() == printed, printed
            printed = ""
            compared += 1
    assert printed == ""
    assert compared == sum("print(" in text for _, text in sources) >= 8


def test_the_readme_shows_the_same_search():
    namespace: dict = {}
    for _, kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8"))[:4]:
        if kind == "python" and "class TicTacToe" in text:
            exec(text, namespace)
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    shown = next(text for _, _, text in BLOCK.findall(readme) if "SearchSettings(" in text)
    exec("from mcts import Search, SearchSettings, run\nmodel = TicTacToe()", namespace)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(shown, namespace)
    assert output.getvalue().strip() == shown.rpartition("# ")[2].strip()


def test_the_three_lines_are_three():
    first = next(text for _, kind, text in BLOCK.findall(PAGE.read_text()) if kind == "python")
    lines = [line for line in first.splitlines() if line and not line.startswith(("from", "print"))]
    assert len(lines) == 3
