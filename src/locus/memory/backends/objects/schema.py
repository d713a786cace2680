r"""Events and how they are written: lines of JSON.

The first line of an event's object is its *record*: what history, decisions and lookups need. The others are
texts, one a line: the head of a checkpoint, the items of its runs, the values of pending writes::

    {"v":1,"n":7,"kind":"commit","by":"…","thread":"t","row":["default","c7",6,"…rev…","2026-…","{}","[…]"],
     "runs":[["k3v9…",6,24,4]],"replaces":null}
    {"agent_id":"a","messages":[]}
    [{"role":"user",…},…]

Merged, the records of several events are the lines of one object, and their texts, each event's behind a line
`{"n":7,"lines":2}`, those of another. A text that is not needed any more becomes an empty line there.

Kinds: `commit`; `delete` (of rows, by number); `writes`; `copy` and `base` (rows, runs and writes of a whole
thread: copied from another one, or as a sweep has left them); `reset` (nothing before it counts); `none`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.model.codec import decode
from locus.memory.model.records import Commit, Write

VERSION = 1

Record = Mapping[str, Any]
Parent = int | str | None


class Place(NamedTuple):
    """A line of an event."""

    event: int
    line: int


@dataclass(frozen=True, slots=True)
class Row:
    """A checkpoint without its payload; `parent` is the number of another one, or the id of one that is not there."""

    seq: int
    namespace: str
    checkpoint_id: str
    parent: Parent
    rev: str
    created_at: datetime
    metadata: str
    manifest: str
    head: Place


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has no number yet."""

    kind: str
    facts: Mapping[str, Any]
    lines: Sequence[str] = ()

    def body(self, thread_id: str, number: int, by: str) -> bytes:
        record = {"v": VERSION, "n": number, "kind": self.kind, "by": by, "thread": thread_id, **self.facts}
        return "\n".join([to_line(record), *map(one_line, self.lines)]).encode()


def one_line(text: str) -> str:
    """A JSON text without line feeds: between its tokens a carriage return says the same, and it has none of those."""
    return text.replace("\n", "\r")


def to_line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def commit_draft(commit: Commit, parent: Parent, replaces: int | None) -> Draft:
    runs = (*commit.runs, *commit.values)
    row = [
        commit.namespace,
        commit.checkpoint_id,
        parent,
        commit.rev,
        commit.created_at.isoformat(),
        commit.metadata,
        commit.manifest,
    ]
    facts = {"row": row, "runs": [list(run[:4]) for run in runs], "replaces": replaces}
    return Draft("commit", facts, [commit.head, *(run.items for run in runs)])


def writes_draft(place: tuple[str, str, str], writes: Sequence[Write], keep_numbered: bool) -> Draft:
    facts: dict[str, Any] = {
        "of": list(place),
        "writes": [[write.task_path, write.idx, write.channel] for write in writes],
    }
    if keep_numbered:
        facts["keep_numbered"] = True
    return Draft("writes", facts, [write.value for write in writes])


def row_facts(row: Row) -> list[Any]:
    """A row inside a `copy` or `base` record."""
    created = row.created_at.isoformat()
    known = [row.seq, row.namespace, row.checkpoint_id, row.parent, row.rev, created, row.metadata, row.manifest]
    return [*known, *row.head]


def row_from(facts: Sequence[Any]) -> Row:
    seq, namespace, checkpoint_id, parent, rev, created, metadata, manifest, event, line = facts
    moment = datetime.fromisoformat(created)
    return Row(seq, namespace, checkpoint_id, parent, rev, moment, metadata, manifest, Place(event, line))


def read_record(line: str | bytes) -> Record:
    """A record of ours; damage and newer formats are errors."""
    record = decode(line)
    if not isinstance(record, dict) or not isinstance(record.get("n"), int):
        raise CorruptCheckpointError("an event's record is damaged")
    version = record.get("v")
    if isinstance(version, int) and version > VERSION:
        raise UnsupportedFormatError(
            f"an event was written in format {version}, and this version of Locus knows {VERSION}: upgrade locus-sdk"
        )
    return record


def event_record(body: bytes) -> Record:
    return read_record(body.partition(b"\n")[0])


class Texts(NamedTuple):
    """The lines of one event that hold its texts."""

    event: int
    lines: list[bytes]


def event_texts(body: bytes, number: int) -> Texts:
    return Texts(number, body.split(b"\n")[1:])


def merged_texts(parts: Iterable[Texts]) -> bytes:
    """Texts of several events as one object."""
    lines: list[bytes] = []
    for part in parts:
        lines.append(b'{"n":%d,"lines":%d}' % (part.event, len(part.lines)))
        lines += part.lines
    return b"\n".join(lines)


def split_texts(body: bytes) -> Iterator[Texts]:
    """What `merged_texts` has put together."""
    lines = body.split(b"\n") if body else []
    at = 0
    while at < len(lines):
        header = decode(lines[at])
        if not isinstance(header, dict) or not {"n", "lines"} <= header.keys():
            raise CorruptCheckpointError("an object of merged items is damaged")
        end = at + 1 + header["lines"]
        if end > len(lines):
            raise CorruptCheckpointError("an object of merged items ends too early")
        yield Texts(header["n"], lines[at + 1 : end])
        at = end
