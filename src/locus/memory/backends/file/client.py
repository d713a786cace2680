"""A folder of logs: opening, locking, replacing and removing them."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from zlib import crc32

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.file.log import LogFile, write_all
from locus.memory.backends.file.schema import DIGEST_NAME, SEAL_START, SUFFIX, Record, file_name, records_of
from locus.memory.model.table import ThreadTable
from locus.memory.runtime.private import NO_LINK, create_file, hide_from_readers, keep_rights, make_folder
from locus.memory.runtime.retry import Backoff

MAX_LOGS = 256
"""The number of logs that a worker remembers."""

DRAFT = ".new"
"""The ending of a log's name while it is written anew."""

LOCKS = 256
LOCK_SECONDS = 30.0
LOCK_PAUSES = Backoff(0.0005, 0.02, random_part=0.0)

_MOST_FILES = 200
"""The number of files that are looked at to find out whose folder it is."""
_SDK_CHECKPOINT = re.compile(rb'\{\s*"checkpoint_id":')


class LogFolder:
    """The logs in a folder, as one worker sees them."""

    def __init__(self, base: Path, pretty: bool, within: Path | None = None) -> None:
        """`within` is a folder that must exist, so that the missing ones below it may be made."""
        self._base = base
        self._within = within
        self._locks = base / ".locks"
        self.pretty = pretty
        self._logs: OrderedDict[str, LogFile] = OrderedDict()

    def foreign_kind(self) -> str | None:
        """The framework whose files are in the folder, if no log of ours is among them."""
        return None if self._locks.is_dir() else _kind_of_files(self._base, SEAL_START)

    def make(self) -> None:
        """Make the folder. Done once, at the beginning: a folder that is gone later must not look like an empty one."""
        try:
            make_folder(self._locks, within=self._within)
        except OSError as error:
            # Where nothing can be made, what is there can be read. A save will say why it can't be kept.
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or not self._base.is_dir():
                raise

    def close(self) -> None:
        self._logs.clear()

    def path(self, thread_id: str) -> Path:
        return self._base / file_name(thread_id)

    @contextmanager
    def log(self, thread_id: str, *, writing: bool = False) -> Iterator[LogFile | None]:
        """Open the log of a thread; None if it does not exist or has expired. `writing`: to append to it."""
        log = self._logs.pop(thread_id, None) or LogFile(self.path(thread_id), thread_id)
        self._logs[thread_id] = log
        if len(self._logs) > MAX_LOGS:
            self._logs.popitem(last=False)
        try:
            try:
                exists = log.refresh(writing)
            except CorruptCheckpointError:
                # Another process may just have cut off what a killed one had left, and written in its place.
                exists = log.refresh(writing)
            if not exists and not self._is_there():
                raise FileNotFoundError(f"the folder {str(self._base)!r} is gone")
            yield log if exists and not log.expired(datetime.now(UTC)) else None
        finally:
            log.release()

    def _is_there(self) -> bool:
        """Tell whether this is the folder that was made.

        A disk that is not mounted may leave an empty folder in its place.
        """
        return self._locks.is_dir() or (self._base.is_dir() and any(self._base.glob(f"*{SUFFIX}")))

    def is_foreign(self, thread_id: str) -> bool:
        """Tell whether the file in the place of a log does not even begin as one."""
        with suppress(FileNotFoundError):
            return not LogFile.is_log(self.path(thread_id))
        return False

    @contextmanager
    def exclusive(self, thread_id: str) -> Iterator[None]:
        """Keep every other handle and process from changing this thread."""
        with locked(self._locks, file_name(thread_id)):
            yield

    def write(self, table: ThreadTable) -> None:
        """Replace a thread's log."""
        write_new(self.path(table.thread_id), list(records_of(table)), self.pretty)

    def sweep(self) -> None:
        """Remove the drafts of processes that were killed while they wrote a log anew."""
        for draft in self._base.glob(f"*{SUFFIX}{DRAFT}"):
            with locked(self._locks, draft.name.removesuffix(DRAFT)):
                draft.unlink(missing_ok=True)

    def remove_thread(self, thread_id: str) -> int:
        """Remove a thread, whatever state it is in; return how many checkpoints it had, 1 if that cannot be read."""
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

    def thread_ids(self, damaged: list[CorruptCheckpointError] | None = None) -> list[str]:
        """List the ids of all logs in order, whether they have a checkpoint or not. Files with other names are ignored.

        Most names tell the id. If the log has to tell it and cannot be read, or if it is the log of another thread, an
        error is added to `damaged`, or raised if that is None.
        """
        ids: list[str] = []
        with os.scandir(self._base) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(SUFFIX) and entry.is_file()]
        for name in names:
            stem = name.removesuffix(SUFFIX)
            if "~" not in stem:
                if file_name(stem) == name:
                    ids.append(stem)
                continue
            if not DIGEST_NAME.fullmatch(name):
                continue
            try:
                thread_id = LogFile.thread_of(self._base / name)
            except FileNotFoundError:
                continue  # deleted since the folder was listed
            except UnsupportedFormatError:
                raise
            except CorruptCheckpointError:
                error = CorruptCheckpointError("a log in the folder does not say of which thread it is")
                if damaged is None:
                    raise error from None
                damaged.append(error)
                continue
            if file_name(thread_id) == name:
                ids.append(thread_id)
                continue
            error = CorruptCheckpointError("a file in the folder is the log of another thread than its name says")
            if damaged is None:
                raise error
            damaged.append(error)
        return sorted(ids)


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Exclude every other process and handle that changes the file of this name.

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

    fd = _open_lock(path)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        for attempt in count():
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} has been held by another process for {LOCK_SECONDS:g} s") from None
                LOCK_PAUSES.block(attempt)
        yield
    finally:
        os.close(fd)


def _open_lock(path: Path) -> int:
    """Open a lock file. Only a user who may write here can open it, and so hold the lock."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | NO_LINK)
            hide_from_readers(fd)
            return fd
        except FileNotFoundError:
            with suppress(FileExistsError):
                return create_file(path)


def write_new(path: Path, records: Sequence[Record], pretty: bool) -> None:
    """Write a whole log under another name, and then replace the old one in one step."""
    data = bytearray()
    prev: int | None = None
    for record in records:
        sealed = record.sealed(prev, pretty)
        prev = len(data) + sealed.rfind(b"\n", 0, len(sealed) - 1) + 1
        data += sealed
    draft = path.with_name(path.name + DRAFT)
    # Whatever has the name of the draft is not written to: it is what a killed process left, or a link to elsewhere.
    draft.unlink(missing_ok=True)
    try:
        fd = create_file(draft)
        try:
            keep_rights(fd, path)
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


def _kind_of_files(folder: Path, own: bytes) -> str | None:
    """The framework whose files are in a folder; None if a file there begins with `own`, or if none is known."""
    found = None
    for path in islice(folder.iterdir(), _MOST_FILES) if folder.is_dir() else ():
        if path.suffix in (".jsonl", ".msgpack") and path.is_file():
            begin = _beginning(path)
            if begin.startswith(own):
                return None
            found = found or ("agent-framework" if path.suffix == ".msgpack" or b'"role"' in begin else None)
        elif path.name.startswith("session_") and (path / "session.json").is_file():
            found = found or "strands"
        elif not found and path.is_dir() and not path.name.startswith("."):
            checkpoints = islice(path.glob("*.json"), 3)
            found = "locus-sdk" if any(_SDK_CHECKPOINT.match(_beginning(each)) for each in checkpoints) else None
    return found


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)
