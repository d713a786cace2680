"""The log of one thread: one file, which is read from its end. What is in it: see `schema`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

from pydantic_core import from_json

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.file.schema import CHECKSUM_KEY, FORMAT, SEAL_START, Record, Seal
from locus.memory.model.codec import encode
from locus.memory.model.records import Extent, Known, Run, Stored, Write
from locus.memory.model.table import Row, ThreadTable

_END_BYTES = 1 << 16
"""How much of a log is read first: of its end, in search of the last seal, or of its first line."""

_BUFFER_BYTES = 1 << 18
"""How much is read at once, going backwards."""


class LogFile:
    """An open log, as far as it was read: seals are read from the end, as they are needed."""

    def __init__(self, path: Path, thread_id: str) -> None:
        self.path = path
        self.thread_id = thread_id
        self._fd = -1
        self._added: list[Seal] = []
        """What was added since the log was first read, oldest first."""
        self._read: list[Seal] = []
        """What was read from there backwards, newest first."""
        self._complete = False
        self._ids: dict[tuple[str, str], Seal] = {}
        self._newest_runs: dict[str, int] = {}
        self._buffer = (0, b"")

    def _forget(self) -> None:
        self._added, self._read, self._complete = [], [], False
        self._ids, self._newest_runs = {}, {}

    def _index(self, seal: Seal) -> None:
        if seal.facts["seal"] == "checkpoint":
            self._ids[seal.facts["namespace"], seal.facts["checkpoint_id"]] = seal
            for branch, number, *_ in seal.facts["runs"]:
                self._newest_runs[branch] = max(number, self._newest_runs.get(branch, -1))

    def _add(self, seal: Seal) -> None:
        self._added.append(seal)
        self._index(seal)

    def _add_older(self, seal: Seal) -> None:
        self._read.append(seal)
        self._index(seal)

    def refresh(self) -> bool:
        """Open the file and find out what is new; False if the file does not exist."""
        self.release()
        try:
            self._fd = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            self._forget()
            return False
        known = self.newest
        # Another file may have the name by now, even the inode; the line of a seal is unique.
        if known is not None and self._pread(known.at, len(known.line)) != known.line:
            self._forget()
            known = None
        if known is None:
            self._check_first_line()
        newest = self._last_seal(os.fstat(self._fd).st_size, known)
        if known is None:
            self._add_older(newest)
            return True
        fresh: list[Seal] = []
        found: Seal | None = newest
        while found is not None and found.at > known.at:
            fresh.append(found)
            found = self._before(found)
        for seal in reversed(fresh):
            self._add(seal)
        return True

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._buffer = (0, b"")

    def _pread(self, at: int, length: int) -> bytes:
        os.lseek(self._fd, at, os.SEEK_SET)
        return os.read(self._fd, length)

    def _bytes(self, at: int, length: int) -> bytes:
        """Like `_pread`, but reads what is before it as well, because that is needed next."""
        start, data = self._buffer
        if not start <= at <= at + length <= start + len(data):
            start = max(0, at + length - max(_BUFFER_BYTES, length))
            data = self._pread(start, at + length - start)
            self._buffer = (start, data)
        return data[at - start : at - start + length]

    def _check_first_line(self) -> None:
        """A log begins with a line that names its thread; the line is written in one step with the file name."""
        if self._thread_in(self._pread(0, _END_BYTES)) != self.thread_id:
            raise CorruptCheckpointError(f"{self.path} is the log of another thread than {self.thread_id!r}")

    @classmethod
    def thread_of(cls, path: Path) -> str:
        """The id of the thread whose log a file is."""
        with path.open("rb") as file:
            return cls(path, "")._thread_in(file.read(_END_BYTES))

    def _thread_in(self, data: bytes) -> str:
        line = data.partition(b"\n")[0] + b"\n"
        if not line.startswith(SEAL_START):
            raise CorruptCheckpointError(f"{self.path} is not the log of a thread")
        # Before anything else: a newer format may differ in everything but this.
        found = re.search(rb',"locus":(\d{1,9}),', line)
        if found is not None and int(found[1]) > FORMAT:
            raise UnsupportedFormatError(
                f"{self.path} has format {int(found[1])}, and this version of Locus knows up to {FORMAT}: "
                "upgrade locus-sdk"
            )
        facts = self._parsed(0, line).facts
        if facts.get("seal") != "thread":
            raise CorruptCheckpointError(f"{self.path} is not the log of a thread")
        return str(facts["thread_id"])

    def _last_seal(self, size: int, known: Seal | None) -> Seal:
        """The last complete seal; after it there may be what a killed process left."""
        if known is not None and known.end == size:
            return known
        window = _END_BYTES
        while True:
            start = max(0, size - window)
            data = self._pread(start, size - start)
            end = data.rfind(b"\n") + 1
            while end > 0:
                begin = data.rfind(b"\n", 0, end - 1) + 1
                if data.startswith(SEAL_START, begin) and (begin > 0 or start == 0):
                    return self._parsed(start + begin, data[begin:end])
                end = begin
            if start == 0:
                raise CorruptCheckpointError(f"{self.path} has no seal that can be read")
            window *= 8

    def _parsed(self, at: int, line: bytes) -> Seal:
        text, _, checksum = line.rpartition(CHECKSUM_KEY)
        if checksum != f"{crc32(text)}}}\n".encode():
            raise CorruptCheckpointError(f"{self.path}: the seal at byte {at} does not fit its checksum")
        facts: dict[str, Any] = from_json(line)
        return Seal(at, line, facts)

    def _before(self, seal: Seal) -> Seal | None:
        prev = seal.facts["prev"]
        if prev is None:
            return None
        line = self._bytes(prev, seal.record - prev)
        if not line.startswith(SEAL_START) or not line.endswith(b"\n"):
            raise CorruptCheckpointError(f"{self.path}: there is no seal at byte {prev}")
        return self._parsed(prev, line)

    @property
    def newest(self) -> Seal | None:
        return self._added[-1] if self._added else self._read[0] if self._read else None

    @property
    def last_seq(self) -> int:
        return int(self.newest.facts["last_seq"]) if self.newest else 0

    @property
    def expires_at(self) -> datetime | None:
        found = self.newest.facts["expires_at"] if self.newest else None
        return None if found is None else datetime.fromisoformat(found)

    @property
    def expired(self) -> bool:
        at = self.expires_at
        return at is not None and at <= datetime.now(UTC)

    def newest_first(self) -> Iterator[Seal]:
        """All seals but the first line's, from the end, reading on only as far as asked."""
        yield from self._added[::-1]
        index = 0
        while True:
            if index == len(self._read):
                if self._complete:
                    return
                before = self._before(self._read[-1])
                if before is None:
                    self._complete = True
                    return
                self._add_older(before)
            if self._read[index].facts["seal"] != "thread":
                yield self._read[index]
            index += 1

    def checkpoints(self, namespace: str | None = None) -> Iterator[Seal]:
        return (
            seal
            for seal in self.newest_first()
            if seal.facts["seal"] == "checkpoint" and namespace in (None, seal.facts["namespace"])
        )

    def find(self, namespace: str, checkpoint_id: str | None) -> Seal | None:
        """The seal of a checkpoint; of the latest if no id is given."""
        if checkpoint_id is None:
            return next(self.checkpoints(namespace), None)
        key = (namespace, checkpoint_id)
        if key not in self._ids and not self._complete:
            next((True for _ in self.newest_first() if key in self._ids), None)
        return self._ids.get(key)

    def has_run(self, branch: str, number: int) -> bool:
        """Whether a branch has this run. A checkpoint that forked off may have continued it long ago."""
        there = (True for _ in self.newest_first() if self._newest_runs.get(branch, -1) >= number)
        return self._newest_runs.get(branch, -1) >= number or (not self._complete and next(there, False))

    def texts(self, seal: Seal) -> list[str]:
        """The texts of a record, after checking its checksum."""
        body = self._bytes(seal.record, seal.at - seal.record)
        if crc32(body) != seal.facts["crc"]:
            raise CorruptCheckpointError(f"{self.path}: the record at byte {seal.record} does not fit its checksum")
        return [body[at : at + length].decode() for at, length in seal.facts["at"]]

    def row(self, seal: Seal) -> Row:
        return Row(seal.entry(self.thread_id), self.texts(seal)[0], encode(seal.facts["manifest"]))

    def runs(self, seal: Seal) -> list[Run]:
        places = seal.facts.get("runs", [])
        texts = self.texts(seal)[1:] if places else []
        return [Run(place[0], place[1], place[2], place[3], text) for place, text in zip(places, texts, strict=True)]

    def writes(self, seal: Seal) -> list[Write]:
        return [
            Write(fact[0], fact[1], fact[2], fact[3], text)
            for fact, text in zip(seal.facts["writes"], self.texts(seal), strict=True)
        ]

    def stored(self, seal: Seal, wanted: Sequence[Extent]) -> Stored:
        """A checkpoint with its runs, read from the end of the log until everything is found."""
        open_extents = list(wanted)
        found: dict[str, list[Run]] = {}
        for other in self.newest_first():
            if not open_extents:
                break
            if other.facts["seal"] != "checkpoint":
                continue
            branches = {place[0] for place in other.facts["runs"]}
            if branches.isdisjoint({extent.branch for extent in open_extents}):
                continue
            for run in self.runs(other):
                found.setdefault(run.branch, []).append(run)
                open_extents = [extent for extent in open_extents if not _begins(extent, run)]
        row = self.row(seal)
        passed = self.find(row.entry.namespace, None) is not seal
        return Stored(row.entry, row.head, row.manifest, found, passed)

    def table(self) -> ThreadTable:
        """Everything that the log has."""
        table = ThreadTable(self.thread_id, expires_at=self.expires_at)
        for seal in reversed(list(self.newest_first())):
            if seal.facts["seal"] == "writes":
                self.put_writes(table, seal)
            else:
                table.add_runs(self.runs(seal))
                table.put(self.row(seal))
            table.last_seq = max(table.last_seq, seal.facts["last_seq"])
        return table

    def put_writes(self, table: ThreadTable, seal: Seal) -> None:
        """Put the pending writes of a record into a table."""
        table.put_writes(seal.task, self.writes(seal), seal.facts.get("keep_numbered", False))

    def append(self, record: Record, pretty: bool) -> None:
        """Add a record durably, after cutting off what a killed process left."""
        newest = self.newest
        assert newest is not None, "a log begins with the line that names its thread"
        end = newest.end
        if os.fstat(self._fd).st_size != end:
            os.ftruncate(self._fd, end)
        data = record.sealed(newest.at, pretty)
        write_all(self._fd, data, end)
        to_disk(self._fd)
        line_at = data.rindex(b"\n", 0, len(data) - 1) + 1 if b"\n" in data[:-1] else 0
        self._add(self._parsed(end + line_at, data[line_at:]))


def _begins(extent: Extent, run: Run) -> bool:
    """Whether this run is the oldest that an extent can need."""
    return run.branch == extent.branch and run.number <= extent.run and run.start <= extent.skip


class CommitView:
    """A log as `decide` sees it."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self.last_seq = log.last_seq

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        return _known(self._log.find(namespace, checkpoint_id))

    def latest(self, namespace: str) -> Known | None:
        return _known(self._log.find(namespace, None))

    def has_run(self, branch: str, number: int) -> bool:
        return self._log.has_run(branch, number)


def _known(seal: Seal | None) -> Known | None:
    if seal is None:
        return None
    return Known(seal.facts["checkpoint_id"], seal.facts["seq"], seal.facts["rev"], seal.facts["parent_id"])


def write_all(fd: int, data: bytes, at: int) -> None:
    os.lseek(fd, at, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def to_disk(fd: int) -> None:
    getattr(os, "fdatasync", os.fsync)(fd)
