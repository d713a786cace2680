"""Links of the documentation lead somewhere, every page is listed, and the README stays short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.docs.shell import PYPROJECT, ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def links(page: Path) -> Iterator[str]:
    for token in _tokens(page):
        for part in token.children or []:
            target = part.attrGet("href") or part.attrGet("src")
            if target is not None:
                yield str(target)


def _tokens(page: Path) -> list[Token]:
    return MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """What GitHub makes of headings."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    titles = [_plain(after) for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _plain(heading: Token) -> str:
    return "".join(part.content for part in heading.children or [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """A file may be named by the end of its path, as in `model/plan.py`."""
    codes = (part.content for token in _tokens(page) for part in token.children or [] if part.type == "code_inline")
    files = [code for code in codes if re.fullmatch(r"[\w./-]+\.(py|lua|sql)", code)]
    assert [file for file in files if not any(path.endswith(f"/{file}") for path in _sources())] == []


@cache
def _sources() -> list[str]:
    folders = ("src", "tests", "benchmarks", "examples", "scripts")
    return [f"/{path.relative_to(ROOT)}" for folder in folders for path in ROOT.joinpath(folder).rglob("*.*")]


def test_every_page_is_listed() -> None:
    contents = [ROOT / "docs" / "README.md", ROOT / "docs" / "decisions.md"]
    listed = {(page.parent / link.partition("#")[0]).resolve() for page in contents for link in links(page)}
    assert {page for page in ROOT.glob("docs/**/*.md") if page.name != "README.md"} - listed == set()


def test_the_readme_is_enough_to_start_and_no_more() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 9_000


def test_links_of_the_readme_are_plain_text_on_the_package_index() -> None:
    """`tests/versions/test_wheel.py` looks at what was built; this is for the settings."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    for rule in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        page = re.sub(rule["pattern"], rule["replacement"], page)
    assert "| PostgreSQL | `postgresql://user@host/agents` |" in page
    assert re.findall(r"\]\(.*", page) == []
