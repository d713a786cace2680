"""SQLite files that are only read: also where nothing can be written beside them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from locus.memory.backends.sqlite.client import open_untouched

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody may look into, which pytest's own are not."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def _filled(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (n)")
    connection.execute("INSERT INTO t VALUES (1), (2)")
    return connection


def _rows(path: Path) -> int:
    with closing(open_untouched(str(path), 1.0)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM t").fetchone()
    return int(count)


def _as_nobody(work: Callable[[], int]) -> int:
    """What a process gets that has no right to write here: the number, or 100 for an error of SQLite's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads, from 3.12 on
        pid = os.fork()
    if pid == 0:
        code = 101
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            code = work()
        except sqlite3.OperationalError:
            code = 100
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_file_is_read_and_stays_what_it_is(folder: Path) -> None:
    path = folder / "a.db"
    _filled(path).close()
    before = path.read_bytes()
    assert _rows(path) == 2
    assert path.read_bytes() == before
    with closing(open_untouched(str(path), 1.0)) as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM t")


def test_what_stands_in_the_journal_is_read(folder: Path) -> None:
    with closing(_filled(folder / "a.db")) as writer:
        writer.execute("INSERT INTO t VALUES (3)")
        assert _rows(folder / "a.db") == 3


def test_a_file_in_a_folder_that_cannot_be_written_to_is_read_as_it_stands(folder: Path) -> None:
    path = folder / "a.db"
    _filled(path).close()
    path.chmod(0o444)
    folder.chmod(0o555)
    assert _as_nobody(lambda: _rows(path)) == 2
    assert [entry.name for entry in folder.iterdir()] == ["a.db"]


def test_but_not_if_some_of_it_stands_in_a_journal(folder: Path) -> None:
    """All of it, or an error: two rows are what the file would say alone."""
    path = folder / "a.db"
    with closing(_filled(path)) as writer:
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        writer.execute("INSERT INTO t VALUES (3)")
        left = [(one, one.read_bytes()) for one in (path, folder / "a.db-wal")]
    for one, data in left:
        one.write_bytes(data)
    folder.chmod(0o555)
    assert left[1][1]
    assert _as_nobody(lambda: _rows(path)) in (3, 100)


@pytest.mark.parametrize("name", ["none.db", "none/a.db"])
def test_what_is_not_there_is_not_made(folder: Path, name: str) -> None:
    with pytest.raises(sqlite3.OperationalError):
        open_untouched(str(folder / name), 1.0)
    assert list(folder.iterdir()) == []
