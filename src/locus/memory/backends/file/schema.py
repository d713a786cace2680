"""Records of a log, and how they get to the disk. What they look like is said in `file_log`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zlib import crc32

from locus.memory.model.codec import encode
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
