"""The log of a thread: one file, human-readable JSON, that only ever grows at its end.

Every save adds a record and its seal, in one write:

    {"head":{"agent_id":"a","iteration":1,"messages":[]}
    ,"4f0c….0":[{"role":"user","content":"hi"}
    ,{"role":"assistant","content":"hello"}]
    }
    {"seal":"checkpoint","bytes":133,"prev":0,"checkpoint_id":"4f0c…","seq":1,"runs":[…],…,"sum":2774501}

No line of a record begins with a brace but its first, `{"head"` or `{"0.channel"`; so nothing that a user
stores can be taken for a seal.

A seal is one line, and the commit point: what has no seal was never saved, and is cut off before the next
save. It names the seal before it, so that the history is read from the end, without the payloads; it says
where in the record the texts are; and it has checksums of the record and of itself. Seals are of the kinds
`thread` (the first line), `checkpoint` and `writes`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from pydantic_core import from_json

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.file.schema import (
    FORMAT,
    SUM,
    Record,
    Seal,
    to_disk,
    write_all,
)
from locus.memory.model.codec import encode
from locus.memory.model.records import Extent, Run, Stored, Write
from locus.memory.model.table import Row

_MARK = b'{"seal":'
_TAIL = 1 << 16
_AHEAD = 1 << 18


class LogFile:
    """An open log, as far as it is known: seals are read from the end, as they are needed."""

    def __init__(self, path: Path, thread_id: str) -> None:
        self.path = path
        self.thread_id = thread_id
        self._fd = -1
        self._added: list[Seal] = []
        """What was added since the log was first looked at, oldest first."""
        self._read: list[Seal] = []
        """What was read from there backwards, newest first."""
        self._complete = False
        self._ids: dict[tuple[str, str], Seal] = {}
        self._tips: dict[str, int] = {}
        self._buffer = (0, b"")

    def _forget(self) -> None:
        self._added, self._read, self._complete = [], [], False
        self._ids, self._tips = {}, {}

    def _note(self, seal: Seal) -> None:
        if seal.facts["seal"] == "checkpoint":
            self._ids[seal.facts["namespace"], seal.facts["checkpoint_id"]] = seal
            for branch, number, *_ in seal.facts["runs"]:
                self._tips[branch] = max(number, self._tips.get(branch, -1))

    def _add(self, seal: Seal) -> None:
        self._added.append(seal)
        self._note(seal)

    def _add_older(self, seal: Seal) -> None:
        self._read.append(seal)
        self._note(seal)

    def refresh(self) -> bool:
        """Open the file and find out what is new; False if there is none."""
        self.release()
        try:
            self._fd = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            self._forget()
            return False
        known = self.newest
        # Another file may have the name by now, even the inode; the line of a seal is like no other.
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
        """Like `_pread`, with what stands before it, because that is asked for next."""
        start, data = self._buffer
        if not start <= at <= at + length <= start + len(data):
            start = max(0, at + length - max(_AHEAD, length))
            data = self._pread(start, at + length - start)
            self._buffer = (start, data)
        return data[at - start : at - start + length]

    def _check_first_line(self) -> None:
        """A log begins with a line that says which thread it is of; it is written in one step with the name."""
        if self._thread_in(self._pread(0, _TAIL)) != self.thread_id:
            raise CorruptCheckpointError(f"{self.path} is the log of another thread than {self.thread_id!r}")

    @classmethod
    def thread_of(cls, path: Path) -> str:
        """Whose log a file is."""
        with path.open("rb") as file:
            return cls(path, "")._thread_in(file.read(_TAIL))

    def _thread_in(self, data: bytes) -> str:
        line = data.partition(b"\n")[0] + b"\n"
        if not line.startswith(_MARK):
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
        """The last complete seal; behind it there may be what a killed process left."""
        if known is not None and known.end == size:
            return known
        window = _TAIL
        while True:
            start = max(0, size - window)
            data = self._pread(start, size - start)
            end = data.rfind(b"\n") + 1
            while end > 0:
                begin = data.rfind(b"\n", 0, end - 1) + 1
                if data.startswith(_MARK, begin) and (begin > 0 or start == 0):
                    return self._parsed(start + begin, data[begin:end])
                end = begin
            if start == 0:
                raise CorruptCheckpointError(f"{self.path} has no seal that can be read")
            window *= 8

    def _parsed(self, at: int, line: bytes) -> Seal:
        text, _, checksum = line.rpartition(SUM)
        if checksum != f"{crc32(text)}}}\n".encode():
            raise CorruptCheckpointError(f"{self.path}: the seal at byte {at} does not fit its checksum")
        facts: dict[str, Any] = from_json(line)
        return Seal(at, line, facts)

    def _before(self, seal: Seal) -> Seal | None:
        prev = seal.facts["prev"]
        if prev is None:
            return None
        line = self._bytes(prev, seal.record - prev)
        if not line.startswith(_MARK) or not line.endswith(b"\n"):
            raise CorruptCheckpointError(f"{self.path}: there is no seal at byte {prev}")
        return self._parsed(prev, line)

    @property
    def newest(self) -> Seal | None:
        return self._added[-1] if self._added else self._read[0] if self._read else None

    def newest_first(self) -> Iterator[Seal]:
        """All seals but the first line's, from the end, reading on only as far as asked."""
        yield from self._added[::-1]
        index = 0
        while True:
            if index == len(self._read):
                if self._complete or not self._read:
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
        """Whether a branch has got this far. A line that forked off may have gone on with it long ago."""
        there = (True for _ in self.newest_first() if self._tips.get(branch, -1) >= number)
        return self._tips.get(branch, -1) >= number or (not self._complete and next(there, False))

    def texts(self, seal: Seal) -> list[str]:
        """The texts of a record, after a look at its checksum."""
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
        """A checkpoint with its runs, read from the end of the log until everything is there."""
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

    def append(self, record: Record, pretty: bool) -> None:
        """Add a record durably, after cutting off what a killed process left behind."""
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
