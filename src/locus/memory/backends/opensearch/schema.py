"""Records of a thread's log, to and from the documents that hold them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.opensearch_layout import (
    CHECKPOINT,
    GONE,
    RUNS,
    indexed_words,
    metadata_terms,
    record_id,
)
from locus.memory.backends.opensearch.opensearch_trails import Trail, packed, unpacked
from locus.memory.model.codec import decode
from locus.memory.model.payloads import wanted
from locus.memory.model.records import Entry, Known, Run, RunInfo

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
