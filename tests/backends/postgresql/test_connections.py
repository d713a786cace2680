"""Connections: pools of each event loop, replaced when the server ends them, released in the end."""

from __future__ import annotations

import asyncio
import gc
import secrets
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg_pool import AsyncConnectionPool

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory.backends import PostgreSQLBackend
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.sql.flavour import Steps
from tests.backends.postgresql.store import PostgreSQLStore

pytestmark = pytest.mark.postgresql


class Watched:
    """Backends whose connections can be told from all others."""

    def __init__(self, store: PostgreSQLStore) -> None:
        self.name = f"watched_{secrets.token_hex(4)}"
        self.store = store

    def open(self, **options: Any) -> PostgreSQLBackend:
        dsn = f"{self.store.server_url}?application_name={self.name}"
        return PostgreSQLBackend(dsn=dsn, schema_name=self.store.schema, **options)

    def connections(self) -> int:
        with self.store.connection() as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            ((count,),) = connection.execute(query, (self.name,)).fetchall()
        assert isinstance(count, int)
        return count

    async def settled(self, count: int) -> None:
        """The server takes a moment to notice that a connection was closed."""
        async with asyncio.timeout(20):
            while self.connections() != count:  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(0.01)

    def end_all(self) -> None:
        with self.store.connection() as connection:
            query = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
            ended = connection.execute(query, (self.name,)).fetchall()
        assert ended
        assert all(done for (done,) in ended)


@pytest_asyncio.fixture
async def watched(store: PostgreSQLStore) -> AsyncIterator[Watched]:
    watched = Watched(store)
    yield watched
    gc.collect()
    await watched.settled(0)


def engine_of(backend: PostgreSQLBackend) -> PostgreSQLEngine:
    engine = backend.store.engine
    assert isinstance(engine, PostgreSQLEngine)
    return engine


async def test_an_idle_connection_that_the_server_ended_is_replaced(watched: Watched) -> None:
    """Also where nothing may be tried again, like a deletion."""
    async with watched.open(retry_seconds=0) as backend:
        for turn in range(3):
            await asyncio.gather(*(backend.save(f"t{n}", {"turn": turn}) for n in range(4)))
            watched.end_all()
        assert await backend.load("t0") == {"turn": 2}
        watched.end_all()
        assert await backend.delete("t0")


async def test_closing_releases_every_connection_and_use_opens_new_ones(watched: Watched) -> None:
    backend = watched.open()
    await asyncio.gather(*(backend.save(f"t{n}", {}) for n in range(5)))
    assert 1 <= watched.connections() <= 5
    await backend.close()
    await watched.settled(0)
    assert await backend.exists("t1")
    await backend.close()


async def test_no_more_connections_than_allowed(watched: Watched) -> None:
    async with watched.open(max_pool_size=3) as backend:
        await asyncio.gather(*(backend.save(f"t{n}", {}) for n in range(40)))
        assert watched.connections() <= 3


async def test_waiting_for_a_connection_ends_with_a_word_of_advice(watched: Watched) -> None:
    async with watched.open(max_pool_size=1, connect_timeout=2.0) as backend:
        await backend.save("t", {})
        async with engine_of(backend)._borrowed():
            with pytest.raises(BackendUnavailableError, match="raise max_pool_size"):
                await backend.save("t", {})
        assert await backend.save("t", {})


async def test_a_loop_that_ends_without_closing_leaves_nothing_for_long(watched: Watched) -> None:
    backend = watched.open()

    async def use() -> None:
        await backend.save("t", {})

    for _ in range(4):
        await asyncio.to_thread(lambda: asyncio.run(use()))
        assert watched.connections() <= 2
    await backend.save("t", {})
    await watched.settled(1)
    await backend.close()


async def test_a_handle_that_is_dropped_takes_its_connections_with_it(watched: Watched) -> None:
    backend = watched.open()
    await backend.save("t", {})
    backend.sync.save("t", {})
    assert watched.connections() == 2
    del backend
    gc.collect()
    await watched.settled(0)


async def test_closing_reaches_the_pool_of_the_blocking_face(watched: Watched) -> None:
    backend = watched.open()
    backend.sync.save("t", {"n": 1})
    await backend.save("u", {"n": 2})
    assert watched.connections() == 2
    await backend.close()
    await watched.settled(0)
    assert backend.sync.load("t") == {"n": 1}
    backend.sync.close()


async def test_the_blocking_face_counts_and_searches_data(watched: Watched) -> None:
    with watched.open().sync as backend:
        backend.save("t", {"n": 1})
        assert backend.count() == 1
        assert [hit["thread_id"] for hit in backend.search_data("n", 1)] == ["t"]


async def test_statements_are_prepared_unless_that_is_off(watched: Watched) -> None:
    """PgBouncer in transaction mode hands each transaction to another connection of the server."""
    for prepared in (True, False):
        async with watched.open(prepared_statements=prepared, max_pool_size=1) as backend:
            for number in range(12):
                await backend.save("t", {"n": number, "list": list(range(number))})
                await backend.load("t")
            async with engine_of(backend)._borrowed() as connection:
                found = await connection.execute("SELECT name FROM pg_prepared_statements")
        assert bool(found) is prepared


async def test_a_pool_that_is_given_is_used_and_not_closed(watched: Watched) -> None:
    conninfo = f"{watched.store.server_url}?application_name={watched.name}"
    async with AsyncConnectionPool(conninfo, min_size=2, max_size=2, open=False) as pool:
        backend = PostgreSQLBackend(pool=pool, schema_name=watched.store.schema)
        state = {"messages": ["a", "b"]}
        first = await backend.save("t", state)
        await asyncio.gather(*(backend.save(f"t{n}", {}) for n in range(6)))
        assert await backend.load("t", first) == state
        assert watched.connections() == 2
        with pytest.raises(ConfigurationError, match="another event loop"):
            backend.sync.load("t")
        await backend.close()
        assert not pool.closed
        async with pool.connection() as raw:
            assert not raw.autocommit, "a connection was not given back as it was"
            await raw.execute("SELECT 1")
        assert await backend.exists("t")


async def test_something_else_is_no_pool(watched: Watched) -> None:
    pool: Any = object()
    with pytest.raises(ConfigurationError, match="AsyncConnectionPool"):
        PostgreSQLBackend(pool=pool)


async def test_a_statement_that_takes_too_long_is_given_up(watched: Watched) -> None:
    """Somebody holds the lock of the thread, and does not let go."""
    async with watched.open(command_timeout=2.0) as backend:
        await backend.save("t", {"n": 1})
        async with await psycopg.AsyncConnection.connect(watched.store.server_url) as other:
            await other.execute(f'SELECT 1 FROM "{watched.store.schema}".locus_threads FOR UPDATE'.encode())
            with pytest.raises(BackendUnavailableError, match="command_timeout"):
                await backend.save("t", {"n": 2})
            assert await backend.load("t") == {"n": 1}
        await backend.save("t", {"n": 3})
        assert await backend.count() == 2


async def test_a_query_that_stalls_ends_on_the_server_and_holds_up_nobody(watched: Watched) -> None:
    def stalled() -> Steps[None]:
        yield "SELECT pg_sleep(3600)", ()

    async with watched.open(command_timeout=2.0) as backend, watched.open() as other:
        await backend.save("t", {"n": 1})
        engine = backend.store.engine
        assert isinstance(engine, PostgreSQLEngine)
        query = asyncio.create_task(engine.carry_out(stalled, writing=False))
        await asyncio.sleep(0)
        assert await other.load("t") == await backend.load("t") == {"n": 1}
        with pytest.raises(TimeoutError, match="command_timeout"):
            await query
        running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND state = 'active'"
        with watched.store.connection() as connection:
            async with asyncio.timeout(20):
                # Only the server knows.
                while connection.execute(running, (watched.name,)).fetchall() != [(0,)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


async def test_who_gives_up_does_not_wait_for_a_silent_server(store: PostgreSQLStore) -> None:
    """psycopg would wait for ten seconds, or for ever."""
    async with store.stalling(3_600) as stall:
        await stall.handle.save(AgentState(), "t")
        await stall.begin()
        query = asyncio.create_task(stall.query())
        await stall.reached()
        query.cancel()
        # A timer of the same loop: a busy machine delays both.
        long_after = asyncio.create_task(asyncio.sleep(8))
        await asyncio.wait({query, long_after}, return_when=asyncio.FIRST_COMPLETED)
        await stall.end()
        assert query.cancelled()
        assert not long_after.done()
        long_after.cancel()
        assert await stall.handle.exists("t")


async def test_cancelled_saves_and_loads_leave_the_pool_whole(watched: Watched) -> None:
    async with watched.open(max_pool_size=2) as backend:
        await backend.save("t", {"list": ["x" * 100] * 200})
        for number in range(30):
            verb = backend.load("t") if number % 2 else backend.save("t", {"list": ["y" * 100] * number})
            task = asyncio.ensure_future(verb)
            await asyncio.sleep(0.0007 * (number % 5))
            task.cancel()
            await asyncio.wait([task])
        loads = await asyncio.gather(*(backend.load("t") for _ in range(8)))
        assert all(loads)


async def test_a_state_saved_by_the_blocking_face_is_there_for_the_loop(watched: Watched) -> None:
    from locus.memory.backends import StorageBackendAdapter

    backend = watched.open()
    handle = StorageBackendAdapter(backend)
    state = AgentState().with_message(Message.user("hi"))
    saved = handle.sync.save(state, "t")
    assert await handle.load("t", saved) == state
    await handle.close()
