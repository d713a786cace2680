"""Reads whole threads from JSON Lines, as `locus export` writes them: all checkpoints, and each item once.

    {"locus": 1, "thread_id": "customer-7"}                                              begins a thread
    {"branch": "k3v9…", "run": 0, "start": 0, "items": [{"role": "user", …}]}             items, before they are named
    {"namespace": "default", "checkpoint_id": "…", "parent_id": null, "created_at": "…", "metadata": {…},
     "state": {"agent_id": "shop", "messages": []}, "lists": [[["messages"], [["k3v9…", 0, 0, 1]]]], "writes": []}
    {"end": "customer-7", "checkpoints": 1}                                              ends it

`lists` is the manifest of the checkpoint: for each path the extents of the list there (see `memory.model.records`), or
the branch of a large value. A file is therefore as long as the thread, rather than as all its states together. `locus
import jsonl` reads it with `JSONLinesSource`, and trusts nothing in it. A thread without its end was cut off, and
nothing of it is imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path as File
from typing import Any, BinaryIO, Final

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.looking.documents import JSONL_FORMAT
from locus.memory.model.codec import MAX_DEPTH, decode, encode
from locus.memory.model.ids import check_id
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.records import Run, Write
from locus.memory.store import SPECIAL_CHANNELS
from locus.transfer.content import MovedCheckpoint, StoredContent
from locus.transfer.items import ThreadItems
from locus.transfer.sources import Source

LONGEST_LINE: Final = 256 * 1024 * 1024
"""The longest line, in bytes. A line has one run, or one checkpoint without its lists."""
MOST_EXTENTS: Final = 1_000
"""How many extents a list may have. A save keeps a list in a few (see `plan.MAX_EXTENTS`)."""
_DEPTH: Final = MAX_DEPTH + 1
"""Of a state, and of a list: each field and each item may be as deep as `MAX_DEPTH`."""
_END: Final = b'{"end":'
_LEAST_INDEX: Final = min(SPECIAL_CHANNELS.values())
_LARGEST_INDEX: Final = 2**31 - 1


class JSONLinesSource(Source):
    """The threads in a file of JSON Lines. The file is only read."""

    def __init__(self, path: str) -> None:
        self._path = File(path)
        self._places: dict[str, int] = {}
        self._whole: set[str] = set()
        """The threads that have their end in the file."""

    @property
    def name(self) -> str:
        return f"jsonl:{self._path}"

    async def ids(self) -> Iterable[str]:
        self._places, self._whole = await asyncio.to_thread(self._found)
        return self._places

    def _found(self) -> tuple[dict[str, int], set[str]]:
        """The byte at which each thread begins, and the threads that have their end in the file."""
        places: dict[str, int] = {}
        whole: set[str] = set()
        thread_id = ""
        with self._opened() as file:
            at = 0
            for number, line in enumerate(_lines(file), 1):
                if line.startswith(b'{"locus":'):
                    begun = _object(line, number)
                    if begun.get("locus") != JSONL_FORMAT:
                        raise ConfigurationError(
                            f"line {number} is of format {begun.get('locus')!r:.20}, and this version of Locus reads "
                            f"{JSONL_FORMAT}: import it with a newer one"
                        )
                    thread_id = check_id(begun.get("thread_id"))
                    if thread_id in places:
                        raise ConfigurationError(f"line {number} begins a thread that the file has already")
                    places[thread_id] = at
                elif not places and line.strip():
                    raise ConfigurationError("this is not a file of `locus export`: its first line begins no thread")
                elif thread_id in whole and line.strip():
                    raise CorruptCheckpointError(f"line {number} of the file follows the end of its thread")
                elif line.startswith(_END) and _object(line, number).get("end") == thread_id:
                    whole.add(thread_id)
                at += len(line)
        return places, whole

    def _opened(self) -> BinaryIO:
        try:
            # The file is read more than once, and opening a pipe would wait for a writer.
            if self._path.exists() and not self._path.is_file():
                raise ConfigurationError("threads are imported from a file, and this is none: give a file")
            return self._path.open("rb")
        except OSError as error:
            raise ConfigurationError(f"the file to import cannot be read: {error.strerror}") from None

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        items, order = ThreadItems(), _Order()
        if thread_id not in self._whole:
            raise CorruptCheckpointError(
                f"the file is cut off: the end of thread {thread_id!r} is not in it. Nothing of it was imported"
            )
        with self._opened() as file:
            file.seek(self._places[thread_id])
            lines = _lines(file)
            next(lines)
            for line in lines:
                if not line.strip():
                    continue
                record = _object(line, None)
                if "end" in record:
                    order.check_count(record.get("checkpoints"))
                    return
                if "branch" in record:
                    items.add([_run(record)])
                else:
                    checkpoint = _checkpoint(record, items)
                    order.add(checkpoint)
                    yield checkpoint


class _Order:
    """Refuses duplicate checkpoints, and parents that form a circle.

    A parent may be missing, because it was deleted. It may follow its child, if the child named it beforehand.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._above: dict[tuple[str, str], tuple[str, str]] = {}
        """An ancestor of each checkpoint that has a parent: the last that is known, or one on the way to it."""

    def add(self, checkpoint: MovedCheckpoint) -> None:
        key = (checkpoint.namespace, checkpoint.checkpoint_id)
        if key in self._seen:
            raise CorruptCheckpointError("a checkpoint is in the file twice")
        self._seen.add(key)
        if checkpoint.parent_id is not None:
            last = self._last_ancestor((checkpoint.namespace, checkpoint.parent_id))
            if last == key:
                raise CorruptCheckpointError("the parents of checkpoints of the file lead in a circle")
            self._above[key] = last

    def _last_ancestor(self, key: tuple[str, str]) -> tuple[str, str]:
        passed = []
        while key in self._above:
            passed.append(key)
            key = self._above[key]
        for each in passed:  # shortens the way for the next search
            self._above[each] = key
        return key

    def check_count(self, expected: object) -> None:
        """Refuse the end of a thread if its number of checkpoints is not that of the file."""
        if not _is_count(expected) or expected != len(self._seen):
            raise CorruptCheckpointError(f"{len(self._seen):,} checkpoints of a thread are in the file, and not all")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise ConfigurationError(f"a line of the file is longer than {LONGEST_LINE:,} bytes")
        yield line


def _object(line: bytes, number: int | None) -> dict[str, Any]:
    try:
        record = decode(line)
    except CorruptCheckpointError as error:
        where = "a line" if number is None else f"line {number}"
        raise CorruptCheckpointError(f"{where} of the file is damaged or cut off") from error
    if not isinstance(record, dict):
        raise CorruptCheckpointError("a line of the file is no JSON object")
    return record


def _run(record: dict[str, Any]) -> Run:
    branch, number, start, items = (record.get(name) for name in ("branch", "run", "start", "items"))
    fits = isinstance(branch, str) and isinstance(items, list)
    if not fits or not _is_count(number) or not _is_count(start):
        raise CorruptCheckpointError("a line with items lacks its branch, its number or its start")
    assert isinstance(branch, str)
    assert isinstance(number, int)
    assert isinstance(start, int)
    return Run(branch, number, start, len(items or ()), encode(items, depth=_DEPTH))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _checkpoint(record: dict[str, Any], items: ThreadItems) -> MovedCheckpoint:
    try:
        state, metadata = record["state"], record["metadata"]
        parent_id = record["parent_id"]
        created_at = datetime.fromisoformat(record["created_at"])
        if not isinstance(state, dict) or not isinstance(metadata, dict) or created_at.tzinfo is None:
            raise TypeError
        manifest = encode(record["lists"])
        _check_lists(manifest, items)
        return MovedCheckpoint(
            namespace=check_id(record["namespace"], "namespace", empty=True),
            checkpoint_id=check_id(record["checkpoint_id"], "checkpoint_id"),
            parent_id=None if parent_id is None else check_id(parent_id, "parent_id"),
            created_at=created_at.astimezone(UTC),
            metadata=encode(metadata),
            content=StoredContent(encode(state, depth=_DEPTH), manifest, items),
            writes=tuple(_writes(record["writes"])),
        )
    except OverflowError:
        raise CorruptCheckpointError("a checkpoint of the file has a time that is out of range") from None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"a checkpoint of the file lacks something ({type(error).__name__})") from None


def _check_lists(manifest: str, items: ThreadItems) -> None:
    """Refuse lists with more items than the file has had so far, since no store names an item of a list twice."""
    for cut in decode_manifest(manifest).values():
        if isinstance(cut, str):
            continue
        if len(cut) > MOST_EXTENTS:
            raise CorruptCheckpointError(f"a list of the file is in {len(cut):,} pieces; {MOST_EXTENTS:,} are too many")
        if sum(extent.length for extent in cut) > items.count:
            raise CorruptCheckpointError("a list of the file has more items than come before it")


def _writes(given: Sequence[Any]) -> Iterator[Write]:
    for write in given:
        yield Write(
            check_id(write["task_id"], "task_id"),
            check_id(write["task_path"], "task_path", empty=True),
            _index(write["idx"]),
            check_id(write["channel"], "channel", empty=True),
            encode(write["value"]),
        )


def _index(value: object) -> int:
    """The index of a pending write. Raises if it is outside the range that every store can keep."""
    if isinstance(value, int) and not isinstance(value, bool) and _LEAST_INDEX <= value <= _LARGEST_INDEX:
        return value
    raise CorruptCheckpointError(
        f"a pending write of the file has an index that is no number from {_LEAST_INDEX} to {_LARGEST_INDEX:,}"
    )
