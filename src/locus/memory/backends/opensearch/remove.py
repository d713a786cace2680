"""Removing and copying: what has to look at a whole thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from locus.memory.backends.opensearch.client import (
    Client,
    Doc,
    Failure,
    Json,
    Write,
    give_way,
    portions,
)
from locus.memory.backends.opensearch.log import LIGHT, Log, Torn, live_filter, name_source
from locus.memory.backends.opensearch.opensearch_keeping import copied, kept_runs, removal_of, rest_of
from locus.memory.backends.opensearch.opensearch_layout import (
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
    name_id,
    record_id,
    writes_id,
)
from locus.memory.backends.opensearch.opensearch_pending import dead_writes, place_of, writes_of
from locus.memory.backends.opensearch.opensearch_state import NAMESPACES, State, after, state_source
from locus.memory.backends.opensearch.schema import Record, Removed, now, record_from, record_source
from locus.memory.model.ids import new_id

PATIENCE = 60
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
    for attempt in range(PATIENCE):
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
    raise Failure(409, "too many writers", f"{PATIENCE} times another one was faster")


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
    for _ in range(PATIENCE):
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
    for portion in portions(changed, PORTION):
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
    done += log.client.write(log.thread, [Write("delete", doc.id, only=doc) for doc in dead])
    if all(done) and removal is not None:
        done += log.client.write(log.thread, [_finished(removal)])
    return all(done)


def _changed(doc: Doc, rest: Record) -> Write:
    if rest.kind == GONE and rest.at < now() - KEPT:
        return Write("delete", doc.id, only=doc)
    return Write("index", doc.id, record_source(rest), only=doc)


def _finished(doc: Doc) -> Write:
    """A removal that has nothing more to say."""
    record = record_from(doc.source)
    rest = replace(record, removed=None) if record.kind == CHECKPOINT else record.emptied()
    return Write("index", doc.id, record_source(rest), only=doc)


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


def _buried(doc: Doc) -> Write:
    kind, at = doc.source["kind"], doc.source.get("at", 0)
    if kind in (NAME, WRITE, INTENT) or "batch" in doc.source or at < now() - KEPT:
        return Write("delete", doc.id, only=doc)
    record = record_from({**doc.source, "kind": GONE})
    return Write("index", doc.id, record_source(record), only=doc)


def copy(source: Log, dest: Log, namespace: str | None, ids: Collection[str] | None) -> int:
    """Copy checkpoints under another thread, in one step: the copies are written first, and then become visible."""
    for attempt in range(PATIENCE):
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
    raise Failure(409, "too many writers", f"{PATIENCE} times another one was faster")


def _copied(source: Log, dest: Log, records: Sequence[Record], chosen: Collection[int]) -> bool:
    origin, position, batch = source.state, dest.state.position + 1, new_id()
    made = copied(records, chosen, dest.thread, batch, position)
    checkpoints = [record for record in made if record.kind == CHECKPOINT]
    intent = f"{dest.thread}.{batch}"
    about = {"kind": INTENT, "thread": dest.thread, "position": position, "at": now(), "batch": batch}
    dest.client.write(dest.thread, [Write("index", intent, about)])
    writes = [Write("create", record.id, record_source(record)) for record in made]
    writes += [
        Write(
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
    dest.client.write(dest.thread, [Write("delete", intent)])
    dest.memories.put(dest.thread, dest.state)
    return True


def _newest_of(checkpoints: Sequence[Record]) -> dict[str, Any]:
    tips: dict[str, int] = {}
    for record in checkpoints:
        tips.pop(record.namespace, None)
        tips[record.namespace] = record.place
    return {"tips": dict(list(tips.items())[-NAMESPACES:]), "more": len(tips) > NAMESPACES}


def _copied_writes(dest: Log, doc: Doc, batch: str) -> Write:
    place = {"thread": dest.thread, "batch": batch, "position": dest.state.position + 1, "epoch": dest.state.epoch}
    name = writes_id(dest.thread, *place_of(doc), doc.source["task_id"], batch)
    return Write("create", name, {**doc.source, **place})


def drop_batch(client: Client, thread: str, batch: str) -> None:
    """Remove copies that did not become visible."""
    for _ in range(100_000):
        client.refresh()
        query = {"bool": {"filter": [{"term": {"thread": thread}}, {"term": {"batch": batch}}]}}
        hits = client.search({"query": query, "size": 1_000, "_source": False}, thread)
        if not hits:
            return
        client.write(thread, [Write("delete", hit.id, only=hit) for hit in hits])
