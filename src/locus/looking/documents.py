"""Threads and conversations as documents to hand on: JSON Lines, Markdown, and one HTML page that needs nothing else.

JSON Lines have every checkpoint of a thread, each item once; `locus.transfer.jsonl` says what the lines are, and reads
them back. Markdown and HTML have a checkpoint's conversation and the rest of its state. What is stored is only text in
them: HTML is escaped, and the page has no script and loads nothing.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from locus.looking.formatting import visible
from locus.looking.reading import Conversation, exported_pages
from locus.looking.tool_calls import speaker_of
from locus.memory.conversations import THOUGHTS, Utterance, utterance_of, utterances_of
from locus.memory.model.codec import MAX_DEPTH, decode, decode_head, encode, encode_trusted
from locus.memory.model.records import Entry, Run, Stored, Write
from locus.memory.store import CheckpointStore

JSONL_FORMAT: Final = 1
_LONG: Final = 250_000
"""Characters of a JSON line that another thread writes, so that others have their turn meanwhile."""
_DEPTH: Final = MAX_DEPTH + 4
"""How deep a line may nest: a stored value, which may be as deep as `MAX_DEPTH`, lies a few levels inside of it."""
_LINES: Final = "\n\t"
_COLOURED_ROLES: Final = frozenset({"user", "assistant", "tool", "system"})


async def exported_lines(store: CheckpointStore, thread_id: str) -> AsyncGenerator[str, None]:
    """The JSON lines of a thread: none, if it is not there.

    The last line tells that the thread is complete: a file that was cut off between two lines would look like an older
    thread.
    """
    newest_runs: dict[str, int] = {}
    begun, count = False, 0
    async with aclosing(exported_pages(store, thread_id, lambda: newest_runs)) as pages:
        async for page in pages:
            if not begun:
                begun = True
                yield encode_trusted({"locus": JSONL_FORMAT, "thread_id": thread_id})
            for run in sorted(page.runs, key=lambda run: run[:2]):
                if run.number > newest_runs.get(run.branch, -1):
                    newest_runs[run.branch] = run.number
                    yield await _written(len(run.items), partial(_run_line, run))
            for stored in page.checkpoints:
                count += 1
                entry = stored.entry
                writes = page.writes.get((entry.namespace, entry.checkpoint_id), ())
                size = len(stored.head) + len(stored.manifest) + len(entry.metadata)
                size += sum(len(write.value) for write in writes)
                yield await _written(size, partial(_checkpoint_line, stored, writes))
    if begun:
        yield encode_trusted({"end": thread_id, "checkpoints": count})


async def _written(size: int, line: Callable[[], str]) -> str:
    """A line of about `size` characters."""
    return await asyncio.to_thread(line) if size >= _LONG else line()


def _run_line(run: Run) -> str:
    return (
        f'{{"branch":{json.dumps(run.branch)},"run":{run.number},"start":{run.start},'
        f'"items":{encode(decode(run.items), depth=_DEPTH)}}}'
    )


def _checkpoint_line(stored: Stored, writes: Iterable[Write]) -> str:
    entry = stored.entry
    return encode(
        {
            "namespace": entry.namespace,
            "checkpoint_id": entry.checkpoint_id,
            "parent_id": entry.parent_id,
            "created_at": entry.created_at.isoformat(),
            "metadata": decode(entry.metadata),
            "state": decode_head(stored.head),
            "lists": decode(stored.manifest),
            "writes": [{**write._asdict(), "value": decode(write.value)} for write in writes],
        },
        depth=_DEPTH,
    )


def facts(entry: Entry) -> list[tuple[str, str]]:
    """The facts about a checkpoint that stand above its conversation: name and value of each."""
    return [
        ("checkpoint", f"{entry.checkpoint_id} (#{entry.seq})"),
        ("saved", entry.created_at.astimezone(UTC).isoformat(timespec="seconds")),
        ("namespace", entry.namespace or "(root)"),
    ]


def markdown(conversations: Iterable[Conversation]) -> str:
    """Conversations as Markdown: a section for each, with a heading for each item."""
    return "".join(markdown_pieces(conversations))


def markdown_pieces(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Conversations as Markdown, piece by piece."""
    gap = ""
    for block in _blocks(conversations):
        yield f"{gap}{block}"
        gap = "\n\n"
    yield "\n"


def _blocks(conversations: Iterable[Conversation]) -> Iterator[str]:
    for conversation in conversations:
        yield f"# {_plain(conversation.entry.thread_id)}"
        yield "\n".join(f"- {name}: {_plain(value)}" for name, value in facts(conversation.entry))
        for position, item in enumerate(conversation.items):
            for said in utterances_of(item):
                yield f"## {position}. {_plain(speaker_of(said))}"
                if said.text:
                    yield _quoted(said.text)
                yield from (_fenced(f"{call.name} {_pretty(call.arguments)}") for call in said.calls)
        if conversation.rest:
            yield "## State"
            yield _fenced(_pretty(conversation.rest), "json")


def _plain(text: str) -> str:
    """A text with everything escaped that Markdown would take for markup, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", visible(text))


def _quoted(text: str) -> str:
    """A text as a quotation: nothing in it ends that, can be taken for HTML, or makes a viewer fetch an image."""
    shown = visible(text, keep=_LINES).replace("&", "&amp;").replace("<", "&lt;").replace("![", "!&#91;")
    return "\n".join(f"> {line}".rstrip() for line in shown.split("\n"))


def _fenced(text: str, language: str = "") -> str:
    shown = visible(text, keep=_LINES)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def page(conversations: Iterable[Conversation], made: datetime | None = None) -> str:
    """Conversations as one HTML page, light and dark."""
    return "".join(page_pieces(conversations, made))


def page_pieces(conversations: Iterable[Conversation], made: datetime | None = None) -> Iterator[str]:
    """Conversations as one HTML page, piece by piece."""
    shown = list(conversations)
    title = ", ".join(each.entry.thread_id for each in shown[:3]) + (", …" if len(shown) > 3 else "")
    when = (made or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    for conversation in shown:
        for line in _section(conversation):
            yield f"{line}\n"
    yield f"<footer>Exported by Locus, {when}</footer>\n</body>\n</html>\n"


def _section(conversation: Conversation) -> Iterator[str]:
    yield f"<section>\n<h1>{_escaped(conversation.entry.thread_id)}</h1>\n<dl>"
    yield from (f"<dt>{name}</dt><dd>{_escaped(value)}</dd>" for name, value in facts(conversation.entry))
    yield "</dl>"
    yield from (_article(position, item) for position, item in enumerate(conversation.items))
    if conversation.rest:
        yield f"<details><summary>State</summary><pre>{_escaped(_pretty(conversation.rest))}</pre></details>"
    yield "</section>"


def _article(position: int, item: Any) -> str:
    whole = utterance_of(item)
    role = whole.role if whole.role in _COLOURED_ROLES else "other"
    folded = f"<details><summary>JSON</summary><pre>{_escaped(_pretty(item))}</pre></details>"
    heading = f"<h2><span>{position}</span> {_escaped(speaker_of(whole))}</h2>"
    return f'<article class="{role}">{heading}{"".join(map(_words, utterances_of(item)))}{folded}</article>'


def _words(said: Utterance) -> str:
    label = "<b>thinks:</b> " if said.role == THOUGHTS else ""
    text = f"<p>{label}{_escaped(said.text)}</p>" if said.text else ""
    calls = (f"<pre><b>{_escaped(call.name)}</b> {_escaped(_pretty(call.arguments))}</pre>" for call in said.calls)
    return text + "".join(calls)


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
