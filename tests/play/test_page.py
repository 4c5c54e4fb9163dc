"""The page as a file: it needs nothing from anywhere, and its parts fit each other."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from muzero.play.api import READS, WRITES
from muzero.play.web import content_security_policy

PAGE = files("muzero.play").joinpath("page/index.html").read_text(encoding="utf-8")
VOID = {"meta", "link", "input", "br", "hr", "img"}


class Reader(HTMLParser):
    """Collects elements and checks that tags nest."""

    def __init__(self):
        super().__init__()
        self.elements, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def elements():
    reader = Reader()
    reader.feed(PAGE)
    assert reader.open == []
    return reader.elements


def test_nothing_is_loaded_from_anywhere(elements):
    addresses = re.findall(r"(?:https?:)?//[^\s\"'<>`]+", PAGE)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    for tag, attributes in elements:
        assert "src" not in attributes
        assert attributes.get("href", "data:,") == "data:,", tag
    assert not re.search(r"@import|url\(", PAGE)


def test_no_text_becomes_markup_or_code():
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", PAGE
    )


def test_the_policy_lets_the_pages_own_code_run_and_needs_no_exception(elements):
    assert not [
        name
        for _, attributes in elements
        for name in attributes
        if name.startswith("on") or name == "style"
    ]
    policy = content_security_policy(PAGE)
    (script,) = re.findall(r"<script>(.*?)</script>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "connect-src 'self'" in policy
    changed = content_security_policy(PAGE.replace("use strict", "use lax"))
    assert changed != policy


def test_ids_are_unique_and_all_that_the_script_asks_for_are_there(elements):
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"\$\(\"([\w-]+)\"\)", PAGE)) <= set(ids)
    for _, attributes in elements:
        assert set(attributes.get("aria-labelledby", "").split()) <= set(ids)


def test_the_script_asks_only_for_what_the_api_has():
    asked = set(re.findall(r"\bask\(\"(\w+)\"", PAGE))
    done = set(re.findall(r"\bact\(\"(\w+)\"", PAGE))
    assert asked - done == set(READS)
    assert done == set(WRITES)


def test_everything_has_a_name(elements):
    tags = [tag for tag, _ in elements]
    assert ("html", {"lang": "en"}) in elements
    assert tags.count("h1") == tags.count("main") == tags.count("title") == 1
    for tag, attributes in elements:
        if tag == "section":
            assert "aria-labelledby" in attributes
        if tag == "textarea":
            assert "aria-label" in attributes
    assert ":focus-visible" in PAGE
    assert 'aria-live="polite"' in PAGE
