"""Transactions: what is undone, what is seen, and who waits for whom."""

from __future__ import annotations

import threading

import oracledb
import pytest

from tests.servers.oracle.fixtures import OracleDatabase


def codes(caught: pytest.ExceptionInfo[oracledb.DatabaseError]) -> str:
    return str(caught.value.args[0].full_code)


def count(connection: oracledb.Connection, things: str) -> int:
    with connection.cursor() as cursor:
        return int(cursor.execute(f"SELECT COUNT(*) FROM {things}").fetchone()[0])


def test_a_failed_statement_is_undone_alone(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    for text in (f"INSERT INTO {things} (id) VALUES (1)", "SELECT nothing FROM dual", "nonsense"):
        with pytest.raises(oracledb.DatabaseError):
            cursor.execute(text)
    cursor.execute(f"INSERT INTO {things} (id) VALUES (2)")
    cursor.connection.commit()
    assert count(cursor.connection, things) == 2


def test_a_first_statement_that_fails_leaves_no_transaction(cursor: oracledb.Cursor, things: str) -> None:
    with pytest.raises(oracledb.DatabaseError):
        cursor.execute(f"INSERT INTO {things} (id, nothing) VALUES (1, 1)")
    assert not cursor.connection.transaction_in_progress
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    assert cursor.connection.transaction_in_progress


def test_nothing_is_committed_unless_somebody_says_so(
    cursor: oracledb.Cursor, things: str, other: oracledb.Connection
) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    assert count(other, things) == 0
    cursor.connection.rollback()
    assert count(cursor.connection, things) == 0
    cursor.connection.autocommit = True
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    assert count(other, things) == 1


def test_a_definition_commits_even_if_it_fails(
    cursor: oracledb.Cursor, things: str, other: oracledb.Connection
) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    with pytest.raises(oracledb.DatabaseError):
        cursor.execute(f"CREATE TABLE {things} (id NUMBER)")
    assert count(other, things) == 1


def test_closing_a_connection_undoes_what_it_has_not_committed(
    cursor: oracledb.Cursor, things: str, other: oracledb.Connection
) -> None:
    with other.cursor() as writer:
        writer.execute(f"INSERT INTO {things} (id) VALUES (1)")
    other.close()
    assert count(cursor.connection, things) == 0


def test_savepoints(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    cursor.execute("SAVEPOINT here")
    cursor.execute(f"INSERT INTO {things} (id) VALUES (2)")
    cursor.execute("ROLLBACK TO SAVEPOINT here")
    cursor.connection.commit()
    assert count(cursor.connection, things) == 1
    with pytest.raises(oracledb.DatabaseError) as caught:
        cursor.execute("ROLLBACK TO here")
    assert codes(caught) == "ORA-01086"


def test_readers_wait_for_nobody(cursor: oracledb.Cursor, things: str, other: oracledb.Connection) -> None:
    cursor.execute(f"INSERT INTO {things} (id, name) VALUES (1, 'old')")
    cursor.connection.commit()
    cursor.execute(f"UPDATE {things} SET name = 'new'")
    with other.cursor() as reader:
        assert reader.execute(f"SELECT name FROM {things}").fetchall() == [("old",)]


def test_a_read_only_transaction_sees_what_was_when_it_began(
    cursor: oracledb.Cursor, things: str, other: oracledb.Connection
) -> None:
    cursor.execute("SET TRANSACTION READ ONLY")
    assert count(cursor.connection, things) == 0
    with other.cursor() as writer:
        writer.execute(f"INSERT INTO {things} (id) VALUES (1)")
        other.commit()
    assert count(cursor.connection, things) == 0
    with pytest.raises(oracledb.DatabaseError) as caught:
        cursor.execute(f"INSERT INTO {things} (id) VALUES (2)")
    assert codes(caught) == "ORA-01456"
    cursor.connection.commit()
    assert count(cursor.connection, things) == 1


def test_a_serializable_transaction_gives_way(cursor: oracledb.Cursor, things: str, other: oracledb.Connection) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    cursor.connection.commit()
    cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    assert count(cursor.connection, things) == 1
    with other.cursor() as writer:
        writer.execute(f"UPDATE {things} SET name = 'b'")
        other.commit()
    with pytest.raises(oracledb.DatabaseError) as caught:
        cursor.execute(f"UPDATE {things} SET name = 'a'")
    assert codes(caught) == "ORA-08177"


def test_locks(cursor: oracledb.Cursor, things: str, other: oracledb.Connection) -> None:
    cursor.executemany(f"INSERT INTO {things} (id) VALUES (:1)", [[1], [2]])
    cursor.connection.commit()
    cursor.execute(f"SELECT id FROM {things} WHERE id = 1 FOR UPDATE")
    with other.cursor() as waiting:
        for how, code in (("NOWAIT", "ORA-00054"), ("WAIT 1", "ORA-30006")):
            with pytest.raises(oracledb.DatabaseError) as caught:
                waiting.execute(f"SELECT id FROM {things} WHERE id = 1 FOR UPDATE {how}")
            assert codes(caught) == code
        assert waiting.execute(f"SELECT id FROM {things} FOR UPDATE SKIP LOCKED").fetchall() == [(2,)]


def test_a_definition_does_not_wait_for_a_change(
    cursor: oracledb.Cursor, things: str, other: oracledb.Connection
) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    with other.cursor() as waiting, pytest.raises(oracledb.DatabaseError) as caught:
        waiting.execute(f"ALTER TABLE {things} ADD (more NUMBER)")
    assert codes(caught) == "ORA-00054"


def test_of_two_that_wait_for_each_other_one_gives_up(
    cursor: oracledb.Cursor, things: str, other: oracledb.Connection
) -> None:
    cursor.executemany(f"INSERT INTO {things} (id) VALUES (:1)", [[1], [2]])
    cursor.connection.commit()
    cursor.execute(f"UPDATE {things} SET name = 'a' WHERE id = 1")
    failures = []

    def cross() -> None:
        with other.cursor() as crossing:
            crossing.execute(f"UPDATE {things} SET part = 1 WHERE id = 2")
            ready.set()
            try:
                crossing.execute(f"UPDATE {things} SET part = 1 WHERE id = 1")
            except oracledb.DatabaseError as error:
                failures.append(error.args[0].full_code)
            other.rollback()

    ready = threading.Event()
    thread = threading.Thread(target=cross)
    thread.start()
    assert ready.wait(10)
    try:
        cursor.execute(f"UPDATE {things} SET name = 'b' WHERE id = 2")
    except oracledb.DatabaseError as error:
        failures.append(error.args[0].full_code)
        cursor.connection.rollback()
    thread.join(10)
    assert failures == ["ORA-00060"]


def test_of_many_rows_those_before_the_failure_stay(cursor: oracledb.Cursor, things: str) -> None:
    with pytest.raises(oracledb.IntegrityError):
        cursor.executemany(f"INSERT INTO {things} (id) VALUES (:1)", [[1], [2], [1], [3]])
    assert cursor.rowcount == 2
    assert cursor.execute(f"SELECT id FROM {things} ORDER BY id").fetchall() == [(1,), (2,)]


def test_a_session_knows_nothing_of_the_one_before(database: OracleDatabase, things: str) -> None:
    """Though the emulator may give it the same connection to PostgreSQL."""
    with oracledb.connect(**database.parameters) as before, before.cursor() as cursor:
        cursor.execute("ALTER SESSION SET CURRENT_SCHEMA = ADMIN")
        cursor.execute("ALTER SESSION SET TIME_ZONE = '+05:00'")
        cursor.execute("ALTER SESSION SET ISOLATION_LEVEL = SERIALIZABLE")
        cursor.execute("SAVEPOINT left_behind")
    with oracledb.connect(**database.parameters) as after, after.cursor() as cursor:
        assert not after.transaction_in_progress
        assert cursor.execute(f"SELECT COUNT(*) FROM {things}").fetchone() is not None
        assert cursor.execute("SELECT SESSIONTIMEZONE FROM dual").fetchone() != ("+05:00",)
        with pytest.raises(oracledb.DatabaseError, match="ORA-01086"):
            cursor.execute("ROLLBACK TO left_behind")
