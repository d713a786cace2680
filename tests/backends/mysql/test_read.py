"""What is read of a checkpoint in MySQL, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends.mysql.client import MySQLConnection
from locus.memory.checkpointer import Checkpointer
from tests.backends.mysql.stores import MySQLStore
from tests.backends.sql.reading import (
    WINDOW,
    check_a_deletion_in_between,
    check_any_course,
    check_digests_of_any_value,
    check_hidden_runs,
)


@pytest_asyncio.fixture
async def checkpointer(store: MySQLStore) -> AsyncIterator[Checkpointer]:
    async with store.open() as opened:
        yield opened


async def test_runs_that_later_ones_hide_are_not_read(checkpointer: Checkpointer) -> None:
    await check_hidden_runs(checkpointer)


async def test_runs_fit_together_around_hidden_ones_whatever_they_hold(checkpointer: Checkpointer) -> None:
    await check_digests_of_any_value(checkpointer)


async def test_every_version_of_any_course_is_what_it_was(checkpointer: Checkpointer) -> None:
    await check_any_course(checkpointer, 120)


async def test_a_load_looks_at_as_many_rows_in_a_long_history(
    checkpointer: Checkpointer, store: MySQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which checkpoint is the latest, and whether one has a successor, an index can tell without going through all."""
    real = MySQLConnection.execute
    looked_at: list[int] = []

    async def rows_read(connection: MySQLConnection) -> int:
        rows = await real(connection, "SHOW SESSION STATUS LIKE 'Handler_read%'", ())
        return sum(int(value) for _, value in rows)

    async def execute(connection: MySQLConnection, statement: str, values: Sequence[Any] = ()) -> Any:
        before = await rows_read(connection)
        found = await real(connection, statement, values)
        looked_at.append(await rows_read(connection) - before)
        return found

    async def cost() -> int:
        checkpointer.cache_clear()
        looked_at.clear()
        with monkeypatch.context() as patch:
            patch.setattr(MySQLConnection, "execute", execute)
            assert await checkpointer.load("t", last=5) is not None
            assert len(await checkpointer.history("t", 10)) == 10
        return sum(looked_at)

    state = AgentState()
    costs: list[int] = []
    for turn in range(160):
        state = state.with_message(Message.user(str(turn)))
        await checkpointer.save(state, "t")
        if turn in (40, 159):
            costs.append(await cost())
    assert costs[1] <= costs[0] + 20, costs


async def test_what_is_deleted_between_two_statements_is_noticed(
    checkpointer: Checkpointer, store: MySQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], Awaitable[None]]] = []
    real = MySQLConnection.execute

    async def execute(connection: MySQLConnection, statement: str, values: Sequence[Any] = ()) -> Any:
        rows = await real(connection, statement, values)
        if waiting:
            await waiting.pop()()
        return rows

    monkeypatch.setattr(MySQLConnection, "execute", execute)
    await checkpointer.list_threads()
    async with store.open() as other:
        await check_a_deletion_in_between(checkpointer, other, waiting.append, [WINDOW])
