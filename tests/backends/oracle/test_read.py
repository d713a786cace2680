"""What is read of a checkpoint in Oracle Database, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from locus.core.state import AgentState
from locus.memory.backends.oracle.client import OracleConnection
from locus.memory.backends.oracle.schema import OracleFlavour, oracle_sql
from locus.memory.backends.sql import read as sql_read
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import DEFAULT_NAMESPACE, Base
from tests.backends.oracle.stores import OracleStore
from tests.backends.sql.reading import (
    WINDOW,
    check_a_deletion_in_between,
    check_any_course,
    check_digests_of_any_value,
    check_hidden_runs,
)
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.grammar import translate
from tests.servers.oracle.server import OracleServer
from tests.servers.oracle.settings import path

pytestmark = pytest.mark.oracle


@pytest_asyncio.fixture
async def checkpointer(oracle_store: OracleStore) -> AsyncIterator[Checkpointer]:
    async with oracle_store.open() as opened:
        yield opened


async def test_runs_that_later_ones_hide_are_not_read(checkpointer: Checkpointer) -> None:
    await check_hidden_runs(checkpointer)


async def test_runs_fit_together_around_hidden_ones_whatever_they_hold(checkpointer: Checkpointer) -> None:
    await check_digests_of_any_value(checkpointer)


async def test_every_version_of_any_course_is_what_it_was(checkpointer: Checkpointer) -> None:
    await check_any_course(checkpointer, 40)


async def test_what_is_deleted_between_two_statements_is_noticed(
    checkpointer: Checkpointer, oracle_store: OracleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], Awaitable[None]]] = []
    real = OracleConnection.execute

    async def execute(
        connection: OracleConnection, statement: str, values: Sequence[Any] = (), *, commit: bool = False
    ) -> Any:
        rows = await real(connection, statement, values, commit=commit)
        if waiting:
            await waiting.pop()()
        return rows

    monkeypatch.setattr(OracleConnection, "execute", execute)
    await checkpointer.list_threads()
    async with oracle_store.open() as other:
        await check_a_deletion_in_between(checkpointer, other, waiting.append, [None, WINDOW])


async def test_the_latest_checkpoint_is_found_in_an_index(
    checkpointer: Checkpointer, oracle_store: OracleStore, oracle_server: OracleServer
) -> None:
    """By the plans of the database below the stand-in: no statement looks at all checkpoints of a thread."""
    await checkpointer.save(AgentState(), "t", "first")
    sql, held = OracleFlavour(oracle_store.table_name), Base("first", "rev")
    asked = (
        sql_read.row_since(sql, "t", DEFAULT_NAMESPACE, None, held),
        sql_read.checkpoint_row(sql, sql.stored, "t", DEFAULT_NAMESPACE, None),
        sql_read.entry(sql, "t", DEFAULT_NAMESPACE, None),
    )
    with psycopg.connect(oracle_server.target.url, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", (path(oracle_store.direct.user),))
        table = f'"{sql.checkpoints.upper()}"'
        columns = connection.execute("SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s)", (table,))
        copied = {f'"{name}"': f'"{name}"' for (name,) in columns if name.isupper()}
        copied |= {'"ID"': "-n", '"SEQ"': "n", '"CHECKPOINT_ID"': "'c' || n", '"REV"': "'r' || n"}
        connection.execute(
            f"INSERT INTO {table} ({', '.join(copied)}) SELECT {', '.join(copied.values())}"
            f" FROM {table}, generate_series(2, 2000) n".encode()
        )
        connection.execute(f"ANALYZE {table}".encode())
        for steps in asked:
            statement, _ = next(steps)
            steps.close()
            made = translate(oracle_sql(statement))
            assert not isinstance(made, OracleError), made
            rows = connection.execute(f"EXPLAIN (GENERIC_PLAN) {made.commands[0]}".encode()).fetchall()
            plan = "\n".join(line for (line,) in rows)
            assert "Sort" not in plan, plan
            assert f"Seq Scan on {table}" not in plan, plan
