"""The log of one thread: one file, which is read from its end. `schema` describes its content."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from zlib import crc32

from locus.errors import CorruptCheckpointError, LocusError
from locus.memory.backends.file.read import NEEDED, USELESS, Sought, sought
from locus.memory.backends.file.schema import CHECKSUM_KEY, FORMAT, SEAL_START, Record, RunPlaces, Seal
from locus.memory.model.codec import encode
from locus.memory.model.formats import check_format, oldest
from locus.memory.model.ids import shown_thread
from locus.memory.model.manifest import newest_runs
from locus.memory.model.records import (
    Ancestor,
    AncestorQuery,
    Exported,
    Extent,
    Known,
    Run,
    RunInfo,
    Stored,
    TaskWrites,
    Write,
)
from locus.memory.model.sizes import Measured, MeasuredCheckpoint, MeasuredWrites, fitting, text_bytes
from locus.memory.model.table import Row, ThreadTable
from locus.memory.runtime.private import BYTES, NO_LINK

_END_BYTES = 1 << 16
"""The bytes of the end that are read first, to find the last seal; and of the beginning, to find the first ones."""

_FIRST_BYTES = 1 << 13
"""More bytes than a first line has."""

_FAR = 64
"""The number of seals from the end after which an item may be nearer to the beginning, or not worth the search."""

_LITTLE = 1 << 12
"""The size of a record that is read sooner than left out."""

_BUFFER_BYTES = 1 << 18
"""The bytes that are read at once, going backwards."""

# A pipe that somebody has put in the place of a log is an error, and nothing to wait for.
_TO_READ = os.O_RDONLY | BYTES | getattr(os, "O_NONBLOCK", 0)
_TO_APPEND = os.O_RDWR | BYTES | NO_LINK


_UNWRITTEN_BYTES = 512
"""The number of zeros in a row that are a sector which was never written: the power failed during a save."""

_SEAL_LINE = b"\n" + SEAL_START
_FIRST_LINE = re.compile(rb'\{"(head"|-?\d+\.)')
"""The beginning of the first line of a record."""
_NO_FURTHER_LINE = re.compile(rb"\n(?!,|\}\Z)")
"""The beginning of a line that no record has after its first: they begin with a comma, and the last one is a brace."""
_CHECKED_LINE = re.compile(rb"(?m)^.*" + re.escape(CHECKSUM_KEY) + rb".*$")


_FORMATS = re.compile(rb',"(locus|min_reader|min_writer)":(\d{1,9})(?=,)')
"""The format in the first line of a log. No id of a thread can contain it: quotes in a text are escaped."""


P = ParamSpec("P")
T = TypeVar("T")


def _finds_damage(method: Callable[Concatenate[LogFile, P], T]) -> Callable[Concatenate[LogFile, P], T]:
    """Raise `CorruptCheckpointError` where a function that reads seals meets facts that do not fit each other.

    A load takes most seals apart without looking at every fact.
    """

    @wraps(method)
    def read(self: LogFile, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except LocusError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError, StopIteration) as error:
            # Without the text of the error, which may quote what somebody has stored.
            raise CorruptCheckpointError(f"{self._name} cannot be read ({type(error).__name__})") from None

    return read


class LogFile:
    """An open log, as far as it was read: seals are read from the end, as they are needed."""

    def __init__(self, path: Path, thread_id: str) -> None:
        self.path = path
        self.thread_id = thread_id
        self._fd = -1
        self._inode = (0, 0)
        self._format: tuple[int, int | None] = (0, None)
        self._buffer = (0, b"")
        self.changed: datetime | None = None
        """The time at which the file was last written to."""
        self._forget()

    @property
    def _name(self) -> str:
        """The name of the log in errors. They do not name the file, which may show the id of the thread."""
        return f"the log of {shown_thread(self.thread_id)}"

    def _forget(self) -> None:
        self._added: list[Seal] = []
        """The seals that were added since the log was first read, oldest first."""
        self._read: list[Seal] = []
        """The seals that were read backwards from there, newest first."""
        self._complete = False
        self._ids: dict[tuple[str, str], Seal] = {}
        self._named = 0
        """The number of those seals that are in `_ids`."""
        self._newest_runs: dict[str, int] = {}
        self._first_runs: dict[str, Seal] = {}
        """The seal of run 0 by branch: most large values, and lists that never change, are far from the end."""
        self._placed = 0
        """The number of those seals that are in `_newest_runs`."""
        self._has_only_grown: bool | None = None

    def _index(self, seal: Seal) -> None:
        if seal.kind == "checkpoint":
            self._ids[seal.name] = seal

    def _index_runs(self, seal: Seal) -> None:
        if seal.kind == "checkpoint":
            for branch, number, *_ in seal.places.runs:
                self._newest_runs[branch] = max(number, self._newest_runs.get(branch, -1))
                if number == 0:
                    self._first_runs[branch] = seal

    def _indexed_runs(self) -> Iterator[Mapping[str, int]]:
        """Yield the newest known run of each branch again and again, after reading one more seal each time."""
        yield self._newest_runs
        for seal in self._older(self._placed):
            self._placed += 1
            self._index_runs(seal)
            yield self._newest_runs

    def _add(self, seal: Seal) -> None:
        self._added.append(seal)
        self._index(seal)
        self._index_runs(seal)

    @_finds_damage
    def refresh(self, writing: bool = False) -> bool:
        """Open the file and read what is new; False if the file does not exist. `writing`: to append to it."""
        self.release()
        try:
            self._fd = os.open(self.path, _TO_APPEND if writing else _TO_READ)
        except FileNotFoundError:
            self._forget()
            return False
        status = os.fstat(self._fd)
        known, inode = self.newest, (status.st_dev, status.st_ino)
        # A log that was written anew is another file, even if its last seal stands where it stood. And another file may
        # have the inode by now; the line of a seal is unique.
        if known is not None and (inode != self._inode or self._pread(known.at, len(known.line)) != known.line):
            self._forget()
            known = None
        self._inode = inode
        self.changed = datetime.fromtimestamp(status.st_mtime, UTC)
        if known is None:
            self._check_first_line()
        newest = self._last_seal(status.st_size, known)
        if known is None:
            self._read.append(newest)
            return True
        fresh: list[Seal] = []
        older: Seal | None = newest
        while older is not None and older.at > known.at:
            fresh.append(older)
            older = self._before(older)
        for seal in reversed(fresh):
            self._add(seal)
        return True

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._buffer = (0, b"")

    def _pread(self, at: int, length: int) -> bytes:
        """Read as many bytes as there are.

        A single read may return fewer: it is interrupted, or the length is above 2 GB.
        """
        os.lseek(self._fd, at, os.SEEK_SET)
        data = os.read(self._fd, length)
        if len(data) == length:
            return data
        parts = [data]
        while parts[-1]:
            parts.append(os.read(self._fd, length - sum(map(len, parts))))
        return b"".join(parts)

    def _bytes(self, at: int, length: int) -> bytes:
        """Read bytes as `_pread` does, and those before them as well, because they are needed next."""
        start, data = self._buffer
        low, high = at - start, at - start + length
        if low < 0 or high > len(data):
            start = max(0, at + length - max(_BUFFER_BYTES, length))
            data = self._pread(start, at + length - start)
            self._buffer = (start, data)
            low, high = at - start, at - start + length
        return data[low:high]

    def _check_first_line(self) -> None:
        """Check the first line, which names the thread. It is written in one step with the file name."""
        if self._thread_in(self._first_bytes()) != self.thread_id:
            raise CorruptCheckpointError(f"{self._name} is the log of another thread")

    @classmethod
    def thread_of(cls, path: Path) -> str:
        """Read the id of the thread whose log a file is."""
        return cls(path, "")._thread_in(cls._beginning_of(path))

    @classmethod
    def is_log(cls, path: Path) -> bool:
        """Tell whether a file begins as a log does, whatever follows."""
        return cls._beginning_of(path).startswith(SEAL_START + b'"thread"')

    @classmethod
    def _beginning_of(cls, path: Path) -> bytes:
        log = cls(path, "")
        log._fd = os.open(path, _TO_READ)
        try:
            return log._first_bytes()
        finally:
            log.release()

    def _first_bytes(self) -> bytes:
        data = self._pread(0, _FIRST_BYTES)
        return data if b"\n" in data else self._pread(0, _END_BYTES)

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
        """Find the last complete seal. A killed process may have left something after it."""
        if known is not None and known.end == size:
            return known
        window = _END_BYTES
        while True:
            start = max(0, size - window)
            data = self._pread(start, size - start)
            # Not line by line: a damaged log may have nothing but line ends.
            begin = data.rfind(_SEAL_LINE, 0, data.rfind(b"\n") + 1) + 1
            end = data.find(b"\n", begin) + 1
            if end and (begin > 0 or (start == 0 and data.startswith(SEAL_START))):
                seal = self._parsed(start + begin, data[begin:end])
                self._check_tail(seal.end, data[end:])
                self._buffer = (start, data[:end])  # what precedes the seal is needed next
                return seal
            if start == 0:
                raise CorruptCheckpointError(f"{self._name} has no seal that can be read")
            window *= 8

    def _check_tail(self, at: int, tail: bytes) -> None:
        """Check that the last seal is followed by nothing but the beginning of a record, as a killed process leaves it.

        Anything else was written whole, and changed afterwards: cutting that off would undo a save without a word.
        """
        if not tail or b"\0" * _UNWRITTEN_BYTES in tail:
            return
        lines, _, rest = tail.rpartition(b"\n")
        if (
            (len(rest) < len(tail) and not _FIRST_LINE.match(lines))
            or _NO_FURTHER_LINE.search(lines)
            or any(_ends_with_seal(line[0]) for line in _CHECKED_LINE.finditer(lines))
            or _ends_with_seal(rest[:-1])
        ):
            raise CorruptCheckpointError(f"{self._name}: what follows byte {at} is damaged, and no save cut short")

    def _parsed(self, at: int, line: bytes) -> Seal:
        text, _, checksum = line.rpartition(CHECKSUM_KEY)
        if checksum != b"%d}\n" % crc32(text):
            raise CorruptCheckpointError(f"{self._name}: the seal at byte {at} does not fit its checksum")
        return Seal(at, line)

    def _before(self, seal: Seal) -> Seal | None:
        prev = seal.prev
        if prev is None:
            return None
        line = self._bytes(prev, seal.record - prev)
        if not line.startswith(SEAL_START) or not line.endswith(b"\n"):
            raise CorruptCheckpointError(f"{self._name}: there is no seal at byte {prev}")
        return self._parsed(prev, line)

    def _beginning(self) -> Iterator[Seal]:
        """The first seals, oldest first, as far as they are intact. Reading backwards reports any damage."""
        data, at, prev = self._pread(0, _END_BYTES), 0, None
        while at >= 0:
            end = data.find(b"\n", at) + 1
            try:
                seal = self._parsed(at, data[at:end])
                if seal.prev != (prev and prev.at) or seal.record != (prev.end if prev else 0):
                    return
            except CorruptCheckpointError:
                return
            yield seal
            prev, at = seal, data.find(b"\n" + SEAL_START, end - 1) + 1 or -1

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

    def _older(self, index: int = 0) -> Iterator[Seal]:
        """Yield the seals that were read backwards, from an index on, reading on only as far as asked."""
        while True:
            if index == len(self._read):
                before = None if self._complete else self._before(self._read[-1])
                if before is None:
                    self._complete = True
                    return
                self._read.append(before)
            yield self._read[index]
            index += 1

    def newest_first(self) -> Iterator[Seal]:
        """Yield all seals but the first line's, from the end, reading on only as far as asked."""
        yield from reversed(self._added)
        for seal in self._older():
            if seal.kind != "thread":
                yield seal

    def checkpoints(self, namespace: str | None = None) -> Iterator[Seal]:
        return (seal for seal in self.newest_first() if seal.kind == "checkpoint" and namespace in (None, seal.name[0]))

    @_finds_damage
    def find(self, namespace: str, checkpoint_id: str | None) -> Seal | None:
        """Find the seal of a checkpoint; of the latest if no id is given."""
        if checkpoint_id is None:
            return next(self.checkpoints(namespace), None)
        key = (namespace, checkpoint_id)
        if key not in self._ids:
            for seal in self._older(self._named):
                self._named += 1
                self._index(seal)
                if key in self._ids:
                    break
        return self._ids.get(key)

    @_finds_damage
    def has_run(self, branch: str, number: int) -> bool:
        """Tell whether a branch has this run, or a later one, because somebody has opened or continued it.

        From the end, the first run of a branch that is seen is the newest one, unless it is run 0 (see `Sought`).
        """
        for runs in self._indexed_runs():
            if number == 0 and branch in runs:
                return True
            if runs.get(branch, 0) > 0 or (branch in runs and self._only_grew()):
                return runs[branch] >= number
        return False

    def _only_grew(self) -> bool:
        """Tell whether no checkpoint was ever removed: then the first one has the first number, and was the last."""
        if self._has_only_grown is None:
            first = next((seal.facts for seal in self._beginning() if seal.kind == "checkpoint"), {})
            self._has_only_grown = first.get("seq") == first.get("last_seq") == 1
        return self._has_only_grown

    @_finds_damage
    def has_value(self, branch: str) -> bool:
        """Tell whether a large value is stored. Only seals that were read, and those near the end, are looked at.

        A value that is used again much later is stored again. To look for it in all seals would make the saves of new
        values slower, the longer the log is.
        """
        return any(branch in runs for runs in islice(self._indexed_runs(), max(1, _FAR - self._placed)))

    def _body(self, seal: Seal, crc: int) -> bytes:
        """Read a record, and check its checksum."""
        body = self._bytes(seal.record, seal.at - seal.record)
        if crc32(body) != crc:
            raise CorruptCheckpointError(f"{self._name}: the record at byte {seal.record} does not fit its checksum")
        return body

    @_finds_damage
    def texts(self, seal: Seal) -> list[str]:
        """Read the texts of a record, and check its checksum."""
        body = self._body(seal, seal.facts["crc"])
        return [body[at : at + length].decode() for at, length in seal.facts["at"]]

    @_finds_damage
    def writes(self, seal: Seal) -> list[Write]:
        return [
            Write(fact[0], fact[1], fact[2], fact[3], text)
            for fact, text in zip(seal.facts["writes"], self.texts(seal), strict=True)
        ]

    @_finds_damage
    def stored(self, seal: Seal, wanted: Sequence[Extent], known: Mapping[str, int] | None = None) -> Stored:
        """Read a checkpoint with its runs, from its seal backwards until everything is found.

        `known` is the newest run that the reader has of a branch.
        """
        entry, places = seal.entry(self.thread_id), seal.places
        at, length = places.at[0]
        head = self._body(seal, places.crc)[at : at + length].decode()
        runs = self._runs(seal, sought(wanted, known or {}))
        for members in runs.values():
            members.reverse()
        passed = self.find(entry.namespace, None) is not seal
        return Stored(entry, head, encode(seal.facts["manifest"]), runs, passed)

    def _runs(self, first: Seal, open_branches: dict[str, list[Sought]]) -> dict[str, list[Run]]:
        """Read the runs that are needed, newest first.

        None of them is behind the seal of the checkpoint that needs them.
        """
        runs: dict[str, list[Run]] = {}
        self._take_first_runs(open_branches, runs)
        if not open_branches:
            return runs
        for passed, seal in enumerate(dropwhile(lambda seal: seal is not first, self.newest_first())):
            if passed == _FAR:
                self._look_for_first_runs(open_branches, seal.at)
                self._take_first_runs(open_branches, runs)
            if not open_branches:
                break
            if seal.kind == "checkpoint":
                places = seal.places
                chosen = _chosen(places.runs, open_branches, seal.at - seal.record <= _LITTLE)
                if chosen:
                    self._take(seal, places, chosen, runs)
        return runs

    def _take(self, seal: Seal, places: RunPlaces, chosen: Iterable[int], taken: dict[str, list[Run]]) -> None:
        runs, texts_at, crc = places
        body = self._body(seal, crc)
        for index in chosen:
            place, (at, length) = runs[index], texts_at[index + 1]
            run = _run(place, body[at : at + length].decode())
            if not run.number:
                self._first_runs[run.branch] = seal
            if place[0] in taken:
                taken[place[0]].append(run)
            else:
                taken[place[0]] = [run]

    def _look_for_first_runs(self, open_branches: Mapping[str, Sequence[Sought]], before: int) -> None:
        """Find the seals of runs 0, if nothing else is left to be found: near the beginning, or by their names."""
        if any(search.run for searches in open_branches.values() for search in searches):
            return
        for seal in self._beginning():
            if open_branches.keys() <= self._first_runs.keys():
                return
            self._note_first_runs(seal)
        for branch in open_branches.keys() - self._first_runs.keys():
            first = self._with_first_run(branch, before)
            if first is not None:
                self._first_runs[branch] = first

    def _note_first_runs(self, seal: Seal) -> None:
        if seal.kind == "checkpoint":
            self._first_runs.update((place[0], seal) for place in seal.places.runs if place[1] == 0)

    def _with_first_run(self, branch: str, end: int) -> Seal | None:
        """Find the last seal before a position whose record has run 0 of a branch.

        The name of the run is searched for in the bytes, which is many times as fast as to look at each seal. The
        content that a user has stored may contain it, too, so the seal has to say that the run is there.
        """
        name = f"{encode(f'{branch}.0')}:".encode()
        while end > len(name):
            start = max(0, end - max(_BUFFER_BYTES, 2 * len(name)))
            at = self._pread(start, end - start).rfind(name)
            if at < 0:
                end = start + len(name) - 1
                continue
            seal = self._seal_after(start + at)
            if seal is None or (seal.kind == "checkpoint" and [branch, 0] in (place[:2] for place in seal.places.runs)):
                return seal
            end = min(seal.record, start + at)
        return None

    def _seal_after(self, at: int) -> Seal | None:
        """Find the seal of the record that a position is in."""
        size = _END_BYTES
        while True:
            data = self._pread(at, size)
            begin = data.find(b"\n" + SEAL_START) + 1
            end = data.find(b"\n", begin) + 1
            if begin and end:
                return self._parsed(at + begin, data[begin:end])
            if len(data) < size:
                return None
            size *= 8

    def _take_first_runs(self, open_branches: dict[str, list[Sought]], runs: dict[str, list[Run]]) -> None:
        """Read the runs 0 whose seals are known, if nothing else of the branch is needed."""
        for branch in [branch for branch in open_branches if branch in self._first_runs]:
            if any(search.run for search in open_branches[branch]):
                continue
            seal = self._first_runs[branch]
            places = seal.places
            index = next(index for index, place in enumerate(places.runs) if place[:2] == [branch, 0])
            self._take(seal, places, (index,), runs)
            del open_branches[branch]

    @_finds_damage
    def table(self) -> ThreadTable:
        """Read the whole log."""
        table = ThreadTable(self.thread_id, expires_at=self.expires_at)
        for seal in reversed(list(self.newest_first())):
            self.put(table, seal)
        return table

    @_finds_damage
    def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        """Read the ancestors of a checkpoint, its parent first, with their pending writes to some channels."""
        _, namespace, checkpoint_id, limit, channels, _ = query
        line: dict[str, Stored] = {}
        seal = self.find(namespace, checkpoint_id)
        while seal is not None and (parent_id := seal.facts["parent_id"]) is not None and len(line) < limit:
            seal = None if parent_id in line or parent_id == checkpoint_id else self.find(namespace, parent_id)
            if seal is not None:
                line[parent_id] = self.stored(seal, ())
        table = ThreadTable(self.thread_id)
        for seal in reversed(list(self.newest_first())):
            if seal.kind == "writes" and seal.task[0] == namespace and seal.task[1] in line:
                self.put_writes(table, seal)
        found = ((stored, table.get_writes(namespace, name, None)) for name, stored in line.items())
        return [Ancestor.of(stored, writes, channels) for stored, writes in found]

    def exported(self, after_seq: int, known: Mapping[str, int]) -> Exported:
        """Read a page of checkpoints. Seals tell how large records are, and only the records of the page are read."""
        seals = list(reversed(list(self.newest_first())))
        checkpoints = (seal for seal in seals if seal.kind == "checkpoint" and seal.facts["seq"] > after_seq)
        later = sorted(checkpoints, key=lambda seal: seal.facts["seq"])
        writes = self._measured_writes()
        chosen = later[
            : min(
                fitting(sum(length for _, length in seal.facts["at"]) for seal in later),
                fitting(writes[seal.name].size if seal.name in writes else 0 for seal in later),
            )
        ]
        newest = newest_runs(encode(seal.facts["manifest"]) for seal in chosen)
        seqs, names = {seal.facts["seq"] for seal in chosen}, {seal.name for seal in chosen}
        table = ThreadTable(self.thread_id)
        for seal in seals:
            if seal.kind == "writes":
                if seal.task[:2] in names:
                    self.put_writes(table, seal)
            elif seal.facts["seq"] in seqs:
                self.put(table, seal)
            elif any(known.get(run[0], -1) < run[1] <= newest.get(run[0], -1) for run in seal.facts["runs"]):
                self._put_runs(table, seal, self.texts(seal)[1:])
        return replace(table.exported(after_seq, None, known), more=len(chosen) < len(later))

    def _put_runs(self, table: ThreadTable, seal: Seal, texts: Sequence[str]) -> None:
        table.add_runs(_run(place, text) for place, text in zip(seal.facts["runs"], texts, strict=True))

    @_finds_damage
    def put(self, table: ThreadTable, seal: Seal) -> None:
        """Put the content of a record into a table."""
        if seal.kind == "writes":
            self.put_writes(table, seal)
        else:
            head, *texts = self.texts(seal)
            if seal.facts["seq"] in table.rows or seal.name in table.ids:
                raise CorruptCheckpointError(f"{self._name} has two checkpoints with one number, or with one name")
            self._put_runs(table, seal, texts)
            table.put(Row(seal.entry(self.thread_id), head, encode(seal.facts["manifest"])))
        table.last_seq = max(table.last_seq, seal.facts["last_seq"])

    @contextmanager
    def as_it_is(self) -> Iterator[None]:
        """A context for a log that may be damaged; nothing but its first line has to be as it was."""
        self.release()
        self._forget()
        self._fd = os.open(self.path, _TO_READ)
        try:
            self._check_first_line()
            self.check_writable()
            yield
        finally:
            self.release()
            self._forget()

    def intact(self) -> list[Seal]:
        """List all seals but the first line's that fit their checksums, oldest first, whatever stands between them."""
        seals: list[Seal] = []
        data = self._pread(0, os.fstat(self._fd).st_size)
        at = 0 if data.startswith(SEAL_START) else data.find(_SEAL_LINE) + 1 or -1
        while at >= 0 and (end := data.find(b"\n", at) + 1):
            with suppress(CorruptCheckpointError):
                seal = self._parsed(at, data[at:end])
                if seal.facts["seal"] != "thread":
                    seals.append(seal)
            at = data.find(_SEAL_LINE, end - 1) + 1 or -1
        return seals

    @_finds_damage
    def orphans(self) -> dict[tuple[str, str], int]:
        """Count the pending writes of each checkpoint that does not exist; their values are not read."""
        existing = {seal.name for seal in self.checkpoints()}
        return {place: writes.number for place, writes in self._measured_writes().items() if place not in existing}

    @_finds_damage
    def measured(self) -> Measured | None:
        """Measure the bytes of everything in the log, as the seals tell them; no record is read."""
        checkpoints: list[MeasuredCheckpoint] = []
        runs: dict[RunInfo, int] = {}
        for seal in reversed(list(self.checkpoints())):
            entry, manifest = seal.entry(self.thread_id), encode(seal.facts["manifest"])
            head, *texts = (length for _, length in seal.facts["at"])
            checkpoints.append(
                MeasuredCheckpoint(entry, manifest, head + text_bytes(manifest) + text_bytes(entry.metadata))
            )
            for place, length in zip(seal.facts["runs"], texts, strict=True):
                # A large value may be there again.
                runs.setdefault(RunInfo(*place[:4]), length)
        return Measured(checkpoints, runs, self._measured_writes()) if checkpoints else None

    def _measured_writes(self) -> dict[tuple[str, str], MeasuredWrites]:
        sizes_of: dict[tuple[str, str], dict[tuple[str, int], int]] = {}
        for seal in reversed(list(self.newest_first())):
            if seal.kind == "writes":
                *place, task = seal.task
                writes = sizes_of.setdefault((place[0], place[1]), {})
                if not seal.facts.get("keep_numbered", False):
                    for key in [key for key in writes if key[0] == task and key[1] >= 0]:
                        del writes[key]
                for fact, (_, length) in zip(seal.facts["writes"], seal.facts["at"], strict=True):
                    writes[task, fact[2]] = length
        return {place: MeasuredWrites(len(sizes), sum(sizes.values())) for place, sizes in sizes_of.items() if sizes}

    @_finds_damage
    def put_writes(self, table: ThreadTable, seal: Seal) -> None:
        """Put the pending writes of a record into a table."""
        keep_numbered = seal.facts.get("keep_numbered", False)
        table.put_writes(TaskWrites(table.thread_id, *seal.task, tuple(self.writes(seal)), keep_numbered))

    def append(self, record: Record, pretty: bool) -> None:
        """Add a record durably, after cutting off the remains of a killed process."""
        newest = self.newest
        assert newest is not None, "a log begins with the line that names its thread"
        end = newest.end
        if os.fstat(self._fd).st_size != end:
            os.ftruncate(self._fd, end)
        data = record.sealed(newest.at, pretty)
        write_all(self._fd, data, end)
        to_disk(self._fd)
        line_at = data.rindex(b"\n", 0, len(data) - 1) + 1 if b"\n" in data[:-1] else 0
        self._add(Seal(end + line_at, data[line_at:]))


def _run(place: Sequence[Any], items: str) -> Run:
    return Run(place[0], place[1], place[2], place[3], items, place[4] if len(place) > 4 else None)


def _ends_with_seal(line: bytes) -> bool:
    """Tell whether a line that should have ended goes on with a seal that fits its checksum."""
    text, key, checksum = line.rpartition(CHECKSUM_KEY)
    at = text.rfind(SEAL_START)
    return bool(key) and at >= 0 and checksum == f"{crc32(text[at:])}}}".encode()


def _chosen(runs: Sequence[Sequence[Any]], open_branches: dict[str, list[Sought]], is_little: bool) -> list[int]:
    """Choose the runs of a record that are to be read, newest first: those that are needed, with those that they hide.

    A little record is read even if it has only hidden runs. If runs are left out, the reader has to prove that the
    others belong together, which costs more than to read a little.
    """
    chosen: list[int] = []
    is_read = is_little
    for index in range(len(runs) - 1, -1, -1):
        place = runs[index]
        searches = open_branches.get(place[0])
        if searches is None:
            continue
        use = USELESS
        for search in searches:
            met = search.meets(place[1], place[2])
            if met > use:
                use = met
        if use:
            chosen.append(index)
            if use == NEEDED:
                is_read = True
        if not searches[0].is_open or len(searches) > 1:
            searches[:] = [search for search in searches if search.is_open]
            if not searches:
                del open_branches[place[0]]
    return chosen if is_read else []


class CommitView:
    """A file's log as the `View` of a thread on which `commit_rules.decide` decides."""

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
