"""Conversations as Markdown and HTML: stored text is text there."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from markdown_it import MarkdownIt

from locus.looking.documents import markdown, page
from locus.looking.reading import Conversation
from locus.memory.model.records import Entry

EVIL = (
    "<script>alert(1)</script> <img src=x onerror=y> [a](javascript:x) ```\n# not a heading\n</pre>\u202e\x1b[2J &lt;"
    " ![x](http://images/1.png)"
)
ENTRY = Entry(EVIL, EVIL, EVIL, None, 3, "rev", datetime(2026, 11, 16, tzinfo=UTC), "{}")
ITEMS: list[Any] = [
    {"role": EVIL, "content": EVIL, "name": EVIL},
    {"role": "assistant", "content": EVIL, "tool_calls": [{"id": "1", "name": EVIL, "arguments": {EVIL: EVIL}}]},
    {"role": "tool", "content": [{"type": "text", "text": EVIL}], "tool_call_id": "1"},
    EVIL,
]
DOCUMENT = Conversation(ENTRY, ITEMS, {EVIL: EVIL})


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _value in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_no_tag_that_was_stored() -> None:
    found = Tags()
    made = page([DOCUMENT])
    found.feed(made)
    assert found.tags <= {
        *("html", "head", "meta", "title", "style", "body", "section", "h1", "h2", "dl", "dt", "dd"),
        *("article", "span", "p", "pre", "b", "details", "summary", "footer"),
    }
    assert found.attributes <= {"lang", "charset", "name", "content", "http-equiv", "class"}
    assert "default-src 'none'" in made
    assert "<script>alert(1)</script> <img src=x onerror=y>" in found.text
    assert not {"\x1b", "\u202e"} & set(made)


def test_markdown_has_no_html_and_no_heading_that_was_stored() -> None:
    tokens = MarkdownIt().parse(markdown([DOCUMENT]))
    inner = [child for token in tokens for child in token.children or ()]
    assert not [
        token
        for token in (*tokens, *inner)
        if "html" in token.type
        or (token.type in {"link_open", "image"} and str(token.attrs.get("href", "")).startswith("javascript"))
    ]
    headings = [
        tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0
    ]
    assert len(headings) == 1 + len(ITEMS) + 1
    assert "http://images" in markdown([DOCUMENT])
    assert not [token for token in inner if token.type == "image"], "a viewer would fetch it"
    assert not {"\x1b", "\u202e"} & set(markdown([DOCUMENT]))
