"""Questions about many threads: lists, metadata and full text. Each is a search, after a refresh.

A search may find what is being removed, or has expired. So for each thread among the hits its own document is
asked, in real time, and decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from locus.memory.backends.opensearch.client import Client, Doc, Json
from locus.memory.backends.opensearch.log import LIGHT, Log, live_filter, visible
from locus.memory.backends.opensearch.opensearch_layout import (
    CHECKPOINT,
    RUNS,
    THREAD,
    metadata_term,
    record_id,
    spelt,
)
from locus.memory.backends.opensearch.opensearch_memory import Memories
from locus.memory.backends.opensearch.opensearch_state import State, thread_state
from locus.memory.backends.opensearch.remove import seen, whole
from locus.memory.backends.opensearch.schema import Record, Removed, now, record_from
from locus.memory.model.ids import Pattern
from locus.memory.model.manifest import walk
from locus.memory.model.matching import (
    best_hits,
    has_value,
    score,
    searchable,
    shown_text,
    snippet,
)
from locus.memory.model.payloads import wanted
from locus.memory.model.records import Entry, Hit, Run

_NEWEST = [{"order": "desc"}, {"seq": "desc"}, {"thread": "asc"}]
_TERMS = 500
"""Words of a query that the index is asked for; the others are looked for in what it finds."""


class SeenThreads:
    """The threads that hits belong to, each asked once."""

    def __init__(self, client: Client, memories: Memories) -> None:
        self._client = client
        self._memories = memories
        self._known: dict[str, tuple[State, Removed | None] | None] = {}

    def seen(self, hits: Sequence[Doc]) -> Iterator[tuple[State, Record, Doc]]:
        """Those hits that are checkpoints which are there."""
        self._ask({hit.source["thread"] for hit in hits})
        for hit in hits:
            known = self._known[hit.source["thread"]]
            record = visible(*known, record_from(hit.source)) if known else None
            if known and record is not None:
                yield known[0], record, hit

    def state(self, hit: Doc) -> State | None:
        self._ask({hit.source["thread"]})
        known = self._known[hit.source["thread"]]
        return known[0] if known else None

    def _ask(self, threads: Iterable[str]) -> None:
        missing = [thread for thread in threads if thread not in self._known]
        found = self._client.get_threads(missing) if missing else {}
        for thread in missing:
            self._known[thread] = self._judged(thread, found.get(thread))

    def _judged(self, thread: str, doc: Doc | None) -> tuple[State, Removed | None] | None:
        """A thread without a document, or without an id in it, has nothing to show."""
        thread_id = doc.source.get("thread_id") if doc else None
        if doc is None or thread_id is None:
            return None
        state, moment = thread_state(thread_id, doc.source), now()
        if not state.expired(moment):
            removed = self._pending(thread, state)
            return (state, removed)
        if state.published.until is not None and state.published.until <= moment:
            return None
        # It was saved since, perhaps.
        log = Log(self._client, self._memories, thread_id)
        return (log.state, log.removed) if log.look().there(moment) else None

    def _pending(self, thread: str, state: State) -> Removed | None:
        if not state.removing:
            return None
        found = self._client.get_many(thread, [record_id(thread, "", state.removing)], excludes=LIGHT)
        return next((record_from(doc.source).removed for doc in found.values()), None)


def list_threads(client: Client, memories: Memories, pattern: Pattern, limit: int | None) -> list[str]:
    client.refresh()
    clauses: list[Json] = [{"term": {"kind": THREAD}}, {"range": {"live": {"gt": 0}}}]
    if pattern.prefix:
        # Longer texts make ranges that Lucene refuses.
        clauses.append({"range": {"thread_id": {"gte": pattern.prefix[:100]}}})
    body = {"query": {"bool": {"filter": clauses}}, "sort": [{"thread_id": "asc"}]}
    found: list[str] = []
    if limit == 0:
        return found
    size = 1_000 if limit is None else min(1_000, limit + 10)
    for hits in client.pages(body, size=size):
        threads = SeenThreads(client, memories)
        for hit in hits:
            thread_id = hit.source["thread_id"]
            if not thread_id.startswith(pattern.prefix) and thread_id > pattern.prefix:
                return found
            expires = hit.source.get("expires")
            if not pattern.matches(thread_id) or (expires is not None and expires <= now() and not threads.state(hit)):
                continue
            found.append(thread_id)
            if limit is not None and len(found) >= limit:
                return found
    return found


def newest(client: Client, memories: Memories, limit: int, term: tuple[str, str] | None = None) -> list[Entry]:
    """Entries of all threads, or those with a value (canonical JSON) under a key in their metadata, newest first."""
    if not limit:
        return []
    client.refresh()
    clauses: list[Json] = [{"term": {"kind": CHECKPOINT}}]
    if term is not None:
        clauses.append({"term": {"metadata": metadata_term(*term)}})
    body = {
        "query": {"bool": {"filter": clauses}},
        "sort": _NEWEST,
        "_source": {"excludes": ["body.head", "body.runs"]},
    }
    threads, found = SeenThreads(client, memories), list[Entry]()
    for hits in client.pages(body, size=min(1_000, limit + 10)):
        for state, record, _ in threads.seen(hits):
            if term is None or has_value(record.metadata, *term):
                found.append(record.entry(state.thread_id))
            if len(found) >= limit:
                return found
    return found


def search(client: Client, memories: Memories, terms: Sequence[str], limit: int) -> list[Hit]:
    """Checkpoints with a run or a head that has all terms, best first."""
    if not limit:
        return []
    client.refresh()
    asked = [spelt(term) for term in dict.fromkeys(terms)][:_TERMS]
    body = {
        "query": {
            "bool": {
                "filter": [{"terms": {"kind": [CHECKPOINT, RUNS]}}],
                "must": [{"term": {"words": {"value": term}}} for term in asked],
            }
        },
        "sort": [{"_score": "desc"}, {"thread": "asc"}, {"seq": "asc"}, {"position": "asc"}],
    }
    threads, found = SeenThreads(client, memories), list[Hit]()
    for hits in client.pages(body, size=min(200, limit + 10)):
        for state, record, hit in threads.seen(hits):
            text = _first_text(terms, record)
            if text is not None:
                found.append(Hit(record.entry(state.thread_id), hit.score, snippet(terms, text)))
        for hit in hits:
            if hit.source["kind"] == RUNS:
                found += _moved_on(client, memories, threads, terms, hit)
        best = best_hits(found, limit)
        if len(best) >= limit:
            return best
    return best_hits(found, limit)


def _first_text(terms: Sequence[str], record: Record) -> str | None:
    """The first text of a checkpoint's own that has all terms."""
    texts = [searchable(held.run.items) for held in record.runs if held.run.items]
    texts.append(searchable(f"[{record.head},{record.metadata}]"))
    return next((text for text in texts if score(terms, text)), None)


def _moved_on(
    client: Client, memories: Memories, threads: SeenThreads, terms: Sequence[str], hit: Doc
) -> Iterator[Hit]:
    """A run whose checkpoint was removed: the first other one that shows those words."""
    state = threads.state(hit)
    holder = record_from(hit.source)
    if state is None or not any(score(terms, searchable(held.run.items)) for held in holder.runs if held.run.items):
        return
    log = Log(client, memories, state.thread_id)
    log.look()
    records = whole(log)
    held = {(held.run.branch, held.run.number): held.run for record in records for held in record.runs}
    own = {(held.run.branch, held.run.number): held.run for held in holder.runs if held.run.items}
    by_branch: dict[str, list[Run]] = {}
    for known in sorted(held.values(), key=lambda run: run.number):
        by_branch.setdefault(known.branch, []).append(known)
    for record in seen(log, records):
        for extent in wanted(record.manifest):
            runs = by_branch.get(extent.branch, [])
            for index, low, high in walk(extent, runs):
                run = own.get((extent.branch, runs[index].number))
                text = "" if run is None else shown_text(run, low, high)
                if text and score(terms, text):
                    yield Hit(record.entry(state.thread_id), hit.score, snippet(terms, text))
                    return


def history(log: Log, namespace: str | None, limit: int | None, before_seq: int | None) -> list[Entry] | None:
    """Entries of a thread, newest first; None if something was removed meanwhile, so that they may not fit."""
    log.look()
    if limit == 0 or not log.state.there(now()):
        return []
    log.client.refresh()
    clauses = live_filter(log.thread, log.state)
    if namespace is not None:
        clauses.append({"term": {"namespace": namespace}})
    if before_seq is not None:
        clauses.append({"range": {"seq": {"lt": before_seq}}})
    body = {
        "query": {"bool": {"filter": clauses}},
        "sort": [{"seq": "desc"}],
        "_source": {"excludes": ["body.head", "body.runs"]},
    }
    state, removed, found = log.state, log.removed, list[Entry]()
    size = 1_000 if limit is None else min(1_000, limit + 10)
    for hits in log.client.pages(body, log.thread, size):
        records = (visible(state, removed, record_from(hit.source)) for hit in hits)
        found += [record.entry(log.thread_id) for record in records if record is not None]
        if limit is not None and len(found) >= limit:
            break
    return found[:limit] if log.look().changes == state.changes else None
