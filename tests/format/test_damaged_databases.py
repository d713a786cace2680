"""A damaged database is an error of ours, with its cause; a file that moves away takes nothing with it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from traceback import format_exception

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, CheckpointError, ConfigurationError, CorruptCheckpointError
from locus.memory.backends import SQLiteBackend, StorageBackendAdapter, sqlite_checkpointer
from locus.testing.data import conversation

STATE = AgentState(agent_id="a").with_messages(conversation(5)).with_metadata("big", "x" * 2_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def cp(path: Path) -> Iterator[StorageBackendAdapter]:
    checkpointer = sqlite_checkpointer(path)
    yield checkpointer
    checkpointer.sync.close()


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql).rowcount != 0


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE locus_checkpoints SET head = 'x'",
        "UPDATE locus_checkpoints SET head = '[]'",
        "UPDATE locus_checkpoints SET head = '{}'",
        "UPDATE locus_checkpoints SET head = substr(head, 1, length(head) - 1)",
        "UPDATE locus_checkpoints SET manifest = ''",
        "UPDATE locus_checkpoints SET manifest = '{\"a\":1}'",
        "UPDATE locus_checkpoints SET manifest = '[[1]]'",
        "UPDATE locus_checkpoints SET manifest = '[[[\"messages\"],[[1]]]]'",
        'UPDATE locus_checkpoints SET manifest = \'[[["messages"],[["b","0","0","x"]]]]\'',
        'UPDATE locus_checkpoints SET manifest = \'[[["no such field"],"#x"]]\'',
        "UPDATE locus_checkpoints SET created_at = 'yesterday'",
        "UPDATE locus_checkpoints SET created_at = x'ff'",
        "UPDATE locus_checkpoints SET head = x'ff00'",
        "UPDATE locus_runs SET items = substr(items, 1, length(items) - 2)",
        "UPDATE locus_runs SET items = '[]'",
        "UPDATE locus_runs SET items = ''",
        "UPDATE locus_runs SET items = x'ff'",
        "UPDATE locus_runs SET count = 1 WHERE count > 1",
        "UPDATE locus_runs SET start = 3",
        "DELETE FROM locus_runs",
        "DELETE FROM locus_runs WHERE branch LIKE '#%'",
        "DROP TABLE locus_runs",
        "DROP TABLE locus_checkpoints",
    ],
)
def test_a_damaged_row_is_told(cp: StorageBackendAdapter, path: Path, sql: str) -> None:
    cp.sync.save(STATE, "t")
    cp.sync.close()
    change(path, sql)
    with pytest.raises(CorruptCheckpointError):
        cp.sync.load("t")


@pytest.mark.parametrize("column", ["head", "manifest", "metadata", "rev", "checkpoint_id"])
def test_a_byte_that_is_no_text_is_damage_and_no_outage(cp: StorageBackendAdapter, path: Path, column: str) -> None:
    """Nor does the error show what stands around it."""
    cp.sync.save(STATE.with_metadata("secret", "4711"), "t", metadata={"secret": "4711"})
    cp.sync.close()
    change(path, f"UPDATE locus_checkpoints SET {column} = CAST(CAST({column} AS BLOB) || x'ff' AS TEXT)")
    with pytest.raises(CorruptCheckpointError, match="not UTF-8") as caught:
        cp.sync.load("t")
    assert "4711" not in "".join(format_exception(caught.value))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE locus_checkpoints SET created_at = 'yesterday'",
        "UPDATE locus_checkpoints SET metadata = '{'",
        "UPDATE locus_checkpoints SET metadata = '[]'",
    ],
)
def test_a_damaged_entry_is_told(cp: StorageBackendAdapter, path: Path, sql: str) -> None:
    cp.sync.save(STATE, "t", metadata={"user": "eve"})
    change(path, sql)
    for call in (lambda: cp.sync.history("t"), lambda: cp.sync.list_with_metadata()):
        with pytest.raises(CorruptCheckpointError):
            call()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM locus_runs",
        "DELETE FROM locus_indexed",
        "UPDATE locus_indexed SET up_to = 'x'",
        "DROP TABLE locus_search_config",
        "DROP TABLE locus_search_data",
        "UPDATE locus_runs SET items = '7'",
        "UPDATE locus_runs SET items = substr(items, 1, length(items) - 2)",
        "UPDATE locus_runs SET items = CAST(CAST(items AS BLOB) || x'ff' AS TEXT)",
    ],
)
def test_a_search_over_damaged_rows_tells_of_damage(cp: StorageBackendAdapter, path: Path, sql: str) -> None:
    """Neither an outage, nor an error of Python."""
    cp.sync.save(AgentState().with_message(Message.user("a kangaroo")), "t")
    assert len(cp.sync.search("kangaroo")) == 1
    cp.sync.close()
    change(path, sql)
    with pytest.raises(CorruptCheckpointError):
        cp.sync.search("kangaroo")


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be one" * 50, b"SQLite format 3\0" + b"\xff" * 500]
)
def test_a_file_that_is_no_database_is_told_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    cp = sqlite_checkpointer(path)
    for call in (lambda: cp.sync.load("t"), lambda: cp.sync.save(AgentState(), "t"), lambda: cp.sync.list_threads()):
        with pytest.raises(CorruptCheckpointError, match="cannot be read") as caught:
            call()
        assert isinstance(caught.value.__cause__, sqlite3.Error)
    cp.sync.close()
    assert path.read_bytes() == content


def test_a_database_cut_off_in_the_middle_is_told(cp: StorageBackendAdapter, path: Path) -> None:
    for number in range(30):
        cp.sync.save(STATE.with_metadata("big", str(number) * 3_000), "t")
    cp.sync.close()
    with path.open("r+b") as file:
        file.truncate(8192 * 2)
    with pytest.raises(CheckpointError):
        cp.sync.load("t")


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is a directory; name a file in it: .*agents\.db"):
        SQLiteBackend(tmp_path)


@pytest.mark.parametrize("path", ["", "a\0b", None, 5, b"a.db"], ids=repr)
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(ConfigurationError, match="path of a file"):
        SQLiteBackend(path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["file/a.db", "file/inner/a.db", "x" * 300, "y" * 300 + "/a.db"],
    ids=["in a file", "below a file", "long", "in a long one"],
)
def test_a_path_that_cannot_be_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises((ConfigurationError, BackendUnavailableError)):
        SQLiteBackend(tmp_path / name).sync.save("t", {})


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    with SQLiteBackend(tmp_path / "new" / "inner" / "a.db", create_folder=True).sync as backend:
        backend.save("t", {"n": 1})
    assert (tmp_path / "new" / "inner" / "a.db").is_file()


def test_a_locked_database_is_unavailable_and_not_empty(path: Path) -> None:
    cp = sqlite_checkpointer(path, timeout=0.05)
    cp.sync.save(STATE, "t")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailableError, match="locked") as caught:
            cp.sync.save(STATE, "t")
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert cp.sync.load("t") == STATE
        other.execute("ROLLBACK")
    assert cp.sync.save(STATE.next_iteration(), "t")
    cp.sync.close()


def rows(path: Path) -> list[str]:
    """What a stranger finds in the file that has the name."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in connection.execute("SELECT checkpoint_id FROM locus_checkpoints ORDER BY seq")]


def with_companions(path: Path) -> list[Path]:
    return [found for end in ("", "-wal", "-shm") if (found := path.with_name(path.name + end)).exists()]


def delete_all(path: Path) -> None:
    for found in with_companions(path):
        found.unlink()


def delete_the_database_only(path: Path) -> None:
    path.unlink()


def move_away(path: Path) -> None:
    (path.parent / "away").mkdir()
    for found in with_companions(path):
        found.rename(path.parent / "away" / found.name)


def put_another_in_its_place(path: Path) -> None:
    other = path.with_name("other.db")
    with sqlite_checkpointer(other).sync as cp:
        cp.save(AgentState(agent_id="other"), "t", "other")
    delete_all(path)
    other.replace(path)


def put_an_older_copy_in_its_place(path: Path) -> None:
    copied = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copied)) as target:
        source.backup(target)
        for table in ("metadata", "checkpoints", "runs", "threads"):  # it is of before the first save
            target.execute(f"DELETE FROM locus_{table}")
        target.commit()
    delete_all(path)
    shutil.move(copied, path)


@pytest.mark.parametrize(
    ("event", "left"),
    [
        (put_another_in_its_place, ["other"]),
        (put_an_older_copy_in_its_place, []),
    ],
)
def test_the_next_save_goes_to_the_file_that_has_the_name_now(
    cp: StorageBackendAdapter, path: Path, event: Callable[[Path], None], left: list[str]
) -> None:
    first = cp.sync.save(STATE, "t")
    assert cp.sync.load("t") == STATE
    event(path)
    longer = STATE.with_message(Message.user("more"))
    second = cp.sync.save(longer, "t")
    assert rows(path) == [*left, second]
    assert cp.sync.load("t") == longer
    assert cp.sync.load("t", first) is None
    with sqlite_checkpointer(path).sync as fresh:
        assert fresh.load("t") == longer


@pytest.mark.parametrize("event", [delete_all, delete_the_database_only, move_away])
def test_a_file_that_is_gone_is_an_outage_and_not_a_new_beginning(
    cp: StorageBackendAdapter, path: Path, event: Callable[[Path], None]
) -> None:
    cp.sync.save(STATE, "t")
    assert cp.sync.load("t") == STATE
    event(path)
    for call in (lambda: cp.sync.save(STATE.next_iteration(), "t"), lambda: cp.sync.load("t")):
        with pytest.raises(BackendUnavailableError):
            call()
    assert not path.exists()
    cp.sync.close()
    assert cp.sync.load("t") is None, "whoever opens it anew means it"
