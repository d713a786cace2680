"""The stored layout: the names of objects, and the events in them.

Every name is made of `[0-9A-Za-z._/-]` and can be read back::

    locus.json                                  the format of everything beside it
    n/customer.2d7-000000000001.maybe           a thread may begin or end with event 1
    n/customer.2d7-000000000002.sure            as of event 2 it has checkpoints (`gone`: it has none)
    l/<digest>-000000000001.maybe               the same for an id too long for a key; the body holds the id
    t/<digest>/m/999999999983-1-16.1.0.entries  entries of the events 1 to 16, merged once
    t/<digest>/m/999999999983-1-16.1.0.items    their items
    t/<digest>/s/999999999980-19                event 19
    t/<digest>/s/999999999981-18                event 18

Numbers are counted down from the largest one, so that the newest is listed first: opening a thread takes one page,
however long the thread is.

An event is lines of JSON. The first line is its *record*: what history, decisions and lookups need. The others are
texts, one a line: the head of a checkpoint, the items of its runs, the values of pending writes::

    {"v":2,"n":7,"kind":"commit","by":"…","after":"…","thread":"t",
     "row":["default","c7",6,"…rev…","2026-…","{}","[…]"],
     "runs":[["k3v9…",6,24,4,"…before…"]],"replaces":null,"sizes":[…,…],"sums":[…,…],"sum":2774501}
    {"agent_id":"a","messages":[]}
    [{"role":"user",…},…]

`by` names the attempt that put the event, and `after` that of the event before it, so that no other one can take the
place of an event that was lost. `sums` are the checksums of the texts, and `sum` is that of the record itself. What was
put in format 1 has none of these three. `sizes` are the lengths of the texts in bytes, which tell where each one is in
an object of merged items. Older versions neither wrote nor look at them; texts without are found by reading the object.

The kinds of events:

    commit   a checkpoint
    delete   removes rows, by number
    writes   pending writes of one task
    copy     rows, runs and writes of a whole thread, copied from another one
    base     the same, as a sweep has left them; stands for all events up to a number
    reset    nothing before it counts
    none     only takes its number

Merged, the records of several events are the lines of one object. Their texts are the lines of another, each event's
after a line `{"n":7,"lines":2}`. A text that is no longer needed becomes an empty line there.

The last line of merged entries may be a *tip*, which repeats what the latest checkpoints need of events long before
(see `tip`)::

    {"v":2,"n":16,"kind":"tip","thread":"t","tops":{"k3v9…":12},"versions":[…],"sum":1177402}

Whoever reads all events has no use for it, and older versions pass over it, because event 16 was there before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.model.codec import decode
from locus.memory.model.ids import digest
from locus.memory.model.records import Commit, TaskWrites

FORMAT = "locus.json"
VERSION = 2

MAX_ENCODED_ID = 480
"""The largest number of characters of an encoded id that are part of a key. Longer ids are replaced by their digest."""

_SUM = b',"sum":'
_LARGEST = 10**12 - 1
_PART_LENGTH = 200
"""The number of bytes between two slashes. Servers that keep objects as files take 255 at most."""

_TEXTS_HEADER = re.compile(rb'\{"n":(\d{1,12}),"lines":(\d{1,12})\}')
_MARKER = re.compile(r"([nl])/([0-9A-Za-z._/]+)-(\d{12})\.(maybe|sure|gone)")
_MERGED = re.compile(r"t/([0-9a-f]{32})/m/\d{12}-(\d+)-(\d+)\.(\d)\.(\d+)\.(entries|items)")
_EVENT = re.compile(r"t/([0-9a-f]{32})/s/\d{12}-(\d+)")

FAN = 16
"""The number of objects that are merged into one."""

BASE_LEVEL = 9
"""The level of objects that a sweep has written: nothing before it is needed."""


class MarkerState(StrEnum):
    """The fact about a thread that a marker states, as of a number. The marker with the highest number is right."""

    MAYBE = "maybe"
    SURE = "sure"
    GONE = "gone"


class Marker(NamedTuple):
    """A statement that a thread has, or had, checkpoints. `name` is its encoded id, or the digest of a long one."""

    long: bool
    name: str
    number: int
    state: MarkerState

    @property
    def key(self) -> str:
        return f"{'l' if self.long else 'n'}/{with_slashes(self.name)}-{self.number:012}.{self.state}"


class MergedObject(NamedTuple):
    """An object with the events `low` to `high` of a thread: only their entries, or only their items.

    `note` means, for entries, the first event that a load of the latest checkpoint needs; for items, the event up to
    which deleted texts were left out.
    """

    kind: str
    low: int
    high: int
    level: int
    note: int
    size: int = 0

    def key(self, thread: str) -> str:
        events = f"{_LARGEST - self.high:012}-{self.low}-{self.high}"
        return f"t/{thread}/m/{events}.{self.level}.{self.note}.{self.kind}"


def thread_folder(thread: str) -> str:
    return f"t/{thread}/"


def event_folder(thread: str) -> str:
    return f"t/{thread}/s/"


@lru_cache(maxsize=4_096)
def thread_name(thread_id: str) -> str:
    """The folder of a thread."""
    return digest(thread_id)


def event_key(thread: str, number: int) -> str:
    return f"t/{thread}/s/{_LARGEST - number:012}-{number}"


def parse_event(key: str) -> int | None:
    found = _EVENT.fullmatch(key)
    return int(found[2]) if found else None


def parse_merged(key: str, size: int) -> MergedObject | None:
    found = _MERGED.fullmatch(key)
    if found is None:
        return None
    return MergedObject(found[6], int(found[2]), int(found[3]), int(found[4]), int(found[5]), size)


def parse_marker(key: str) -> Marker | None:
    found = _MARKER.fullmatch(key)
    if found is None:
        return None
    return Marker(found[1] == "l", found[2].replace("/", ""), int(found[3]), MarkerState(found[4]))


def marker_of(thread_id: str, number: int, state: MarkerState) -> Marker:
    name = encoded(thread_id)
    if len(name) <= MAX_ENCODED_ID:
        return Marker(False, name, number, state)
    return Marker(True, thread_name(thread_id), number, state)


def _escapes() -> Iterable[str]:
    """The spelling of each byte. An escape begins with a character that sorts where the byte would."""
    for byte in range(256):
        char = chr(byte)
        if char.isascii() and char.isalnum() and char not in "Az":
            yield char
        else:
            lead = "." if char < "0" else "A" if char <= "A" else "_" if char < "a" else "z"
            yield f"{lead}{byte:02x}"


_ESCAPES = tuple(_escapes())


def encoded(text: str) -> str:
    """Encode a text as a name: letters and digits stay, other bytes are escaped.

    Names sort as the texts do, by code points. The name of a prefix is a prefix of the name.
    """
    return "".join(_ESCAPES[byte] for byte in text.encode())


def with_slashes(name: str) -> str:
    """Divide a long name by slashes. They are at the same positions in all names, so the order stays the same."""
    return "/".join(name[at : at + _PART_LENGTH] for at in range(0, len(name), _PART_LENGTH))


def decoded(name: str) -> str:
    plain = re.sub(r"[.A_z]([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name)
    return plain.encode("latin-1").decode()


def cover(merged: Iterable[MergedObject], start: int = 1) -> list[MergedObject]:
    """Choose as few merged objects as possible that have every event from `start` on, as far as that goes, in order."""
    left = sorted(merged, key=lambda member: (member.low, member.high, member.note))
    chosen: list[MergedObject] = []
    at = start
    index = 0
    best: MergedObject | None = None
    while True:
        while index < len(left) and left[index].low <= at:
            # Of equally long ones the one that sorts last: a sweep has left more out of it.
            best = left[index] if best is None or left[index].high >= best.high else best
            index += 1
        if best is None or best.high < at:
            return chosen
        chosen.append(best)
        at = best.high + 1


Record = Mapping[str, Any]
Parent = int | str | None


class TextRef(NamedTuple):
    """The place of a text: an event and a line of it, the record not counted; and known facts about it."""

    event: int
    line: int
    sum: int | None = None
    """The checksum of the text. None if it was put in format 1."""
    before: str | None = None
    """The digest `Run.before`, if the text has the items of a run."""


@dataclass(frozen=True, slots=True)
class IndexedCheckpoint:
    """A checkpoint without its payload. `parent` is the number of another one, or the id of one that does not exist."""

    seq: int
    namespace: str
    checkpoint_id: str
    parent: Parent
    rev: str
    created_at: datetime
    metadata: str
    manifest: str
    head: TextRef


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has no number yet."""

    kind: str
    facts: Mapping[str, Any]
    lines: Sequence[str] = ()

    def body(self, thread_id: str, number: int, by: str, after: str = "") -> bytes:
        """Write the object. `after` is the `by` of the event before it, if that is known."""
        about = {"v": VERSION, "n": number, "kind": self.kind, "by": by, **({"after": after} if after else {})}
        lines = [one_line(line).encode() for line in self.lines]
        sizes = {"sizes": [len(line) for line in lines]} if lines else {}
        # The texts of a copy have their checksums where the record refers to them.
        sums = {"sums": [crc32(line) for line in lines]} if lines and self.kind != "copy" else {}
        return b"\n".join([to_line({**about, "thread": thread_id, **self.facts, **sizes, **sums}), *lines])


def one_line(text: str) -> str:
    """Remove line feeds from a JSON text. Between tokens a carriage return means the same, and the text has none."""
    return text.replace("\n", "\r")


def to_line(record: Record) -> bytes:
    """Write a record as a line, with its checksum at the end."""
    line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))[:-1].encode()
    return line + _SUM + b"%d}" % crc32(line)


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
    places = [list(run[:4]) if run.before is None else [*run[:4], run.before] for run in runs]
    facts = {"row": row, "runs": places, "replaces": replaces}
    return Draft("commit", facts, [commit.head, *(run.items for run in runs)])


def writes_draft(task: TaskWrites) -> Draft:
    facts: dict[str, Any] = {
        "of": [task.namespace, task.checkpoint_id, task.task_id],
        "writes": [[write.task_path, write.idx, write.channel] for write in task.writes],
    }
    if task.keep_numbered:
        facts["keep_numbered"] = True
    return Draft("writes", facts, [write.value for write in task.writes])


def row_facts(row: IndexedCheckpoint) -> list[Any]:
    """Write a row inside a `copy` or `base` record."""
    created = row.created_at.isoformat()
    known = [row.seq, row.namespace, row.checkpoint_id, row.parent, row.rev, created, row.metadata, row.manifest]
    return [*known, *row.head[:3]]


def row_from(facts: Sequence[Any]) -> IndexedCheckpoint:
    seq, namespace, checkpoint_id, parent, rev, created, metadata, manifest, *head = facts
    created_at = datetime.fromisoformat(created)
    return IndexedCheckpoint(seq, namespace, checkpoint_id, parent, rev, created_at, metadata, manifest, TextRef(*head))


def read_record(line: bytes) -> Record:
    """Read the record in a line. Raises an error if it is damaged, or in a newer format."""
    return _checked(decode(line), line)


def read_records(lines: Sequence[bytes]) -> list[Record] | None:
    """Read the records in the lines of merged entries. None if any is damaged: then they are read line by line."""
    try:
        # At once, because one call of the parser costs as much as a short line.
        records = decode(b"[%b]" % b",".join(lines))
        if len(records) == len(lines):
            return [_checked(record, line) for record, line in zip(records, lines, strict=True)]
    except CorruptCheckpointError:
        pass
    return None


def _checked(record: Any, line: bytes) -> Record:
    if not isinstance(record, dict) or not isinstance(record.get("n"), int):
        raise CorruptCheckpointError("an event's record is damaged")
    version = record.get("v")
    if isinstance(version, int) and version > VERSION:
        raise UnsupportedFormatError(
            f"an event was written in format {version}, and this version of Locus knows {VERSION}: upgrade locus-state"
        )
    text, mark, checksum = line.rpartition(_SUM)
    if "sum" in record and (not mark or checksum != b"%d}" % crc32(text)):
        raise CorruptCheckpointError("an event's record does not fit its checksum")
    if "sum" not in record and version != 1:
        raise CorruptCheckpointError("an event's record has no checksum")
    return record


def event_record(body: bytes, number: int) -> Record:
    """Read the record of the event that has this number by its key. Refuses the body of another one."""
    record = read_record(body.partition(b"\n")[0])
    if record["n"] != number:
        raise CorruptCheckpointError(f"in the place of event {number} is another one")
    return record


class EventTexts(NamedTuple):
    """The texts of one event, one a line."""

    event: int
    lines: list[bytes]


def event_texts(body: bytes, number: int) -> EventTexts:
    return EventTexts(number, body.split(b"\n")[1:])


def texts_header(event: int, count: int) -> bytes:
    """Write the line before the texts of an event, in an object of merged items."""
    return b'{"n":%d,"lines":%d}' % (event, count)


def merged_texts(parts: Iterable[EventTexts]) -> bytes:
    """Join the texts of several events to one object."""
    lines: list[bytes] = []
    for part in parts:
        lines.append(texts_header(part.event, len(part.lines)))
        lines += part.lines
    return b"\n".join(lines)


def split_texts(body: bytes) -> Iterator[EventTexts]:
    """Split an object that `merged_texts` has made."""
    lines = body.split(b"\n") if body else []
    at = 0
    while at < len(lines):
        header = _TEXTS_HEADER.fullmatch(lines[at])
        event, count = (int(header[1]), int(header[2])) if header else _from_header(lines[at])
        end = at + 1 + count
        if end > len(lines):
            raise CorruptCheckpointError("an object of merged items ends too early")
        yield EventTexts(event, lines[at + 1 : end])
        at = end


def _from_header(line: bytes) -> tuple[int, int]:
    """Read a line of `texts_header`, even if somebody has spelt it otherwise."""
    header = decode(line)
    count = header.get("lines") if isinstance(header, dict) and "n" in header else None
    if not isinstance(count, int) or count < 0:
        raise CorruptCheckpointError("an object of merged items is damaged")
    return header["n"], count
