"""Search and metadata queries for engines that have no index, and look through everything they have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import nlargest

from locus.memory.model.codec import canonical, decode, texts_in
from locus.memory.model.cursors import cursor_of, parts_of
from locus.memory.model.ids import words
from locus.memory.model.manifest import walk, wanted
from locus.memory.model.records import Entry, Hit, NewestThreads, Run
from locus.memory.model.table import ThreadTable

_EPOCH = datetime.min.replace(tzinfo=UTC)
SNIPPET = 160
_WORD = re.compile(r"[^\W_]+")
RANKED = 200
"""How many of the texts that have all terms are ranked at least, where a database cannot rank them by themselves."""


def searchable(text: str) -> str:
    """The text of a stored JSON value in which a search looks for words."""
    return "\n".join(texts_in(decode(text)))


def score(terms: Sequence[str], text: str) -> float:
    """A number for how well a text matches the terms; 0 if one is missing."""
    found = words(text)
    counts = Counter(found)
    if any(term not in counts for term in terms):
        return 0.0
    return sum(counts[term] for term in terms) / (len(found) + 10)


def snippet(terms: Sequence[str], text: str) -> str:
    """The part of a text in which the terms stand closest together, each as a whole word."""
    at = nearest(terms, text)
    start = max(0, at - SNIPPET // 4)
    shown = " ".join(text[start : start + SNIPPET].split())
    return f"{'…' if start else ''}{shown}{'…' if start + SNIPPET < len(text) else ''}"


def nearest(terms: Sequence[str], text: str) -> int:
    """The position at which the shortest part of a text begins that has all of these words; 0 if it has none."""
    wanted = set(terms)
    last: dict[str, int] = {}
    best, shortest, partial = 0, len(text) + 1, None
    for found in _WORD.finditer(text):
        word = found[0].lower()
        if word not in wanted:
            continue
        partial = found.start() if partial is None else partial
        last[word] = found.start()
        if len(last) == len(wanted):
            start = min(last.values())
            if found.end() - start < shortest:
                best, shortest = start, found.end() - start
    return best if shortest <= len(text) else partial or 0


def table_hits(table: ThreadTable, terms: Sequence[str]) -> Iterator[Hit]:
    """The checkpoints of a thread that contain the terms: the one that added the text, or the first that has it."""
    done: dict[str, dict[int, int]] = {}
    seen: set[tuple[str, int, int, int]] = set()
    for row in table.rows.values():
        texts = [searchable(f"[{row.head},{row.entry.metadata}]")]
        for extent in wanted(row.manifest):
            runs = table.runs.get(extent.branch, [])
            for index, low, high in walk(extent, runs, done.setdefault(extent.branch, {})):
                if (extent.branch, index, low, high) not in seen:
                    seen.add((extent.branch, index, low, high))
                    texts.append(shown_text(runs[index], low, high))
        for text in texts:
            points = score(terms, text)
            if points:
                yield Hit(row.entry, points, snippet(terms, text))


def shown_text(run: Run, low: int, high: int) -> str:
    """The text of a part of a run in which a search looks for words."""
    return "\n".join(texts_in(decode(run.items)[low:high]))


def best_hits(found: Iterable[Hit], limit: int) -> list[Hit]:
    """The best hit of each checkpoint, best first. Of equal hits, the newer checkpoint comes first."""
    best: dict[tuple[str, str, str], Hit] = {}
    for hit in found:
        key = (hit.entry.thread_id, hit.entry.namespace, hit.entry.checkpoint_id)
        if key not in best or best[key].score < hit.score:
            best[key] = hit
    return sorted(best.values(), key=lambda hit: (-hit.score, -hit.entry.created_at.timestamp()))[:limit]


def has_value(metadata: str, key: str, value: str) -> bool:
    """Whether metadata (JSON text) has a value (canonical JSON) under a key."""
    found = decode(metadata)
    return isinstance(found, dict) and key in found and canonical(found[key]) == value


def newest_threads(entries: Iterable[Entry], limit: int, before: str | None) -> NewestThreads:
    """A page of the list of newest threads. `entries` has the newest checkpoint of each thread.

    Threads of the same time are in the order of their ids, so that a page can end between them.
    """

    def place(entry: Entry) -> tuple[int, str]:
        return (entry.created_at - _EPOCH) // timedelta(microseconds=1), entry.thread_id

    found = [(*place(entry), entry) for entry in entries]
    if before is not None:
        (at,), thread_id = parts_of(before, 1)
        found = [one for one in found if one[:2] < (at, thread_id)]
    page = nlargest(limit + 1, found, key=lambda one: one[:2])
    more = cursor_of(*page[limit - 1][:2]) if len(page) > limit > 0 else None
    return NewestThreads([entry for *_, entry in page[:limit]], more)


def newest(entries: Iterable[Entry], limit: int) -> list[Entry]:
    """Entries of several threads, newest first. In a thread, the order of commits decides, not the clock."""
    reached: dict[str, datetime] = {}
    timed: list[tuple[datetime, int, Entry]] = []
    for entry in sorted(entries, key=lambda entry: entry.seq):
        at = max(entry.created_at, reached.get(entry.thread_id, entry.created_at))
        reached[entry.thread_id] = at
        timed.append((at, entry.seq, entry))
    return [entry for _, _, entry in sorted(timed, key=lambda found: found[:2], reverse=True)[:limit]]
