"""The log of one thread: one file, which is read from its end. What is in it: see `schema`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zlib import crc32

from pydantic_core import from_json

from locus.errors import CorruptCheckpointError
from locus.memory.backends.file.schema import CHECKSUM_KEY, FORMAT, SEAL_START, Record, Seal
from locus.memory.model.codec import encode
from locus.memory.model.formats import check_format, oldest
from locus.memory.model.ids import shown_thread
from locus.memory.model.records import Extent, Known, Run, Stored, Write
from locus.memory.model.table import Row, ThreadTable
from locus.memory.runtime.private import BYTES, NO_LINK

_END_BYTES = 1 << 16
"""How much of a log is read first: of its end, in search of the last seal, or of its first line."""

_BUFFER_BYTES = 1 << 18
"""How much is read at once, going backwards."""

# A pipe that somebody has put in the place of a log is an error, and nothing to wait for.
_TO_READ = os.O_RDONLY | BYTES | getattr(os, "O_NONBLOCK", 0)
_TO_APPEND = os.O_RDWR | BYTES | NO_LINK


_UNWRITTEN_BYTES = 512
"""So many zeros in a row are a sector that was never written: the power failed during a save."""

_FIRST_LINE = re.compile(rb'\{"(head"|-?\d+\.)')
"""How the first line of a record begins."""


_FORMATS = re.compile(rb',"(locus|min_reader|min_writer)":(\d{1,9})(?=,)')
"""What the first line says of the format. No id of a thread can say it: quotes in a text are escaped."""


class LogFile:
    """An open log, as far as it was read: seals are read from the end, as they are needed."""

    def __init__(self, path: Path, thread_id: str) -> None:
        self.path = path
        self.thread_id = thread_id
        self._fd = -1
        self._format: tuple[int, int | None] = (0, None)
        self._added: list[Seal] = []
        """What was added since the log was first read, oldest first."""
        self._read: list[Seal] = []
        """What was read from there backwards, newest first."""
        self._complete = False
        self._ids: dict[tuple[str, str], Seal] = {}
        self._newest_runs: dict[str, int] = {}
        self._buffer = (0, b"")

    @property
    def _name(self) -> str:
        """How an error names the log. The name of the file may be the id of the thread."""
        return f"the log of {shown_thread(self.thread_id)}"

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

    def refresh(self, writing: bool = False) -> bool:
        """Open the file and find out what is new; False if the file does not exist. `writing`: to append to it."""
        self.release()
        try:
            self._fd = os.open(self.path, _TO_APPEND if writing else _TO_READ)
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
        """As many bytes as are there. One read may return fewer: it is interrupted, or the length is above 2 GB."""
        os.lseek(self._fd, at, os.SEEK_SET)
        data = os.read(self._fd, length)
        if len(data) == length:
            return data
        parts = [data]
        while parts[-1]:
            parts.append(os.read(self._fd, length - sum(map(len, parts))))
        return b"".join(parts)

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
            raise CorruptCheckpointError(f"{self._name} is the log of another thread")

    @classmethod
    def thread_of(cls, path: Path) -> str:
        """The id of the thread whose log a file is."""
        return cls(path, "")._thread_in(cls._beginning_of(path))

    @classmethod
    def is_log(cls, path: Path) -> bool:
        """Whether a file begins as a log does, whatever follows."""
        return cls._beginning_of(path).startswith(SEAL_START)

    @classmethod
    def _beginning_of(cls, path: Path) -> bytes:
        log = cls(path, "")
        log._fd = os.open(path, _TO_READ)
        try:
            return log._pread(0, _END_BYTES)
        finally:
            log.release()

    def _thread_in(self, data: bytes) -> str:
        line = data.partition(b"\n")[0] + b"\n"
        if not line.startswith(SEAL_START):
            raise CorruptCheckpointError(f"{self._name} is not the log of a thread")
        # Before anything else: a newer format may differ in everything but this.
        numbers = {name.decode(): int(number) for name, number in _FORMATS.findall(line)}
        self._format = numbers.get("locus", 0), numbers.get(oldest(reading=False))
        check_format(self._format[0], FORMAT, numbers.get(oldest(reading=True)), f"{self._name} has")
        facts = self._parsed(0, line).facts
        if facts.get("seal") != "thread":
            raise CorruptCheckpointError(f"{self._name} is not the log of a thread")
        return str(facts["thread_id"])

    def check_writable(self) -> None:
        """Refuse to change a log in a newer format that may only be read."""
        check_format(self._format[0], FORMAT, self._format[1], f"{self._name} has")

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
                    seal = self._parsed(start + begin, data[begin:end])
                    self._check_tail(seal.end, data[end:])
                    return seal
                end = begin
            if start == 0:
                raise CorruptCheckpointError(f"{self._name} has no seal that can be read")
            window *= 8

    def _check_tail(self, at: int, tail: bytes) -> None:
        """Whether what follows the last seal is the beginning of a record and its seal, as a killed process leaves it.

        Anything else was written whole, and changed afterwards: cutting that off would undo a save without a word.
        """
        if not tail or b"\0" * _UNWRITTEN_BYTES in tail:
            return
        *lines, rest = tail.split(b"\n")
        first, following = lines[:1], lines[1:]
        if (
            not all(map(_FIRST_LINE.match, first))
            or not all(line.startswith(b",") or line == b"}" for line in following)
            or b"}" in following[:-1]
            or any(map(_ends_with_seal, lines))
            or _ends_with_seal(rest[:-1])
        ):
            raise CorruptCheckpointError(f"{self._name}: what follows byte {at} is damaged, and no save cut short")

    def _parsed(self, at: int, line: bytes) -> Seal:
        text, _, checksum = line.rpartition(CHECKSUM_KEY)
        if checksum != f"{crc32(text)}}}\n".encode():
            raise CorruptCheckpointError(f"{self._name}: the seal at byte {at} does not fit its checksum")
        facts: dict[str, Any] = from_json(line)
        return Seal(at, line, facts)

    def _before(self, seal: Seal) -> Seal | None:
        prev = seal.facts["prev"]
        if prev is None:
            return None
        # Always nearer to the beginning, so that this ends.
        line = self._bytes(prev, seal.record - prev) if isinstance(prev, int) and 0 <= prev < seal.record else b""
        if not line.startswith(SEAL_START) or not line.endswith(b"\n"):
            raise CorruptCheckpointError(f"{self._name}: there is no seal at byte {prev}")
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

    def expired(self, now: datetime) -> bool:
        at = self.expires_at
        return at is not None and at <= now

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
            raise CorruptCheckpointError(f"{self._name}: the record at byte {seal.record} does not fit its checksum")
        return [body[at : at + length].decode() for at, length in seal.facts["at"]]

    def row(self, seal: Seal) -> Row:
        return Row(seal.entry(self.thread_id), self.texts(seal)[0], encode(seal.facts["manifest"]))

    def runs(self, seal: Seal) -> list[Run]:
        places = seal.facts.get("runs", [])
        texts = self.texts(seal)[1:] if places else []
        return [_run(*place, items=text) for place, text in zip(places, texts, strict=True)]

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
            runs = self.runs(other)
            for run in runs:
                found.setdefault(run.branch, []).append(run)
            opened = {run.branch for run in runs if run.number == 0}
            open_extents = [
                extent
                for extent in open_extents
                if not any(_begins(extent, run, found, run.branch in opened) for run in runs)
            ]
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


def _run(branch: str, number: int, start: int, length: int, before: str | None = None, *, items: str) -> Run:
    return Run(branch, number, start, length, items, before)


def _ends_with_seal(line: bytes) -> bool:
    """Whether a line goes on, where it should have ended, with a seal that fits its checksum."""
    text, key, checksum = line.rpartition(CHECKSUM_KEY)
    at = text.rfind(SEAL_START)
    return bool(key) and at >= 0 and checksum == f"{crc32(text[at:])}}}".encode()


def _begins(extent: Extent, run: Run, found: Mapping[str, Sequence[Run]], is_opening: bool) -> bool:
    """Whether this run, one of the last that were found, is the oldest that an extent can need.

    A log has the runs of a branch in their order, with one exception: if a save that opened a branch is sent again
    after its checkpoint was removed, its runs come after those that continue them. So one of those (`is_opening`) is
    the oldest only if none of the others can be missing.
    """
    if run.branch != extent.branch or run.number > extent.run or run.start > extent.skip:
        return False
    return not is_opening or len({one.number for one in found[run.branch] if one.number <= extent.run}) > extent.run


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
