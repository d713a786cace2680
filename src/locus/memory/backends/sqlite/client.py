"""The connection to an SQLite file: it is opened, stays on the right file, and runs transactions."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from locus.memory.backends.sql.flavour import Steps, run_steps
from locus.memory.backends.sqlite.config import IN_MEMORY
from locus.memory.backends.sqlite.schema import TABLES, foreign_kind, migrate
from locus.memory.model.arguments import possible_path
from locus.memory.runtime.private import create_file, make_folder
from locus.memory.runtime.retry import Backoff

T = TypeVar("T")

_interrupts: deque[BaseException] = deque(maxlen=1)
"""What a signal handler has raised while SQLite was at work. Handlers run in the main thread only."""

RESERVE = "-reserve"
"""The ending of the reserve's name. The reserve is there while the file is open."""
RESERVE_BYTES = 512 * 1024
LITTLE_SPACE = 64 << 20
LOOK_SECONDS = 0.25
"""The seconds between two looks at the free space: nobody writes `LITTLE_SPACE` within that time."""

_STEPS_BETWEEN_LOOKS = 20_000
"""The number of its own instructions that SQLite carries out, in well below a millisecond, between two checks."""
_LOCK_PAUSES = Backoff(0.01, 0.01, random_part=0.0)


class Query:
    """A read that ends when its time is up, or when nobody waits for it any more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = math.inf
        self._is_abandoned = False

    def begin(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def end_within(self, seconds: float) -> None:
        """Let the read end in so many seconds, if that is earlier."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def abandon(self) -> None:
        """End the read; may be called on any thread."""
        self._is_abandoned = True

    def is_over(self) -> bool:
        return self._is_abandoned or time.monotonic() > self._deadline

    def error(self) -> TimeoutError:
        return TimeoutError(f"a query took longer than query_timeout, {self._seconds:g} s")


@cache
def in_tables(tables: str) -> type[sqlite3.Connection]:
    """The class of a connection to tables whose names begin with this. Statements call them by their usual names."""
    if tables == TABLES:
        return sqlite3.Connection

    @lru_cache(maxsize=512)
    def named(statement: str) -> str:
        return statement.replace(TABLES, tables)

    class SpaceConnection(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            return super().execute(named(sql), parameters)

        def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
            return super().executemany(named(sql), parameters)

    return SpaceConnection


class SQLiteFile:
    """A connection to the file at a path, opened when it is first needed. It belongs to one OS thread."""

    def __init__(
        self,
        path: str,
        *,
        durability: str,
        timeout: float,
        writable: bool,
        untouched: bool = False,
        makes_folder: bool = True,
        check_foreign: Callable[[str | None], None] = lambda _kind: None,
        tables: str = TABLES,
    ) -> None:
        """`untouched` opens a file without any right to change it, not even its journal.

        `check_foreign` is told which other framework's tables are in a file without ours, before it is changed.
        """
        self._check_foreign = check_foreign
        self._path = path
        self._connection_class = in_tables(tables)
        self._makes_folder = makes_folder
        self._untouched = untouched
        self._durability = durability
        self._timeout = timeout
        self._writable = writable
        self._inode: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._has_reserve = writable and not untouched and path != IN_MEMORY
        self._looked_at = 0.0
        self._little_space = False
        self._query: Query | None = None
        self.counted: tuple[Any, tuple[Any, ...]] | None = None
        """The state that was counted last, and what tells that nobody has written since."""

    def after_write(self, connection: sqlite3.Connection) -> None:
        """Keep the journal short while there is little space. Never raises: what was written is written.

        A journal that can't be brought into the file, because the file can't grow, can't be begun anew either. Then it
        would take space even to delete something.
        """
        now = time.monotonic()
        if self._has_reserve and now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            with suppress(OSError):  # the file was moved away just now
                self._little_space = _free_bytes(self._path) < LITTLE_SPACE
                keep_reserve(self._path)  # another process may have given it up
        if self._little_space:
            with suppress(sqlite3.Error):  # the disk is full, most likely
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def read(self, work: Callable[[sqlite3.Connection, Query], T], query: Query) -> T:
        """Do some work in a transaction that only reads, until the query is over."""
        connection = self.current()
        self._query = query
        query.begin()
        try:
            with transaction(connection, "DEFERRED"):
                return work(connection, query)
        except sqlite3.OperationalError as error:
            if query.is_over():
                raise query.error() from error
            raise
        finally:
            self._query = None

    def _asked(self) -> Iterator[bool]:
        """Tell SQLite, whenever it asks, whether what it does is over: the query is, or a signal handler has raised.

        A generator, because a handler (of Ctrl-C, for example) runs as soon as SQLite calls Python. A function would
        not have come to its `try` yet, and SQLite would forget what it raises.
        """
        is_over = False
        while True:
            try:
                while True:
                    yield is_over or (self._query is not None and self._query.is_over())
                    is_over = False
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: BLE001 - whoever has called SQLite raises it
                _interrupts.append(error)
                is_over = True

    def _open(self) -> sqlite3.Connection:
        if self._untouched:
            return open_untouched(self._path, self._timeout, self._connection_class)
        # Only the writer may create the file: a reader would find its own new file empty, and report no data.
        # Once the file was there, the writer may not either: a file that is gone must not pass for a new one.
        mode = "rwc" if self._writable and self._inode is None else "rw"
        if mode == "rwc" and self._path != IN_MEMORY:
            with possible_path(self._path):
                folder = Path(self._path).parent
                make_folder(folder, within=None if self._makes_folder else folder)
                _create(self._path)
        name = IN_MEMORY if self._path == IN_MEMORY else f"file:{_quoted(self._path)}?mode={mode}"
        connection = sqlite3.connect(
            name,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
            factory=self._connection_class,
        )
        try:
            if mode == "rwc":
                self._patiently(lambda: self._check_foreign(foreign_kind(connection)))
            self._patiently(lambda: connection.execute("PRAGMA journal_mode=WAL"))
            connection.execute("PRAGMA cell_size_check=ON")  # a damaged page is noticed when it is read
            connection.execute(f"PRAGMA synchronous={self._durability.upper()}")
            if self._writable:
                # What is deleted is overwritten, here and not only where SQLite was built to do so.
                connection.execute("PRAGMA secure_delete=ON")
                self._patiently(lambda: migrate(connection))
            else:
                connection.execute("PRAGMA query_only=ON")
        except sqlite3.OperationalError as error:
            connection.close()
            if self._writable or not is_read_only(error):
                raise
            return open_untouched(self._path, self._timeout, self._connection_class)
        except BaseException:
            connection.close()
            raise
        if self._has_reserve:
            keep_reserve(self._path)
        return connection

    def with_reserve(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work that frees space on a full disk. It uses the space of the reserve, which is then made anew.

        Overwriting deleted content takes as much space in the journal as it took in the file. If there is not enough,
        it is not overwritten.
        """
        connection = self.current()
        if not self._has_reserve:
            return work(connection)
        give_up_reserve(self._path)
        try:
            try:
                return work(connection)
            except sqlite3.OperationalError as error:
                if not is_full(error):
                    raise
                connection.execute("PRAGMA secure_delete=OFF")
                return work(connection)
        finally:
            connection.execute("PRAGMA secure_delete=ON")
            with suppress(sqlite3.Error):  # somebody reads an older state
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            keep_reserve(self._path)

    def _patiently(self, step: Callable[[], object]) -> None:
        """Run a step, and wait for locks: changing the journal mode does not wait by itself, as other statements do."""
        deadline = time.monotonic() + self._timeout
        for attempt in count():
            try:
                step()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                _LOCK_PAUSES.block(attempt)

    def _current_inode(self) -> tuple[int, int] | None:
        if self._path == IN_MEMORY:
            return None
        try:
            status = os.stat(self._path)  # noqa: PTH116 - at every save, and three times as fast
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def is_there(self) -> bool:
        return self._current_inode() is not None

    def current(self) -> sqlite3.Connection:
        """The connection to the file that is at the path now.

        Writes to a file that was moved away or deleted would succeed, and be lost.
        """
        if self._connection is None or self._current_inode() != self._inode:
            self.close()
            self._connection = self._open()
            asked = self._asked()
            next(asked)
            self._connection.set_progress_handler(partial(next, asked), _STEPS_BETWEEN_LOOKS)
            self._inode = self._current_inode()
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            if self._has_reserve:
                give_up_reserve(self._path)


class MemoryFile(SQLiteFile):
    """A database in memory. It lives as long as its connection, so that has to outlive the worker's OS threads."""

    def is_there(self) -> bool:
        return self._connection is not None

    def close(self) -> None:
        """Keep the connection, which only `discard` closes, but not a transaction that was interrupted."""
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def discard(self) -> None:
        super().close()


def _create(path: str) -> None:
    """Create the file so that only its owner can open it. SQLite gives the journal and its index the same rights."""
    with suppress(FileExistsError, FileNotFoundError):
        os.close(create_file(os.path.realpath(path)))


def keep_reserve(path: str) -> None:
    """Reserve some disk space in a file beside an open one. When the disk is full, even a deletion needs some."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        fd = create_file(_reserve_of(path))
    except OSError:
        return  # it is there; or the disk is full already
    try:
        os.posix_fallocate(fd, 0, RESERVE_BYTES)
    except OSError:
        give_up_reserve(path)
    finally:
        os.close(fd)


def give_up_reserve(path: str) -> None:
    with suppress(OSError):
        _reserve_of(path).unlink(missing_ok=True)


def _reserve_of(path: str) -> Path:
    """The path of the reserve (see `keep_reserve`): beside the file that a link leads to, on the same disk."""
    return Path(f"{os.path.realpath(path)}{RESERVE}")


def _free_bytes(path: str) -> int:
    if not hasattr(os, "statvfs"):
        return LITTLE_SPACE
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _primary_code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def raise_interrupt(error: sqlite3.Error) -> None:
    """Raise what has interrupted SQLite, if it was a signal handler."""
    if _primary_code(error) == sqlite3.SQLITE_INTERRUPT and _interrupts:
        raise _interrupts.pop() from None


def is_full(error: sqlite3.Error) -> bool:
    return _primary_code(error) == sqlite3.SQLITE_FULL


def is_read_only(error: sqlite3.Error) -> bool:
    """Tell whether the file, or the folder for its journal, may only be read."""
    return _primary_code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def cause_of(error: sqlite3.Error, path: str) -> str:
    """What is the matter with the file at a path, as far as one can see; else what SQLite says."""
    code, file = _primary_code(error), Path(path)
    if path == IN_MEMORY:
        return str(error)
    if code == sqlite3.SQLITE_NOTADB:
        return f"it is no SQLite database, or an encrypted one ({error})"
    if code == sqlite3.SQLITE_FULL:
        return f"its disk is full ({error})"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        holders = ", ".join(map(str, processes_with_locks(path)))
        return f"it is locked by {f'process {holders}' if holders else 'another process'} ({error})"
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR):
        with suppress(OSError):  # what cannot be looked at cannot be told
            if not file.parent.is_dir():
                return f"there is no folder {str(file.parent)!r} ({error})"
            for place in (file, file.parent):
                if place.exists() and not os.access(place, os.R_OK | os.W_OK):
                    return f"this user may not read and write {str(place)!r} ({error})"
            if not file.exists():
                return f"the file is gone ({error})"
    return str(error)


def processes_with_locks(path: str) -> list[int]:
    """The other processes that hold locks on a file, or on the index of its journal. Linux alone tells."""
    with suppress(OSError, ValueError, IndexError):
        inodes = {place.stat().st_ino for place in (Path(path), Path(f"{path}-shm")) if place.exists()}
        # 1: POSIX  ADVISORY  WRITE 4711 fd:00:1234567 128 128
        locks = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
        found = {int(lock[4]) for lock in locks if len(lock) > 5 and int(lock[5].rpartition(":")[2]) in inodes}
        return sorted(found - {os.getpid(), 0, -1})
    return []


def _quoted(path: str) -> str:
    """The name of a file in a URL. It need not be UTF-8."""
    return quote(os.fsencode(path))


def open_untouched(
    path: str, timeout: float, connection_class: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """Open an existing file with a connection that can change nothing in it.

    Even a reader keeps an index of the journal beside the file. If it may not, as on a read-only disk, nobody can be
    writing either, so the file is read as it stands, unless it has a journal.
    """
    ways = [f"file:{_quoted(path)}?mode=ro"]
    journal = Path(f"{path}-wal")
    if Path(path).exists() and not (journal.exists() and journal.stat().st_size):
        ways.append(f"file:{_quoted(path)}?mode=ro&immutable=1")
    while True:
        connection = sqlite3.connect(
            ways.pop(0),
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
            factory=connection_class,
        )
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            return connection
        except sqlite3.OperationalError:
            connection.close()
            if not ways:
                raise
        except BaseException:
            connection.close()
            raise


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """A context for a transaction that commits at the end, and rolls back if something is raised."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def execute(connection: sqlite3.Connection, steps: Steps[T], query: Query | None = None) -> T:
    """Run the steps of an operation inside a transaction; those of a query, until it is over."""
    if query is None:
        return run_steps(steps, lambda text, values: connection.execute(text, values).fetchall())

    def run(text: str, values: Sequence[Any]) -> list[Any]:
        if query.is_over():  # SQLite itself asks only during long statements
            raise query.error()
        return connection.execute(text, values).fetchall()

    return run_steps(steps, run)
