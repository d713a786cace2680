"""A folder of logs: opening and locking them, and what they say as the model's records."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.file.log import LogFile
from locus.memory.backends.file.schema import (
    DRAFT,
    FORMAT,
    SUFFIX,
    Record,
    Seal,
    file_name,
    locked,
    sync_folder,
    write_new,
)
from locus.memory.model.codec import decode
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Known, Run, Write
from locus.memory.model.table import Row, ThreadTable

MAX_LOGS = 256


def instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds")


class Folder:
    """The logs that one worker looks after."""

    def __init__(self, base: Path, pretty: bool) -> None:
        self._base = base
        self._locks = base / ".locks"
        self.pretty = pretty
        self._logs: OrderedDict[str, LogFile] = OrderedDict()

    def make(self) -> None:
        """Done once, at the beginning: a folder that is gone later must not look like an empty one."""
        self._locks.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        self._logs.clear()

    def path(self, thread_id: str) -> Path:
        return self._base / file_name(thread_id)

    @contextmanager
    def log(self, thread_id: str) -> Iterator[LogFile | None]:
        """A thread's log as it is now, or None: not there, or past its end."""
        log = self._logs.pop(thread_id, None) or LogFile(self.path(thread_id), thread_id)
        self._logs[thread_id] = log
        if len(self._logs) > MAX_LOGS:
            self._logs.popitem(last=False)
        try:
            there = log.refresh()
            if not there and not self._locks.is_dir():
                raise FileNotFoundError(f"the folder {str(self._base)!r} is gone")
            yield log if there and not expired(log) else None
        finally:
            log.release()

    @contextmanager
    def exclusive(self, thread_id: str) -> Iterator[None]:
        """Keep everybody else from changing this thread."""
        with locked(self._locks, file_name(thread_id)):
            yield

    def write(self, table: ThreadTable) -> None:
        """Put a whole thread in the place of what its log has."""
        write_new(self.path(table.thread_id), list(records_of(table)), self.pretty)

    def sweep(self) -> None:
        """Remove what processes left that were killed while they wrote a log anew."""
        for draft in self._base.glob(f"*{SUFFIX}{DRAFT}"):
            with locked(self._locks, draft.name.removesuffix(DRAFT)):
                draft.unlink(missing_ok=True)

    def remove_thread(self, thread_id: str) -> int:
        """Remove a thread, whatever state it is in; return how many checkpoints it had, 1 if that cannot be told."""
        with self.exclusive(thread_id):
            try:
                with self.log(thread_id) as log:
                    count = 0 if log is None else sum(1 for _ in log.checkpoints())
            except UnsupportedFormatError:
                raise
            except CorruptCheckpointError:
                count = 1
            self.remove(thread_id)
            return count

    def remove(self, thread_id: str) -> None:
        self.path(thread_id).unlink(missing_ok=True)
        sync_folder(self._base)

    def thread_ids(self) -> Iterator[str]:
        """The ids of all logs, whether they have a checkpoint or not."""
        for name in sorted(path.name for path in self._base.iterdir()):
            if not name.endswith(SUFFIX):
                continue
            stem = name.removesuffix(SUFFIX)
            if "~" not in stem:
                yield stem
                continue
            try:
                thread_id = LogFile.thread_of(self._base / name)
            except FileNotFoundError:
                continue  # deleted since the folder was listed
            if file_name(thread_id) != name:
                raise CorruptCheckpointError(f"{name} is the log of another thread than its name says")
            yield thread_id

    def table(self, log: LogFile) -> ThreadTable:
        """Everything that a log has."""
        table = ThreadTable(log.thread_id, expires_at=expiry(log))
        for seal in reversed(list(log.newest_first())):
            if seal.facts["seal"] == "writes":
                put_logged_writes(table, log, seal)
            else:
                table.add_runs(log.runs(seal))
                table.put(log.row(seal))
            table.last_seq = max(table.last_seq, seal.facts["last_seq"])
        return table


class LogView:
    """A log as `decide` sees it."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self.last_seq = last_seq(log)

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


def last_seq(log: LogFile) -> int:
    return int(log.newest.facts["last_seq"]) if log.newest else 0


def expiry(log: LogFile) -> datetime | None:
    found = log.newest.facts["expires_at"] if log.newest else None
    return None if found is None else datetime.fromisoformat(found)


def expired(log: LogFile) -> bool:
    at = expiry(log)
    return at is not None and at <= datetime.now(UTC)


def checkpoint_record(row: Row, runs: Sequence[Run], last_seq: int, expires_at: datetime | None) -> Record:
    entry = row.entry
    facts = {
        "checkpoint_id": entry.checkpoint_id,
        "parent_id": entry.parent_id,
        "namespace": entry.namespace,
        "seq": entry.seq,
        "rev": entry.rev,
        "created_at": instant(entry.created_at),
        "metadata": decode(entry.metadata),
        "last_seq": last_seq,
        "expires_at": instant(expires_at),
        "manifest": decode(row.manifest),
        "runs": [run[:4] for run in runs],
    }
    names = [f"{run.branch}.{run.number}" for run in runs]
    parts = [("head", row.head), *zip(names, (run.items for run in runs), strict=True)]
    return Record("checkpoint", facts, tuple(parts))


def writes_place(facts: Mapping[str, Any]) -> tuple[str, str, str]:
    """The namespace, the checkpoint and the task of a record of writes."""
    return facts["namespace"], facts["checkpoint_id"], facts["task_id"]


def put_logged_writes(table: ThreadTable, log: LogFile, seal: Seal) -> None:
    """Do what a record of writes says."""
    table.put_writes(writes_place(seal.facts), log.writes(seal), seal.facts.get("keep_numbered", False))


def writes_record(
    place: tuple[str, str, str],
    writes: Sequence[Write],
    last_seq: int,
    expires_at: datetime | None,
    keep_numbered: bool = False,
) -> Record:
    namespace, checkpoint_id, task_id = place
    facts: dict[str, Any] = {
        "namespace": namespace,
        "checkpoint_id": checkpoint_id,
        "task_id": task_id,
        "last_seq": last_seq,
        "expires_at": instant(expires_at),
        "writes": [write[:4] for write in writes],
    }
    if keep_numbered:
        facts["keep_numbered"] = True
    names = [f"{write.idx}.{write.channel}" for write in writes]
    return Record("writes", facts, tuple(zip(names, (write.value for write in writes), strict=True)))


def records_of(table: ThreadTable) -> Iterator[Record]:
    """A whole thread as the records of a log."""
    facts = {
        "locus": FORMAT,
        "thread_id": table.thread_id,
        "last_seq": 0,
        "expires_at": instant(table.expires_at),
    }
    yield Record("thread", facts)
    # A run goes with the first checkpoint that shows it, so that the log reads in the order of events.
    told: dict[str, int] = {}
    for row in table.rows.values():
        shown: list[Run] = []
        for extent in wanted(row.manifest):
            runs = table.runs.get(extent.branch, [])
            first = told.get(extent.branch, 0)
            last = max(first, bisect_right(runs, extent.run, key=lambda run: run.number))
            shown += runs[first:last]
            told[extent.branch] = last
        yield checkpoint_record(row, shown, table.last_seq, table.expires_at)
    tasks: dict[tuple[str, str, str], list[Write]] = {}
    for (namespace, checkpoint_id), kept in table.writes.items():
        for (task_id, _), write in kept.items():
            tasks.setdefault((namespace, checkpoint_id, task_id), []).append(write)
    for place, writes in tasks.items():
        yield writes_record(place, writes, table.last_seq, table.expires_at)
