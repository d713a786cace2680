"""Removing and copying: what has to look at a whole thread.

What has to be kept of the records of a thread when checkpoints are removed or copied. Pure functions.

Cleaning up: threads whose time has come, and what was kept only to keep its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from locus.memory.backends.opensearch.client import (
    BulkItem,
    Client,
    Document,
    Failure,
    Json,
    chunks,
    give_way,
)
from locus.memory.backends.opensearch.log import (
    LIGHT,
    NAMESPACES,
    Log,
    Memories,
    State,
    Torn,
    after,
    live_filter,
    name_source,
    state_source,
    thread_state,
)
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    COPY,
    END,
    GONE,
    INTENT,
    KEPT,
    NAME,
    REMOVAL,
    RUNS,
    THREAD,
    WRITE,
    HeldRun,
    Mark,
    Piece,
    Record,
    Removed,
    Tip,
    infos_of,
    name_id,
    now,
    record_from,
    record_id,
    record_source,
    writes_id,
)
from locus.memory.backends.opensearch.writes import dead_writes, place_of, writes_of
from locus.memory.model.ids import new_id
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Extent, RunInfo
from locus.memory.model.retention import new_parents, unneeded_runs

Kept = dict[int, dict[Piece, bool]]
"""By place, the runs of a record that have to stay: with their items, or only as a step on the way to older ones."""


def removal_of(records: Sequence[Record], doomed: Collection[int], *, keep_writes: bool = False) -> Removed:
    """What a removal of these places says."""
    checkpoints = [record for record in records if record.kind == CHECKPOINT]
    seqs = {record.seq for record in checkpoints if record.place in doomed}
    parents = new_parents([record.entry("") for record in checkpoints], seqs)
    places = {record.seq: record.place for record in checkpoints}
    names = () if keep_writes else tuple((r.namespace, r.checkpoint_id) for r in checkpoints if r.place in doomed)
    return Removed(tuple(sorted(doomed)), {places[seq]: parent for seq, parent in parents.items()}, names)


def kept_runs(records: Sequence[Record], removed: Collection[int]) -> Kept:
    """What the checkpoints that are not removed need."""
    staying = [record for record in records if record.kind == CHECKPOINT and record.place not in removed]
    extents = [extent for record in staying for extent in wanted(record.manifest)]
    values = {(piece, tip.place) for record in staying for piece, tip in record.tip_of().items() if piece[0][0] == "#"}
    elsewhere = {piece for record in records if record.place not in removed for piece in _pieces(record)}
    infos = {(info.branch, info.number): info for record in records for info in infos_of(record)}
    unneeded = {(run.branch, run.number) for run in unneeded_runs(extents, infos.values())}
    bounds = _bounds(extents, infos.values())
    kept: Kept = {}
    for record in records:
        for piece in _pieces(record):
            branch, number = piece
            if branch.startswith("#"):
                keep = (piece, record.place) in values
                whole = keep
            else:
                low, high = bounds.get(branch, (0, -1))
                # A number that was used again: the older run is nobody's any more.
                replaced = record.place in removed and piece in elsewhere
                keep = low < number <= high and not replaced
                whole = piece not in unneeded
            if keep:
                kept.setdefault(record.place, {})[piece] = whole
    return kept


def _pieces(record: Record) -> list[Piece]:
    return [(held.run.branch, held.run.number) for held in record.runs]


def _bounds(extents: Iterable[Extent], infos: Iterable[RunInfo]) -> dict[str, tuple[int, int]]:
    """For each branch: the numbers that readers pass on their way are above the first, and up to the second."""
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


def rest_of(record: Record, removed: Removed, kept: Mapping[Piece, bool]) -> Record:
    """What a record becomes; equal to what it was if nothing changes."""
    runs = tuple(
        _left(held, kept[piece]) for piece, held in zip(_pieces(record), record.runs, strict=True) if piece in kept
    )
    if record.place in removed.places:
        return record.emptied(runs)
    if record.kind == CHECKPOINT:
        return replace(record, runs=runs, parent_id=removed.parents.get(record.place, record.parent_id))
    return replace(record, runs=runs) if runs else record.emptied()


def _left(held: HeldRun, whole: bool) -> HeldRun:
    return held if whole else HeldRun(held.run._replace(items=""), held.trail)


def copied(records: Sequence[Record], chosen: Collection[int], thread: str, batch: str, position: int) -> list[Record]:
    """The records of a copy: checkpoints at these places, and the runs that they need."""
    kept = kept_runs(records, [record.place for record in records if record.place not in chosen])
    left = [record for record in records if record.place in chosen or record.place in kept]
    places = {record.place: -number for number, record in enumerate(left, 1)}
    made: list[Record] = []
    for record in left:
        own = kept.get(record.place, {})
        runs = tuple(
            _moved(_left(held, own[piece]), places)
            for piece, held in zip(_pieces(record), record.runs, strict=True)
            if piece in own
        )
        base = record if record.place in chosen else record.emptied(runs)
        made.append(
            replace(
                base,
                thread=thread,
                batch=batch,
                place=places[record.place],
                position=position,
                runs=runs,
                tips=tuple(Tip(places[tip.place], tip.newest) for tip in base.tips),
                removed=None,
                state=None,
            )
        )
    return made


def _moved(held: HeldRun, places: Mapping[int, int]) -> HeldRun:
    """The same run with the new places on its trail; those that nobody passes any more are left out."""
    trail = tuple(Mark(mark.number, places[mark.place], mark.end) for mark in held.trail if mark.place in places)
    return HeldRun(held.run, trail)


REMOVAL_PATIENCE = 60
PORTION = 200
"""Records that are changed, with their items, by one request."""

Choice = Callable[[Record], bool]


def whole(log: Log, *, light: bool = True) -> list[Record]:
    """All records of the thread that hold checkpoints or runs, in the order of their numbers."""
    log.client.refresh()
    body: Json = {
        "query": {"bool": {"filter": live_filter(log.thread, log.state, CHECKPOINT, RUNS)}},
        "sort": [{"seq": "asc"}, {"position": "asc"}],
    }
    if light:
        body["_source"] = {"excludes": LIGHT.split(",")}
    size = 1_000 if light else PORTION
    return [record_from(hit.source) for hits in log.client.pages(body, log.thread, size) for hit in hits]


def seen(log: Log, records: Sequence[Record]) -> list[Record]:
    """Those of them that are checkpoints which are there."""
    return [found for record in records if (found := log.visible(record)) is not None]


def remove(log: Log, chosen: Choice, *, expired: bool = False, everything: bool = False) -> int:
    """Remove checkpoints in one step, and clean up behind it; return how many.

    `everything` is also what waits for its first checkpoint: pending writes.
    """
    for attempt in range(REMOVAL_PATIENCE):
        state = log.look()
        if state.expired(now()) != expired:
            return 0
        only_writes = everything and not state.live and bool(writes_of(log))
        if not state.live and not only_writes:
            return 0
        if log.removed is not None:
            finish(log)
            continue
        checkpoints = seen(log, records := whole(log))
        doomed = {record.place for record in checkpoints if chosen(record)}
        if not doomed and not only_writes:
            return 0
        ending = len(doomed) == len(checkpoints)
        record = _ending(log) if ending else _removal(log, records, checkpoints, doomed)
        if log.append(record):
            log.publish()
            purge(log) if ending else finish(log, record, records)
            return len(doomed)
        give_way(attempt)
    raise Failure(409, "too many writers", f"{REMOVAL_PATIENCE} times another one was faster")


def _ending(log: Log) -> Record:
    place = log.state.position + 1
    state = replace(log.state.begun_anew(), position=place, epoch=place)
    return Record(END, log.thread, place, place, now(), epoch=place, rev=new_id(), state=state_source(state))


def _removal(log: Log, records: Sequence[Record], checkpoints: Sequence[Record], doomed: Collection[int]) -> Record:
    place = log.state.position + 1
    left = [record for record in checkpoints if record.place not in doomed]
    newest = {record.namespace: record.place for record in left}
    tips = {name: newest[name] for name in log.state.tips if name in newest}
    state = replace(log.state, position=place, live=len(left), tips=tips, removing=place, changes=log.state.changes + 1)
    return Record(
        REMOVAL,
        log.thread,
        place,
        place,
        now(),
        epoch=state.epoch,
        rev=new_id(),
        removed=removal_of(records, doomed),
        state=state_source(state),
    )


def replacing(log: Log, state: State, record: Record, old: int) -> Record:
    """The record of a save that takes the place of another checkpoint."""
    records = whole(log)
    if old not in {known.place for known in seen(log, records)}:
        raise Torn
    told = after(state, record)
    told = replace(told, live=told.live - 1, removing=record.place, changes=state.changes + 1)
    removed = removal_of(records, {old}, keep_writes=True)
    return replace(record, removed=removed, state=state_source(told))


def finish(log: Log, record: Record | None = None, records: Sequence[Record] | None = None) -> None:
    """Clean up behind a removal that was decided. It may be done by several at once, and again.

    Whoever decided it gives its record, and those that it had to look at.
    """
    if log.state.published.position < log.state.removing:
        log.publish()
    place = log.state.removing
    for _ in range(REMOVAL_PATIENCE):
        record = record or log.full_record(place)
        if record is None or record.removed is None or _cleaned(log, record.removed, place, records or whole(log)):
            break
        record = records = None
    log.state, log.removed = replace(log.state, removing=0), None
    log.memories.put(log.thread, log.state)


def _cleaned(log: Log, removed: Removed, place: int, records: Sequence[Record]) -> bool:
    """Clean what a removal left; False if somebody else did some of it at the same time."""
    kept = kept_runs(records, removed.places)
    changed = [record for record in records if rest_of(record, removed, kept.get(record.place, {})) != record]
    done: list[bool] = []
    for portion in chunks(changed, PORTION):
        full = log.client.get_many(log.thread, [record.id for record in portion])
        writes = []
        for doc in full.values():
            record = record_from(doc.source)
            rest = rest_of(record, removed, kept.get(record.place, {}))
            if record.kind in (CHECKPOINT, RUNS) and rest != record:
                writes.append(_changed(doc, rest))
        done += log.client.write(log.thread, writes)
    names = [name_id(log.thread, *name, batch) for name in removed.names for batch in {"", log.state.batch}]
    own = record_id(log.thread, "", place)
    found = log.client.get_many(log.thread, [own, *names])
    removal = found.pop(own, None)
    dead = [doc for doc in found.values() if int(doc.source["body"]["place"]) in removed.places]
    dead += dead_writes(log, removed, place)
    done += log.client.write(log.thread, [BulkItem("delete", doc.id, unchanged=doc) for doc in dead])
    if all(done) and removal is not None:
        done += log.client.write(log.thread, [_finished(removal)])
    return all(done)


def _changed(doc: Document, rest: Record) -> BulkItem:
    if rest.kind == GONE and rest.at < now() - KEPT:
        return BulkItem("delete", doc.id, unchanged=doc)
    return BulkItem("index", doc.id, record_source(rest), unchanged=doc)


def _finished(doc: Document) -> BulkItem:
    """A removal that has nothing more to say."""
    record = record_from(doc.source)
    rest = replace(record, removed=None) if record.kind == CHECKPOINT else record.emptied()
    return BulkItem("index", doc.id, record_source(rest), unchanged=doc)


def purge(log: Log) -> None:
    """Remove what is left of epochs that have ended."""
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
        log.client.write(log.thread, [_buried(hit) for hit in hits])
    log.memories.put(log.thread, log.state)


def _buried(doc: Document) -> BulkItem:
    kind, at = doc.source["kind"], doc.source.get("at", 0)
    if kind in (NAME, WRITE, INTENT) or "batch" in doc.source or at < now() - KEPT:
        return BulkItem("delete", doc.id, unchanged=doc)
    record = record_from({**doc.source, "kind": GONE})
    return BulkItem("index", doc.id, record_source(record), unchanged=doc)


def copy(source: Log, dest: Log, namespace: str | None, ids: Collection[str] | None) -> int:
    """Copy checkpoints under another thread, in one step: the copies are written first, and then become visible."""
    for attempt in range(REMOVAL_PATIENCE):
        state = source.look()
        if not state.there(now()):
            return 0
        if source.removed is not None:
            finish(source)
            continue
        records = whole(source, light=False)
        chosen = {
            record.place
            for record in seen(source, records)
            if ids is None or (record.namespace == namespace and record.checkpoint_id in ids)
        }
        if source.look().changes != state.changes:
            continue
        dest.look()
        if dest.state.there(now()):
            return -1
        if dest.state.expired(now()):
            remove(dest, lambda _: True, expired=True)
            continue
        if not chosen:
            return 0
        if _copied(source, dest, [record for record in records if record.position <= state.position], chosen):
            return len(chosen)
        give_way(attempt)
    raise Failure(409, "too many writers", f"{REMOVAL_PATIENCE} times another one was faster")


def _copied(source: Log, dest: Log, records: Sequence[Record], chosen: Collection[int]) -> bool:
    origin, position, batch = source.state, dest.state.position + 1, new_id()
    made = copied(records, chosen, dest.thread, batch, position)
    checkpoints = [record for record in made if record.kind == CHECKPOINT]
    intent = f"{dest.thread}.{batch}"
    about = {"kind": INTENT, "thread": dest.thread, "position": position, "at": now(), "batch": batch}
    dest.client.write(dest.thread, [BulkItem("index", intent, about)])
    writes = [BulkItem("create", record.id, record_source(record)) for record in made]
    writes += [
        BulkItem(
            "create",
            name_id(dest.thread, record.namespace, record.checkpoint_id, batch),
            {**name_source(dest.thread, record.place, position), "batch": batch},
        )
        for record in checkpoints
    ]
    names = {(record.namespace, record.checkpoint_id) for record in checkpoints}
    writes += [_copied_writes(dest, doc, batch) for doc in writes_of(source) if place_of(doc) in names]
    dest.client.write(dest.thread, writes)
    state = replace(
        dest.state,
        position=position,
        last_seq=origin.last_seq,
        live=len(checkpoints),
        order=max(record.order for record in checkpoints),
        **_newest_of(checkpoints),
        expires=origin.expires,
        life=origin.life,
        batch=batch,
    )
    record = Record(
        COPY, dest.thread, position, position, now(), epoch=state.epoch, rev=batch, state=state_source(state)
    )
    if not dest.append(record):
        drop_batch(dest.client, dest.thread, batch)
        return False
    dest.publish()
    dest.client.write(dest.thread, [BulkItem("delete", intent)])
    dest.memories.put(dest.thread, dest.state)
    return True


def _newest_of(checkpoints: Sequence[Record]) -> dict[str, Any]:
    tips: dict[str, int] = {}
    for record in checkpoints:
        tips.pop(record.namespace, None)
        tips[record.namespace] = record.place
    return {"tips": dict(list(tips.items())[-NAMESPACES:]), "more": len(tips) > NAMESPACES}


def _copied_writes(dest: Log, doc: Document, batch: str) -> BulkItem:
    place = {"thread": dest.thread, "batch": batch, "position": dest.state.position + 1, "epoch": dest.state.epoch}
    name = writes_id(dest.thread, *place_of(doc), doc.source["task_id"], batch)
    return BulkItem("create", name, {**doc.source, **place})


def drop_batch(client: Client, thread: str, batch: str) -> None:
    """Remove copies that did not become visible."""
    for _ in range(100_000):
        client.refresh()
        query = {"bool": {"filter": [{"term": {"thread": thread}}, {"term": {"batch": batch}}]}}
        hits = client.search({"query": query, "size": 1_000, "_source": False}, thread)
        if not hits:
            return
        client.write(thread, [BulkItem("delete", hit.id, unchanged=hit) for hit in hits])


def expire(client: Client, memories: Memories, moment: int) -> int:
    """Remove the threads whose time has come, and return the number of their checkpoints; sweep what is old."""
    client.refresh()
    query: Json = {"bool": {"filter": [
        {"term": {"kind": THREAD}},
        {"range": {"live": {"gt": 0}}},
        {"range": {"expires": {"lte": min(moment, now())}}},
    ]}}  # fmt: skip
    body = {"query": query, "sort": [{"thread_id": "asc"}], "_source": ["thread_id"]}
    ended = [hit.source["thread_id"] for hits in client.pages(body) for hit in hits]
    removed = 0
    for thread_id in ended:
        log = Log(client, memories, thread_id)
        removed += remove(log, lambda _: True, expired=True)
    _sweep(client)
    return removed


def _sweep(client: Client) -> None:
    old: Json = {"range": {"at": {"lt": now() - KEPT}}}
    empty = {"bool": {"filter": [{"term": {"kind": THREAD}}, {"term": {"live": 0}}]}}
    kept = {"bool": {"should": [{"terms": {"kind": [GONE, END, INTENT]}}, empty]}}
    if not client.search({"query": {"bool": {"filter": [old, kept]}}, "size": 1, "_source": False}):
        return
    _sweep_intents(client, old)
    query = {"bool": {"filter": [{"terms": {"kind": [GONE, END]}}, old]}}
    client.send("POST", f"{client.index}/_delete_by_query", {"query": query}, conflicts="proceed", refresh="true")
    _sweep_threads(client, old)


def _sweep_intents(client: Client, old: Json) -> None:
    """Copies that were begun, and never became visible."""
    body = {"query": {"bool": {"filter": [{"term": {"kind": INTENT}}, old]}}, "sort": [{"batch": "asc"}]}
    for hits in client.pages(body):
        found = client.get_threads(hit.source["thread"] for hit in hits)
        for hit in hits:
            thread, batch = hit.source["thread"], hit.source["batch"]
            doc = found.get(thread)
            if doc is not None and thread_state("", doc.source).batch == batch:
                client.write(thread, [BulkItem("delete", hit.id, unchanged=hit)])
            else:
                drop_batch(client, thread, batch)


def _sweep_threads(client: Client, old: Json) -> None:
    """Documents of threads that have nothing left. No handle remembers them any more."""
    body = {"query": {"bool": {"filter": [{"term": {"kind": THREAD}}, {"term": {"live": 0}}, old]}},
            "sort": [{"thread": "asc"}]}  # fmt: skip
    for hits in client.pages(body):
        for hit in hits:
            thread = hit.source["thread"]
            rest = {"bool": {"filter": [{"term": {"thread": thread}}], "must_not": [{"term": {"kind": THREAD}}]}}
            if not client.search({"query": rest, "size": 1, "_source": False}, thread):
                client.write(thread, [BulkItem("delete", hit.id, unchanged=hit)])
