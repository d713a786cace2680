"""Questions about many threads: lists, metadata and full text. Each is a search, after a refresh.

A search may find what is being removed, or has expired. So for each thread among the hits its own document is
asked, in real time, and decides.

Reading whole threads from OpenSearch: each record once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.client import (
    Client,
    Document,
    Failure,
    Json,
    give_way,
)
from locus.memory.backends.opensearch.commit import (
    PATIENCE,
)
from locus.memory.backends.opensearch.log import (
    LIGHT,
    Log,
    Memories,
    State,
    Torn,
    base_of,
    live_filter,
    thread_state,
    visible,
)
from locus.memory.backends.opensearch.remove import (
    REMOVAL_PATIENCE,
    seen,
    whole,
)
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    RUNS,
    THREAD,
    HeldRun,
    Mark,
    Piece,
    Record,
    Removed,
    metadata_term,
    needed,
    now,
    record_from,
    record_id,
    spelt,
)
from locus.memory.backends.opensearch.writes import all_writes
from locus.memory.model.ids import Pattern
from locus.memory.model.manifest import newest_runs, walk, wanted
from locus.memory.model.matching import (
    best_hits,
    has_value,
    score,
    searchable,
    shown_text,
    snippet,
)
from locus.memory.model.records import (
    Entry,
    Exported,
    Hit,
    Run,
    Stored,
)

T = TypeVar("T")

_NEWEST = [{"order": "desc"}, {"seq": "desc"}, {"thread": "asc"}]
_TERMS = 500
"""Words of a query that the index is asked for; the others are looked for in what it finds."""


class SeenThreads:
    """The threads that hits belong to, each asked once."""

    def __init__(self, client: Client, memories: Memories) -> None:
        self._client = client
        self._memories = memories
        self._known: dict[str, tuple[State, Removed | None] | None] = {}

    def seen(self, hits: Sequence[Document]) -> Iterator[tuple[State, Record, Document]]:
        """Those hits that are checkpoints which are there."""
        self._ask({hit.source["thread"] for hit in hits})
        for hit in hits:
            known = self._known[hit.source["thread"]]
            record = visible(*known, record_from(hit.source)) if known else None
            if known and record is not None:
                yield known[0], record, hit

    def state(self, hit: Document) -> State | None:
        self._ask({hit.source["thread"]})
        known = self._known[hit.source["thread"]]
        return known[0] if known else None

    def _ask(self, threads: Iterable[str]) -> None:
        missing = [thread for thread in threads if thread not in self._known]
        found = self._client.get_threads(missing) if missing else {}
        for thread in missing:
            self._known[thread] = self._judged(thread, found.get(thread))

    def _judged(self, thread: str, doc: Document | None) -> tuple[State, Removed | None] | None:
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
    client: Client, memories: Memories, threads: SeenThreads, terms: Sequence[str], hit: Document
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


def export(log: Log, after_seq: int, known: Mapping[str, int]) -> Exported:
    """The checkpoints that follow a number, with what they need beside the runs that are known."""
    for attempt in range(REMOVAL_PATIENCE):
        state = log.look()
        if not state.there(now()):
            return Exported([], [])
        records = whole(log, light=False)
        found = sorted((r for r in seen(log, records) if r.seq > after_seq), key=lambda record: record.seq)
        if log.look().changes != state.changes:
            give_way(attempt)
            continue
        for record in found:
            if not record.head:
                raise CorruptCheckpointError(f"checkpoint {record.checkpoint_id!r} of {log.thread_id!r} has no head")
        newest = newest_runs(record.manifest for record in found)
        runs = [held.run for record in records for held in record.runs if held.run.items]
        return Exported(
            [Stored(record.entry(log.thread_id), record.head, record.manifest) for record in found],
            [run for run in runs if known.get(run.branch, -1) < run.number <= newest.get(run.branch, -1)],
            all_writes(log),
        )
    raise Failure(409, "too many writers", f"thread {log.thread_id!r} changes faster than it can be read")


class _Way(NamedTuple):
    """A run that has to be read, and how far back from it."""

    branch: str
    mark: Mark
    floor: int
    skip: int


def load(log: Log, record: Record) -> Stored:
    """A checkpoint with everything that its manifest names."""
    if not record.head:
        raise CorruptCheckpointError(f"checkpoint {record.checkpoint_id!r} of thread {log.thread_id!r} has no head")
    tips = record.tip_of()
    first: dict[Piece, int] = {}
    for extent in wanted(record.manifest):
        piece = (extent.branch, extent.run)
        first[piece] = min(first.get(piece, extent.skip), extent.skip)
    ways = [
        _Way(branch, Mark(number, tips[branch, number].place, 0), -1, skip) for (branch, number), skip in first.items()
    ]
    found: dict[Piece, HeldRun] = {}
    records: dict[int, Record] = {record.place: record}
    while ways:
        records |= log.records({way.mark.place for way in ways} - records.keys())
        ways = [further for way in ways for further in _step(records, found, way)]
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for held in found.values():
        runs[held.run.branch].append(held.run)
    own = {piece: found[piece] for piece in tips if piece in found}
    log.memories.put(log.thread, log.state, base_of(record, _without_items(own)), record.namespace)
    passed = log.state.tips.get(record.namespace) != record.place
    return Stored(record.entry(log.thread_id), record.head, record.manifest, dict(runs), passed)


def _without_items(found: Mapping[Piece, HeldRun]) -> dict[Piece, HeldRun]:
    return {piece: HeldRun(held.run._replace(items=""), held.trail) for piece, held in found.items()}


def _step(records: Mapping[int, Record], found: dict[Piece, HeldRun], way: _Way) -> list[_Way]:
    record = records.get(way.mark.place)
    held = None if record is None else record.held(way.branch, way.mark.number)
    if held is None:
        raise Torn
    if held.run.items:
        found[way.branch, way.mark.number] = held
    if held.run.start <= way.skip:
        return []
    return [_Way(way.branch, mark, floor, way.skip) for mark, floor in needed(held.trail, way.skip, way.floor)]


def whole_or_corrupt(log: Log, read: Callable[[], T]) -> T:
    """Read again if something was removed meanwhile; what is missing although nothing was, is damaged."""
    last: tuple[int, int, int] | None = None
    for attempt in range(PATIENCE):
        try:
            return read()
        except Torn:
            at = (log.state.epoch, log.state.changes, log.state.removing)
            if at == last:
                raise CorruptCheckpointError(f"items of thread {log.thread_id!r} are missing") from None
            last = at
            log.memories.drop(log.thread)
            give_way(attempt)
    raise Failure(409, "too many writers", f"thread {log.thread_id!r} changes faster than it can be read")
