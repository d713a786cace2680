"""The stored layout: the files of a folder, and the records in a log.

    .locus_checkpoints/
      support-42.jsonl                 the log of thread "support-42"
      alice~3bc51062973c458d….jsonl    the log of thread "Alice": its id would not be a safe file name everywhere
      .locks/                          the files that processes lock to exclude each other

A log is human-readable JSON that only grows at its end. Every save adds a record and its seal, in one write:

    {"head":{"agent_id":"a","iteration":1,"messages":[]}
    ,"4f0c….0":[{"role":"user","content":"hi"}
    ,{"role":"assistant","content":"hello"}]
    }
    {"seal":"checkpoint","bytes":133,"prev":0,"checkpoint_id":"4f0c…","seq":1,"runs":[…],…,"sum":2774501}

Only the first line of a record begins with a brace, as `{"head"` or `{"0.channel"`. So nothing that a user stores can
be taken for a seal.

A seal is one line, and the commit point: what has no seal was never saved, and is cut off before the next save. It
names the seal before it, so that the history is read from the end, without the payloads. It says where in the record
the texts are, and of each run the branch, number, start, length and, from format 2 on, the digest of what precedes it
(see `locus.memory.model.digests`). It has checksums of the record and of itself. The kinds of seals are `thread` (the
first line), `checkpoint` and `writes`.

The first line has the format of the log. A log of format 1 keeps its first line until it is written anew. A newer
format may say there, as `min_reader` and `min_writer`, from which format on it can be used (see
`locus.memory.model.formats`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zlib import crc32

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import decode, encode, parse
from locus.memory.model.ids import digest
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Entry, Run, TaskWrites, Write
from locus.memory.model.table import Row, ThreadTable, entry_from

FORMAT = 2
SEAL_START = b'{"seal":'
CHECKSUM_KEY = b',"sum":'
SUFFIX = ".jsonl"

_SAFE_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
DIGEST_NAME = re.compile(r"[a-z0-9-]{0,32}~[0-9a-f]{32}\.jsonl")
"""The name of a log whose thread's id is no safe name (see `file_name`)."""
_RESERVED_NAME = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])")


def file_name(thread_id: str) -> str:
    """The name of a thread's log: its id, if every file system can tell it from others; else readable part and digest.

    Only the second kind contains a tilde, so no id can take the name of another.
    """
    if _SAFE_ID.fullmatch(thread_id) and not _RESERVED_NAME.fullmatch(thread_id):
        return f"{thread_id}{SUFFIX}"
    readable = re.sub(r"[^a-z0-9]+", "-", thread_id.lower()).strip("-")[:32]
    return f"{readable}~{digest(thread_id)}{SUFFIX}"


_BEGINNING = re.compile(rb'\{"seal":"(\w+)","bytes":(\d{1,18}),"prev":(?:(\d{1,18})|null),')
_NAME = re.compile(rb'"checkpoint_id":"([^"\\]*)","parent_id":(?:null|"[^"\\]*"),"namespace":"([^"\\]*)",')
_RUNS_KEY = b',"runs":'
_OBJECT_LINE = re.compile(r"\n+\{")
KINDS = frozenset({"thread", "checkpoint", "writes"})


class RunPlaces(NamedTuple):
    """The facts about its runs in the seal of a checkpoint. A load needs these of most seals."""

    runs: list[list[Any]]
    """The branch, number, start, length of each run, and the digest of the items that precede it, if it has one."""
    at: list[list[int]]
    """The position and the length of each text in the record: of the head, and of each run."""
    crc: int


class Seal:
    """The line that closes a record: its position in the file, and the facts that it states.

    A load looks at thousands. So a line is parsed whole only if somebody asks for its `facts`; a few facts are taken
    out of it otherwise. A line with another layout, because another version wrote it, is always parsed whole.
    """

    __slots__ = ("_facts", "_named", "at", "kind", "line", "prev", "record")

    def __init__(self, at: int, line: bytes) -> None:
        self.at = at
        self.line = line
        self._facts: dict[str, Any] | None = None
        beginning = _BEGINNING.match(line)
        size: Any
        prev: Any
        if beginning is not None:
            self._named = beginning.end()
            kind, size, prev = beginning.groups()
            self.kind = kind.decode()
            size, prev = int(size), None if prev is None else int(prev)
        else:
            self._named = 0
            self.kind, size, prev = (self.facts.get(name) for name in ("seal", "bytes", "prev"))
        if self.kind not in KINDS:
            raise CorruptCheckpointError(f"the seal at byte {at} is of no kind that there is")
        if not isinstance(size, int) or not 0 <= size <= at:
            raise CorruptCheckpointError(f"the seal at byte {at} has a record that does not fit before it")
        self.record = at - size
        """The position at which the record begins."""
        # Always nearer to the beginning, so that whoever reads backwards comes to an end.
        if prev is not None and (not isinstance(prev, int) or not 0 <= prev < self.record):
            raise CorruptCheckpointError(f"the seal at byte {at} follows one that is not before it")
        self.prev: int | None = prev

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that the seal states, each of the type that it has to be.

        The rest of a log may rely on that: a seal that fits its checksum was written by somebody, but not necessarily
        by Locus.
        """
        if self._facts is None:
            try:
                facts = parse(self.line)
                _check_facts(facts)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise _unreadable(self.at, error) from None
            self._facts = facts
        return self._facts

    @property
    def end(self) -> int:
        return self.at + len(self.line)

    @property
    def name(self) -> tuple[str, str]:
        """The namespace and the id of a checkpoint."""
        match = _NAME.match(self.line, self._named) if self._facts is None else None
        if match is None:
            return self.facts["namespace"], self.facts["checkpoint_id"]
        try:
            return match[2].decode(), match[1].decode()
        except UnicodeDecodeError as error:
            raise _unreadable(self.at, error) from None

    @property
    def places(self) -> RunPlaces:
        # The last key of this name is the seal's own: a quote inside of a text is escaped, and what a caller has stored
        # is one level deeper, so that it would not end where the line ends.
        at = self.line.rfind(_RUNS_KEY) if self._facts is None else -1
        if at >= 0:
            try:
                facts = parse(b"{" + self.line[at + 1 :])
                return RunPlaces(facts["runs"], facts["at"], facts["crc"])
            except (KeyError, ValueError):
                pass
        return RunPlaces(self.facts["runs"], self.facts["at"], self.facts["crc"])

    @property
    def task(self) -> tuple[str, str, str]:
        """The namespace, the checkpoint and the task of pending writes."""
        return self.facts["namespace"], self.facts["checkpoint_id"], self.facts["task_id"]

    def entry(self, thread_id: str) -> Entry:
        return entry_from(thread_id, self.facts)


def _unreadable(at: int, error: Exception) -> CorruptCheckpointError:
    # Without the text of the error, which may quote what somebody has stored.
    return CorruptCheckpointError(f"the seal at byte {at} cannot be read ({type(error).__name__})")


_TEXTS = {"thread": ("thread_id",), "writes": ("namespace", "checkpoint_id", "task_id")}
_CHECKPOINT_TEXTS = ("namespace", "checkpoint_id", "rev", "created_at")


def _check_facts(facts: Any) -> None:
    """Raise KeyError, TypeError or ValueError if a fact is missing, or is not of its type."""
    kind, last_seq, expires_at = facts["seal"], facts["last_seq"], facts["expires_at"]
    _must(type(last_seq) is int)
    if expires_at is not None:
        _must(datetime.fromisoformat(expires_at).tzinfo is not None)
    names = _TEXTS.get(kind, _CHECKPOINT_TEXTS)
    _must(all(type(facts[name]) is str for name in names))
    if kind == "thread":
        return
    at, rows = facts["at"], facts["writes" if kind == "writes" else "runs"]
    _must(type(facts["crc"]) is int and all(type(low) is type(size) is int and low >= 0 <= size for low, size in at))
    _must(len(at) == len(rows) + (kind == "checkpoint"))
    if kind == "writes":
        for task_id, task_path, index, channel in rows:
            _must(type(task_id) is type(task_path) is type(channel) is str and type(index) is int)
        return
    for branch, number, start, length, *before in rows:
        _must(type(branch) is str and type(number) is type(start) is type(length) is int)
        _must(number >= 0 <= start and length >= 0 and (not before or type(before[0]) in (str, type(None))))
    _must(type(facts["seq"]) is int and type(facts["metadata"]) is dict and type(facts["manifest"]) is list)
    _must(
        type(facts["parent_id"]) in (str, type(None)) and datetime.fromisoformat(facts["created_at"]).tzinfo is not None
    )


def _must(holds: bool) -> None:
    if not holds:
        raise ValueError("a fact is not what it has to be")


@dataclass(frozen=True, slots=True)
class Record:
    """A save as it is added to a log: texts, and facts for the seal."""

    kind: str
    facts: dict[str, Any]
    parts: tuple[tuple[str, str], ...] = ()
    """The name and the JSON text of each part of the record. The seal has their positions under `at`."""

    def sealed(self, prev: int | None, pretty: bool) -> bytes:
        """The bytes of the record and its seal; `prev` is the position of the seal before it."""
        body, places = bytearray(), []
        for name, text in self.parts:
            body += f"{',' if body else '{'}{encode(name)}:".encode()
            # In JSON a line end stands between tokens only. What somebody else has encoded must not begin a line as a
            # seal does.
            data = (_OBJECT_LINE.sub("{", text) if pretty else text.replace("\n", "")).encode()
            places.append((len(body), len(data)))
            body += data
            if pretty:
                body += b"\n"
        if body:
            body += b"}\n"
        facts = {"seal": self.kind, "bytes": len(body), "prev": prev, **self.facts, "at": places, "crc": crc32(body)}
        line = encode(facts)[:-1].encode()
        return bytes(body) + line + CHECKSUM_KEY + f"{crc32(line)}}}\n".encode()


def checkpoint_record(row: Row, runs: Sequence[Run], last_seq: int, expires_at: datetime | None) -> Record:
    entry = row.entry
    facts = {
        "checkpoint_id": entry.checkpoint_id,
        "parent_id": entry.parent_id,
        "namespace": entry.namespace,
        "seq": entry.seq,
        "rev": entry.rev,
        "created_at": _timestamp(entry.created_at),
        "metadata": decode(entry.metadata),
        "last_seq": last_seq,
        "expires_at": _timestamp(expires_at),
        "manifest": decode(row.manifest),
        "runs": [run[:4] if run.before is None else (*run[:4], run.before) for run in runs],
    }
    names = [f"{run.branch}.{run.number}" for run in runs]
    parts = [("head", row.head), *zip(names, (run.items for run in runs), strict=True)]
    return Record("checkpoint", facts, tuple(parts))


def writes_record(task: TaskWrites, last_seq: int, expires_at: datetime | None) -> Record:
    facts: dict[str, Any] = {
        "namespace": task.namespace,
        "checkpoint_id": task.checkpoint_id,
        "task_id": task.task_id,
        "last_seq": last_seq,
        "expires_at": _timestamp(expires_at),
        "writes": [write[:4] for write in task.writes],
    }
    if task.keep_numbered:
        facts["keep_numbered"] = True
    return Record("writes", facts, tuple((f"{write.idx}.{write.channel}", write.value) for write in task.writes))


def records_of(table: ThreadTable) -> Iterator[Record]:
    """Write a whole thread as the records of a log."""
    facts = {
        "locus": FORMAT,
        "thread_id": table.thread_id,
        "last_seq": 0,
        "expires_at": _timestamp(table.expires_at),
    }
    yield Record("thread", facts)
    # A run goes with the first checkpoint that shows it, so that the log reads in the order of events.
    written: dict[str, int] = {}
    for row in table.rows.values():
        shown: list[Run] = []
        for extent in wanted(row.manifest):
            runs = table.runs.get(extent.branch, [])
            first = written.get(extent.branch, 0)
            last = max(first, bisect_right(runs, extent.run, key=lambda run: run.number))
            shown += runs[first:last]
            written[extent.branch] = last
        yield checkpoint_record(row, shown, table.last_seq, table.expires_at)
    tasks: dict[tuple[str, str, str], list[Write]] = {}
    for (namespace, checkpoint_id), pending in table.writes.items():
        for (task_id, _), write in pending.items():
            tasks.setdefault((namespace, checkpoint_id, task_id), []).append(write)
    for task, task_writes in tasks.items():
        kept = TaskWrites(table.thread_id, *task, tuple(task_writes))
        yield writes_record(kept, table.last_seq, table.expires_at)


def _timestamp(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds")
