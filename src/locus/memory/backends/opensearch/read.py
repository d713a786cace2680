"""Reads: one checkpoint with its runs, the history and the export of a thread, and lists of many threads.

A checkpoint is read by id, in real time. Lists are searches after a refresh. A search may find what is being removed,
or has expired. So the document of each thread among the hits is read as well, in real time, and decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.client import Client, Json, StoredDocument, chunks, filtered, racing
from locus.memory.backends.opensearch.log import (
    CONTENTS,
    IN_BATCH,
    WRITES_ORDER,
    CachedLog,
    ConcurrentRemoval,
    KnownBase,
    Log,
    ThreadCache,
    base_from,
    live_filter,
    visible,
    writes_name,
)
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    THREAD,
    WRITE,
    CheckpointName,
    DocumentSource,
    LogRemoval,
    Record,
    RunKey,
    RunLocation,
    RunRef,
    StoredRun,
    ThreadState,
    find_run,
    likely_places,
    metadata_term,
    now_micros,
    record_from,
    record_id,
    refs_to_follow,
    run_keys,
    stored_run,
    thread_state_from,
)
from locus.memory.backends.opensearch.writes import all_writes, count_orphans
from locus.memory.engine import LOOKED_AT, warn_of_damage
from locus.memory.model.cursors import cursor_of, parts_of
from locus.memory.model.ids import Pattern, digest, prefix_end, shown_thread
from locus.memory.model.manifest import newest_in, newest_runs, wanted
from locus.memory.model.matching import has_value
from locus.memory.model.parts import Part, needed
from locus.memory.model.records import Base, Entry, Exported, Extent, NewestThreads, Run, RunInfo, Stored
from locus.memory.model.retention import Outlived, OutlivedPage, Retention, orphaned, outlived_in, unneeded_runs
from locus.memory.model.sizes import Measured, MeasuredCheckpoint, measured_checkpoint, measured_run, measured_writes

T = TypeVar("T")


def read_checkpoint(log: Log, namespace: str, checkpoint_id: str | None, part: Part | None = None) -> Stored | None:
    """Read a checkpoint with its runs, or those that hold a part of it: the latest of its namespace without an id."""

    def read() -> Stored | None:
        record = _find(log, namespace, checkpoint_id, with_contents=True)
        if record is None:
            return None
        return _load(log, record, wanted(record.manifest) if part is None else needed(record.manifest, part))

    return _retried(log, read)


def read_since(log: Log, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
    """Read a checkpoint with the runs that a reader of the checkpoint `held` lacks."""

    def read() -> Stored | None:
        names = [] if _cached_base(log.cache.get(log.thread), namespace, held) else [(namespace, held.checkpoint_id)]
        record = _find(log, namespace, checkpoint_id, *names, with_contents=True)
        if record is None:
            return None
        named, extents = _runs_named_by(log, record.namespace, held), wanted(record.manifest)
        known = newest_in(named or ())
        if named is None or any(
            run < known.get(branch, 0) and (branch, run) not in named for branch, run, *_ in extents
        ):
            # It is not there, or its reader may lack runs that later ones hide.
            return _load(log, record, extents)
        return replace(_load(log, record, extents, known), since=held)

    return _retried(log, read)


def _cached_base(cached: CachedLog | None, namespace: str, held: Base) -> KnownBase | None:
    """Take a checkpoint out of the cache, if the handle knows it."""
    base = None if cached is None else cached.bases.get((namespace, held.checkpoint_id))
    return base if base is not None and base.rev == held.rev else None


def _runs_named_by(log: Log, namespace: str, held: Base) -> Collection[RunKey] | None:
    """The runs that a checkpoint names; None if it does not exist.

    The state was read just now. Cached checkpoints are dropped as soon as something was removed.
    """
    cached = log.cache.get(log.thread)
    base = _cached_base(cached, namespace, held)
    if base is not None and cached is not None and cached.state.changes == log.state.changes:
        return base.locations
    try:
        record = log.find(namespace, held.checkpoint_id)
    except CorruptCheckpointError:
        return None  # then all is read, and whatever of that is damaged is told
    return run_keys(wanted(record.manifest)) if record is not None and record.rev == held.rev else None


def read_entry(log: Log, namespace: str, checkpoint_id: str | None) -> Entry | None:
    """Read the entry of a checkpoint: of the latest of its namespace if no id is given."""
    record = _retried(log, lambda: _find(log, namespace, checkpoint_id, with_contents=False))
    return None if record is None else record.entry(log.thread_id)


def _find(
    log: Log, namespace: str, checkpoint_id: str | None, *names: CheckpointName, with_contents: bool
) -> Record | None:
    """Find a checkpoint. The documents of further `names` come with it, because they will be needed next."""
    if checkpoint_id is None:
        log.read_state(names=names, latest=namespace, with_contents=with_contents)
        return log.latest(namespace)
    log.read_state(names=[(namespace, checkpoint_id), *names], with_contents=with_contents)
    return log.find(namespace, checkpoint_id)


def _retried(log: Log, read: Callable[[], T]) -> T:
    """Do some work, again if something was removed meanwhile. Missing content without a removal is damage."""
    last: tuple[int, int, int] | None = None
    for _ in racing(400, f"thread {log.thread_id!r} changes faster than it can be read"):
        try:
            return read()
        except ConcurrentRemoval:
            at = (log.state.epoch, log.state.changes, log.state.removing)
            if at == last:
                raise CorruptCheckpointError(f"items of {shown_thread(log.thread_id)} are missing") from None
            last = at
            log.cache.drop(log.thread)
    raise AssertionError("the last attempt returns or raises")


class _RunToRead(NamedTuple):
    """A run to be read; then earlier runs down to the number `floor`.

    Of these, only runs are read that hold items from the index `skip` to `limit` that no later one has replaced.
    """

    branch: str
    ref: RunRef
    floor: int
    skip: int
    limit: int
    likely: range = range(0)
    """The likely places of the earlier runs: then these are read with the same request."""


def _load(log: Log, record: Record, extents: Iterable[Extent], known: Mapping[str, int] | None = None) -> Stored:
    """Read a checkpoint with the runs that hold these extents, except for those that are `known`.

    `known` has a number by branch, up to which the reader has all runs. Runs that later ones hide are left out, if the
    references tell.
    """
    if not record.head:
        raise CorruptCheckpointError(f"checkpoint {record.seq} of {shown_thread(log.thread_id)} has no head")
    locations = record.locations_by_run()
    to_read = _named_runs(locations, extents, known or {})
    runs_read: dict[RunKey, Run] = {}
    named: dict[RunKey, StoredRun] = {}
    sources: dict[int, DocumentSource] = {}
    while to_read:
        places = {place for run in to_read for place in (run.ref.place, *run.likely)}
        sources |= log.sources(places - sources.keys())
        following: list[_RunToRead] = []
        for run in to_read:
            key = (run.branch, run.ref.number)
            stored = _take_run(sources, runs_read, run, is_named=key in locations)
            if stored is not None:
                following += _earlier_runs(run, stored)
                if key in locations:
                    named[key] = stored.without_items()
        to_read = following
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for (branch, _), items in runs_read.items():
        if items.items:
            runs[branch].append(items)
    base = base_from(record, {**_cached_runs(log, locations), **named})
    log.cache.put(log.thread, log.state, base, record.namespace)
    passed = log.state.latest_places.get(record.namespace) != record.place
    return Stored(record.entry(log.thread_id), record.head, record.manifest, dict(runs), passed)


def _named_runs(
    locations: Mapping[RunKey, RunLocation], extents: Iterable[Extent], known: Mapping[str, int]
) -> list[_RunToRead]:
    """The runs that extents name, with which reading begins."""
    parts: dict[RunKey, tuple[int, int]] = {}
    for branch, number, skip, length in extents:
        low, high = parts.get((branch, number), (skip, skip + length))
        parts[branch, number] = min(low, skip), max(high, skip + length)
    return [
        _RunToRead(branch, RunRef(number, locations[branch, number].place, 0), known.get(branch, -1), skip, limit)
        for (branch, number), (skip, limit) in parts.items()
        if number > known.get(branch, -1)
    ]


def _take_run(
    sources: Mapping[int, DocumentSource], runs_read: dict[RunKey, Run], run: _RunToRead, *, is_named: bool
) -> StoredRun | None:
    """Add a run to the runs that were read.

    Return it with its references if these are needed, to follow them or for a save.

    Most runs refer to nothing that is not found otherwise, and unpacking references takes long.
    """
    branch, ref, floor, *_ = run
    source = sources.get(ref.place)
    taken = None if source is None else find_run(source, branch, ref.number)
    if taken is None:
        raise ConcurrentRemoval
    runs_read[branch, ref.number] = taken[0]
    return stored_run(*taken) if is_named or floor < ref.number - 1 else None


def _earlier_runs(run: _RunToRead, stored: StoredRun) -> Iterator[_RunToRead]:
    """The earlier runs that have to be read as well."""
    branch, own, floor, skip, limit, _ = run
    if stored.run.start <= skip:
        return
    limit = min(limit, stored.run.start)
    for ref, above in refs_to_follow(stored.earlier, skip, floor, limit):
        if ref.number >= own.number:
            raise CorruptCheckpointError(f"run {own.number} of branch {branch!r} refers to one that is not earlier")
        likely = likely_places(stored.earlier, ref, above, skip, limit) if above < ref.number - 1 else range(0)
        yield _RunToRead(branch, ref, above, skip, limit, likely)
        if ref.start is not None:
            limit = min(limit, ref.start)


def _cached_runs(log: Log, locations: Mapping[RunKey, RunLocation]) -> dict[RunKey, StoredRun]:
    """Choose those of the runs at these locations that this handle knows: a save will need them."""
    cached = log.cache.get(log.thread)
    if cached is None or cached.state.changes != log.state.changes:
        return {}
    return {
        key: stored
        for base in cached.bases.values()
        for key, stored in base.runs.items()
        if key in locations and base.locations.get(key, locations[key]).place == locations[key].place
    }


def history(log: Log, namespace: str | None, limit: int | None, before_seq: int | None) -> list[Entry]:
    """List the entries of a thread, newest first."""
    attempts = racing(20, "the thread changes faster than it can be listed")
    listed = (_history(log, namespace, limit, before_seq) for _ in attempts)
    return next(entries for entries in listed if entries is not None)


def _history(log: Log, namespace: str | None, limit: int | None, before_seq: int | None) -> list[Entry] | None:
    """List entries; None if something was removed meanwhile, so that they may not belong together."""
    log.read_state()
    if limit == 0 or not log.state.exists(now_micros()):
        return []
    log.client.refresh()
    clauses = live_filter(log.thread, log.state)
    if namespace is not None:
        clauses.append({"term": {"namespace": namespace}})
    if before_seq is not None:
        clauses.append({"range": {"seq": {"lt": before_seq}}})
    body = filtered(*clauses, sort=[{"seq": "desc"}], _source=WITHOUT_RUNS)
    state, entries = log.state, list[Entry]()
    size = 1_000 if limit is None else min(1_000, limit + 10)
    for hits in log.client.pages(body, log.thread, size):
        records = log.visible_checkpoints(record_from(hit.source) for hit in hits)
        entries += [record.entry(log.thread_id) for record in records]
        if limit is not None and len(entries) >= limit:
            break
    return entries[:limit] if log.read_state().changes == state.changes else None


def measure(log: Log) -> Measured | None:
    """Measure the bytes of everything that a thread has.

    OpenSearch does not know them, so all records are read, in turn.
    """
    for _ in racing(60, f"thread {log.thread_id!r} changes faster than it can be read"):
        state = log.read_state()
        if not state.exists(now_micros()):
            return None
        checkpoints: list[MeasuredCheckpoint] = []
        runs: dict[RunInfo, int] = {}
        for record in log.each_record():
            runs |= dict(measured_run(stored.run) for stored in record.runs if stored.run.items)
            shown = log.visible(record)
            if shown is not None:
                checkpoints.append(measured_checkpoint(shown.entry(log.thread_id), shown.head, shown.manifest))
        writes = {name: measured_writes(some) for name, some in all_writes(log).items() if some}
        if log.read_state().changes == state.changes:
            unneeded = unneeded_runs(
                [extent for checkpoint in checkpoints for extent in wanted(checkpoint.manifest)], runs
            )
            for run in unneeded:
                del runs[run]  # a removal is not finished
            return Measured(checkpoints, runs, writes)
    raise AssertionError("the last attempt returns or raises")


def export(log: Log, after_seq: int, known: Mapping[str, int]) -> Exported:
    """Read the checkpoints after a sequence number, with the runs that they need, except for those that are known."""
    for _ in racing(60, f"thread {log.thread_id!r} changes faster than it can be read"):
        state = log.read_state()
        if not state.exists(now_micros()):
            return Exported([], [])
        records = log.all_records(with_contents=True)
        chosen = sorted(
            (record for record in log.visible_checkpoints(records) if record.seq > after_seq),
            key=lambda record: record.seq,
        )
        if log.read_state().changes != state.changes:
            continue
        for record in chosen:
            if not record.head:
                raise CorruptCheckpointError(f"checkpoint {record.seq} of {shown_thread(log.thread_id)} has no head")
        newest = newest_runs(record.manifest for record in chosen)
        runs = [stored.run for record in records for stored in record.runs if stored.run.items]
        return Exported(
            [Stored(record.entry(log.thread_id), record.head, record.manifest) for record in chosen],
            [run for run in runs if known.get(run.branch, -1) < run.number <= newest.get(run.branch, -1)],
            all_writes(log),
        )
    raise AssertionError("the last attempt returns or raises")


class HitFilter:
    """Leaves out those hits of a search that readers may not see. Each thread among the hits is read once."""

    def __init__(self, client: Client, cache: ThreadCache) -> None:
        self._client = client
        self._cache = cache
        self._threads: dict[str, tuple[ThreadState, LogRemoval | None] | None] = {}
        self.damaged: dict[str, CorruptCheckpointError] = {}
        """The errors of hits that cannot be read, by the digests of their threads."""

    def visible(self, hits: Sequence[StoredDocument]) -> Iterator[tuple[ThreadState, Record, StoredDocument]]:
        """Choose the hits that are visible checkpoints."""
        self._read_threads({hit.source["thread"] for hit in hits})
        for hit in hits:
            thread = self._threads[hit.source["thread"]]
            try:
                record = visible(*thread, record_from(hit.source)) if thread else None
            except CorruptCheckpointError as error:
                self.damaged.setdefault(hit.source["thread"], error)
                continue
            if thread and record is not None:
                yield thread[0], record, hit

    def state(self, hit: StoredDocument) -> ThreadState | None:
        """The state of the thread that a hit belongs to; None if it has no visible checkpoints."""
        self._read_threads({hit.source["thread"]})
        thread = self._threads[hit.source["thread"]]
        return thread[0] if thread else None

    def _read_threads(self, threads: Iterable[str]) -> None:
        missing = [thread for thread in threads if thread not in self._threads]
        found = self._client.get_threads(missing) if missing else {}
        for thread in missing:
            try:
                self._threads[thread] = self._read_thread(thread, found.get(thread))
            except CorruptCheckpointError as error:
                self.damaged.setdefault(thread, error)
                self._threads[thread] = None

    def _read_thread(
        self, thread: str, document: StoredDocument | None
    ) -> tuple[ThreadState, LogRemoval | None] | None:
        """Read the state and the unfinished removal of a thread; None if it has no visible checkpoints."""
        thread_id = document.source.get("thread_id") if document else None
        if document is None or thread_id is None:
            return None
        state, now = thread_state_from(thread_id, document.source), now_micros()
        if not state.expired(now):
            return state, self._pending_removal(thread, state)
        if state.published.until is not None and state.published.until <= now:
            return None
        # A later save may have postponed the expiry: only the log can tell.
        log = Log(self._client, self._cache, thread_id)
        return (log.state, log.pending_removal) if log.read_state().exists(now) else None

    def _pending_removal(self, thread: str, state: ThreadState) -> LogRemoval | None:
        if not state.removing:
            return None
        found = self._client.get_many(thread, [record_id(thread, "", state.removing)], excludes=CONTENTS)
        return next((record_from(document.source).removal for document in found.values()), None)


def list_threads(client: Client, cache: ThreadCache, pattern: Pattern, limit: int | None) -> list[str]:
    """List the ids of the threads that match, in order."""
    client.refresh()
    clauses: list[Json] = [{"term": {"kind": THREAD}}, {"range": {"live": {"gt": 0}}}]
    clauses += ids_within(pattern.prefix)
    body = filtered(*clauses, sort=[{"thread_id": "asc"}])
    if pattern.from_after:
        body["search_after"] = [pattern.after]
    ids: list[str] = []
    if limit == 0 or pattern.matches_none:
        return ids
    size = 1_000 if limit is None or not pattern.matches_range else min(1_000, limit)
    for hits in client.pages(body, size=size):
        hit_filter = HitFilter(client, cache)
        for hit in hits:
            thread_id = hit.source["thread_id"]
            if pattern.end is not None and thread_id >= pattern.end:
                return ids
            if not pattern.matches(thread_id):
                continue
            expires = hit.source.get("expires")
            if expires is not None and expires <= now_micros() and not hit_filter.state(hit):
                continue
            ids.append(thread_id)
            if limit is not None and len(ids) >= limit:
                return ids
    return ids


def outlived_page(
    client: Client, cache: ThreadCache, retention: Retention, after: str, prefix: str, limit: int
) -> OutlivedPage | None:
    """List what a vacuum would remove from the threads that follow one; None if there are no more."""
    thread_ids = list_threads(client, cache, Pattern(within=prefix, after=after), limit)
    if not thread_ids:
        return None
    threads = {digest(thread_id): thread_id for thread_id in thread_ids}
    hit_filter = HitFilter(client, cache)
    entries = _entries_of(client, hit_filter, threads)
    for thread in hit_filter.damaged:
        del entries[thread]
    damaged = list(hit_filter.damaged.values())
    outlived: list[Outlived] = []
    orphans = _orphans_of(client, threads, entries)
    for thread, members in entries.items():
        # Nobody knows their number but by reading them, which is worth while for few.
        old = orphaned(dict.fromkeys(orphans.get(thread, ()), 1), retention.orphans_before)
        counts = count_orphans(Log(client, cache, threads[thread]), old.keys()) if old else {}
        outlived.append(outlived_in(threads[thread], members, retention, counts))
    return OutlivedPage(thread_ids[-1], len(thread_ids), list(filter(None, outlived)), damaged)


def _entries_of(client: Client, hit_filter: HitFilter, threads: Mapping[str, str]) -> dict[str, list[Entry]]:
    """List the entries of some threads, by the digests of their ids."""
    entries: dict[str, list[Entry]] = {thread: [] for thread in threads}
    body = newest_first({"terms": {"thread": list(threads)}})
    for hits in client.pages(body):
        for state, record, hit in hit_filter.visible(hits):
            entries[hit.source["thread"]].append(record.entry(state.thread_id))
    return entries


def _orphans_of(
    client: Client, threads: Mapping[str, str], entries: Mapping[str, Sequence[Entry]]
) -> dict[str, set[CheckpointName]]:
    """List the checkpoints of some threads that do not exist, and have pending writes."""
    body = filtered(
        {"term": {"kind": WRITE}},
        {"terms": {"thread": list(threads)}},
        sort=[{"thread": "asc"}, *WRITES_ORDER],
        _source=["thread", "namespace", "checkpoint_id"],
    )
    found: dict[str, set[CheckpointName]] = {}
    for hits in client.pages(body):
        for hit in hits:
            found.setdefault(hit.source["thread"], set()).add(writes_name(hit))
    for thread, names in found.items():
        names -= {(entry.namespace, entry.checkpoint_id) for entry in entries.get(thread, ())}
    return found


MAX_THREADS = 10_000
"""The number of threads that one query names; servers accept 65,536."""
NEWEST_FIRST: list[Json] = [{"order": "desc"}, {"seq": "desc"}, {"thread": "asc"}, {"position": "asc"}, IN_BATCH]

WITHOUT_RUNS: Json = {"excludes": ["body.head", "body.runs"]}


def newest_first(*clauses: Json, **more: Any) -> Json:
    """The body of a search for checkpoints without their contents, the newest of all threads first."""
    return filtered({"term": {"kind": CHECKPOINT}}, *clauses, sort=NEWEST_FIRST, _source=WITHOUT_RUNS, **more)


def ids_within(prefix: str) -> list[Json]:
    """Clauses for the documents of threads whose ids start with a prefix; of a very long one, with its beginning."""
    if not prefix:
        return []
    begin = prefix[:100]  # Lucene refuses ranges of longer texts
    end = prefix_end(begin)
    return [{"range": {"thread_id": {"gte": begin, **({} if end is None else {"lt": end})}}}]


def in_threads(client: Client, prefix: str) -> Iterator[list[Json]]:
    """The clauses that limit queries to the threads of a prefix: for one query, or for several if it has many threads.

    Only the document of a thread has its id; all others have the digest.
    """
    if not prefix:
        yield []
        return
    clauses: list[Json] = [{"term": {"kind": THREAD}}, {"range": {"live": {"gt": 0}}}, *ids_within(prefix)]
    body = filtered(*clauses, sort=[{"thread_id": "asc"}], _source=["thread", "thread_id"])
    threads: list[str] = []
    for hits in client.pages(body):
        threads += [hit.source["thread"] for hit in hits if hit.source["thread_id"].startswith(prefix)]
    for some in chunks(threads, MAX_THREADS):
        yield [{"terms": {"thread": list(some)}}]


def newest_entries(
    client: Client, cache: ThreadCache, limit: int, metadata: tuple[str, str] | None = None, prefix: str = ""
) -> list[Entry]:
    """List the newest entries of threads whose ids start with a prefix: all, or those with a pair in their metadata."""
    if not limit:
        return []
    client.refresh()
    clauses: list[Json] = [] if metadata is None else [{"term": {"metadata": metadata_term(*metadata)}}]
    hit_filter, entries = HitFilter(client, cache), list[tuple[tuple[int, int], Entry]]()
    for within in in_threads(client, prefix):
        records = (
            (state, record)
            for hits in client.pages(newest_first(*clauses, *within), size=min(1_000, limit + 10))
            for state, record, _ in hit_filter.visible(hits)
            if metadata is None or has_value(record.metadata, *metadata)
        )
        for state, record in islice(records, limit):
            entries.append(((record.order, record.seq), record.entry(state.thread_id)))
    warn_of_damage(hit_filter.damaged.values())
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0], reverse=True)[:limit]]


_Place = tuple[int, int, str]
"""A place among the newest checkpoints of all threads: lower ones come before."""


def newest_threads(client: Client, cache: ThreadCache, limit: int, before: str | None, prefix: str) -> NewestThreads:
    """List threads by their newest checkpoints, each once: the server collapses a thread to the newest hit."""
    start = None if before is None else _place_from(before)
    if not limit:
        return NewestThreads([])
    client.refresh()
    newest, end, damaged = list[tuple[_Place, Entry]](), None, list[CorruptCheckpointError]()
    for size in (min(2 * limit + 20, LOOKED_AT), LOOKED_AT):
        newest, end, damaged = _newest_until(client, cache, start, prefix, size)
        if len(newest) > limit or end is None:
            break
    warn_of_damage(damaged)
    if len(newest) > limit:
        end = newest[limit - 1][0]
    next_place = None if end is None else cursor_of(-end[0], -end[1], end[2])
    return NewestThreads([entry for _, entry in newest[:limit]], next_place)


def _newest_until(
    client: Client, cache: ThreadCache, start: _Place | None, prefix: str, size: int
) -> tuple[list[tuple[_Place, Entry]], _Place | None, list[CorruptCheckpointError]]:
    """List the newest checkpoints of threads after a place, in order, and how far they are complete; None: to the end.

    A thread whose newest checkpoint cannot be read is left out: an older one would pass for its newest.
    """
    page: list[tuple[_Place, Entry]] = []
    damaged: list[CorruptCheckpointError] = []
    end: _Place | None = None
    for within in in_threads(client, prefix):
        hits = _collapsed(client, [*within, *_orders(lte=None if start is None else -start[0])], size)
        if len(hits) == size:
            last = _place(hits[-1])
            end = last if end is None else min(end, last)
        hits = [hit for hit in hits if start is None or _place(hit) > start]
        shown = HitFilter(client, cache)
        sure = {hit.id: record.entry(state.thread_id) for state, record, hit in shown.visible(hits)}
        newer = _with_newer(client, hits, start)
        earlier = {hit.source["thread"] for _, _, hit in shown.visible(list(newer.values()))}
        for hit in hits:
            thread = hit.source["thread"]
            if thread in earlier or thread in shown.damaged:
                continue
            if hit.id in sure and thread not in newer:
                page.append((_place(hit), sure[hit.id]))
                continue
            # What is being removed just now is still among the hits.
            newest = _newest_visible(client, shown, thread)
            if newest is not None and thread not in shown.damaged and (start is None or newest[0] > start):
                page.append(newest)
        damaged += shown.damaged.values()
    page.sort(key=lambda pair: pair[0])
    return [pair for pair in page if end is None or pair[0] <= end], end, damaged


def _collapsed(client: Client, clauses: Sequence[Json], size: int) -> list[StoredDocument]:
    return client.search(newest_first(*clauses, collapse={"field": "thread"}, size=size, track_total_hits=False))


def _with_newer(client: Client, hits: Sequence[StoredDocument], start: _Place | None) -> dict[str, StoredDocument]:
    """List the newest checkpoints of the hits' threads at a place or before it, of those that have one there."""
    if start is None or not hits:
        return {}
    threads = [hit.source["thread"] for hit in hits]
    newer = _collapsed(client, [{"terms": {"thread": threads}}, *_orders(gte=-start[0])], len(threads))
    return {hit.source["thread"]: hit for hit in newer if _place(hit) <= start}


def _newest_visible(client: Client, shown: HitFilter, thread: str) -> tuple[_Place, Entry] | None:
    for hits in client.pages(newest_first({"term": {"thread": thread}}), thread, 20):
        for state, record, hit in shown.visible(hits):
            return _place(hit), record.entry(state.thread_id)
    return None


def _orders(**bounds: int | None) -> list[Json]:
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return [{"range": {"order": given}}] if given else []


def _place(hit: StoredDocument) -> _Place:
    source = hit.source
    return -int(source["order"]), -int(source["seq"]), str(source["thread"])


def _place_from(cursor: str) -> _Place:
    (order, seq), thread = parts_of(cursor, 2)
    return -order, -seq, thread
