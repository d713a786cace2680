"""Records of a log, and how they get to the disk. What they look like is said in `file_log`.

Files by thread: names that no file system confuses, and locks that hold between processes.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zlib import crc32

from locus.memory.model.codec import encode
from locus.memory.model.ids import digest
from locus.memory.model.records import Entry

FORMAT = 1
SUM = b',"sum":'
DRAFT = ".new"


@dataclass(slots=True)
class Seal:
    """A line that closes a record: where it stands, and what it says."""

    at: int
    line: bytes
    facts: dict[str, Any]

    @property
    def end(self) -> int:
        return self.at + len(self.line)

    @property
    def record(self) -> int:
        """Where the record begins."""
        return self.at - int(self.facts["bytes"])

    def entry(self, thread_id: str) -> Entry:
        facts = self.facts
        return Entry(
            thread_id,
            facts["namespace"],
            facts["checkpoint_id"],
            facts["parent_id"],
            facts["seq"],
            facts["rev"],
            datetime.fromisoformat(facts["created_at"]),
            encode(facts["metadata"]),
        )


@dataclass(frozen=True, slots=True)
class Record:
    """What is added to a log: texts, and what the seal says of them."""

    kind: str
    facts: dict[str, Any]
    parts: tuple[tuple[str, str], ...] = ()
    """(name, JSON text) of what the record holds; the seal says where each text is, under `at`."""

    def sealed(self, prev: int | None, pretty: bool) -> bytes:
        """The bytes of the record and its seal; `prev` is where the seal before it stands."""
        body, places = bytearray(), []
        for name, text in self.parts:
            body += f"{',' if body else '{'}{encode(name)}:".encode()
            data = text.encode() if pretty else text.replace("\n", "").encode()
            places.append((len(body), len(data)))
            body += data
            if pretty:
                body += b"\n"
        if body:
            body += b"}\n"
        facts = {"seal": self.kind, "bytes": len(body), "prev": prev, **self.facts, "at": places, "crc": crc32(body)}
        line = encode(facts)[:-1].encode()
        return bytes(body) + line + SUM + f"{crc32(line)}}}\n".encode()


def write_all(fd: int, data: bytes, at: int) -> None:
    os.lseek(fd, at, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def to_disk(fd: int) -> None:
    getattr(os, "fdatasync", os.fsync)(fd)


def write_new(path: Path, records: Sequence[Record], pretty: bool) -> None:
    """Write a whole log under a name of its own, and then put it in its place, in one step."""
    data = bytearray()
    prev: int | None = None
    for record in records:
        sealed = record.sealed(prev, pretty)
        prev = len(data) + sealed.rfind(b"\n", 0, len(sealed) - 1) + 1
        data += sealed
    draft = path.with_name(path.name + DRAFT)
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
        try:
            write_all(fd, bytes(data), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        draft.unlink(missing_ok=True)  # the disk is full, most likely
        raise
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a new, replaced or removed name durable."""
    if os.name == "nt":  # Windows does not open folders
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


SUFFIX = ".jsonl"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])")
LOCKS = 256
LOCK_SECONDS = 30.0


def file_name(thread_id: str) -> str:
    """The id itself where every file system keeps it apart; else what is readable of it, and its digest.

    Only the second kind contains a tilde, so no id can take the name of another.
    """
    if _PLAIN.fullmatch(thread_id) and not _RESERVED.fullmatch(thread_id):
        return f"{thread_id}{SUFFIX}"
    readable = re.sub(r"[^a-z0-9]+", "-", thread_id.lower()).strip("-")[:32]
    return f"{readable}~{digest(thread_id)}{SUFFIX}"


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Exclude every other process, and every other handle, that changes the file of this name.

    A fixed number of lock files serve all threads: they are never removed, so nobody can wait for a lock
    on a file that is gone. The system releases the lock of a process that is killed.
    """
    path = folder / f"{crc32(name.encode()) % LOCKS:02x}"
    if sys.platform == "win32":
        from filelock import FileLock

        with FileLock(path, timeout=LOCK_SECONDS, poll_interval=0.005):
            yield
        return
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline, delay = time.monotonic() + LOCK_SECONDS, 0.0005
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} has been held by another process for {LOCK_SECONDS:g} s") from None
                time.sleep(delay)
                delay = min(delay * 2, 0.02)
        yield
    finally:
        os.close(fd)
