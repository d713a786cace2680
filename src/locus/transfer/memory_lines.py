"""Items of long-term memory as JSON Lines: what `locus memory export` writes, and `locus memory import` reads.

    {"namespace": ["users", "ada", "memories"], "key": "tea", "value": {"text": "Drinks green tea."}, "metadata": {},
     "index": null, "source": "thread-1", "ttl_seconds": null, "expires_at": null, "version": 3, "created_at": "…",
     "updated_at": "…"}

A line is the newest version of an item. An import needs `namespace`, `key` and `value`, and trusts nothing. It puts
what differs from what is there as a new version, so it may be repeated. Numbers and times of versions begin anew, and
vectors are made by whoever imports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from locus.errors import ConfigurationError, CorruptCheckpointError, LocusError
from locus.memory.engine import NothingThereError
from locus.memory.long_term import Get, Item, LongTermMemory, Put
from locus.memory.model.codec import decode

LONGEST_LINE: Final = 64 * 1024 * 1024
_AT_ONCE: Final = 256


@dataclass
class Imported:
    """What an import did, or would do."""

    put: int = 0
    present: int = 0
    ended: int = 0


def record_of(item: Item) -> dict[str, Any]:
    """An item as a line has it."""
    return {
        "namespace": list(item.namespace),
        "key": item.key,
        "value": item.value,
        "metadata": item.metadata,
        "index": item.index,
        "source": item.source,
        "ttl_seconds": item.ttl_seconds,
        "expires_at": None if item.expires_at is None else item.expires_at.isoformat(),
        "version": item.version,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
    }


async def import_lines(memory: LongTermMemory, path: str, *, dry_run: bool = False) -> Imported:
    """Put the items of a file that differ from those of a memory.

    The whole file is checked before anything is put. An item that somebody changes meanwhile is a conflict.
    """
    done = Imported()
    with _opened(path) as file:
        for _ in _puts(file):
            pass
        file.seek(0)
        some: list[Put] = []
        for put in _puts(file):
            if put is None:
                done.ended += 1
                continue
            some.append(put)
            if len(some) == _AT_ONCE:
                await _import(memory, some, done, dry_run=dry_run)
                some = []
        await _import(memory, some, done, dry_run=dry_run)
    return done


async def _import(memory: LongTermMemory, puts: Sequence[Put], done: Imported, *, dry_run: bool) -> None:
    try:
        there: list[Item | None] = await memory.batch(Get(put.namespace, put.key) for put in puts)
    except NothingThereError:  # a dry run makes nothing
        there = [None] * len(puts)
    changed = [
        Put(**{**vars(put), "if_version": item})
        for put, item in zip(puts, there, strict=True)
        if not _is_same(put, item)
    ]
    if not dry_run:
        await memory.batch(changed)
    done.put += len(changed)
    done.present += len(puts) - len(changed)


def _is_same(put: Put, item: Item | None) -> bool:
    if item is None:
        return False
    said, has = (put.value, put.metadata, put.source, put.index), (item.value, item.metadata, item.source, item.index)
    return said == has and (put.ttl_seconds is None) == (item.expires_at is None)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    place = Path(path)
    if place.exists() and not place.is_file():  # it is read twice
        raise ConfigurationError("items are imported from a file, and this is none: give a file")
    try:
        file = place.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise ConfigurationError(f"the file to import cannot be read: {reason}") from None
    with file:
        yield file


def _puts(file: BinaryIO) -> Iterator[Put | None]:
    """What the lines of a file say, in order; None for an item that has ended."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise ConfigurationError(f"line {number:,} of the file is longer than {LONGEST_LINE:,} bytes")
        if line.strip():
            try:
                yield _put(line)
            except (LocusError, KeyError, TypeError, ValueError) as error:
                what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise CorruptCheckpointError(f"line {number:,} of the file is no item: {what:.200}") from None


def _put(line: bytes) -> Put | None:
    record = decode(line)
    if not isinstance(record, dict):
        raise TypeError("it is no JSON object")
    namespace, source = record["namespace"], record.get("source")
    if not isinstance(namespace, list) or not all(isinstance(label, str) for label in namespace):
        raise TypeError("its namespace is no list of texts")
    if not isinstance(record["key"], str) or not isinstance(record.get("metadata", {}), dict):
        raise TypeError("its key is no text, or its metadata no object")
    if record["value"] is None or not isinstance(source, str | None):
        raise TypeError("its value is null, or its source no text")
    ends = None if record.get("expires_at") is None else datetime.fromisoformat(record["expires_at"])
    seconds = None if ends is None else (ends - datetime.now(UTC)).total_seconds()
    if seconds is not None and seconds <= 0:
        return None
    return Put(
        tuple(namespace),
        record["key"],
        record["value"],
        record.get("metadata", {}),
        record.get("index"),
        seconds,
        source=source,
    )
