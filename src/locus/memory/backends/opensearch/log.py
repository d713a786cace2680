"""The log of one thread, read and extended: by the id of each record, in real time.

What the log of a thread adds up to. No I/O: a state and the next record give the next state.

What a handle remembers of threads, so that a save need not look first.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.opensearch.client import (
    BulkItem,
    Client,
    Document,
    Failure,
    back_off,
    give_way,
)
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    END,
    FORMAT,
    GONE,
    LAG,
    NAME,
    THREAD,
    HeldRun,
    Piece,
    Record,
    Removed,
    Source,
    Tip,
    name_id,
    now,
    record_from,
    record_id,
    record_source,
)
from locus.memory.model.ids import digest
from locus.memory.model.records import Known

NAMESPACES = 32
"""Of so many namespaces, the last ones in use, the newest checkpoint is known at once."""


@dataclass(frozen=True, slots=True)
class Published:
    """What the document of a thread says: up to which record, and until when the thread surely lives or may live."""

    position: int = 0
    changes: int = 0
    live: bool = False
    expires: int | None = None
    until: int | None = None

    def covers(self, expires: int | None) -> bool:
        """Whether this expiry need not be written down, because it is known nearly enough."""
        if self.expires is None or self.until is None or expires is None:
            return self.expires is None and expires is None
        return self.expires <= expires <= self.until


@dataclass(frozen=True, slots=True)
class State:
    """A thread at a position of its log."""

    thread_id: str
    position: int = 0
    epoch: int = 0
    """Records up to this position are dead."""
    last_seq: int = 0
    live: int = 0
    """How many checkpoints there are."""
    order: int = 0
    """The latest time of any checkpoint: what lists of several threads are sorted by."""
    tips: Mapping[str, int] = field(default_factory=dict)
    """The place of the newest checkpoint of each namespace, the last one in use at the end."""
    more: bool = False
    """There may be namespaces that are not among the tips."""
    expires: int | None = None
    life: int = 0
    removing: int = 0
    """The position of a removal that may be unfinished."""
    changes: int = 0
    """How often something was removed."""
    batch: str = ""
    names: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Where the checkpoints are that came after the published position."""
    published: Published = Published()

    def expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now

    def there(self, now: int) -> bool:
        """Whether the thread has a checkpoint that anybody may see."""
        return self.live > 0 and not self.expired(now)

    def begun_anew(self) -> State:
        """The same thread with nothing in it."""
        return State(
            self.thread_id,
            position=self.position,
            epoch=self.position,
            order=self.order,
            changes=self.changes + 1,
            published=self.published,
        )

    @property
    def stale_document(self) -> bool:
        """Whether the document of the thread has to be written before anybody is told that this is done."""
        return (
            self.position - self.published.position >= LAG
            or self.published.live != (self.live > 0)
            or self.published.changes != self.changes
            or not self.published.covers(self.expires)
        )


def after(state: State, record: Record) -> State:
    """The state with the next record of the log."""
    if record.kind == GONE or record.position != state.position + 1:
        raise CorruptCheckpointError(f"record {record.position} of thread {state.thread_id!r} is missing")
    if record.state is not None:
        told = state_from(state.thread_id, record.state)
        names = {} if record.kind == END else dict(state.names)
        if record.kind == CHECKPOINT:
            names[record.namespace, record.checkpoint_id] = record.place
        return replace(told, names=names, published=state.published)
    if record.epoch != state.epoch:
        state = replace(state.begun_anew(), epoch=record.epoch)
    tips = dict(state.tips)
    tips.pop(record.namespace, None)
    tips[record.namespace] = record.place
    more = state.more
    if len(tips) > NAMESPACES:
        more = True
        del tips[next(iter(tips))]
    return replace(
        state,
        position=record.position,
        last_seq=record.seq,
        live=state.live + 1,
        order=record.order,
        tips=tips,
        more=more,
        expires=record.expires,
        life=record.life,
        names={**state.names, (record.namespace, record.checkpoint_id): record.place},
    )


_STORED = ("position", "epoch", "last_seq", "live", "order", "more", "expires", "life", "removing", "changes", "batch")


def state_source(state: State) -> dict[str, Any]:
    """A state as records and the document of the thread hold it."""
    told = {name: getattr(state, name) for name in _STORED if getattr(state, name)}
    return {**told, "tips": [list(pair) for pair in state.tips.items()]}


def state_from(thread_id: str, source: Source) -> State:
    try:
        tips = {namespace: int(place) for namespace, place in source["tips"]}
        return State(thread_id, tips=tips, **{name: source[name] for name in _STORED if name in source})
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"what is stored of thread {thread_id!r} cannot be read: {error}") from error


def thread_source(thread: str, state: State, now: int) -> dict[str, Any]:
    """The document of a thread. One without checkpoints has no id any more: only its position counts."""
    source: dict[str, Any] = {
        "kind": THREAD,
        "thread": thread,
        "live": state.live,
        "at": now,
        "body": {"format": FORMAT, "state": state_source(state)},
    }
    if state.live:
        source["thread_id"] = state.thread_id
    if state.expires is not None:
        source["expires"] = state.expires
    return source


def published_by(state: State) -> Published:
    """What the document says that is written of a state."""
    until = None if state.expires is None else state.expires + state.life // 8
    return Published(state.position, state.changes, state.live > 0, state.expires, until)


def thread_state(thread_id: str, source: Source) -> State:
    """The state in the document of a thread."""
    body = source.get("body") or {}
    if body.get("format", FORMAT) != FORMAT:
        raise UnsupportedFormatError(f"thread {thread_id!r} was written by a newer version: upgrade locus-sdk")
    if "state" not in body:
        raise CorruptCheckpointError(f"the document of thread {thread_id!r} cannot be read")
    state = state_from(thread_id, body["state"])
    return replace(state, published=published_by(state))


REMEMBERED = 600.0
"""Seconds for which a handle may go on from what it knows, without looking first."""
MOST_THREADS = 1_024
MOST_BASES = 8


@dataclass(frozen=True, slots=True)
class KnownBase(Known):
    """A checkpoint that something may be saved on top of."""

    place: int
    position: int
    tips: Mapping[Piece, Tip]
    held: Mapping[Piece, HeldRun] = field(default_factory=dict)
    """Runs whose trails are known; their items are not kept."""


def base_of(record: Record, held: Mapping[Piece, HeldRun] | None = None) -> KnownBase:
    own = {(h.run.branch, h.run.number): HeldRun(h.run._replace(items=""), h.trail) for h in record.runs}
    tips = record.tip_of()
    others = {piece: found for piece, found in (held or {}).items() if piece in tips}
    return KnownBase(
        record.checkpoint_id,
        record.seq,
        record.rev,
        record.parent_id,
        record.place,
        record.position,
        tips,
        {**others, **own},
    )


@dataclass
class Memory:
    """What a handle knows of a thread: its state at that time, and checkpoints that are there in it."""

    state: State
    bases: OrderedDict[tuple[str, str], KnownBase]
    monotonic: float
    wall: float

    @property
    def fresh(self) -> bool:
        """Both clocks are asked, because one of them stands still while a machine sleeps."""
        passed = max(time.monotonic() - self.monotonic, abs(time.time() - self.wall))
        return passed < REMEMBERED


class Memories:
    """Of many threads, the longest unused forgotten first. Several threads of the program use it at once."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._known: OrderedDict[str, Memory] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _locked(self) -> threading.Lock:
        """The lock. After a fork somebody may have held it who is not there any more, so the child begins anew."""
        if self._process != os.getpid():
            self._begin()
        return self._lock

    def get(self, thread: str) -> Memory | None:
        with self._locked():
            known = self._known.get(thread)
            if known is not None and not known.fresh:
                del self._known[thread]
                return None
            return known

    def put(self, thread: str, state: State, base: KnownBase | None = None, namespace: str = "") -> None:
        """Remember a state; checkpoints that were known before still are, unless something was removed since."""
        with self._locked():
            before = self._known.pop(thread, None)
            if before is not None and before.state.position > state.position:
                self._known[thread] = before
                return
            bases: OrderedDict[tuple[str, str], KnownBase] = OrderedDict()
            if before is not None and before.state.changes == state.changes:
                bases = OrderedDict(before.bases)
            if base is not None:
                bases.pop((namespace, base.checkpoint_id), None)
                bases[namespace, base.checkpoint_id] = base
                while len(bases) > MOST_BASES:
                    bases.popitem(last=False)
            self._known[thread] = Memory(state, bases, time.monotonic(), time.time())
            while len(self._known) > MOST_THREADS:
                self._known.popitem(last=False)

    def drop(self, thread: str) -> None:
        with self._locked():
            self._known.pop(thread, None)

    def clear(self) -> None:
        with self._locked():
            self._known.clear()


LIGHT = "body.head,body.runs.items"
"""What nobody needs who does not load a state."""


class Log:
    """One thread, for one operation."""

    def __init__(self, client: Client, memories: Memories, thread_id: str) -> None:
        self.client = client
        self.memories = memories
        self.thread_id = thread_id
        self.thread = digest(thread_id)
        self.state = State(thread_id)
        self.removed: Removed | None = None
        """What an unfinished removal takes away."""
        self._docs: dict[str, Document | None] = {}
        self._light = True

    def recall(self) -> bool:
        """Take the state that is remembered, without looking; only a commit can tell whether it is still true."""
        known = self.memories.get(self.thread)
        if known is None or known.state.removing:
            return False
        self.state, self.removed = known.state, None
        return True

    def look(self, *, names: Iterable[tuple[str, str]] = (), latest: str | None = None, light: bool = True) -> State:
        """Take the state as it is now, and fetch what will be asked for next: names, the latest of a namespace."""
        self._docs.clear()
        self._light = light
        wanted = [name_id(self.thread, *name) for name in names]
        for attempt in range(8):
            known = self.memories.get(self.thread) if attempt == 0 else None
            if known is not None:
                self.state = known.state
            elif not self._start(wanted):
                return self.state
            if self._follow(wanted if known else [], latest):
                return self.state
            self.memories.drop(self.thread)
            give_way(attempt)
        raise CorruptCheckpointError(f"the log of thread {self.thread_id!r} has a gap")

    def _start(self, wanted: list[str]) -> bool:
        """Take the state from the document of the thread; False if there is neither that nor a first record."""
        first = record_id(self.thread, "", 1)
        self._fetch([self.thread, first, *wanted], without_source=(first,))
        found = self._docs.pop(first)
        doc = self._docs[self.thread]
        self.state = State(self.thread_id) if doc is None else thread_state(self.thread_id, doc.source)
        self.removed = None
        if doc is None and found is None:
            self.memories.put(self.thread, self.state)
            return False
        return True

    def _follow(self, wanted: list[str], latest: str | None) -> bool:
        """Add the records after the state; False if one was emptied already, so that the state is too old."""
        state, started = self.state, self.state.changes
        while True:
            ahead = [record_id(self.thread, "", state.position + step) for step in range(1, LAG + 1)]
            others = [record_id(self.thread, "", state.removing)] if state.removing else []
            place = state.tips.get(latest) if latest is not None else None
            if place is not None:
                others.append(record_id(self.thread, state.batch, place))
            self._fetch([*ahead, *others, *wanted])
            wanted = []
            for name in ahead:
                doc = self._docs.get(name)
                if doc is None:
                    break
                record = record_from(doc.source)
                if record.kind == GONE:
                    return False
                state = after(state, record)
            else:
                continue
            break
        self.state = state
        if state.changes != started:
            self.memories.drop(self.thread)
        self.removed = self._pending()
        self.memories.put(self.thread, self.state)
        return True

    def _pending(self) -> Removed | None:
        """What an unfinished removal says. One that is finished has no more to say, and is forgotten."""
        if not self.state.removing:
            return None
        record = self.record(self.state.removing)
        removed = None if record is None else record.removed
        if removed is None:
            self.state = replace(self.state, removing=0)
        return removed

    def _fetch(self, ids: Iterable[str], without_source: Collection[str] = ()) -> None:
        missing = [name for name in ids if name not in self._docs]
        if missing:
            self._docs |= dict.fromkeys(missing)
            excludes = LIGHT if self._light else ""
            self._docs |= self.client.get_many(self.thread, missing, excludes=excludes, without_source=without_source)

    def doc(self, name: str) -> Document | None:
        self._fetch([name])
        return self._docs[name]

    def record(self, place: int) -> Record | None:
        """The record at a place, as `look` fetched it: with or without items."""
        return self.records([place]).get(place)

    def records(self, places: Iterable[int]) -> dict[int, Record]:
        """Those of these records that are there, by their places."""
        ids = {place: record_id(self.thread, self.state.batch, place) for place in places}
        self._fetch(ids.values())
        return {place: record_from(doc.source) for place, name in ids.items() if (doc := self._docs[name]) is not None}

    def full_record(self, place: int) -> Record | None:
        """The record as it is now, with its items."""
        found = self.client.get_many(self.thread, [record_id(self.thread, self.state.batch, place)])
        return next((record_from(doc.source) for doc in found.values()), None)

    def visible(self, record: Record | None) -> Record | None:
        """The record as readers may see it, if it is a checkpoint that is there."""
        return visible(self.state, self.removed, record)

    def find(self, namespace: str, checkpoint_id: str) -> Record | None:
        """A checkpoint by its id."""
        if not self.state.there(now()):
            return None
        name = (namespace, checkpoint_id)
        for place in self._places(name):
            record = self.visible(self.record(place))
            if record is not None and (record.namespace, record.checkpoint_id) == name:
                return record
        return None

    def _places(self, name: tuple[str, str]) -> Iterator[int]:
        """Where a checkpoint of that name may be: among the last ones, by its name, or in what was copied."""
        if name in self.state.names:
            yield self.state.names[name]
            return
        for batch in ("", self.state.batch) if self.state.batch else ("",):
            doc = self.doc(name_id(self.thread, *name, batch))
            if doc is not None:
                yield int(doc.source["body"]["place"])

    def latest(self, namespace: str) -> Record | None:
        """The newest checkpoint of a namespace."""
        if not self.state.there(now()):
            return None
        place = self.state.tips.get(namespace)
        if place is not None:
            record = self.visible(self.record(place))
            if record is None:
                raise Torn
            return record
        return self._searched(namespace) if self.state.more else None

    def _searched(self, namespace: str) -> Record | None:
        """The newest checkpoint of a namespace that was not in use for long."""
        self.client.refresh()
        body = {
            "query": {"bool": {"filter": [*live_filter(self.thread, self.state), {"term": {"namespace": namespace}}]}},
            "sort": [{"seq": "desc"}],
            "_source": {"excludes": LIGHT.split(",") if self._light else []},
        }
        for hits in self.client.pages(body, self.thread, size=20):
            for hit in hits:
                record = self.visible(record_from(hit.source))
                if record is not None:
                    return record
        return None

    def append(self, record: Record) -> bool:
        """Create the next record: the commit. False if another writer was faster."""
        (done,) = self.client.write(self.thread, [BulkItem("create", record.id, record_source(record))])
        if done:
            self.state = after(self.state, record)
        return done

    def publish(self) -> None:
        """Write the document of the thread, and before it the names that it no longer has to tell."""
        state = self.state
        writes = [
            BulkItem("index", name_id(self.thread, *name), name_source(self.thread, place, place), version=place)
            for name, place in state.names.items()
        ]
        document = thread_source(self.thread, state, now())
        writes.append(BulkItem("index", self.thread, document, version=state.position))
        for attempt in range(8):
            done = self.client.write(self.thread, writes)
            writes = self._not_there([write for write, is_done in zip(writes, done, strict=True) if not is_done])
            if not writes:
                self.state = replace(state, names={}, published=published_by(state))
                return
            # A document of that id was removed a moment ago, and its version is not forgotten yet.
            back_off(attempt)
            self.client.refresh()
        raise Failure(409, "removed a moment ago", f"thread {self.thread_id!r} cannot be listed yet")

    def _not_there(self, refused: list[BulkItem]) -> list[BulkItem]:
        """Of documents that were refused, those that are not there already as they are, or newer."""
        if not refused:
            return []
        found = self.client.get_many(self.thread, [write.id for write in refused])
        return [
            write for write in refused if write.id not in found or told_position(found[write.id]) < (write.version or 0)
        ]


def told_position(doc: Document) -> int:
    """The record that a derived document was made of."""
    about = doc.source if doc.source["kind"] == NAME else doc.source["body"]["state"]
    return int(about["position"])


class Torn(Exception):
    """What was read was being removed at that moment: look again."""


def name_source(thread: str, place: int, position: int) -> dict[str, object]:
    return {"kind": NAME, "thread": thread, "position": position, "body": {"place": place}}


def visible(state: State, removed: Removed | None, record: Record | None) -> Record | None:
    """The record as readers may see it, if it is a checkpoint that is there in this state."""
    if record is None or record.kind != CHECKPOINT:
        return None
    if not state.epoch < record.position or record.batch not in ("", state.batch):
        return None
    if removed is None:
        return record
    if record.place in removed.places:
        return None
    return replace(record, parent_id=removed.parents.get(record.place, record.parent_id))


def live_filter(thread: str, state: State, *kinds: str) -> list[dict[str, object]]:
    """The clauses of a query for the checkpoints (or other kinds) of a thread."""
    copied: dict[str, object] = {"bool": {"must_not": {"exists": {"field": "batch"}}}}
    if state.batch:
        copied = {"bool": {"should": [copied, {"term": {"batch": state.batch}}]}}
    return [
        {"term": {"thread": thread}},
        {"terms": {"kind": list(kinds or (CHECKPOINT,))}},
        {"range": {"position": {"gt": state.epoch, "lte": state.position}}},
        copied,
    ]
