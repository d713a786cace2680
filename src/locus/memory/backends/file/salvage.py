"""Keeps the intact part of a damaged log, for `locus doctor --repair`.

A record and its seal say by themselves whether they are intact, wherever they stand. So everything that is intact is
taken over into a new log, and not only what precedes the damage. The damaged one is put aside first and never removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from pathlib import Path

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.file.client import LogFolder, sync_folder
from locus.memory.backends.file.log import LogFile, write_all
from locus.memory.backends.file.schema import Seal
from locus.memory.model.codec import encode
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Salvage, Stored
from locus.memory.model.table import Row, ThreadTable
from locus.memory.runtime.private import create_file, keep_rights

ASIDE = ".damaged"
"""The ending of the name of a damaged log that was put aside."""

ContentOf = Callable[[Stored], object | None]


def salvage(folder: LogFolder, thread_id: str, content: ContentOf, *, apply: bool) -> Salvage | None:
    """Find what can be kept of a log. None if it is left alone: another thread's, or nothing in it can be read."""
    if not apply:
        return _salvaged(folder, thread_id, content)[0]
    with folder.exclusive(thread_id):
        salvaged, table = _salvaged(folder, thread_id, content)
        if salvaged is not None:
            put_aside(folder.path(thread_id))
            folder.write(table)
        return salvaged


def _salvaged(folder: LogFolder, thread_id: str, content: ContentOf) -> tuple[Salvage | None, ThreadTable]:
    log = LogFile(folder.path(thread_id), thread_id)
    try:
        with log.as_it_is():
            seals = log.intact()
            table, lost = _table(log, seals, content)
            size = log.path.stat().st_size
    except UnsupportedFormatError:
        raise
    except (CorruptCheckpointError, FileNotFoundError):
        return None, ThreadTable(thread_id)
    # Whatever can be read today must be in the new log, and be the same there.
    for name, before in _readable(folder, thread_id, seals, content):
        row = table.row(*name)
        if row is None or content(table.stored(row)) != before:
            return None, table
    if not table.rows:
        return None, table
    unnamed = size - sum(seal.end - seal.record for seal in seals) - _first_line(log.path)
    return Salvage(tuple(table.ids), tuple(lost), max(0, unnamed)), table


def _table(log: LogFile, seals: list[Seal], content: ContentOf) -> tuple[ThreadTable, list[tuple[str, str]]]:
    """Read the thread without the checkpoints that cannot be put together, and list these."""
    table = ThreadTable(log.thread_id)
    doomed: dict[int, tuple[str, str]] = {}
    for seal in seals:
        try:
            log.put(table, seal)
        except CorruptCheckpointError:
            if seal.kind == "checkpoint":
                if seal.facts["seq"] in table.rows or seal.name in table.ids:
                    continue  # of two with one number or one name, the first is kept
                # For a moment, so that what came from it gets its parent.
                row = Row(seal.entry(log.thread_id), "", encode(seal.facts["manifest"]))
                table.put(row)
                doomed[row.entry.seq] = seal.name
            else:
                # What the task wrote before was replaced by what is damaged now, and must not come back.
                namespace, checkpoint_id, task_id = seal.task
                pending = table.writes.get((namespace, checkpoint_id), {})
                for key in [key for key in pending if key[0] == task_id]:
                    del pending[key]
        table.last_seq = max(table.last_seq, seal.facts["last_seq"])
        table.expires_at = _time(seal.facts["expires_at"])
    for seq, row in table.rows.items():
        if seq not in doomed and content(table.stored(row)) is None:
            doomed[seq] = row.entry.namespace, row.entry.checkpoint_id
    table.remove(doomed.keys())
    return table, list(doomed.values())


def _readable(
    folder: LogFolder, thread_id: str, seals: list[Seal], content: ContentOf
) -> Iterator[tuple[tuple[str, str], object]]:
    """Read the checkpoints that a load can read from the log as it is now."""
    for name in (seal.name for seal in seals if seal.kind == "checkpoint"):
        try:
            with folder.log(thread_id) as log:
                seal = None if log is None else log.find(*name)
                if log is None or seal is None:
                    continue
                readable = content(log.stored(seal, wanted(encode(seal.facts["manifest"]))))
        except CorruptCheckpointError:
            continue
        if readable is not None:
            yield name, readable


def _first_line(path: Path) -> int:
    with path.open("rb") as file:
        return len(file.readline())


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def put_aside(path: Path) -> Path:
    """Copy a damaged log beside itself, under a name that nothing has."""
    for number in count(1):
        aside = path.with_name(f"{path.name}{ASIDE}{'' if number == 1 else f'-{number}'}")
        try:
            fd = create_file(aside)
            break
        except FileExistsError:
            continue
    try:
        keep_rights(fd, path)
        write_all(fd, path.read_bytes(), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(path.parent)
    return aside
