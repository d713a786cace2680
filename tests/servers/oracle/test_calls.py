"""The ways to call: many rows, rows that come back, pages of rows, pipelines, pools, and calls that are given up."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import oracledb
import pytest


def test_the_driver_is_the_real_one() -> None:
    """So a parameter or a method with a typo fails here as it does everywhere."""
    assert Path(inspect.getfile(oracledb)).parent.name == "oracledb"
    assert "site-packages" in inspect.getfile(oracledb.AsyncConnection)
    with pytest.raises(TypeError, match="wallet_locatoin"):
        oracledb.connect(dsn="127.0.0.1/x", wallet_locatoin="/nowhere")
    with pytest.raises(TypeError, match="stmtcache_size"):
        oracledb.create_pool_async(dsn="127.0.0.1/x", stmtcache_size=3)


def test_many_rows_at_once(cursor: oracledb.Cursor, things: str) -> None:
    cursor.executemany(f"INSERT INTO {things} (id, name) VALUES (:1, :2)", [[n, f"n{n}"] for n in range(500)])
    assert cursor.rowcount == 500
    cursor.arraysize = 7
    rows = cursor.execute(f"SELECT id FROM {things} ORDER BY id")
    assert [row[0] for row in rows] == list(range(500))
    assert cursor.rowcount == 500
    rows = cursor.execute(f"SELECT id FROM {things} ORDER BY id")
    assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
    assert cursor.fetchone() == (3,)


def test_rows_that_fail_are_told_one_by_one(cursor: oracledb.Cursor, things: str) -> None:
    rows = [[1, "a"], [1, "b"], [2, "much too long a name"], [3, "c"]]
    cursor.executemany(f"INSERT INTO {things} (id, name) VALUES (:1, :2)", rows, batcherrors=True)
    assert [(error.offset, error.full_code) for error in cursor.getbatcherrors()] == [
        (1, "ORA-00001"),
        (2, "ORA-12899"),
    ]
    assert cursor.execute(f"SELECT id FROM {things} ORDER BY id").fetchall() == [(1,), (3,)]


def test_the_rows_of_each_iteration_are_counted(cursor: oracledb.Cursor, things: str) -> None:
    cursor.executemany(f"INSERT INTO {things} (id, part) VALUES (:1, :2)", [[1, 1], [2, 1], [3, 2]])
    cursor.executemany(f"DELETE FROM {things} WHERE part = :1", [[1], [2], [3]], arraydmlrowcounts=True)
    assert cursor.getarraydmlrowcounts() == [2, 1, 0]


def test_what_is_returned_goes_into_variables(cursor: oracledb.Cursor, things: str) -> None:
    number, text = cursor.var(int), cursor.var(str)
    cursor.execute(
        f"INSERT INTO {things} (id, name) VALUES (:1, :2) RETURNING id, name INTO :3, :4", [5, "e", number, text]
    )
    assert (number.getvalue(), text.getvalue()) == ([5], ["e"])
    cursor.executemany(f"INSERT INTO {things} (id) VALUES (:1)", [[6], [7]])
    cursor.execute(f"DELETE FROM {things} WHERE id > :1 RETURNING id INTO :2", [5, number])
    assert sorted(number.getvalue()) == [6, 7]
    cursor.execute(f"DELETE FROM {things} WHERE id > :1 RETURNING id INTO :2", [5, number])
    assert number.getvalue() == []


def test_a_statement_is_executed_again(cursor: oracledb.Cursor, things: str) -> None:
    """The second time the driver sends a number for the text, and other values."""
    cursor.execute(f"INSERT INTO {things} (id, name) VALUES (1, 'x')")
    for part in (1, 2, None, 3):
        cursor.execute(f"UPDATE {things} SET part = :1", [part])
        assert cursor.execute(f"SELECT part FROM {things}").fetchall() == [(part,)]
    for name, expected in (("x", [(1,)]), ("y", []), (None, []), ("x", [(1,)])):
        assert cursor.execute(f"SELECT id FROM {things} WHERE name = :1", [name]).fetchall() == expected


def test_a_table_that_has_changed_is_described_anew(cursor: oracledb.Cursor, things: str) -> None:
    table = f"{things}_grows"
    cursor.execute(f"CREATE TABLE {table} (a NUMBER)")
    cursor.execute(f"SELECT * FROM {table}").fetchall()
    cursor.execute(f"ALTER TABLE {table} ADD (b VARCHAR2(5) DEFAULT 'x')")
    cursor.execute(f"INSERT INTO {table} (a) VALUES (1)")
    assert cursor.execute(f"SELECT * FROM {table}").fetchall() == [(1, "x")]
    cursor.execute(f"DROP TABLE {table}")


async def test_a_pipeline(database: Any, cursor: oracledb.Cursor, things: str) -> None:
    async with oracledb.connect_async(**database.parameters) as connection:
        pipeline = oracledb.create_pipeline()
        pipeline.add_execute(f"INSERT INTO {things} (id, text) VALUES (1, :1)", ["x" * 5_000])
        pipeline.add_executemany(f"INSERT INTO {things} (id) VALUES (:1)", [(2,), (3,)])
        pipeline.add_commit()
        pipeline.add_fetchall(f"SELECT id FROM {things} ORDER BY id")
        pipeline.add_fetchone(f"SELECT nothing FROM {things}")
        results = await connection.run_pipeline(pipeline, continue_on_error=True)
        assert results[3].rows == [(1,), (2,), (3,)]
        assert results[4].error.full_code == "ORA-00904"
        with pytest.raises(oracledb.DatabaseError, match="ORA-00904"):
            await connection.run_pipeline(pipeline_with(f"SELECT nothing FROM {things}", "SELECT 1 FROM dual"))
        assert await connection.fetchone("SELECT 2 FROM dual") == (2,)


def pipeline_with(*queries: str) -> oracledb.Pipeline:
    made = oracledb.create_pipeline()
    for query in queries:
        made.add_fetchall(query)
    return made


async def test_a_pool(database: Any) -> None:
    pool = oracledb.create_pool_async(**database.parameters, min=1, max=2, getmode=oracledb.POOL_GETMODE_NOWAIT)
    async with pool.acquire() as one, pool.acquire() as two:
        assert await one.fetchone("SELECT 1 FROM dual") == await two.fetchone("SELECT 1 FROM dual")
        with pytest.raises(oracledb.DatabaseError, match="DPY-4005"):
            await pool.acquire()
        await two.ping()
    assert (pool.busy, pool.opened) == (0, 2)
    await pool.close()


async def test_a_call_that_takes_too_long_is_given_up(database: Any, cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    cursor.connection.commit()
    cursor.execute(f"UPDATE {things} SET name = 'locked'")
    async with oracledb.connect_async(**database.parameters) as connection:
        connection.call_timeout = 100
        with pytest.raises(oracledb.DatabaseError, match="DPY-4024"):
            await connection.execute(f"UPDATE {things} SET name = 'late'")
        connection.call_timeout = 0
        assert connection.is_healthy()
        waiting = asyncio.create_task(connection.execute(f"UPDATE {things} SET name = 'later'"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await connection.fetchone(f"SELECT COUNT(*) FROM {things}") == (1,)


def test_another_schema(cursor: oracledb.Cursor, things: str) -> None:
    owner = cursor.connection.username
    assert cursor.execute(f"SELECT COUNT(*) FROM {owner}.{things}").fetchone() == (0,)
    cursor.connection.current_schema = "ADMIN"
    with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
        cursor.execute(f"SELECT COUNT(*) FROM {things}")
    cursor.connection.current_schema = owner
    assert cursor.execute(f"SELECT COUNT(id) FROM {things}").fetchone() == (0,)
