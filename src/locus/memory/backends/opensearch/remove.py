"""Operations on whole threads: removing checkpoints, copying them, expiring threads, and sweeping their remains.

A removal is decided by one record, and its clean-up may be done by several writers at once, and again. A copy is
written first, as a batch of records that nobody sees, and becomes visible with one record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from locus.memory.backends.opensearch.client import BulkItem, Client, Json, StoredDocument, chunks, filtered, racing
from locus.memory.backends.opensearch.log import (
    KNOWN_NAMESPACES,
    RECORDS_PER_REQUEST,
    WRITES_ORDER,
    ConcurrentRemoval,
    Log,
    ThreadCache,
    next_state,
    writes_name,
)
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    COPY,
    END,
    GONE,
    INTENT,
    NAME,
    REMOVAL,
    RUNS,
    STUB_LIFETIME,
    THREAD,
    WRITE,
    LogRemoval,
    Record,
    RunKey,
    RunLocation,
    StoredRun,
    ThreadState,
    intent_id,
    name_id,
    name_source,
    now_micros,
    record_from,
    record_id,
    record_source,
    run_infos,
    state_source,
    thread_state_from,
    writes_id,
)
from locus.memory.model.ids import new_id
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Extent, RunInfo
from locus.memory.model.retention import Copied, chosen_in, new_parents, unneeded_runs

_MAX_ATTEMPTS = 60
_TOO_SLOW = f"{_MAX_ATTEMPTS} times another one was faster"


def remove(log: Log, chosen: Callable[[Record], bool], *, expired: bool = False, everything: bool = False) -> int:
    """Remove the chosen checkpoints in one step, clean up after it, and return their number.

    With `everything`, pending writes that wait for their first checkpoint go as well.
    """
    for _ in racing(_MAX_ATTEMPTS, _TOO_SLOW):
        state = log.read_state()
        if state.expired(now_micros()) != expired:
            return 0
        only_writes = everything and not state.live and bool(log.pending_writes())
        if not state.live and not only_writes:
            return 0
        if log.pending_removal is not None:
            finish_removal(log)
            continue
        records = log.all_records()
        checkpoints = log.visible_checkpoints(records)
        doomed = {record.place for record in checkpoints if chosen(record)}
        if not doomed and not only_writes:
            return 0
        ends = len(doomed) == len(checkpoints)
        record = _end_record(log) if ends else _removal_record(log, records, checkpoints, doomed)
        if log.append(record):
            log.publish()
            if ends:
                purge_dead_epochs(log)
            else:
                finish_removal(log, record, records)
            return len(doomed)
    raise AssertionError("the last attempt returns or raises")


def _end_record(log: Log) -> Record:
    place = log.state.position + 1
    state = replace(log.state.restarted(), position=place, epoch=place)
    now = log.server_time()
    return Record(END, log.thread, place, place, now, epoch=place, rev=new_id(), state=state_source(state))


def _removal_record(
    log: Log, records: Sequence[Record], checkpoints: Sequence[Record], doomed: Collection[int]
) -> Record:
    place = log.state.position + 1
    left = [record for record in checkpoints if record.place not in doomed]
    latest = {record.namespace: record.place for record in left}
    state = replace(
        log.state,
        position=place,
        live=len(left),
        latest_places={namespace: latest[namespace] for namespace in log.state.latest_places if namespace in latest},
        removing=place,
        changes=log.state.changes + 1,
    )
    return Record(
        REMOVAL,
        log.thread,
        place,
        place,
        log.server_time(),
        epoch=state.epoch,
        rev=new_id(),
        removal=removal_of(records, doomed),
        state=state_source(state),
    )


def replacing_record(log: Log, state: ThreadState, record: Record, old_place: int) -> Record:
    """The record of a save that replaces another checkpoint: it is a removal as well."""
    records = log.all_records()
    if old_place not in {known.place for known in log.visible_checkpoints(records)}:
        raise ConcurrentRemoval
    saved = next_state(state, record)
    replaced = replace(saved, live=saved.live - 1, removing=record.place, changes=state.changes + 1)
    removal = removal_of(records, {old_place}, keep_writes=True)
    return replace(record, removal=removal, state=state_source(replaced))


def removal_of(records: Sequence[Record], doomed: Collection[int], *, keep_writes: bool = False) -> LogRemoval:
    """The removal of the checkpoints at these places."""
    checkpoints = [record for record in records if record.kind == CHECKPOINT]
    seqs = {record.seq for record in checkpoints if record.place in doomed}
    parents = new_parents([record.entry("") for record in checkpoints], seqs)
    places = {record.seq: record.place for record in checkpoints}
    names = () if keep_writes else tuple(record.name for record in checkpoints if record.place in doomed)
    return LogRemoval(tuple(sorted(doomed)), {places[seq]: parent for seq, parent in parents.items()}, names)


def finish_removal(log: Log, record: Record | None = None, records: Sequence[Record] | None = None) -> None:
    """Clean up after a removal. Several writers may do so at once, and again.

    The writer who decided it passes its record, and the records that it has read for it.
    """
    if log.state.published.position < log.state.removing:
        log.publish()
    place = log.state.removing
    for _ in range(_MAX_ATTEMPTS):
        record = record or log.read_record(place)
        if record is None or record.removal is None:
            break
        if _clean_up(log, record.removal, place, records or log.all_records()):
            break
        record = records = None
    log.state, log.pending_removal = replace(log.state, removing=0), None
    log.cache.put(log.thread, log.state)


def _clean_up(log: Log, removal: LogRemoval, place: int, records: Sequence[Record]) -> bool:
    """Clean up after the removal at a place. False if another writer did some of it at the same time."""
    runs, now = runs_to_keep(records, removal.places), log.server_time()
    changed = [record for record in records if remaining(record, removal, runs.get(record.place, {})) != record]
    done: list[bool] = []
    for chunk in chunks(changed, RECORDS_PER_REQUEST):
        documents = log.client.get_many(log.thread, [record.id for record in chunk])
        items = []
        for document in documents.values():
            record = record_from(document.source)
            rest = remaining(record, removal, runs.get(record.place, {}))
            if record.kind in (CHECKPOINT, RUNS) and rest != record:
                items.append(_rewrite(document, rest, now))
        done += log.client.write(log.thread, items)
    names = [name_id(log.thread, *name, batch) for name in removal.names for batch in {"", log.state.batch}]
    own_id = record_id(log.thread, "", place)
    leftovers = log.client.get_many(log.thread, [own_id, *names])
    own = leftovers.pop(own_id, None)
    dead = [document for document in leftovers.values() if int(document.source["body"]["place"]) in removal.places]
    dead += _dead_writes(log, removal, place)
    done += log.client.write(log.thread, [_delete(document) for document in dead])
    if all(done) and own is not None:
        done += log.client.write(log.thread, [_finished(own, now)])
    return all(done)


def _rewrite(document: StoredDocument, rest: Record, now: int) -> BulkItem:
    """Write the rest of a record in the place of a document.

    A stub is as old as the removal, whatever the record says: that goes by the clock of the machine that saved it.
    """
    left = replace(rest, at=now) if rest.kind == GONE else rest
    return BulkItem("index", document.id, record_source(left), unchanged=document)


def _delete(document: StoredDocument) -> BulkItem:
    return BulkItem("delete", document.id, unchanged=document)


def _finished(document: StoredDocument, now: int) -> BulkItem:
    """The record of a removal whose clean-up is done."""
    record = record_from(document.source)
    rest = replace(record, removal=None) if record.kind == CHECKPOINT else record.emptied()
    return _rewrite(document, rest, now)


def _dead_writes(log: Log, removal: LogRemoval, place: int) -> list[StoredDocument]:
    """Find the pending writes of removed checkpoints. Later ones are for new checkpoints with the same names."""
    names = set(removal.names)
    if not names:
        return []
    clauses = {"term": {"thread": log.thread}}, {"term": {"kind": WRITE}}, {"range": {"position": {"lt": place}}}
    body = filtered(*clauses, sort=WRITES_ORDER, _source=["namespace", "checkpoint_id"])
    hits = [hit for page in log.client.pages(body, log.thread) for hit in page]
    return [hit for hit in hits if writes_name(hit) in names]


def purge_dead_epochs(log: Log) -> None:
    """Remove the remains of epochs that have ended."""
    epoch = log.state.epoch
    dead: Json = {"bool": {
        "filter": [{"term": {"thread": log.thread}}, {"range": {"position": {"lte": epoch}}}],
        "must_not": [{"terms": {"kind": [GONE, END, THREAD]}}, {"term": {"epoch": epoch}}],
    }}  # fmt: skip
    for _ in range(100_000):
        log.client.refresh()
        hits = log.client.search({"query": dead, "size": 1_000, "_source": {"excludes": ["body"]}}, log.thread)
        if not hits:
            break
        now = log.server_time()
        log.client.write(log.thread, [_purge(hit, now) for hit in hits])
    log.cache.put(log.thread, log.state)


def _purge(document: StoredDocument, now: int) -> BulkItem:
    """Delete a dead document, or replace it by a stub if it keeps a position."""
    if document.source["kind"] in (NAME, WRITE, INTENT) or "batch" in document.source:
        return _delete(document)
    return _rewrite(document, record_from({**document.source, "kind": GONE}), now)


RunsToKeep = dict[int, dict[RunKey, bool]]
"""By place, the runs of a record that have to stay: with their items (True), or only for their references."""


def runs_to_keep(records: Sequence[Record], removed: Collection[int]) -> RunsToKeep:
    """The runs that the remaining checkpoints need."""
    staying = [record for record in records if record.kind == CHECKPOINT and record.place not in removed]
    extents = [extent for record in staying for extent in wanted(record.manifest)]
    values = {
        (key, location.place)
        for record in staying
        for key, location in record.locations_by_run().items()
        if key[0][0] == "#"
    }
    lost = _lost_doubles(records, staying)
    infos = {
        (info.branch, info.number): info
        for record in records
        for info in run_infos(record)
        if ((info.branch, info.number), record.place) not in lost
    }
    unneeded = {(run.branch, run.number) for run in unneeded_runs(extents, infos.values())}
    bounds = _bounds(extents, infos.values())
    to_keep: RunsToKeep = {}
    for record in records:
        for stored in record.runs:
            branch, number = key = stored.key
            if branch.startswith("#"):
                keep = (key, record.place) in values
                with_items = keep
            else:
                low, high = bounds.get(branch, (0, -1))
                keep = low < number <= high and (key, record.place) not in lost
                with_items = key not in unneeded
            if keep:
                to_keep.setdefault(record.place, {})[key] = with_items
    return to_keep


def _lost_doubles(records: Sequence[Record], staying: Sequence[Record]) -> set[tuple[RunKey, int]]:
    """Of runs that several records have, those that nobody refers to, with the places of their records.

    A number may be used again after a removal, and a save may be sent again whose lists others have continued.
    """
    times = Counter(stored.key for record in records for stored in record.runs)
    doubled = {branch for (branch, _), many in times.items() if many > 1}
    if not doubled:
        return set()
    doubles = {
        (stored.key, record.place): stored for record in records for stored in record.runs if stored.key[0] in doubled
    }
    lost = set(doubles)
    left = [(key, location.place) for record in staying for key, location in record.locations_by_run().items()]
    while left:
        pair = left.pop()
        if pair in lost:
            lost.remove(pair)
            branch = pair[0][0]
            left += [((branch, ref.number), ref.place) for ref in doubles[pair].earlier]
    return {(key, place) for key, place in lost if times[key] > 1}


def _bounds(extents: Iterable[Extent], infos: Iterable[RunInfo]) -> dict[str, tuple[int, int]]:
    """For each branch, the numbers of the runs that readers follow: above the first bound, and up to the second."""
    ends: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for info in infos:
        ends[info.branch][info.number] = info.start + info.length
    bounds: dict[str, tuple[int, int]] = {}
    for branch, number, skip, _ in set(extents):
        low = number
        while skip and low >= 0 and ends[branch].get(low, skip + 1) > skip:
            low -= 1
        low = low if skip else -1
        before = bounds.get(branch, (low, number))
        bounds[branch] = (min(before[0], low), max(before[1], number))
    return bounds


def remaining(record: Record, removal: LogRemoval, kept: Mapping[RunKey, bool]) -> Record:
    """The rest of a record after a removal. It is equal to the record if nothing changes."""
    runs = _kept_runs(record, kept)
    if record.place in removal.places:
        return record.emptied(runs)
    if record.kind == CHECKPOINT:
        return replace(record, runs=runs, parent_id=removal.parents.get(record.place, record.parent_id))
    return replace(record, runs=runs) if runs else record.emptied()


def _kept_runs(record: Record, kept: Mapping[RunKey, bool]) -> tuple[StoredRun, ...]:
    return tuple(stored if kept[stored.key] else stored.without_items() for stored in record.runs if stored.key in kept)


def copy(source: Log, dest: Log, copied: Copied) -> int:
    """Copy checkpoints to another thread in one step. Return their number; -1 if that thread exists."""
    for _ in racing(_MAX_ATTEMPTS, _TOO_SLOW):
        state = source.read_state()
        if not state.exists(now_micros()):
            return 0
        if source.pending_removal is not None:
            finish_removal(source)
            continue
        records = source.all_records(with_contents=True)
        visible = source.visible_checkpoints(records)
        places = {record.seq: record.place for record in visible}
        entries = chosen_in((record.entry("") for record in visible), copied)
        parents = {places[entry.seq]: entry.parent_id for entry in entries}
        if source.read_state().changes != state.changes:
            continue
        if not parents:
            return 0
        dest.read_state()
        if dest.state.exists(now_micros()):
            return -1
        if dest.state.expired(now_micros()):
            remove(dest, lambda _: True, expired=True)
            continue
        records = [
            replace(record, parent_id=parents[record.place]) if record.place in parents else record
            for record in records
            if record.position <= state.position
        ]
        if _write_copy(source, dest, records, parents):
            return len(parents)
    raise AssertionError("the last attempt returns or raises")


def _write_copy(source: Log, dest: Log, records: Sequence[Record], chosen: Collection[int]) -> bool:
    """Write the copies, and make them visible. False if another writer was faster; then they are deleted."""
    origin, position, batch = source.state, dest.state.position + 1, new_id()
    copies = _copied_records(records, chosen, dest.thread, batch, position)
    checkpoints = [record for record in copies if record.kind == CHECKPOINT]
    intent = intent_id(dest.thread, batch)
    now = dest.server_time()
    intent_source = {"kind": INTENT, "thread": dest.thread, "position": position, "at": now, "batch": batch}
    dest.client.write(dest.thread, [BulkItem("index", intent, intent_source)])
    items = [BulkItem("create", record.id, record_source(record)) for record in copies]
    items += [
        BulkItem(
            "create",
            name_id(dest.thread, *record.name, batch),
            {**name_source(dest.thread, record.place, position), "batch": batch},
        )
        for record in checkpoints
    ]
    names = {record.name for record in checkpoints}
    items += [
        _copied_writes(dest, document, batch) for document in source.pending_writes() if writes_name(document) in names
    ]
    dest.client.write(dest.thread, items)
    state = replace(
        dest.state,
        position=position,
        last_seq=origin.last_seq,
        live=len(checkpoints),
        order=max(record.order for record in checkpoints),
        **_latest_places(checkpoints),
        expires=origin.expires,
        life=origin.life,
        batch=batch,
    )
    record = Record(COPY, dest.thread, position, position, now, epoch=state.epoch, rev=batch, state=state_source(state))
    if not dest.append(record):
        _delete_batch(dest.client, dest.thread, batch)
        return False
    dest.publish()
    dest.client.write(dest.thread, [BulkItem("delete", intent)])
    dest.cache.put(dest.thread, dest.state)
    return True


def _copied_records(
    records: Sequence[Record], chosen: Collection[int], thread: str, batch: str, position: int
) -> list[Record]:
    """The records of a copy: the checkpoints at the chosen places, and the runs that they need."""
    kept = runs_to_keep(records, [record.place for record in records if record.place not in chosen])
    left = [record for record in records if record.place in chosen or record.place in kept]
    places = {record.place: -number for number, record in enumerate(left, 1)}
    copies: list[Record] = []
    for record in left:
        runs = tuple(_relocated(stored, places) for stored in _kept_runs(record, kept.get(record.place, {})))
        base = record if record.place in chosen else record.emptied(runs)
        copies.append(
            replace(
                base,
                thread=thread,
                batch=batch,
                place=places[record.place],
                position=position,
                runs=runs,
                run_locations=tuple(
                    RunLocation(places[location.place], location.newest) for location in base.run_locations
                ),
                removal=None,
                state=None,
            )
        )
    return copies


def _relocated(stored: StoredRun, places: Mapping[int, int]) -> StoredRun:
    """A run with references to the new places. Those that no reader follows any more are left out."""
    earlier = tuple(ref._replace(place=places[ref.place]) for ref in stored.earlier if ref.place in places)
    return StoredRun(stored.run, earlier)


def _latest_places(checkpoints: Sequence[Record]) -> dict[str, Any]:
    """The fields of a state about the latest checkpoint of each namespace."""
    places: dict[str, int] = {}
    for record in checkpoints:
        places.pop(record.namespace, None)
        places[record.namespace] = record.place
    return {
        "latest_places": dict(list(places.items())[-KNOWN_NAMESPACES:]),
        "more": len(places) > KNOWN_NAMESPACES,
    }


def _copied_writes(dest: Log, document: StoredDocument, batch: str) -> BulkItem:
    changed = {"thread": dest.thread, "batch": batch, "position": dest.state.position + 1, "epoch": dest.state.epoch}
    doc_id = writes_id(dest.thread, *writes_name(document), document.source["task_id"], batch)
    return BulkItem("create", doc_id, {**document.source, **changed})


def _delete_batch(client: Client, thread: str, batch: str) -> None:
    """Delete copies that did not become visible."""
    for _ in range(100_000):
        client.refresh()
        clauses = {"term": {"thread": thread}}, {"term": {"batch": batch}}
        hits = client.search(filtered(*clauses, size=1_000, _source=False), thread)
        if not hits:
            return
        client.write(thread, [_delete(hit) for hit in hits])


def expire(client: Client, cache: ThreadCache, moment: int) -> int:
    """Remove the threads that have expired, and return the number of their checkpoints. Then sweep."""
    client.refresh()
    over = {"range": {"expires": {"lte": min(moment, now_micros())}}}
    clauses = {"term": {"kind": THREAD}}, {"range": {"live": {"gt": 0}}}, over
    body = filtered(*clauses, sort=[{"thread_id": "asc"}], _source=["thread_id"])
    expired = [hit.source["thread_id"] for hits in client.pages(body) for hit in hits]
    removed = 0
    for thread_id in expired:
        removed += remove(Log(client, cache, thread_id), lambda _: True, expired=True)
    _sweep(client, cache.server_time(client))
    return removed


def _sweep(client: Client, now: int) -> None:
    """Delete old stubs, old copies that never became visible, and threads that have nothing left."""
    old: Json = {"range": {"at": {"lt": now - STUB_LIFETIME}}}
    empty = {"bool": {"filter": [{"term": {"kind": THREAD}}, {"term": {"live": 0}}]}}
    swept = {"bool": {"should": [{"terms": {"kind": [GONE, END, INTENT]}}, empty]}}
    if not client.search(filtered(old, swept, size=1, _source=False)):
        return
    _sweep_intents(client, old)
    query = filtered({"terms": {"kind": [GONE, END]}}, old)
    client.send("POST", f"{client.index}/_delete_by_query", query, conflicts="proceed", refresh="true")
    _sweep_threads(client, old)


def _sweep_intents(client: Client, old: Json) -> None:
    """Delete copies that were begun, and never became visible; or only the intent, if they did."""
    body = filtered({"term": {"kind": INTENT}}, old, sort=[{"batch": "asc"}])
    for hits in client.pages(body):
        found = client.get_threads(hit.source["thread"] for hit in hits)
        for hit in hits:
            thread, batch = hit.source["thread"], hit.source["batch"]
            document = found.get(thread)
            if document is not None and thread_state_from("", document.source).batch == batch:
                client.write(thread, [_delete(hit)])
            else:
                _delete_batch(client, thread, batch)


def _sweep_threads(client: Client, old: Json) -> None:
    """Delete the documents of threads that have nothing left.

    No handle has one in its cache: whoever ended the thread forgets it after ten minutes, and readers do not cache it.
    """
    body = filtered({"term": {"kind": THREAD}}, {"term": {"live": 0}}, old, sort=[{"thread": "asc"}])
    for hits in client.pages(body):
        for hit in hits:
            thread = hit.source["thread"]
            rest = {"bool": {"filter": [{"term": {"thread": thread}}], "must_not": [{"term": {"kind": THREAD}}]}}
            if not client.search({"query": rest, "size": 1, "_source": False}, thread):
                client.write(thread, [_delete(hit)])
