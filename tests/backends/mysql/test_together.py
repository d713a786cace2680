"""Saves of many threads in two round trips."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from locus.memory.backends import MySQLBackend
from locus.memory.backends.mysql.client import MySQLConnection, Result, Statement
from locus.memory.backends.mysql.engine import MySQLEngine
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.backends.sql.flavour import run_steps_async
from locus.memory.engine import CommitsTogether
from locus.memory.model.records import Commit, Outcome, Verdict
from tests.backends.sql.grouped import SQLGroupLaws, after, first
from tests.backends.sql.lost_saves import LostSaveLaws

pytestmark = pytest.mark.mysql


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[MySQLEngine]:
    async with MySQLBackend(dsn=url) as backend:
        engine = backend.store.engine
        assert isinstance(engine, MySQLEngine)
        await engine.setup()
        yield engine


@pytest_asyncio.fixture
async def other(url: str) -> AsyncIterator[MySQLEngine]:
    async with MySQLBackend(dsn=url) as backend:
        engine = backend.store.engine
        assert isinstance(engine, MySQLEngine)
        yield engine


class TestGroups(SQLGroupLaws):
    statements_of_commits = 2
    statements_with_writes = 2

    @asynccontextmanager
    async def sent(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Any]]:
        sent: list[Any] = []
        send = MySQLConnection.send

        async def heard(self: MySQLConnection, statements: Sequence[Statement]) -> list[Result]:
            sent.append(statements)
            return await send(self, statements)

        with monkeypatch.context() as patch:
            patch.setattr(MySQLConnection, "send", heard)
            yield sent


class TestLostSaves(LostSaveLaws):
    pass


async def test_what_changes_while_a_save_waits_for_its_thread_is_noticed(
    engine: MySQLEngine, other: MySQLEngine
) -> None:
    """Whether the server looks for what it goes on from before or after it waits."""
    await engine.commit(first("t"))
    await engine.commit(first("t", "b"))
    holder, watcher = await other._connect(), await other._connect()
    try:
        await holder.begin(writing=True)
        assert await run_steps_async(other._threads.delete("t", None, {2: "rev-b"}), holder.execute) == 1
        saving = asyncio.ensure_future(engine.commit(after("b", "t", "c")))
        waiting = (
            "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE ?"
        )
        while await watcher.execute(waiting, (f"%{engine.sql.threads}%",)) == [(0,)]:
            # Only the server knows. It gives the same answer again to whoever asks within a tenth of a second.
            await asyncio.sleep(0.15)
            assert not saving.done(), saving
        await holder.commit()
        assert (await saving).verdict is Verdict.STALE_BASE
    finally:
        holder.close()
        watcher.close()
    assert [entry.checkpoint_id for entry in await engine.history("t", None, None, None)] == ["a"]


class TestLostSavesInGroups(LostSaveLaws):
    async def save(self, engine: SQLServerEngine[Any], commit: Commit) -> Outcome:
        """Together with one of another thread, which is not kept back."""
        assert isinstance(engine, CommitsTogether)
        beside = first(f"beside {commit.checkpoint_id}")
        answer, other = await engine.commit_together([commit, beside])
        assert other == Outcome(Verdict.COMMITTED, 1)
        return await engine.commit(commit) if answer is None else answer
