"""Records of a thread's log, to and from the documents that hold them. No I/O.

The documents of a store in OpenSearch, and the protocol between those who write them.

One index holds everything. All documents of a thread have its digest as routing, so they share a shard::

    d.7          record 7 of the log of the thread with the digest d: a checkpoint (with the runs that it
                 brought), a removal, an end, a copy
    d            the thread: its id, and what the log adds up to so far
    d.i.<digest> where the checkpoint of a name is
    d.w.<digest> the pending writes of one task
    d.<batch>.7  a record that came with a copy

OpenSearch has no transactions, but `create` succeeds for one writer only. So a thread is a **log**: whoever
changes it has to create the next record. One document is the whole commit. If another writer was faster, the
record is there; what it says is taken into account, and the decision is made again. Nothing that exists is
uncommitted, and a save is one request.

All other documents follow from the log. The thread's document is rewritten every `LAG` records, and whenever
the list of threads, a removal or an expiry needs it (its external version is the record's position, so it never
goes back); names are written before it. A reader takes it, and the records after it: both by id, which
OpenSearch answers in real time. Lists are searches, after a refresh.

A removal is a record as well: it says which checkpoints go, and which get another parent. From then on readers
leave them out. Then the thread's document is written, which points to the removal, and the documents are
cleaned: a checkpoint whose runs are still needed becomes `runs`, another one `gone`. At last the removal itself
becomes `gone`. Who dies on the way leaves the pointer, and the next one who removes something finishes it.

An `end` (or a save after the thread expired) begins a new **epoch**: records up to that position are dead.

A handle that remembers record 6 may create 7 without looking. So a position is never free again while somebody
may remember the one before: `gone` records stay for a day (`KEPT`), and handles remember for ten minutes.

Where the runs of a branch are: found in a few steps, however many there are. Pure functions.

Runs are inside of the records that brought them, so a reader must know which ones to get. Each run has a
*trail*: the places of the runs before it, all of its block of `BLOCK` numbers, and of older blocks only the
last one, which has a trail of its own; and so on for blocks of blocks::

    run 70 (blocks of 32)      31   63   64 65 66 67 68 69
                               |    |
                               0-30 32-62

A thousand runs are two steps away, and a trail has a few dozen entries at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import canonical, decode, texts_in
from locus.memory.model.ids import digest, words
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Entry, Known, Run, RunInfo

FORMAT: Final = 1

LAG: Final = 16
"""How many records the document of a thread may be behind."""

KEPT: Final = 24 * 3_600 * 1_000_000
"""Microseconds for which an emptied record keeps its position taken."""

LONGEST_WORD: Final = 200

CHECKPOINT, RUNS, REMOVAL, END, COPY, GONE = "checkpoint", "runs", "removal", "end", "copy", "gone"
THREAD, NAME, WRITE, INTENT = "thread", "name", "write", "intent"

_KEYWORD = {"type": "keyword"}
_NUMBER = {"type": "long"}

MAPPING: Final[dict[str, Any]] = {
    "dynamic": "strict",
    "_meta": {"locus_format": FORMAT},
    "_routing": {"required": True},
    # Words are there to be found, and follow from the rest: keeping their text would double what is stored.
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
        # Digests of keys with their values: a key may be called anything, and have values of any type.
        "metadata": _KEYWORD,
        "words": {"type": "text", "analyzer": "whitespace", "index_options": "freqs"},
        "body": {"type": "object", "enabled": False},
    },
}


def settings(shards: int, replicas: int | None) -> dict[str, Any]:
    """Settings of a new index; without a number of replicas there is one as soon as there is a second node."""
    copies = {"auto_expand_replicas": "0-1"} if replicas is None else {"number_of_replicas": replicas}
    # The version of a removed document is in the way of a new one of the same id for so long.
    return {"number_of_shards": shards, "translog.durability": "request", "gc_deletes": "1s", **copies}


def record_id(thread: str, batch: str, place: int) -> str:
    """The id of a record. Places of a copy are negative, and those of the log its positions."""
    return f"{thread}.{place}" if place > 0 else f"{thread}.{batch}.{-place}"


def name_id(thread: str, namespace: str, checkpoint_id: str, batch: str = "") -> str:
    name = f"{thread}.i.{digest(canonical([namespace, checkpoint_id]))}"
    return f"{name}.{batch}" if batch else name


def writes_id(thread: str, namespace: str, checkpoint_id: str, task_id: str, batch: str = "") -> str:
    name = f"{thread}.w.{digest(canonical([namespace, checkpoint_id, task_id]))}"
    return f"{name}.{batch}" if batch else name


def metadata_term(key: str, value: str) -> str:
    """What a key with a value (canonical JSON) is looked up by."""
    return digest(canonical([key, value]))


def metadata_terms(metadata: dict[str, Any]) -> list[str]:
    return [metadata_term(key, canonical(value)) for key, value in metadata.items()]


def spelt(word: str) -> str:
    """A word as the index has it; Lucene refuses very long ones."""
    return word if len(word) <= LONGEST_WORD else f"#{digest(word)}"


def indexed_words(*values: Any) -> str:
    """What the index has of JSON values."""
    found = [word for value in values for text in texts_in(value) for word in words(text)]
    if max(map(len, found), default=0) > LONGEST_WORD:
        found = [spelt(word) for word in found]
    return " ".join(found)


BLOCK = 32


class Mark(NamedTuple):
    """A run on a trail: its number, the place of its record, and where the list ended after it."""

    number: int
    place: int
    end: int


Trail = tuple[Mark, ...]


def extended(trail: Trail, last: Mark) -> Trail:
    """The trail of the run that follows `last`, whose own trail is given."""
    marks = [*trail, last]
    following, span = last.number + 1, BLOCK
    while following % span == 0:
        marks = [mark for mark in marks if mark.number < following - span or mark is last]
        span *= BLOCK
    return tuple(marks)


def packed(trail: Trail) -> list[int]:
    """A trail as numbers: each mark as what it differs by from the one before, which is mostly the same."""
    numbers: list[int] = []
    before = Mark(0, 0, 0)
    for mark in trail:
        numbers += [mark.number - before.number, mark.place - before.place, mark.end - before.end]
        before = mark
    return numbers


def unpacked(numbers: Sequence[int]) -> Trail:
    """The trail that `packed` was given."""
    if len(numbers) % 3:
        raise ValueError("a trail of threes expected")
    marks: list[Mark] = []
    before = Mark(0, 0, 0)
    for at in range(0, len(numbers), 3):
        number, place, end = numbers[at : at + 3]
        before = Mark(before.number + number, before.place + place, before.end + end)
        marks.append(before)
    return tuple(marks)


def needed(trail: Sequence[Mark], skip: int, floor: int) -> Iterator[tuple[Mark, int]]:
    """The marks that a reader of the list from `skip` on has to follow, each with a floor of its own.

    `floor` is a number: what is not above it is found by another way. After a run the list ended at `end`, so
    what is behind that was brought by newer runs, and nothing older than such a run is needed.
    """
    above = [mark for mark in trail if mark.number > floor]
    for index in range(len(above) - 1, -1, -1):
        if above[index].end <= skip:
            return
        yield above[index], above[index - 1].number if index else floor


Source = Mapping[str, Any]
Piece = tuple[str, int]
"""A run: branch and number."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RUN = ("branch", "number", "start", "length", "items")
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def now() -> int:
    return micros(datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run inside a record, with the way to those before it. Without `items` if only that was asked for."""

    run: Run
    trail: Trail = ()

    @property
    def mark_end(self) -> int:
        return self.run.start + self.run.length


@dataclass(frozen=True, slots=True)
class Tip:
    """Where a run is that a checkpoint shows, and whether it is the newest one of its branch."""

    place: int
    newest: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal says. Parents are by place; `names` are namespaces and ids whose writes go, too."""

    places: tuple[int, ...]
    parents: Mapping[int, str | None]
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record; what is about checkpoints is empty in others."""

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
    order: int = 0
    created: int = 0
    metadata: str = "{}"
    head: str = ""
    """Empty if only the rest was asked for."""
    manifest: str = "[]"
    tips: tuple[Tip, ...] = ()
    runs: tuple[HeldRun, ...] = ()
    expires: int | None = None
    life: int = 0
    """Microseconds from the save to its expiry."""
    removed: Removed | None = None
    state: Mapping[str, Any] | None = field(default=None, compare=False)
    """What the thread is after this, unless that follows from the record itself."""

    @property
    def id(self) -> str:
        return record_id(self.thread, self.batch, self.place)

    def entry(self, thread_id: str) -> Entry:
        return Entry(
            thread_id,
            self.namespace,
            self.checkpoint_id,
            self.parent_id,
            self.seq,
            self.rev,
            moment(self.created),
            self.metadata,
        )

    @property
    def known(self) -> Known:
        return Known(self.checkpoint_id, self.seq, self.rev, self.parent_id)

    def tip_of(self) -> dict[Piece, Tip]:
        """Where the runs are that the manifest names."""
        pieces = pieces_of(self.manifest)
        if len(pieces) != len(self.tips):
            raise CorruptCheckpointError(f"checkpoint {self.checkpoint_id!r} does not say where its items are")
        return dict(zip(pieces, self.tips, strict=True))

    def held(self, branch: str, number: int) -> HeldRun | None:
        for held in self.runs:
            if held.run.branch == branch and held.run.number == number:
                return held
        return None

    def emptied(self, kept: Sequence[HeldRun] = ()) -> Record:
        """What is left of a checkpoint that was removed: runs that others need, or only its place."""
        left = Record(RUNS if kept else GONE, self.thread, self.place, self.position, self.at, self.batch, self.epoch)
        return replace(left, namespace=self.namespace, seq=self.seq, runs=tuple(kept)) if kept else left


def pieces_of(manifest: str) -> list[Piece]:
    """The newest runs that a manifest names, each once."""
    return list(dict.fromkeys((extent.branch, extent.run) for extent in wanted(manifest)))


def infos_of(record: Record) -> list[RunInfo]:
    return [RunInfo(*held.run[:4]) for held in record.runs]


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
        source["words"] = _words(record)
    if record.kind == CHECKPOINT:
        source["order"] = record.order
        terms = metadata_terms(decode(record.metadata))
        if terms:
            source["metadata"] = terms
    if record.kind != GONE:
        source["body"] = _body(record)
    return source


def _words(record: Record) -> str:
    said = [decode(held.run.items) for held in record.runs if held.run.items]
    if record.kind == CHECKPOINT:
        said += [decode(record.head), decode(record.metadata)]
    return indexed_words(*said)


def _body(record: Record) -> dict[str, Any]:
    body: dict[str, Any] = {"epoch": record.epoch, "place": record.place}
    if record.runs:
        body["runs"] = [{**dict(zip(_RUN, held.run, strict=True)), "trail": packed(held.trail)} for held in record.runs]
    if record.kind == CHECKPOINT:
        body |= {
            **({} if record.checkpoint_id == record.rev else {"id": record.checkpoint_id}),
            "parent": record.parent_id,
            "rev": record.rev,
            "created": record.created,
            "metadata": record.metadata,
            "head": record.head,
            "manifest": record.manifest,
            "tips": [[tip.place, int(tip.newest)] for tip in record.tips],
        }
        if record.expires is not None:
            body |= {"expires": record.expires, "life": record.life}
    elif record.rev:
        body["rev"] = record.rev
    if record.removed is not None:
        body["removed"] = {
            "places": record.removed.places,
            "parents": [list(pair) for pair in record.removed.parents.items()],
            "names": record.removed.names,
        }
    if record.state is not None:
        body["state"] = record.state
    return body


def record_from(source: Source) -> Record:
    """The record of a document; damage is an error of ours."""
    try:
        return _record_from(source)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptCheckpointError(f"a stored record cannot be read: {type(error).__name__} {error}") from error


def _record_from(source: Source) -> Record:
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
        runs=tuple(map(_held_from, body.get("runs", ()))),
        removed=_removed_from(body["removed"]) if "removed" in body else None,
        state=body.get("state"),
    )
    if kind != CHECKPOINT:
        return record
    return replace(
        record,
        checkpoint_id=_text(body.get("id", body["rev"])),
        parent_id=body["parent"],
        order=int(source["order"]),
        created=int(body["created"]),
        metadata=_text(body["metadata"]),
        head=_text(body.get("head", "")),
        manifest=_text(body["manifest"]),
        tips=tuple(Tip(int(place), bool(newest)) for place, newest in body["tips"]),
        expires=body.get("expires"),
        life=int(body.get("life", 0)),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, found {type(value).__name__}")
    return value


def _held_from(found: Source) -> HeldRun:
    run = Run(
        _text(found["branch"]),
        int(found["number"]),
        int(found["start"]),
        int(found["length"]),
        _text(found.get("items", "")),
    )
    return HeldRun(run, unpacked(found["trail"]))


def _removed_from(found: Source) -> Removed:
    return Removed(
        tuple(int(place) for place in found["places"]),
        {int(place): parent for place, parent in found["parents"]},
        tuple((namespace, name) for namespace, name in found["names"]),
    )
