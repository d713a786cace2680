"""Saves of many threads in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from locus.memory.backends.postgresql import together as postgresql_together
from locus.memory.backends.postgresql.backend import PostgreSQLBackend
from locus.memory.backends.postgresql.client import PostgreSQLConnection
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.model.records import Outcome, Verdict
from tests.backends.postgresql.store import PostgreSQLStore
from tests.backends.sql.grouped import SQLGroupLaws, after, first

pytestmark = pytest.mark.postgresql


@pytest_asyncio.fixture
async def engine(store: PostgreSQLStore) -> AsyncIterator[PostgreSQLEngine]:
    async with PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema) as backend:
        engine = backend.store.engine
        assert isinstance(engine, PostgreSQLEngine)
        await engine.setup()
        yield engine


class TestGroups(SQLGroupLaws):
    statements_of_commits = 1
    statements_with_writes = 5

    @asynccontextmanager
    async def sent(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Any]]:
        sent: list[Any] = []
        execute = PostgreSQLConnection.execute

        async def heard(self: PostgreSQLConnection, statement: str, values: Any = ()) -> list[Any]:
            sent.append(statement)
            return await execute(self, statement, values)

        with monkeypatch.context() as patch:
            patch.setattr(PostgreSQLConnection, "execute", heard)
            yield sent

    async def test_what_changes_after_the_statement_has_looked_is_noticed(
        self, engine: PostgreSQLEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It waits for a thread that another creates, and has seen all others by then."""
        monkeypatch.setattr(postgresql_together, "PATIENCE", "20s")
        for begun in ("continued", "deleted", "untouched"):
            await engine.commit(first(begun))
        await engine.commit(first("deleted", "later"))
        async with self.transaction(engine) as other:
            await other.execute(f"INSERT INTO {engine.sql.threads} (thread_id, last_seq) VALUES ('a new one', 0)", ())
            group = [after("a", name, "b") for name in ("continued", "deleted", "untouched")]
            task = asyncio.ensure_future(self.together(engine, *group, first("a new one")))
            blocked = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            async with asyncio.timeout(20):
                while not await other.execute(blocked, ()):  # noqa: ASYNC110 - only the server knows
                    await asyncio.sleep(0.005)
            assert (await engine.commit(after("a", "continued", "faster"))).verdict is Verdict.COMMITTED
            assert await engine.delete("deleted", None, {1: "rev-a"}) == 1
            assert not task.done()
        answers = await task
        assert answers == [None, None, Outcome(Verdict.COMMITTED, 2, "a"), Outcome(Verdict.COMMITTED, 1)]
        assert await self.ids(engine, "continued") == ["faster", "a"]
        assert await self.ids(engine, "deleted") == ["later"]

    async def test_two_groups_create_threads_in_the_same_order(self, engine: PostgreSQLEngine) -> None:
        """Else each would wait for the other."""
        threads = [f"t{number}" for number in range(12)]
        for step in range(10):
            names = [f"{step} {thread_id}" for thread_id in threads]
            group = [first(name) for name in names]
            found = await asyncio.gather(
                self.together(engine, *group), self.together(engine, *[first(name, "b") for name in reversed(names)])
            )
            for one, other in zip(found[0], found[1][::-1], strict=True):
                assert one is not None or other is not None


def test_a_text_with_a_nul_does_not_become_two() -> None:
    """The server will refuse it."""
    assert postgresql_together._array(["a\0b", "c"]) == '{"a\0b","c"}'
    assert postgresql_together._array(["a", None, 'b"\\']) == '{"a",NULL,"b\\"\\\\"}'
    assert postgresql_together._array([None, None]) == "{NULL,NULL}"
