"""What is read of a checkpoint in MySQL, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

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
