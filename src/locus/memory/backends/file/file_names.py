"""Files by thread: names that no file system confuses, and locks that hold between processes."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from locus.memory.model.ids import digest

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
