"""Markdown as a tree that a template writes out, so that every text in it is escaped as all others are.

A tree has only the elements that are named here. HTML is text, an image is a link to it, and a link leads to a web page
or an address of mail. Pure functions, bounded: texts that are longer than `LONGEST` are not read as Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from locus.server.inspector.colours import CodePiece, Colouring

LONGEST: Final = 50_000
_ELEMENTS: Final = frozenset(
    {
        *("p", "ul", "ol", "li", "blockquote", "em", "strong", "s", "hr", "br"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
)
_SCHEMES: Final = frozenset({"http", "https", "mailto"})


@dataclass(slots=True)
class MarkdownNode:
    """An element, or a text: then `tag` is empty."""

    tag: str
    text: str = ""
    address: str = ""
    """Where a link leads."""
    start: str = ""
    """The number that a list begins with, if that is not 1."""
    code: list[CodePiece] = field(default_factory=list)
    """The text in colours, if it is code."""
    children: list[MarkdownNode] = field(default_factory=list)


def markdown(text: str, colouring: Colouring | None = None) -> list[MarkdownNode] | None:
    """The nodes of a text; None if it is too long to be read as Markdown."""
    if len(text) > LONGEST:
        return None
    return _tree(_reader().parse(text), colouring or Colouring())


def _reader() -> MarkdownIt:
    # Not kept: it holds the links that a text defines.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _tree(tokens: Sequence[Token], colouring: Colouring) -> list[MarkdownNode]:
    top = MarkdownNode("")
    open_nodes = [top]
    for token in tokens:
        if token.nesting == 1:
            node = _opened(token)
            open_nodes[-1].children.append(node)
            open_nodes.append(node)
        elif token.nesting == -1:
            open_nodes.pop()
        elif token.type == "inline":
            open_nodes[-1].children += _tree(token.children or [], colouring)
        else:
            open_nodes[-1].children.append(_leaf(token, colouring))
    return top.children


def _opened(token: Token) -> MarkdownNode:
    if token.tag == "a":
        return _link(str(token.attrs.get("href", "")))
    if token.type == "heading_open":
        return MarkdownNode("heading")  # the page has headings of its own
    start = str(token.attrs.get("start", "")) if token.tag == "ol" else ""
    # A paragraph of a tight list is no paragraph.
    tag = token.tag if token.tag in _ELEMENTS and not token.hidden else "span"
    return MarkdownNode(tag, start=start)


def _link(address: str) -> MarkdownNode:
    try:
        scheme = urlsplit(address).scheme.lower()
    except ValueError:
        scheme = ""
    return MarkdownNode("a", address=address) if scheme in _SCHEMES else MarkdownNode("span")


def _leaf(token: Token, colouring: Colouring) -> MarkdownNode:
    if token.type in ("softbreak", "hardbreak"):
        return MarkdownNode("br")
    if token.type == "hr":
        return MarkdownNode("hr")
    if token.type in ("fence", "code_block"):
        language, *_ = [*token.info.split(maxsplit=1), ""]
        return MarkdownNode("pre", token.content, code=colouring.pieces(token.content, language))
    if token.type == "code_inline":
        return MarkdownNode("code", token.content)
    if token.type == "image":
        node = _link(str(token.attrs.get("src", "")))
        node.children = [MarkdownNode("", f"[image: {token.content}]")]
        return node
    return MarkdownNode("", token.content)


def texts(nodes: Sequence[MarkdownNode]) -> Iterator[str]:
    """All texts in the nodes."""
    for node in nodes:
        if node.text:
            yield node.text
        yield from texts(node.children)
