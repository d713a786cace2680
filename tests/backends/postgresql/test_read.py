"""What is read of a checkpoint in PostgreSQL: in one statement, by indexes, and no more than is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.backends.postgresql import read as postgresql_read
from locus.memory.backends.postgresql.client import PostgreSQLConnection
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour, numbered
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.parts import Range
from locus.memory.model.records import DEFAULT_NAMESPACE, Base
from tests.backends.postgresql.store import PostgreSQLStore
from tests.backends.sql.reading import (
    MESSAGES,
    WINDOW,
    check_any_course,
    check_digests_of_any_value,
    check_hidden_runs,
    read_of,
    read_since,
    texts_of,
)


@pytest_asyncio.fixture
async def checkpointer(store: PostgreSQLStore) -> AsyncIterator[Checkpointer]:
    async with store.open() as opened:
        yield opened


async def test_runs_that_later_ones_hide_are_not_read(checkpointer: Checkpointer) -> None:
    await check_hidden_runs(checkpointer)


async def test_runs_fit_together_around_hidden_ones_whatever_they_hold(checkpointer: Checkpointer) -> None:
    await check_digests_of_any_value(checkpointer)


async def test_every_version_of_any_course_is_what_it_was(checkpointer: Checkpointer) -> None:
    await check_any_course(checkpointer, 120)


async def test_a_load_and_a_part_of_it_are_one_statement(
    checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = AgentState().with_messages([Message.user(f"{number}") for number in range(8)])
    await checkpointer.save(state, "t")
    held = await read_of(checkpointer)
    await checkpointer.save(state.with_message(Message.user("8")), "t")
    sent: list[str] = []
    real = PostgreSQLConnection.execute

    async def execute(connection: PostgreSQLConnection, statement: str, values: Sequence[Any] = ()) -> Any:
        sent.append(statement)
        return await real(connection, statement, values)

    monkeypatch.setattr(PostgreSQLConnection, "execute", execute)
    await checkpointer.load("t")
    await read_of(checkpointer, None, WINDOW)
    await read_of(checkpointer, None, Range(MESSAGES, 2, 3))
    await read_since(checkpointer, None, held)
    assert len(sent) == 4


async def test_other_checkpoints_are_not_looked_at(checkpointer: Checkpointer, store: PostgreSQLStore) -> None:
    """Whether there is a newer one, too, is known from an index, whatever the statistics say."""
    state = AgentState()
    for number in range(30):
        state = state.with_message(Message.user(f"{number}"))
        last = await checkpointer.save(state, "t")
    held = Base(last, (await read_of(checkpointer)).entry.rev)
    sql = PostgreSQLFlavour(schema_name=store.schema)
    with store.connection() as connection:
        connection.execute(
            """INSERT INTO locus_checkpoints
            (thread, namespace, checkpoint_id, seq, rev, created_at, metadata, head, manifest)
            SELECT 1000 + n % 3, 'default', 'x' || n, n, n::text, now(), '{}', '{}', '[]'
            FROM generate_series(1, 4000) n"""
        )
        connection.execute("VACUUM ANALYZE")
        cursor = psycopg.RawCursor(connection)
        for steps in (
            postgresql_read.read(sql, "t", DEFAULT_NAMESPACE, None),
            postgresql_read.read(sql, "t", DEFAULT_NAMESPACE, last),
            postgresql_read.read_part(sql, "t", DEFAULT_NAMESPACE, None, WINDOW),
            postgresql_read.read_since(sql, "t", DEFAULT_NAMESPACE, None, held),
        ):
            statement, values = next(steps)
            steps.close()
            explained = cursor.execute(f"EXPLAIN ANALYZE {numbered(statement)}".encode(), values)
            plan = "\n".join(str(row[0]) for row in explained)
            assert "Seq Scan on locus_checkpoints" not in plan, plan


async def test_a_held_checkpoint_that_is_damaged_is_of_no_use(
    checkpointer: Checkpointer, store: PostgreSQLStore
) -> None:
    """It is no reason to refuse the one that was asked for; but that one's own damage is told."""
    state = AgentState().with_messages([Message.user("first"), Message.assistant("answer")])
    await checkpointer.save(state, "t", "held")
    held = Base("held", (await read_of(checkpointer, "held")).entry.rev)
    await checkpointer.save(state.with_message(Message.user("last")), "t", "last")
    damage = "UPDATE locus_checkpoints SET manifest = %s WHERE checkpoint_id = %s"
    for manifest in ('[[["messages"],[["b","no number",0,2]]]]', '[[["messages"],[["b",5000000000,0,2]]]]'):
        with store.connection() as connection:
            connection.execute(damage, (manifest, "held"))
        async with checkpointer.store.using() as engine:
            found = await engine.read_since("t", DEFAULT_NAMESPACE, None, held)
        assert found is not None
        assert texts_of(found, found.runs) == ["first", "answer", "last"]
    with store.connection() as connection:
        connection.execute(damage, ('[[["messages"],[["b",5000000000,0,3]]]]', "last"))
    async with checkpointer.store.using() as engine:
        for part in (WINDOW, Range(MESSAGES, 0, 1)):
            with pytest.raises(CorruptCheckpointError, match="too large"):
                await engine.read_part("t", DEFAULT_NAMESPACE, None, part)
        with pytest.raises(CorruptCheckpointError, match="too large"):
            await engine.read_since("t", DEFAULT_NAMESPACE, None, held)


async def test_any_path_names_its_list(checkpointer: Checkpointer) -> None:
    """Paths are compared in the database, where some characters are written in another way."""
    names = ("plain", "a\0b", 'quote " and \\', "ünï 😀", "[]", "$locus:text")
    lists = {name: {"inner": [f"{name} {number}" for number in range(20)]} for name in names}
    state = AgentState()
    for name, value in lists.items():
        state = state.with_metadata(name, value)
    await checkpointer.save(state, "t")
    for name, value in lists.items():
        page = await checkpointer.read_items("t", path=("metadata", name, "inner"), start=-3, count=2)
        assert page is not None
        assert (page.items, page.total, page.start) == (value["inner"][-3:-1], 20, 17)
