"""A conversation as a document to hand on: Markdown, or one HTML page that needs nothing else. Pure functions.

Everything stored is text there: HTML is escaped, and the page has no script and loads nothing.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from locus.looking.visible import visible
from locus.memory.conversations import Turn, turn_of
from locus.memory.model.records import Entry

_LINES: Final = "\n\t"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A checkpoint's conversation, and the rest of its state."""

    entry: Entry
    items: Sequence[Any]
    rest: Any = None
    """The payload without the conversation."""
    facts: Sequence[tuple[str, str]] = field(default=())


def facts(entry: Entry) -> list[tuple[str, str]]:
    """What is said about a checkpoint above its conversation."""
    return [
        ("checkpoint", f"{entry.checkpoint_id} (#{entry.seq})"),
        ("saved", entry.created_at.astimezone(UTC).isoformat(timespec="seconds")),
        ("namespace", entry.namespace or "(root)"),
    ]


def markdown(conversations: Iterable[Conversation]) -> str:
    """Markdown: a section for each conversation, a heading for each turn."""
    return "".join(markdown_pieces(conversations))


def markdown_pieces(conversations: Iterable[Conversation]) -> Iterator[str]:
    """The same, piece by piece."""
    gap = ""
    for block in _blocks(conversations):
        yield f"{gap}{block}"
        gap = "\n\n"
    yield "\n"


def _blocks(conversations: Iterable[Conversation]) -> Iterator[str]:
    for one in conversations:
        yield f"# {_plain(one.entry.thread_id)}"
        yield "\n".join(f"- {name}: {_plain(value)}" for name, value in facts(one.entry))
        for at, item in enumerate(one.items):
            turn = turn_of(item)
            yield f"## {at}. {_plain(_speaker(turn))}"
            if turn.text:
                yield _quoted(turn.text)
            yield from (_fenced(f"{call.name} {_pretty(call.arguments)}") for call in turn.calls)
        if one.rest:
            yield "## State"
            yield _fenced(_pretty(one.rest), "json")


def _plain(text: str) -> str:
    """A text that Markdown takes as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", visible(text))


def _quoted(text: str) -> str:
    """Paragraphs as they are, as far as they cannot be taken for HTML or break out of the quotation."""
    shown = visible(text, keep=_LINES).replace("&", "&amp;").replace("<", "&lt;")
    return "\n".join(f"> {line}".rstrip() for line in shown.split("\n"))


def _fenced(text: str, language: str = "") -> str:
    shown = visible(text, keep=_LINES)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _speaker(turn: Turn) -> str:
    return " ".join(filter(None, [turn.role or "item", turn.name]))


def page(conversations: Iterable[Conversation], made: datetime | None = None) -> str:
    """One HTML page, light and dark."""
    return "".join(page_pieces(conversations, made))


def page_pieces(conversations: Iterable[Conversation], made: datetime | None = None) -> Iterator[str]:
    """The same, piece by piece."""
    found = list(conversations)
    title = ", ".join(one.entry.thread_id for one in found[:3]) + (", …" if len(found) > 3 else "")
    when = (made or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    for one in found:
        for line in _section(one):
            yield f"{line}\n"
    yield f"<footer>Exported by Locus, {when}</footer>\n</body>\n</html>\n"


def _section(one: Conversation) -> Iterator[str]:
    yield f"<section>\n<h1>{_escaped(one.entry.thread_id)}</h1>\n<dl>"
    yield from (f"<dt>{name}</dt><dd>{_escaped(value)}</dd>" for name, value in facts(one.entry))
    yield "</dl>"
    yield from (_turn(at, item) for at, item in enumerate(one.items))
    if one.rest:
        yield f"<details><summary>State</summary><pre>{_escaped(_pretty(one.rest))}</pre></details>"
    yield "</section>"


def _turn(at: int, item: Any) -> str:
    turn = turn_of(item)
    role = turn.role if turn.role in {"user", "assistant", "tool", "system"} else "other"
    text = f"<p>{_escaped(turn.text)}</p>" if turn.text else ""
    calls = "".join(
        f"<pre><b>{_escaped(call.name)}</b> {_escaped(_pretty(call.arguments))}</pre>" for call in turn.calls
    )
    folded = f"<details><summary>JSON</summary><pre>{_escaped(_pretty(item))}</pre></details>"
    heading = f"<h2><span>{at}</span> {_escaped(_speaker(turn))}</h2>"
    return f'<article class="{role}">{heading}{text}{calls}{folded}</article>'


def _escaped(text: str) -> str:
    return html.escape(visible(text, keep=_LINES))


_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.3rem; overflow-wrap: anywhere } h2 { font-size: .85rem; margin: 0 } h2 span { opacity: .6 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem } dd { margin: 0; overflow-wrap: anywhere }
article { border-left: 3px solid var(--line); padding: .4rem .8rem; margin: .6rem 0 }
article.user { border-color: #2a7 } article.assistant { border-color: #37c } article.tool { border-color: #a5b }
p, pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0 }
pre { background: var(--soft); padding: .5rem; font-size: .85rem }
summary { font-size: .8rem; opacity: .7; cursor: pointer } footer { opacity: .6; margin-top: 2rem }
"""
