"""The documents of a store in OpenSearch: the index, the ids, the records of a log, and the state of a thread. No I/O.

One index holds everything. All documents of a thread have the digest of its id as routing, so they share a shard::

    d.7          record 7 of the log of the thread with the digest d: a checkpoint (with the runs that it
                 brought), a removal, an end, a copy
    d            the thread: its id, and the state that its log adds up to
    d.i.<digest> a name: the place of the checkpoint with a namespace and an id
    d.w.<digest> the pending writes of one task
    d.<batch>.7  record 7 of a copy
    d.<batch>    the intent to write that copy, until it is visible

**The log.** OpenSearch has no transactions, but `create` succeeds for one writer only. So a thread is a log: a writer
changes it by creating the next record. One document is the whole commit, and a save is one request. If another writer
was faster, the record exists already; the slower one reads it and decides again. No document is ever uncommitted.

**The other documents** follow from the log. The thread's document is rewritten every `MAX_LAG` records, and whenever
the list of threads, a removal or an expiry needs it. If the first writer dies before that, whoever reads the thread
next writes it. Its external version is the position of the last record in it, so it never goes back. Names are written
before it. A reader gets this document and the records after it, all by id, which OpenSearch answers in real time. Lists
are searches, after a refresh.

**Places.** The place of a record in the log is its position. The places of copied records are negative: the record
`d.<batch>.7` has the place -7, and the position of the `copy` record that made the batch visible.

**Removals.** A removal is a record as well: it says which checkpoints go, and which ones get another parent. From then
on readers leave them out. Then the thread's document is written, which points to the removal, and the documents are
cleaned up: a checkpoint whose runs are still needed becomes `runs`, any other becomes `gone`. At last the removal
itself becomes `gone`. If a writer dies on the way, the pointer stays, and the next writer who removes something
finishes the removal.

**Epochs.** An `end` (or a save after the thread expired) begins a new epoch: records up to that position are dead.

**Stubs.** A handle that has cached record 6 may create record 7 without reading first. So a position must not become
free while a handle may have cached the one before: `gone` records stay for a day (`STUB_LIFETIME`), and handles rely
on their cache for ten minutes. `at` of whatever is swept by its age (`gone`, `end`, an intent, a thread without
checkpoints) is the time of the removal, or of the copy, by the clock of the cluster. A save does not ask for that: `at`
of its record goes by the clock of the machine, and decides nothing.

**Runs.** A run is inside the record that brought it, so a reader must know which records to get. Each run refers to
earlier runs of its branch: to all in its own block of `BLOCK` numbers, and to the last one of each older block, which
has references of its own; and so on for blocks of blocks::

    run 70 (blocks of 32)      31   63   64 65 66 67 68 69
                               |    |
                               0-30 32-62

A thousand runs are two steps away, and a run has a few dozen references at most. A reference also says where the list
ended after its run, and (in `starts`) the lowest position at which one of the runs begins that it stands for. So a
reader of a part gets neither the runs before that part, nor those behind it, nor those that later ones hide. Runs that
an earlier version has stored have no `starts`; then only what is before the part is left out.

**Damage.** A checkpoint and each of its runs have a checksum (`sum`), a run the digest of what precedes it (`before`,
see `locus.memory.model.digests`), and a checkpoint the rev of the record before it (`after`), so that no record can
take the place of one that was lost. Documents of format 1 have none of these. `_meta` of the mapping has the format of
the index; a newer one may say there from which format on it can be used (see `locus.memory.model.formats`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.model.codec import canonical, checksum, decode, run_checksum, texts_in
from locus.memory.model.ids import digest, shown_thread, words
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Entry, Extent, Known, Run, RunInfo

FORMAT: Final = 2

MAX_LAG: Final = 16
"""The number of records that the document of a thread may be behind the log."""

STUB_LIFETIME: Final = 24 * 3_600 * 1_000_000
"""The microseconds for which an emptied record stays, so that its position is not used again."""

DocumentSource = Mapping[str, Any]
"""A document as OpenSearch returns it."""

CheckpointName = tuple[str, str]
"""The namespace and the id of a checkpoint."""

RunKey = tuple[str, int]
"""The branch and the number of a run."""

# The kinds of records in the log, and of all other documents.
CHECKPOINT, RUNS, REMOVAL, END, COPY, GONE = "checkpoint", "runs", "removal", "end", "copy", "gone"
THREAD, NAME, WRITE, INTENT = "thread", "name", "write", "intent"

_KEYWORD = {"type": "keyword"}
_NUMBER = {"type": "long"}

MAPPING: Final[dict[str, Any]] = {
    "dynamic": "strict",
    "_meta": {"locus_format": FORMAT},
    "_routing": {"required": True},
    # Words only have to be found, and follow from the other fields: storing their text would double the size.
    "_source": {"excludes": ["words"]},
    "properties": {
        "kind": _KEYWORD,
        "thread": _KEYWORD,
        "thread_id": _KEYWORD,
        "namespace": _KEYWORD,
        "checkpoint_id": _KEYWORD,
        "task_id": _KEYWORD,
        "batch": _KEYWORD,
        "position": _NUMBER,
        "seq": _NUMBER,
        "epoch": _NUMBER,
        "order": _NUMBER,
        "live": _NUMBER,
        "expires": _NUMBER,
        "at": _NUMBER,
        # Digests of keys with their values: a key may have any name, and values of any type.
        "metadata": _KEYWORD,
        "words": {"type": "text", "analyzer": "whitespace", "index_options": "freqs"},
        "body": {"type": "object", "enabled": False},
    },
}


def index_settings(shards: int, replicas: int | None) -> dict[str, Any]:
    """The settings of a new index. If `replicas` is None, there is one as soon as there is a second node."""
    copies = {"auto_expand_replicas": "0-1"} if replicas is None else {"number_of_replicas": replicas}
    # For as long as `gc_deletes`, the version of a deleted document blocks a new one with the same id.
    return {"number_of_shards": shards, "translog.durability": "request", "gc_deletes": "1s", **copies}


def record_id(thread: str, batch: str, place: int) -> str:
    """The document id of a record."""
    return f"{thread}.{place}" if place > 0 else f"{thread}.{batch}.{-place}"


def name_id(thread: str, namespace: str, checkpoint_id: str, batch: str = "") -> str:
    name = f"{thread}.i.{digest(canonical([namespace, checkpoint_id]))}"
    return f"{name}.{batch}" if batch else name


def writes_id(thread: str, namespace: str, checkpoint_id: str, task_id: str, batch: str = "") -> str:
    name = f"{thread}.w.{digest(canonical([namespace, checkpoint_id, task_id]))}"
    return f"{name}.{batch}" if batch else name


def intent_id(thread: str, batch: str) -> str:
    return f"{thread}.{batch}"


def name_source(thread: str, place: int, position: int) -> dict[str, object]:
    """The document of a name."""
    return {"kind": NAME, "thread": thread, "position": position, "body": {"place": place}}


def metadata_term(key: str, value: str) -> str:
    """The term by which a key with a value (canonical JSON) is found."""
    return digest(canonical([key, value]))


MAX_WORD_LENGTH: Final = 200


def indexed_word(word: str) -> str:
    """A word as the index has it. Lucene refuses very long ones, so they are replaced by a digest."""
    return word if len(word) <= MAX_WORD_LENGTH else f"#{digest(word)}"


def indexed_words(*values: Any) -> str:
    """All words of some JSON values as one text for the index. Very long words are replaced by digests."""
    found = words("\n".join(text for value in values for text in texts_in(value)))
    if max(map(len, found), default=0) > MAX_WORD_LENGTH:
        found = [indexed_word(word) for word in found]
    return " ".join(found)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def now_micros() -> int:
    return to_micros(datetime.now(UTC))


BLOCK = 32


class RunRef(NamedTuple):
    """A reference to an earlier run: its number, the place of its record, and the length of the list after it."""

    number: int
    place: int
    end: int
    start: int | None = None
    """The lowest position at which a run begins that is found through this reference; None if that is not known."""


EarlierRuns = tuple[RunRef, ...]
"""The references of a run, oldest first. Stored as `trail` and `starts`."""


def extend_earlier_runs(earlier: EarlierRuns, last: RunRef) -> EarlierRuns:
    """The references of the run that follows `last`, given the references of `last` itself."""
    following, span = last.number + 1, 1
    while following % (span * BLOCK) == 0:
        span *= BLOCK
    if span == 1:
        return (*earlier, last)
    closed = following - span
    starts = [ref.start for ref in (*earlier, last) if ref.number >= closed]
    known = [start for start in starts if start is not None]
    lowest = min(known) if len(known) == len(starts) else None
    return (*(ref for ref in earlier if ref.number < closed), last._replace(start=lowest))


def pack_earlier_runs(earlier: EarlierRuns) -> list[int]:
    """Pack references as numbers: each as its difference from the one before, which is mostly the same."""
    numbers: list[int] = []
    before = RunRef(0, 0, 0)
    for ref in earlier:
        numbers += [ref.number - before.number, ref.place - before.place, ref.end - before.end]
        before = ref
    return numbers


def pack_starts(earlier: EarlierRuns) -> list[int] | None:
    """Pack the starts of references: how far each is before the end of the reference before it. None if one is unknown.

    If items were only ever appended, all of them are 0. Then the list is empty.
    """
    numbers: list[int] = []
    end = 0
    for ref in earlier:
        if ref.start is None:
            return None
        numbers.append(end - ref.start)
        end = ref.end
    return numbers if any(numbers) else []


def unpack_earlier_runs(numbers: Sequence[int], starts: Sequence[int] | None = None) -> EarlierRuns:
    """The inverse of `pack_earlier_runs` and `pack_starts`."""
    if len(numbers) % 3 or (starts and len(starts) * 3 != len(numbers)):
        raise ValueError("a trail of threes expected, and as many starts")
    refs: list[RunRef] = []
    number = place = end = 0
    for at in range(0, len(numbers), 3):
        start = None if starts is None else end - starts[at // 3] if starts else end
        number, place, end = number + numbers[at], place + numbers[at + 1], end + numbers[at + 2]
        refs.append(RunRef(number, place, end, start))
    return tuple(refs)


def refs_to_follow(
    earlier: Sequence[RunRef], skip: int, floor: int, limit: int | None = None
) -> Iterator[tuple[RunRef, int]]:
    """The references that a reader of the list from index `skip` to `limit` has to follow, newest first.

    Each has a floor of its own: runs with a number up to `floor` are found through another reference. The list had the
    length `end` after a run, so newer runs brought everything behind that, and a reader who skips up to there needs no
    older run. Runs that begin at `limit` or behind it are not needed. After a run was followed, that also holds for
    runs that begin at its start or behind it.
    """
    above = [ref for ref in earlier if ref.number > floor]
    for index in range(len(above) - 1, -1, -1):
        ref = above[index]
        if ref.end <= skip or (limit is not None and limit <= skip):
            return
        if ref.start is None:
            yield ref, above[index - 1].number if index else floor
        elif limit is None or ref.start < limit:
            yield ref, above[index - 1].number if index else floor
            limit = ref.start


def likely_places(earlier: Sequence[RunRef], last: RunRef, floor: int, skip: int, limit: int) -> range:
    """The places where runs of a block probably are, above the number `floor` and without the last run.

    `skip` and `limit` bound the part of the list that a reader needs. The places are known if the block has as many
    places as runs. Which of them are needed is guessed: each brings as many items as the others. A reader who gets them
    with the last one saves a request.
    """
    before = max((ref for ref in earlier if ref.number < last.number), default=RunRef(-1, 0, 0))
    count, items = last.number - before.number, last.end - before.end
    if count != BLOCK or last.place - before.place != count or items <= 0:
        return range(0)
    first = last.place - min(last.number - floor - 1, (last.end - skip) * count // items)
    return range(first, last.place - max(0, last.end - limit) * count // items)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in a record, with references to earlier runs. Its `items` may be left out, and are empty then."""

    run: Run
    earlier: EarlierRuns = ()

    @property
    def key(self) -> RunKey:
        return self.run.branch, self.run.number

    @property
    def end(self) -> int:
        """The length of the list after this run."""
        return self.run.start + self.run.length

    def without_items(self) -> StoredRun:
        return StoredRun(self.run._replace(items=""), self.earlier)


@dataclass(frozen=True, slots=True)
class RunLocation:
    """The place of the record that has a run, and whether the run was the newest of its branch at the time."""

    place: int
    newest: bool


@dataclass(frozen=True, slots=True)
class LogRemoval:
    """The changes of a removal: the checkpoints that go, new parents (by place), and names whose pending writes go."""

    places: tuple[int, ...]
    parents: Mapping[int, str | None]
    names: tuple[CheckpointName, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a log, or of a copy. The fields of a checkpoint are empty in other kinds."""

    kind: str
    thread: str
    place: int
    position: int
    at: int
    batch: str = ""
    epoch: int = 0
    namespace: str = ""
    checkpoint_id: str = ""
    parent_id: str | None = None
    seq: int = 0
    rev: str = ""
    after: str = ""
    """The rev of the record before it, if that is known."""
    order: int = 0
    created: int = 0
    metadata: str = "{}"
    head: str = ""
    """The head; empty if it was left out."""
    manifest: str = "[]"
    run_locations: tuple[RunLocation, ...] = ()
    """The locations of the runs that the manifest names, in the order of `run_keys`. Stored as `tips`."""
    runs: tuple[StoredRun, ...] = ()
    expires: int | None = None
    life: int = 0
    """Microseconds from the save to its expiry."""
    removal: LogRemoval | None = None
    state: Mapping[str, Any] | None = field(default=None, compare=False)
    """The state of the thread after this record, unless it follows from the record itself."""
    extents: tuple[Extent, ...] | None = field(default=None, compare=False, repr=False)
    """Everything that the manifest names, from the commit; None if the record was read."""

    @property
    def id(self) -> str:
        return record_id(self.thread, self.batch, self.place)

    @property
    def name(self) -> CheckpointName:
        return self.namespace, self.checkpoint_id

    @property
    def known(self) -> Known:
        return Known(self.checkpoint_id, self.seq, self.rev, self.parent_id)

    def entry(self, thread_id: str) -> Entry:
        return Entry(
            thread_id,
            self.namespace,
            self.checkpoint_id,
            self.parent_id,
            self.seq,
            self.rev,
            from_micros(self.created),
            self.metadata,
        )

    def locations_by_run(self) -> dict[RunKey, RunLocation]:
        """The locations of the runs that the manifest names."""
        keys = run_keys(self.extents or wanted(self.manifest))
        if len(keys) != len(self.run_locations):
            raise CorruptCheckpointError(f"checkpoint {self.seq} does not say where its items are")
        return dict(zip(keys, self.run_locations, strict=True))

    def find_run(self, branch: str, number: int) -> StoredRun | None:
        for stored in self.runs:
            if stored.run.branch == branch and stored.run.number == number:
                return stored
        return None

    def emptied(self, runs: Sequence[StoredRun] = ()) -> Record:
        """The rest of a removed checkpoint: the runs that others need, or a stub that keeps its position."""
        left = Record(RUNS if runs else GONE, self.thread, self.place, self.position, self.at, self.batch, self.epoch)
        return replace(left, namespace=self.namespace, seq=self.seq, runs=tuple(runs)) if runs else left


def run_keys(extents: Iterable[Extent]) -> list[RunKey]:
    """The runs that these extents name, each once."""
    return list(dict.fromkeys([(extent.branch, extent.run) for extent in extents]))


def run_infos(record: Record) -> list[RunInfo]:
    return [RunInfo(*stored.run[:4]) for stored in record.runs]


def record_source(record: Record) -> dict[str, Any]:
    """The document of a record."""
    source: dict[str, Any] = {
        "kind": record.kind,
        "thread": record.thread,
        "position": record.position,
        "at": record.at,
    }
    if record.batch:
        source["batch"] = record.batch
    if record.kind in (CHECKPOINT, RUNS):
        source["seq"] = record.seq
        source["namespace"] = record.namespace
        source["words"] = _record_words(record)
    if record.kind == CHECKPOINT:
        source["order"] = record.order
        terms = [metadata_term(key, canonical(value)) for key, value in decode(record.metadata).items()]
        if terms:
            source["metadata"] = terms
    if record.kind != GONE:
        source["body"] = _record_body(record)
    return source


def _record_words(record: Record) -> str:
    values = [decode(stored.run.items) for stored in record.runs if stored.run.items]
    if record.kind == CHECKPOINT:
        values += [decode(record.head), decode(record.metadata)]
    return indexed_words(*values)


def _run_source(stored: StoredRun) -> dict[str, Any]:
    run = stored.run
    source: dict[str, Any] = {
        "branch": run.branch,
        "number": run.number,
        "start": run.start,
        "length": run.length,
        "items": run.items,
        "trail": pack_earlier_runs(stored.earlier),
        "sum": run_checksum(*run),
    }
    if stored.earlier and (starts := pack_starts(stored.earlier)) is not None:
        source["starts"] = starts
    return source if run.before is None else {**source, "before": run.before}


def _record_body(record: Record) -> dict[str, Any]:
    body: dict[str, Any] = {"epoch": record.epoch, "place": record.place}
    if record.runs:
        body["runs"] = [_run_source(stored) for stored in record.runs]
    if record.kind == CHECKPOINT:
        body |= {
            **({} if record.checkpoint_id == record.rev else {"id": record.checkpoint_id}),
            "parent": record.parent_id,
            "rev": record.rev,
            "created": record.created,
            "metadata": record.metadata,
            "head": record.head,
            "manifest": record.manifest,
            "tips": [[location.place, int(location.newest)] for location in record.run_locations],
            "sum": _checkpoint_checksum(record),
            **({"after": record.after} if record.after else {}),
        }
        if record.expires is not None:
            body |= {"expires": record.expires, "life": record.life}
    elif record.rev:
        body["rev"] = record.rev
    if record.removal is not None:
        body["removed"] = {
            "places": record.removal.places,
            "parents": [list(pair) for pair in record.removal.parents.items()],
            "names": record.removal.names,
        }
    if record.state is not None:
        body["state"] = record.state
    return body


def _checkpoint_checksum(record: Record) -> int:
    """The checksum of a checkpoint, without the parent, which a removal may change."""
    about = (record.namespace, record.checkpoint_id, record.seq, record.rev, record.created, record.metadata)
    return checksum(*about, record.head, record.manifest)


def record_from(source: DocumentSource) -> Record:
    """Read the record of a document. If that is damaged, `CorruptCheckpointError` is raised."""
    try:
        return _record_from(source)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptCheckpointError(f"a stored record cannot be read ({type(error).__name__})") from None


def _record_from(source: DocumentSource) -> Record:
    kind, position = source["kind"], int(source["position"])
    body = source.get("body") or {}
    record = Record(
        kind,
        source["thread"],
        int(body.get("place", position)),
        position,
        int(source["at"]),
        source.get("batch", ""),
        int(body.get("epoch", 0)),
        namespace=source.get("namespace", ""),
        seq=int(source.get("seq", 0)),
        rev=body.get("rev", ""),
        runs=tuple(stored_run(_items_from(run), run) for run in body.get("runs", ())),
        removal=_removal_from(body["removed"]) if "removed" in body else None,
        state=body.get("state"),
    )
    if kind != CHECKPOINT:
        return record
    record = replace(
        record,
        checkpoint_id=_text(body.get("id", body["rev"])),
        parent_id=body["parent"],
        order=int(source["order"]),
        created=int(body["created"]),
        metadata=_text(body["metadata"]),
        head=_text(body.get("head", "")),
        manifest=_text(body["manifest"]),
        run_locations=tuple(RunLocation(int(place), bool(newest)) for place, newest in body["tips"]),
        expires=body.get("expires"),
        life=int(body.get("life", 0)),
        after=_text(body.get("after", "")),
    )
    if record.head and body.get("sum", _UNSUMMED) not in (_UNSUMMED, _checkpoint_checksum(record)):
        raise CorruptCheckpointError(f"checkpoint {record.seq} does not fit its checksum")
    return record


_UNSUMMED = object()
"""Stands in the place of a checksum that was never made."""


def find_run(source: DocumentSource, branch: str, number: int) -> tuple[Run, DocumentSource] | None:
    """Find one run in the document of a record, and return it as it is stored, too. Other fields are not read.

    A load reads thousands of runs, and the references of most of them are not needed. If the run is damaged,
    `CorruptCheckpointError` is raised.
    """
    try:
        body = source.get("body")
        for stored in body.get("runs", ()) if body else ():
            if stored["branch"] == branch and stored["number"] == number:
                return _items_from(stored), stored
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable_run(error) from None
    return None


def stored_run(run: Run, stored: DocumentSource) -> StoredRun:
    """Make a run with its references of the result of `find_run`."""
    try:
        return StoredRun(run, unpack_earlier_runs(stored["trail"], stored.get("starts")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable_run(error) from None


def _unreadable_run(error: Exception) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"a stored run cannot be read ({type(error).__name__})")


def _items_from(stored: DocumentSource) -> Run:
    items, before = stored.get("items", ""), stored.get("before")
    run = Run(stored["branch"], stored["number"], stored["start"], stored["length"], items, before)
    if not (type(run.branch) is type(items) is str and (before is None or type(before) is str)):
        raise TypeError("text expected")
    if not (type(run.number) is type(run.start) is type(run.length) is int):
        raise TypeError("a number expected")
    if items and "sum" in stored and stored["sum"] != run_checksum(*run):
        raise CorruptCheckpointError("a run of items does not fit its checksum")
    return run


def _removal_from(stored: DocumentSource) -> LogRemoval:
    return LogRemoval(
        tuple(int(place) for place in stored["places"]),
        {int(place): parent for place, parent in stored["parents"]},
        tuple((namespace, checkpoint_id) for namespace, checkpoint_id in stored["names"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, found {type(value).__name__}")
    return value


@dataclass(frozen=True, slots=True)
class PublishedState:
    """The part of a state that the document of a thread publishes: the last record, and when the thread expires."""

    position: int = 0
    changes: int = 0
    live: bool = False
    expires: int | None = None
    until: int | None = None
    """The time up to which a later expiry need not be published."""

    def covers(self, expires: int | None) -> bool:
        """Tell whether this expiry need not be published, because the published one is near enough."""
        if self.expires is None or self.until is None or expires is None:
            return self.expires is None and expires is None
        return self.expires <= expires <= self.until


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread at a position of its log."""

    thread_id: str
    position: int = 0
    epoch: int = 0
    """The last position of the epochs that have ended: records up to there are dead."""
    last_seq: int = 0
    rev: str = ""
    """The rev of the last record; "" if that is not known."""
    live: int = 0
    """The number of checkpoints."""
    order: int = 0
    """The latest time of any checkpoint: lists of several threads are sorted by it."""
    latest_places: Mapping[str, int] = field(default_factory=dict)
    """The place of the latest checkpoint of each namespace, the last one in use at the end. Stored as `tips`."""
    more: bool = False
    """True if there may be namespaces that are not among `latest_places`."""
    expires: int | None = None
    life: int = 0
    removing: int = 0
    """The position of a removal that may be unfinished."""
    changes: int = 0
    """The number of removals."""
    batch: str = ""
    """The copy that the thread began with."""
    unpublished: Mapping[CheckpointName, int] = field(default_factory=dict)
    """The places of the checkpoints after the published position."""
    published: PublishedState = PublishedState()

    def expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now

    def exists(self, now: int) -> bool:
        """Tell whether the thread has a checkpoint that has not expired."""
        return self.live > 0 and not self.expired(now)

    def restarted(self) -> ThreadState:
        """The state of the thread without any checkpoint."""
        return ThreadState(
            self.thread_id,
            position=self.position,
            epoch=self.position,
            order=self.order,
            changes=self.changes + 1,
            published=self.published,
            rev=self.rev,
        )

    @property
    def must_publish(self) -> bool:
        """True if the document of the thread has to be written before a change is acknowledged."""
        return (
            self.position - self.published.position >= MAX_LAG
            or self.published.live != (self.live > 0)
            or self.published.changes != self.changes
            or not self.published.covers(self.expires)
        )

    @property
    def is_unlisted(self) -> bool:
        """True if the thread has checkpoints and lists do not know it.

        Not if the writer has more to do than to list it: dead epochs are removed by whoever publishes their end.
        """
        return self.live > 0 and not self.published.live and self.published.changes == self.changes

    def as_published(self) -> PublishedState:
        """The published part, once this state is written to the document of the thread."""
        until = None if self.expires is None else self.expires + self.life // 8
        return PublishedState(self.position, self.changes, self.live > 0, self.expires, until)


_STATE_FIELDS = (
    "position",
    "epoch",
    "last_seq",
    "rev",
    "live",
    "order",
    "more",
    "expires",
    "life",
    "removing",
    "changes",
    "batch",
)
"""The fields of `ThreadState` that are stored under their own names."""


def state_source(state: ThreadState) -> dict[str, Any]:
    """The fields of a state in records and in the document of the thread."""
    stored = {name: getattr(state, name) for name in _STATE_FIELDS if getattr(state, name)}
    return {**stored, "tips": [list(pair) for pair in state.latest_places.items()]}


def state_from(thread_id: str, source: DocumentSource) -> ThreadState:
    try:
        latest_places = {namespace: int(place) for namespace, place in source["tips"]}
        stored = {name: source[name] for name in _STATE_FIELDS if name in source}
        return ThreadState(thread_id, latest_places=latest_places, **stored)
    except (KeyError, TypeError, ValueError):
        raise CorruptCheckpointError(f"what is stored of {shown_thread(thread_id)} cannot be read") from None


def thread_source(thread: str, state: ThreadState, now: int) -> dict[str, Any]:
    """The document of a thread. Without checkpoints it has no id any more: only its position counts."""
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


def thread_state_from(thread_id: str, source: DocumentSource) -> ThreadState:
    """Read the state in the document of a thread."""
    body = source.get("body") or {}
    if body.get("format", FORMAT) > FORMAT:
        raise UnsupportedFormatError(f"{shown_thread(thread_id)} was written by a newer version: upgrade locus-state")
    if "state" not in body:
        raise CorruptCheckpointError(f"the document of {shown_thread(thread_id)} cannot be read")
    state = state_from(thread_id, body["state"])
    return replace(state, published=state.as_published())
