"""What is read of a checkpoint in Oracle Database, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from locus.memory.backends.oracle.client import OracleConnection
from locus.memory.checkpointer import Checkpointer
from tests.backends.oracle.stores import OracleStore
from tests.backends.sql.reading import (
    WINDOW,
    check_a_deletion_in_between,
    check_any_course,
    check_digests_of_any_value,
    check_hidden_runs,
)

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
