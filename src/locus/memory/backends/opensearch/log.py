"""The log of one thread: its state, read and extended, and the cache that saves a handle from reading it first.

`schema` describes the documents. Everything here is read by id, in real time, except where a method says that it
searches.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.client import (
    BUSY,
    RACE,
    BulkItem,
    Client,
    Failure,
    Json,
    StoredDocument,
    filtered,
)
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    END,
    GONE,
    MAX_LAG,
    NAME,
    RUNS,
    WRITE,
    CheckpointName,
    DocumentSource,
    LogRemoval,
    Record,
    RunKey,
    RunLocation,
    StoredRun,
    ThreadState,
    name_id,
    name_source,
    now_micros,
    record_from,
    record_id,
    record_source,
    state_from,
    thread_source,
    thread_state_from,
)
from locus.memory.model.ids import digest, shown_thread
from locus.memory.model.records import Known
from locus.memory.runtime.forks import ForkGuard

KNOWN_NAMESPACES = 32
"""The number of namespaces whose latest checkpoint a state has: of those that were last in use."""

CONTENTS = "body.head,body.runs.items"
"""The large fields of a record. Only loads need them."""
WITHOUT_CONTENTS: Json = {"excludes": CONTENTS.split(",")}

FORBIDDEN = 403

RECORDS_PER_REQUEST = 200
"""The number of records that are read or written at once if they have their contents."""


class ConcurrentRemoval(Exception):
    """Raised if a record is being removed while it is read: read again."""


class Log:
    """One thread, for one operation. `thread` is the digest of its id, which all its documents have as routing."""

    def __init__(self, client: Client, cache: ThreadCache, thread_id: str) -> None:
        self.client = client
        self.cache = cache
        self.thread_id = thread_id
        self.thread = digest(thread_id)
        self.state = ThreadState(thread_id)
        self.pending_removal: LogRemoval | None = None
        """The changes that an unfinished removal makes."""
        self._documents: dict[str, StoredDocument | None] = {}
        self._with_contents = False

    def use_cached_state(self) -> bool:
        """Take the cached state without reading. Only a commit can tell whether it is still true."""
        cached = self.cache.get(self.thread)
        if cached is None or cached.state.removing:
            return False
        self.state, self.pending_removal = cached.state, None
        return True

    def read_state(
        self, *, names: Iterable[CheckpointName] = (), latest: str | None = None, with_contents: bool = False
    ) -> ThreadState:
        """Read the current state, together with documents that will be needed next.

        These are the documents of `names`, and the latest checkpoint of a namespace.
        """
        self._documents.clear()
        self._with_contents = with_contents
        wanted = [name_id(self.thread, *name) for name in names]
        for attempt in range(8):
            cached = self.cache.get(self.thread) if attempt == 0 else None
            if cached is not None:
                self.state = cached.state
            elif not self._read_thread(wanted):
                return self.state
            if self._read_new_records(wanted if cached else [], latest):
                if self.state.is_unlisted and self.client.may_write:
                    self._list_late()
                return self.state
            self.cache.drop(self.thread)
            self._documents.clear()
            RACE.block(attempt)
        raise CorruptCheckpointError(f"the log of {shown_thread(self.thread_id)} has a gap: a record is missing")

    def _list_late(self) -> None:
        """List a thread whose first writer was killed before that: a thread that somebody has read must be in lists."""
        as_read = self.state
        try:
            self.publish()
        except Failure as failure:
            if failure.status != FORBIDDEN:
                raise  # else reading is all that the user may do, or that a full disk allows
        finally:
            # The documents of names were read before they were written here: only this state tells where they are.
            self.state = as_read

    def _read_thread(self, wanted: list[str]) -> bool:
        """Take the state from the document of the thread. False if neither that nor a first record exists."""
        first = record_id(self.thread, "", 1)
        self._fetch([self.thread, first, *wanted], without_source=(first,))
        first_record = self._documents.pop(first)
        document = self._documents[self.thread]
        if document is None:
            self.state = ThreadState(self.thread_id)
        else:
            self.state = thread_state_from(self.thread_id, document.source)
        self.pending_removal = None
        if document is None and first_record is None:
            self.cache.put(self.thread, self.state)
            return False
        return True

    def _read_new_records(self, wanted: list[str], latest: str | None) -> bool:
        """Add the records after the state. False if one of them was emptied already: then the state is too old.

        Also False if one is missing and a later one exists. That may be a race, because documents are read one after
        another. If it stays so, the record is lost, and nothing after it can be read or added to.
        """
        state, changes_before = self.state, self.state.changes
        while True:
            ahead = self.ids_ahead(state.position)
            others = [record_id(self.thread, "", state.removing)] if state.removing else []
            place = state.latest_places.get(latest) if latest is not None else None
            if place is not None:
                others.append(record_id(self.thread, state.batch, place))
            self._fetch([*ahead, *others, *wanted])
            wanted = []
            for at, doc_id in enumerate(ahead):
                document = self._documents.get(doc_id)
                if document is None:
                    if any(self._documents.get(later) is not None for later in ahead[at + 1 :]):
                        return False
                    break
                record = record_from(document.source)
                if record.kind == GONE:
                    return False
                state = next_state(state, record)
            else:
                continue
            break
        self.state = state
        if state.changes != changes_before:
            self.cache.drop(self.thread)
        self.pending_removal = self._find_pending_removal()
        if state.live:
            # Without a checkpoint it may be swept at any time, and begin again with record 1. Then a handle that adds a
            # later record would hide that: whoever read of it now may not rely on it later.
            self.cache.put(self.thread, self.state)
        return True

    def ids_ahead(self, position: int) -> list[str]:
        """The documents that may hold the records after a position."""
        return [record_id(self.thread, "", position + step) for step in range(1, MAX_LAG + 1)]

    def _find_pending_removal(self) -> LogRemoval | None:
        """Find the changes of an unfinished removal. A finished one is dropped from the state."""
        if not self.state.removing:
            return None
        record = self.record(self.state.removing)
        removal = None if record is None else record.removal
        if removal is None:
            self.state = replace(self.state, removing=0)
        return removal

    def _fetch(self, ids: Iterable[str], without_source: Collection[str] = ()) -> None:
        missing = [doc_id for doc_id in ids if doc_id not in self._documents]
        if missing:
            self._documents |= dict.fromkeys(missing)
            excludes = "" if self._with_contents else CONTENTS
            self._documents |= self.client.get_many(
                self.thread, missing, excludes=excludes, without_source=without_source
            )

    def document(self, doc_id: str) -> StoredDocument | None:
        self._fetch([doc_id])
        return self._documents[doc_id]

    def record(self, place: int) -> Record | None:
        """The record at a place. It has its contents if `read_state` was asked for them."""
        return self.records([place]).get(place)

    def records(self, places: Iterable[int]) -> dict[int, Record]:
        """Read those of these records that exist, by their places."""
        return {place: record_from(source) for place, source in self.sources(places).items()}

    def sources(self, places: Iterable[int]) -> dict[int, DocumentSource]:
        """Read those of these records that exist, as they are stored, by their places."""
        ids = {place: record_id(self.thread, self.state.batch, place) for place in places}
        self._fetch(ids.values())
        return {
            place: document.source for place, doc_id in ids.items() if (document := self._documents[doc_id]) is not None
        }

    def read_record(self, place: int) -> Record | None:
        """Read a record with its contents."""
        found = self.client.get_many(self.thread, [record_id(self.thread, self.state.batch, place)])
        return next((record_from(document.source) for document in found.values()), None)

    def each_record(self) -> Iterator[Record]:
        """Yield all records that hold checkpoints or runs, with their contents; only some are in memory at once."""
        self.client.refresh()
        for hits in self.client.pages(self._records_body(), self.thread, RECORDS_PER_REQUEST):
            yield from (record_from(hit.source) for hit in hits)

    def _records_body(self, **more: Any) -> Json:
        clauses = live_filter(self.thread, self.state, CHECKPOINT, RUNS)
        return filtered(*clauses, sort=[{"seq": "asc"}, {"position": "asc"}], **more)

    def all_records(self, *, with_contents: bool = False) -> list[Record]:
        """Search for all records that hold checkpoints or runs, in the order of their sequence numbers."""
        self.client.refresh()
        body = self._records_body() if with_contents else self._records_body(_source=WITHOUT_CONTENTS)
        size = RECORDS_PER_REQUEST if with_contents else 1_000
        return [record_from(hit.source) for hits in self.client.pages(body, self.thread, size) for hit in hits]

    def visible(self, record: Record | None) -> Record | None:
        """The record as readers may see it, if it is a checkpoint of the current thread."""
        return visible(self.state, self.pending_removal, record)

    def visible_checkpoints(self, records: Iterable[Record]) -> list[Record]:
        return [found for record in records if (found := self.visible(record)) is not None]

    def find(self, namespace: str, checkpoint_id: str) -> Record | None:
        """Find a checkpoint by its id."""
        if not self.state.exists(now_micros()):
            return None
        name = (namespace, checkpoint_id)
        for place in self._possible_places(name):
            record = self.visible(self.record(place))
            if record is not None and record.name == name:
                return record
        return None

    def _possible_places(self, name: CheckpointName) -> Iterator[int]:
        """The places where a checkpoint may be: after the published position, as its name says, or in the copy."""
        if name in self.state.unpublished:
            yield self.state.unpublished[name]
            return
        for doc_id in self._name_ids(name):
            document = self.document(doc_id)
            if document is not None:
                yield int(document.source["body"]["place"])

    def _name_ids(self, name: CheckpointName) -> list[str]:
        batches = ("", self.state.batch) if self.state.batch else ("",)
        return [name_id(self.thread, *name, batch) for batch in batches]

    def ids_to_find(self, name: CheckpointName) -> list[str]:
        """The documents that `find` needs first."""
        place = self.state.unpublished.get(name)
        return self._name_ids(name) if place is None else [record_id(self.thread, self.state.batch, place)]

    def latest(self, namespace: str) -> Record | None:
        """Find the latest checkpoint of a namespace."""
        if not self.state.exists(now_micros()):
            return None
        place = self.state.latest_places.get(namespace)
        if place is not None:
            record = self.visible(self.record(place))
            if record is None:
                raise ConcurrentRemoval
            return record
        return self._search_latest(namespace) if self.state.more else None

    def _search_latest(self, namespace: str) -> Record | None:
        """Search for the latest checkpoint of a namespace that has not been in use for long."""
        self.client.refresh()
        clauses: list[Json] = [*live_filter(self.thread, self.state), {"term": {"namespace": namespace}}]
        body = filtered(*clauses, sort=[{"seq": "desc"}], _source=True if self._with_contents else WITHOUT_CONTENTS)
        for hits in self.client.pages(body, self.thread, size=20):
            for hit in hits:
                record = self.visible(record_from(hit.source))
                if record is not None:
                    return record
        return None

    def pending_writes(self, *clauses: Mapping[str, object]) -> list[StoredDocument]:
        """Search for the documents of pending writes that readers may see."""
        self.client.refresh()
        body = filtered({"term": {"thread": self.thread}}, {"term": {"kind": WRITE}}, *clauses, sort=WRITES_ORDER)
        hits = [hit for page in self.client.pages(body, self.thread) for hit in page]
        return self.visible_writes(hits)

    def visible_writes(self, documents: Iterable[StoredDocument]) -> list[StoredDocument]:
        """Choose the pending writes that readers may see. Writes of a task since a copy replace the copied ones."""
        found: dict[tuple[str, str, str], StoredDocument] = {}
        for document in documents:
            key = (*writes_name(document), document.source["task_id"])
            if self._writes_visible(document) and (key not in found or "batch" not in document.source):
                found[key] = document
        return list(found.values())

    def _writes_visible(self, document: StoredDocument) -> bool:
        """Tell whether pending writes belong to this epoch, and not to a checkpoint that is being removed."""
        source = document.source
        if source["epoch"] != self.state.epoch or source.get("batch", "") not in ("", self.state.batch):
            return False
        if self.state.expired(now_micros()):
            return False
        removal = self.pending_removal
        if removal is None or writes_name(document) not in removal.names:
            return True
        return bool(source["position"] >= self.state.removing)

    def server_time(self) -> int:
        """The time by the clock of the cluster, by which sweeps decide what is old enough."""
        return self.cache.server_time(self.client)

    def append(self, record: Record) -> bool:
        """Create the next record: the commit. False if another writer was faster."""
        (done,) = self.client.write(self.thread, [creation(record)])
        if not done:
            found = self.client.get_many(self.thread, [record.id], excludes=CONTENTS)
            done = is_same(record, found.get(record.id))
        if done:
            self.note_appended(record)
        return done

    def note_appended(self, record: Record) -> None:
        self.state = next_state(self.state, record)

    def publish(self) -> None:
        """Write the names of the unpublished checkpoints, and then the document of the thread."""
        items = self.items_to_publish()
        for attempt in range(8):
            done = self.client.write(self.thread, items)
            items = self._outdated([item for item, is_done in zip(items, done, strict=True) if not is_done])
            if not items:
                self.note_published()
                return
            # A document with that id was deleted a moment ago, and the server still knows its version.
            BUSY.block(attempt)
            self.client.refresh()
        raise Failure(409, "removed a moment ago", f"thread {self.thread_id!r} cannot be listed yet")

    def items_to_publish(self) -> list[BulkItem]:
        state = self.state
        items = [
            BulkItem("index", name_id(self.thread, *name), name_source(self.thread, place, place), version=place)
            for name, place in state.unpublished.items()
        ]
        # How long a thread has had no checkpoint decides when its document is swept.
        now = now_micros() if state.live else self.server_time()
        document = thread_source(self.thread, state, now)
        return [*items, BulkItem("index", self.thread, document, version=state.position)]

    def note_published(self) -> None:
        self.state = replace(self.state, unpublished={}, published=self.state.as_published())

    def _outdated(self, refused: list[BulkItem]) -> list[BulkItem]:
        """Choose those refused items whose document does not exist, or is older than the item."""
        if not refused:
            return []
        found = self.client.get_many(self.thread, [item.id for item in refused])
        return [item for item in refused if item.id not in found or _position_in(found[item.id]) < (item.version or 0)]


def creation(record: Record) -> BulkItem:
    """The item that adds a record to its log, unless another writer was faster."""
    return BulkItem("create", record.id, record_source(record))


def is_same(record: Record, found: StoredDocument | None) -> bool:
    """Tell whether the document in the place of a record is that very record.

    The driver sends a request again if its connection broke, and the second time the record exists.
    """
    return found is not None and record_from(found.source).rev == record.rev


def _position_in(document: StoredDocument) -> int:
    """The position of the record from which a name, or the document of a thread, was made."""
    source = document.source
    return int((source if source["kind"] == NAME else source["body"]["state"])["position"])


def next_state(state: ThreadState, record: Record) -> ThreadState:
    """The state after the next record of the log."""
    if record.kind == GONE or record.position != state.position + 1:
        raise CorruptCheckpointError(f"record {record.position} of {shown_thread(state.thread_id)} is missing")
    if record.after and state.rev and record.after != state.rev:
        raise CorruptCheckpointError(
            f"record {record.position} of {shown_thread(state.thread_id)} follows one that was lost"
        )
    if record.state is not None:
        unpublished = {} if record.kind == END else dict(state.unpublished)
        if record.kind == CHECKPOINT:
            unpublished[record.name] = record.place
        restored = state_from(state.thread_id, record.state)
        return replace(restored, unpublished=unpublished, published=state.published, rev=record.rev)
    if record.epoch != state.epoch:
        state = replace(state.restarted(), epoch=record.epoch)
    latest_places = dict(state.latest_places)
    latest_places.pop(record.namespace, None)
    latest_places[record.namespace] = record.place
    more = state.more
    if len(latest_places) > KNOWN_NAMESPACES:
        more = True
        del latest_places[next(iter(latest_places))]
    return replace(
        state,
        position=record.position,
        last_seq=record.seq,
        rev=record.rev,
        live=state.live + 1,
        order=record.order,
        latest_places=latest_places,
        more=more,
        expires=record.expires,
        life=record.life,
        unpublished={**state.unpublished, record.name: record.place},
    )


def visible(state: ThreadState, removal: LogRemoval | None, record: Record | None) -> Record | None:
    """The record as readers may see it, if it is a checkpoint of the thread in this state."""
    if record is None or record.kind != CHECKPOINT:
        return None
    if not state.epoch < record.position or record.batch not in ("", state.batch):
        return None
    if removal is None:
        return record
    if record.place in removal.places:
        return None
    return replace(record, parent_id=removal.parents.get(record.place, record.parent_id))


def live_filter(thread: str, state: ThreadState, *kinds: str) -> list[dict[str, object]]:
    """The clauses of a query for the checkpoints (or other kinds) of a thread."""
    in_batch: dict[str, object] = {"bool": {"must_not": {"exists": {"field": "batch"}}}}
    if state.batch:
        in_batch = {"bool": {"should": [in_batch, {"term": {"batch": state.batch}}]}}
    return [
        {"term": {"thread": thread}},
        {"terms": {"kind": list(kinds or (CHECKPOINT,))}},
        {"range": {"position": {"gt": state.epoch, "lte": state.position}}},
        in_batch,
    ]


IN_BATCH: Json = {"batch": {"order": "asc", "missing": "_first"}}
"""The last key of every sort over documents of several batches. It tells a document from its copy."""
WRITES_ORDER: list[Json] = [
    {"checkpoint_id": "asc"},
    {"namespace": "asc"},
    {"task_id": "asc"},
    {"position": "asc"},
    IN_BATCH,
]


def writes_name(document: StoredDocument) -> CheckpointName:
    """The namespace and the id of the checkpoint that pending writes belong to."""
    return document.source["namespace"], document.source["checkpoint_id"]


CACHE_SECONDS = 600.0
"""The seconds for which a handle may rely on a cached state, and on a time that the cluster has told."""
MAX_CACHED_THREADS = 1_024
MAX_CACHED_BASES = 8


@dataclass(frozen=True, slots=True)
class KnownBase(Known):
    """A checkpoint that a save may build on."""

    place: int
    locations: Mapping[RunKey, RunLocation]
    """The locations of the runs that its manifest names."""
    runs: Mapping[RunKey, StoredRun] = field(default_factory=dict)
    """Those of its runs that are known, without their items."""


def base_from(record: Record, runs: Mapping[RunKey, StoredRun] | None = None) -> KnownBase:
    """A base with the runs of its own record, and those of `runs` that its manifest names."""
    own = {stored.key: stored.without_items() for stored in record.runs}
    locations = record.locations_by_run()
    others = {key: stored for key, stored in (runs or {}).items() if key in locations}
    return KnownBase(
        record.checkpoint_id, record.seq, record.rev, record.parent_id, record.place, locations, {**others, **own}
    )


@dataclass
class CachedLog:
    """The state of a thread when a handle last saw it, and checkpoints that existed then."""

    state: ThreadState
    bases: OrderedDict[CheckpointName, KnownBase]
    monotonic: float
    wall: float

    @property
    def fresh(self) -> bool:
        return _is_fresh(self.monotonic, self.wall)


@dataclass(frozen=True, slots=True)
class ToldTime:
    """A time that the cluster has told, in microseconds, and when it was asked."""

    micros: int
    monotonic: float
    wall: float

    @property
    def fresh(self) -> bool:
        return _is_fresh(self.monotonic, self.wall)


def _is_fresh(monotonic: float, wall: float) -> bool:
    """Tell whether a moment is less than `CACHE_SECONDS` ago, by both clocks: one stops while a machine sleeps."""
    return max(time.monotonic() - monotonic, abs(time.time() - wall)) < CACHE_SECONDS


class ThreadCache(ForkGuard):
    """The threads that a handle knows; the least recently used are dropped. Safe to use from several OS threads.

    It also holds the time that the cluster has told.
    """

    def __init__(self) -> None:
        self._threads: OrderedDict[str, CachedLog] = OrderedDict()
        self._told: ToldTime | None = None
        super().__init__()

    def get(self, thread: str) -> CachedLog | None:
        with self._lock:
            cached = self._threads.get(thread)
            if cached is not None and not cached.fresh:
                del self._threads[thread]
                return None
            return cached

    def put(self, thread: str, state: ThreadState, base: KnownBase | None = None, namespace: str = "") -> None:
        """Keep a state, unless a newer one is cached. Known bases stay, unless something was removed since."""
        with self._lock:
            before = self._threads.pop(thread, None)
            if before is not None and before.state.position > state.position:
                self._threads[thread] = before
                return
            bases: OrderedDict[CheckpointName, KnownBase] = OrderedDict()
            if before is not None and before.state.changes == state.changes:
                bases = OrderedDict(before.bases)
            if base is not None:
                bases.pop((namespace, base.checkpoint_id), None)
                bases[namespace, base.checkpoint_id] = base
                while len(bases) > MAX_CACHED_BASES:
                    bases.popitem(last=False)
            self._threads[thread] = CachedLog(state, bases, time.monotonic(), time.time())
            while len(self._threads) > MAX_CACHED_THREADS:
                self._threads.popitem(last=False)

    def drop(self, thread: str) -> None:
        with self._lock:
            self._threads.pop(thread, None)

    def server_time(self, client: Client) -> int:
        """The time by the clock of the cluster, or up to ten minutes less: it is not asked each time.

        The clock of a machine may be off by days. Whoever went by that could forget what other handles still rely on.
        """
        told = self._told
        if told is None or not told.fresh:
            told = self._told = ToldTime(client.server_time(), time.monotonic(), time.time())
        return told.micros

    def clear(self) -> None:
        with self._lock:
            self._threads.clear()
            self._told = None
