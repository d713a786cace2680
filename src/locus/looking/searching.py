"""What a search found, and who said it: each hit with the item that has the words, and the text around them.

A store finds words, and knows nothing of who speaks. So the items that a hit's checkpoint added are read, and the one
with the words is shown. Numbers and ids count as they are written: `8.99` stands in `8.99`, and not in `80 %` and `99`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from locus.looking.saves import items_added
from locus.looking.tool_calls import call_text
from locus.looking.written import search_written
from locus.memory.conversations import Utterance, utterances_of
from locus.memory.model.arguments import SEARCH_SECONDS
from locus.memory.model.ids import Pattern, words
from locus.memory.model.matching import snippet
from locus.memory.model.records import Hit
from locus.memory.store import CheckpointStore

_AT_ONCE: Final = 8
_MORE: Final = 5
"""How many times as many hits are asked for if some of them may be left out."""
_MOST: Final = 500
_ARGUMENTS: Final = 20_000
_EDGES: Final = re.compile(r"^\W+|\W+$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The hits that are wanted. Without a condition, all are."""

    pattern: Pattern = field(default_factory=Pattern)
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    thread_id: str | None = None
    """The only thread; None for those that the pattern matches."""

    @property
    def is_everything(self) -> bool:
        return self == Wanted()

    def takes(self, hit: Hit) -> bool:
        """Whether a hit fulfils the conditions on its thread and its time."""
        moment = hit.entry.created_at
        if (self.since is not None and moment < self.since) or (self.until is not None and moment > self.until):
            return False
        return self.thread_id in (None, hit.entry.thread_id) and self.pattern.matches(hit.entry.thread_id)


@dataclass(frozen=True, slots=True)
class Found:
    """A hit, and who said it."""

    hit: Hit
    role: str
    """The role of the speaker; empty if the words stand in something else that was saved."""
    excerpt: str
    is_exact: bool
    """Whether the words stand there as they were typed, such as `8.99`."""
    name: str | None = None
    position: int | None = None
    """The number of the item in the conversation, if that is known."""


@dataclass(frozen=True, slots=True)
class FoundPage:
    """What a search found, best first. `complete` is False if not everything was looked at."""

    found: list[Found]
    complete: bool


def marks_of(query: str) -> list[str]:
    """The words of a query as they are typed, with what stands between their letters and digits: `8.99`, `ord-17`."""
    stripped = (_EDGES.sub("", word) for word in query.split())
    return [mark for mark in dict.fromkeys(stripped) if mark]


def mark_pattern(marks: Sequence[str]) -> re.Pattern[str]:
    """A pattern that finds these words, each as a whole, in upper or lower case."""
    longest_first = sorted(map(re.escape, marks), key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(longest_first) or '(?!)'})(?!\w)", re.IGNORECASE)


async def search_said(
    store: CheckpointStore,
    query: str,
    limit: int,
    prefix: str = "",
    wanted: Wanted | None = None,
    timeout_seconds: float = SEARCH_SECONDS,
) -> FoundPage:
    """Search for all words of a query, in pending writes too. Hits that have them as they were typed come first."""
    wanted, marks = wanted or Wanted(), marks_of(query)
    inexact = any(len(words(mark)) > 1 for mark in marks)
    most = limit if wanted.is_everything and not inexact else min(max(limit, _MOST), _MORE * limit)
    prefix = prefix or wanted.pattern.prefix
    hits = await store.search(query, most, prefix, timeout_seconds)
    known = {(hit.entry.thread_id, hit.entry.namespace, hit.entry.checkpoint_id) for hit in hits}
    written = [
        hit
        for hit in await search_written(store, query, prefix, timeout_seconds)
        if (hit.entry.thread_id, hit.entry.namespace, hit.entry.checkpoint_id) not in known
    ]
    found = await said_in(store, [hit for hit in [*hits, *written[:most]] if wanted.takes(hit)], query, wanted.role)
    chosen = [one for one in found if wanted.role is None or one.role == wanted.role]
    chosen.sort(key=lambda one: not one.is_exact)
    return FoundPage(chosen[:limit], hits.complete and (len(hits) < most or wanted.is_everything))


async def said_in(store: CheckpointStore, hits: Sequence[Hit], query: str, role: str | None = None) -> list[Found]:
    """Who said what these hits of a query found, in their order. Of several who did, one with the role is named."""
    gate, marks = asyncio.Semaphore(_AT_ONCE), marks_of(query)

    async def found_at(hit: Hit) -> Found:
        async with gate:
            return await _found(store, hit, marks, query, role)

    return await asyncio.gather(*map(found_at, hits))


async def _found(store: CheckpointStore, hit: Hit, marks: Sequence[str], query: str, role: str | None) -> Found:
    terms = list(dict.fromkeys(words(query)))
    best, most = Found(hit, "", hit.snippet, _has_all(hit.snippet, marks)), 0
    for position, item in await items_added(store, hit.entry):
        for said in utterances_of(item):
            text = _text(said)
            score = sum(bool(mark_pattern([mark]).search(text)) for mark in marks)
            score = 2 * score + set(terms).issubset(words(text))
            if score and said.role == role:
                score += 2 * len(marks)
            if score > most:
                excerpt = snippet(terms, text)
                best, most = Found(hit, said.role, excerpt, _has_all(text, marks), said.name, position), score
    return best


def _has_all(text: str, marks: Sequence[str]) -> bool:
    return all(mark_pattern([mark]).search(text) for mark in marks)


def _text(said: Utterance) -> str:
    """The words of an utterance, and those of its calls."""
    calls = (call_text(call)[:_ARGUMENTS] for call in said.calls)
    return "\n".join(filter(None, [said.text, *calls]))
