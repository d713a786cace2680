"""What an SQLite file says is what was said, also where a row is whole and an index or another row is not."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.doctor import examine
from locus.errors import CorruptCheckpointError
from locus.memory.backends import StorageBackendAdapter, sqlite_checkpointer
from locus.memory.model.seals import MOST_NEWEST
from tests.format.story import DATA, HOSTILE, PLAIN

IDS = [f"c{number}" for number in range(4)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def cp(path: Path) -> Iterator[StorageBackendAdapter]:
    with sqlite_checkpointer(path).sync as checkpointer:
        for thread_id in ("t", "other"):
            state = AgentState(agent_id="a")
            for number, name in enumerate(IDS):
                state = state.with_message(Message.user(f"{thread_id} {number}"))
                checkpointer.save(state, thread_id, name, {"n": number})
                checkpointer.put_writes(thread_id, name, "task", [("channel", number), ("more", "x" * 900)])
    opened = sqlite_checkpointer(path)
    yield opened
    opened.sync.close()


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0


def damage_index(path: Path, index: str, where: str) -> None:
    """Take the entries of some rows out of an index, as a flipped bit may, and leave the rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,)).fetchone()
        partial = f"{sql} WHERE NOT ({where})"
        connection.execute(f"DROP INDEX {index}")
        connection.execute(partial)
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, index))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]


Question = Callable[[StorageBackendAdapter], Any]


def told(cp: StorageBackendAdapter, *questions: Question) -> None:
    for question in questions:
        with pytest.raises(CorruptCheckpointError):
            question(cp)


THREAD = "thread = (SELECT id FROM locus_threads WHERE thread_id = 't')"


def history(cp: StorageBackendAdapter) -> object:
    return cp.sync.history("t", limit=None)


def load(cp: StorageBackendAdapter) -> object:
    return cp.sync.load("t")


def writes(cp: StorageBackendAdapter) -> object:
    return cp.sync.get_writes("t", "c2")


@pytest.mark.parametrize(
    ("change_of", "questions"),
    [
        ("locus_checkpoints SET parent_id = 'c0' WHERE seq = 3", [history]),
        ("locus_checkpoints SET parent_id = NULL WHERE seq = 3", [history]),
        ("locus_checkpoints SET metadata = '{\"n\":7}' WHERE seq = 3", [history]),
        ("locus_checkpoints SET created_at = replace(created_at, '20', '21') WHERE seq = 3", [history]),
        ("locus_checkpoints SET rev = 'x' || rev WHERE seq = 3", [history]),
        ("locus_checkpoints SET previous = 1 WHERE seq = 3", [history]),
        ("locus_checkpoints SET seq = 9 WHERE seq = 4", [history, load]),
        ("locus_checkpoints SET seal = NULL WHERE seq = 4", [history, load]),
        ("locus_checkpoints SET checksum = NULL WHERE seq = 4", [history, load]),
        ("locus_runs SET seal = NULL WHERE number = 3", [load]),
        ("locus_writes SET channel = 'another' WHERE channel = 'channel'", [writes]),
        ("locus_writes SET task_id = 'another' WHERE channel = 'channel'", [writes]),
        ("locus_writes SET idx = 5 WHERE idx = 0", [writes]),
        ("locus_writes SET task_path = 'p'", [writes]),
        ("locus_writes SET seal = NULL", [writes]),
        (
            "locus_writes SET checkpoint_id = 'c9' WHERE checkpoint_id = 'c3'",
            [lambda cp: cp.sync.get_writes("t", "c9")],
        ),
        ("locus_threads SET last_seq = 9", [history, load]),
        ("locus_threads SET newest = replace(newest, ':4', ':3')", [history, load]),
        ("locus_threads SET seal = NULL", [history, load]),
        ("locus_threads SET expires_at = '1970-01-02T00:00:00.000000+00:00'", [history, load]),
        ("locus_threads SET thread_id = 'z' || thread_id", [history, load]),
    ],
)
def test_a_changed_column_is_told(
    cp: StorageBackendAdapter, path: Path, change_of: str, questions: list[Question]
) -> None:
    change(path, f"UPDATE {change_of}")
    told(cp, *questions)


@pytest.mark.parametrize(
    ("statements", "questions"),
    [
        ((f"DELETE FROM locus_checkpoints WHERE {THREAD} AND seq = 4",), [history, load]),
        ((f"DELETE FROM locus_checkpoints WHERE {THREAD} AND seq = 2",), [history]),
        ((f"DELETE FROM locus_checkpoints WHERE {THREAD}",), [history, load]),
        (
            (
                f"UPDATE locus_checkpoints SET seq = 7 WHERE {THREAD} AND seq = 3",
                f"UPDATE locus_checkpoints SET seq = 3 WHERE {THREAD} AND seq = 4",
                f"UPDATE locus_checkpoints SET seq = 4 WHERE {THREAD} AND seq = 7",
            ),
            [history, load],
        ),
        (
            (
                f"DELETE FROM locus_runs WHERE {THREAD}",
                "UPDATE locus_runs SET thread = (SELECT id FROM locus_threads WHERE thread_id = 't')",
            ),
            [load],
        ),
        (
            (
                f"DELETE FROM locus_writes WHERE {THREAD}",
                "UPDATE locus_writes SET thread = (SELECT id FROM locus_threads WHERE thread_id = 't')",
            ),
            [writes],
        ),
    ],
)
def test_a_row_that_is_lost_or_in_another_place_is_told(
    cp: StorageBackendAdapter, path: Path, statements: tuple[str, ...], questions: list[Question]
) -> None:
    change(path, *statements)
    told(cp, *questions)


@pytest.mark.parametrize(
    ("index", "where", "questions"),
    [
        ("locus_checkpoints_by_seq", "seq = 4", [history, load]),
        ("locus_checkpoints_by_seq", "seq = 2", [history, lambda cp: cp.sync.history("t", before="c2")]),
        ("locus_checkpoints_by_seq", "seq > 0", [history, load]),
        ("locus_checkpoints_by_id", "checkpoint_id = 'c1'", [lambda cp: cp.sync.load("t", "c1")]),
        ("locus_runs_by_branch", "number = 2", [load]),
    ],
)
async def test_what_an_index_has_lost_is_told_and_doctor_finds_it(
    cp: StorageBackendAdapter, path: Path, index: str, where: str, questions: list[Question]
) -> None:
    damage_index(path, index, where)
    told(cp, *questions)
    async with sqlite_checkpointer(path) as fresh:
        found = await examine(fresh.store)
    assert any(finding.severity == "error" and index in finding.what for finding in found.findings)


@pytest.mark.parametrize(("name", "parent"), [("c9", "c2"), ("c9", "c1"), ("c2", "c1")])
def test_no_save_hides_that_the_newest_checkpoint_is_lost(
    cp: StorageBackendAdapter, path: Path, name: str, parent: str
) -> None:
    """Its number would be that of another one in the row of the thread, and the history would have no gap."""
    state = cp.sync.load("t", "c2")
    assert state is not None
    damage_index(path, "locus_checkpoints_by_seq", "seq = 4")
    told(cp, lambda cp: cp.sync.save(state.next_iteration(), "t", name, parent=parent), history, load)


def test_a_removal_does_not_hide_that_the_newest_checkpoint_is_lost(cp: StorageBackendAdapter, path: Path) -> None:
    damage_index(path, "locus_checkpoints_by_seq", "seq = 4")
    assert cp.sync.delete("t", "c2")
    told(cp, history, load)


def test_an_id_that_is_no_text_is_told_by_lists(cp: StorageBackendAdapter, path: Path) -> None:
    change(path, "UPDATE locus_threads SET thread_id = CAST(thread_id AS BLOB) WHERE thread_id = 'other'")
    with pytest.raises(CorruptCheckpointError):
        cp.sync.list_threads()


def test_a_thread_of_which_nothing_is_left_is_told(cp: StorageBackendAdapter, path: Path) -> None:
    change(path, "UPDATE locus_threads SET thread_id = 'u' WHERE thread_id = 't'")
    told(cp, load, history, lambda cp: cp.sync.load("t", "c1"))
    assert cp.sync.load("nobody") is None
    assert cp.sync.history("nobody") == []


def test_what_changes_a_thread_keeps_its_proofs(cp: StorageBackendAdapter) -> None:
    state = cp.sync.load("t")
    assert state is not None
    for name in ("c1", "c3", "c0"):
        assert cp.sync.delete("t", name)
        assert [entry.checkpoint_id for entry in cp.sync.history("t")] == [
            left for left in ("c3", "c2", "c1", "c0") if cp.sync.exists("t", left)
        ]
        assert cp.sync.load("t") is not None
    later = state.next_iteration()
    assert cp.sync.save(later, "t", "c2"), "in the place of the one of this name"
    assert cp.sync.save(state, "t", "c9", namespace="inner")
    assert cp.sync.copy_thread("t", "copy")
    for thread_id in ("t", "copy"):
        assert cp.sync.load(thread_id) == later
        assert [entry.seq for entry in cp.sync.history(thread_id, namespace="inner")] == [6]
        assert len(cp.sync.get_writes(thread_id, "c2")) == 2
    assert cp.sync.delete("t", "c9", namespace="inner")
    assert cp.sync.load("t", namespace="inner") is None


def test_more_namespaces_than_the_row_of_a_thread_names(cp: StorageBackendAdapter, path: Path) -> None:
    state = AgentState(agent_id="inner")
    later = state.next_iteration()
    for number in range(2 * MOST_NEWEST):
        cp.sync.save(state, "t", "x", namespace=f"inner {number}")
        cp.sync.save(later, "t", "y", namespace=f"inner {number}")
    for number in range(2 * MOST_NEWEST):
        assert cp.sync.load("t", namespace=f"inner {number}") == later
        assert len(cp.sync.history("t", namespace=f"inner {number}")) == 2
    assert cp.sync.load("t", namespace="another") is None
    cp.sync.close()
    damage_index(path, "locus_checkpoints_by_seq", "namespace = 'inner 1' AND seq % 2 = 0")
    told(cp, lambda cp: cp.sync.load("t", namespace="inner 1"))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_copy_of_what_an_older_version_stored_is_sealed(tmp_path: Path, path: Path, number: int) -> None:
    shutil.copy(DATA / f"sqlite-{number}.db", path)
    with sqlite_checkpointer(path).sync as cp:
        states = {name: cp.load(PLAIN, name) for name in ("one", "two", "three", "fork")}
        assert cp.copy_thread(PLAIN, "copy")
        for name, state in states.items():
            assert cp.load("copy", name) == state
        assert len(cp.history("copy", limit=None)) == 4
        assert len(cp.get_writes("copy", "two")) == 2
        assert cp.load(HOSTILE, "replaced") is not None
    with closing(sqlite3.connect(path)) as connection:
        for table in ("checkpoints", "runs", "writes"):
            sealed = (
                f"SELECT count(*), count(seal) FROM locus_{table} WHERE thread = (SELECT max(id) FROM locus_threads)"
            )
            count, seals = connection.execute(sealed).fetchone()
            assert 0 < count == seals
