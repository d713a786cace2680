"""PostgreSQL killed, paused and cut off while it is in use: nothing that was acknowledged is lost, or torn."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import StorageBackendAdapter, postgresql_checkpointer
from locus.testing.laws.base import assert_same_state
from tests.backends.postgresql.store import PostgreSQLStore, new_store
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(240)]

Saved = dict[str, AgentState]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQLServer]:
    """One of our own, that waits for the disk."""
    with tempfile.TemporaryDirectory(prefix="locus-postgresql-") as folder:
        Path(folder).chmod(0o711)
        with PostgreSQLServer(Path(folder) / "server", durable=True) as server:
            yield server


@pytest.fixture
def proxy(server: PostgreSQLServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def store(server: PostgreSQLServer, proxy: Proxy) -> Iterator[PostgreSQLStore]:
    with new_store(server.url, proxy) as store:
        yield store


@pytest_asyncio.fixture
async def handle(store: PostgreSQLStore) -> AsyncIterator[StorageBackendAdapter]:
    """Patient enough for a restart, and behind the proxy."""
    options: dict[str, Any] = {"schema_name": store.schema, "retry_seconds": 60, "connect_timeout": 10}
    async with postgresql_checkpointer(dsn=store.dsn, **options) as handle:
        await handle.list_threads()
        yield handle


async def converse(handle: StorageBackendAdapter, thread_id: str, saved: Saved, stop: asyncio.Event) -> None:
    """Save without a pause; what was acknowledged is noted."""
    state = AgentState(agent_id=thread_id)
    while not stop.is_set():
        state = state.with_message(Message.user(f"message {len(state.messages)} of {thread_id}"))
        saved[await handle.save(state, thread_id)] = state


async def assert_kept(store: PostgreSQLStore, kept: dict[str, Saved]) -> None:
    """With a handle that knows nothing: all is there, in order, each once."""
    async with postgresql_checkpointer(dsn=store.server_url, schema_name=store.schema) as reader:
        for thread_id, saved in kept.items():
            entries = await reader.history(thread_id, None)
            assert [entry.checkpoint_id for entry in reversed(entries)] == list(saved)
            assert [entry.seq for entry in reversed(entries)] == list(range(1, len(saved) + 1))
            for checkpoint_id, state in saved.items():
                assert_same_state(await reader.load(thread_id, checkpoint_id), state)


async def test_a_server_killed_under_load_is_survived(
    server: PostgreSQLServer, store: PostgreSQLStore, handle: StorageBackendAdapter
) -> None:
    """Saves in flight are sent again once it is back. Those that had been written already are not written twice."""
    kept: dict[str, Saved] = {f"t{number}": {} for number in range(4)}
    stop = asyncio.Event()
    savers = [asyncio.create_task(converse(handle, thread_id, saved, stop)) for thread_id, saved in kept.items()]
    for _ in range(3):
        await asyncio.sleep(0.5)
        before = sum(map(len, kept.values()))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(60):
            while sum(map(len, kept.values())) < before + 8:  # noqa: ASYNC110 - the savers say nothing
                await asyncio.sleep(0.01)
    stop.set()
    await asyncio.gather(*savers)
    await assert_kept(store, kept)


async def test_a_restart_in_the_middle_of_everything(
    server: PostgreSQLServer, store: PostgreSQLStore, handle: StorageBackendAdapter
) -> None:
    """Reads are repeated; a deletion may fail, but says so, and then happened as a whole or not at all."""
    saved: Saved = {}
    state = AgentState()
    for number in range(30):
        state = state.with_message(Message.user(f"message {number}"))
        saved[await handle.save(state, "t", f"c{number}")] = state
    deleted: set[str] = set()
    unknown: set[str] = set()
    stop = asyncio.Event()

    async def read() -> int:
        count = 0
        while not stop.is_set():
            assert await handle.load("t", "c29") == state
            assert len(await handle.history("t", None)) >= len(saved) - len(deleted) - len(unknown) - 1
            count += 1
        return count

    async def delete() -> None:
        for number in range(20):
            try:
                assert await handle.delete("t", f"c{number}")
                deleted.add(f"c{number}")
            except BackendUnavailableError:
                unknown.add(f"c{number}")
            await asyncio.sleep(0.02)
        stop.set()

    readers, deleter = [asyncio.create_task(read()) for _ in range(2)], asyncio.create_task(delete())
    await asyncio.sleep(0.1)
    await asyncio.to_thread(server.restart)
    await deleter
    assert min(await asyncio.gather(*readers)) > 0
    left = {entry.checkpoint_id for entry in await handle.history("t", None)}
    assert saved.keys() - deleted - unknown <= left <= saved.keys() - deleted
    for checkpoint_id in left:
        assert_same_state(await handle.load("t", checkpoint_id), saved[checkpoint_id])


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_connections_cut_in_the_middle_of_a_save(
    store: PostgreSQLStore, proxy: Proxy, handle: StorageBackendAdapter, direction: str
) -> None:
    """After so and so many bytes: before the statement has arrived, in its middle, and before its answer has."""
    saved: Saved = {}
    state = AgentState()
    size = 4_000 if direction == "to_server" else 500
    for number in range(40):
        state = state.with_message(Message.user(f"message {number} {'x' * 500}"))
        proxy.cut_after(**{direction: size * number // 40})
        saved[await handle.save(state, "t")] = state
        proxy.accept()
    await assert_kept(store, {"t": saved})


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_connections_cut_in_the_middle_of_a_transaction(
    store: PostgreSQLStore, proxy: Proxy, direction: str
) -> None:
    """Copies and deletions take several statements. Without patience they fail; and nothing is half done."""
    options: dict[str, Any] = {"schema_name": store.schema, "retry_seconds": 0, "connect_timeout": 10}
    async with postgresql_checkpointer(dsn=store.dsn, **options) as handle:
        state, saved = AgentState(), {}
        for number in range(8):
            state = state.with_message(Message.user(f"message {number} {'x' * 300}"))
            saved[await handle.save(state, "t")] = state
        outcomes = set()
        for number in range(30):
            proxy.cut_after(**{direction: 60 * number**2})
            try:
                copied: bool | None = await handle.copy_thread("t", f"copy {number}")
            except BackendUnavailableError:
                copied = None
            proxy.accept()
            found = {entry.checkpoint_id for entry in await handle.history(f"copy {number}", None)}
            assert found == set(saved) if copied else found in (set(), set(saved))
            for checkpoint_id in found:
                assert_same_state(await handle.load(f"copy {number}", checkpoint_id), saved[checkpoint_id])
            outcomes.add((copied, bool(found)))
        assert (None, False) in outcomes
        assert (True, True) in outcomes


async def test_a_server_that_does_not_answer_is_given_up(server: PostgreSQLServer, store: PostgreSQLStore) -> None:
    options: dict[str, Any] = {
        "schema_name": store.schema,
        "retry_seconds": 0,
        "connect_timeout": 1,
        "command_timeout": 1,
    }
    async with postgresql_checkpointer(dsn=store.server_url, **options) as handle:
        state = AgentState().with_message(Message.user("hi"))
        saved = await handle.save(state, "t")
        server.pause()
        try:
            async with asyncio.timeout(15):
                for _ in range(2):  # on a connection that is open, and on one that cannot be opened
                    with pytest.raises(BackendUnavailableError):
                        await handle.load("t")
        finally:
            server.resume()
        assert await handle.load("t", saved) == state


async def test_a_line_that_stalls_is_given_up(store: PostgreSQLStore, proxy: Proxy) -> None:
    options: dict[str, Any] = {
        "schema_name": store.schema,
        "retry_seconds": 0,
        "connect_timeout": 1,
        "command_timeout": 1,
    }
    async with postgresql_checkpointer(dsn=store.dsn, **options) as handle:
        await handle.save(AgentState(), "t")
        proxy.stall()
        async with asyncio.timeout(15):
            with pytest.raises(BackendUnavailableError):
                await handle.save(AgentState(), "t")
        proxy.accept()
        assert await handle.exists("t")


def test_the_proxy_is_in_between(store: PostgreSQLStore, proxy: Proxy) -> None:
    assert urlsplit(store.dsn).port == proxy.port != urlsplit(store.server_url).port
