"""Full-text search with the module: queries are only text, and the index has nothing that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from locus.core.state import AgentState
from locus.memory.storage import StorageBackend
from locus.testing.data import HOSTILE_QUERIES, conversation, message
from tests.backends.redis.stores import RedisStore
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer


@pytest.fixture
def searching(redis_stack_server: RedisServer) -> Iterator[RedisStore]:
    with Proxy(redis_stack_server.port) as proxy:
        store = RedisStore(redis_stack_server, proxy, search=True)
        yield store
        store.remove()


async def test_documents_go_with_what_they_speak_of(searching: RedisStore) -> None:
    async with searching.open() as handle:
        state = AgentState()
        for turn in range(5):
            state = state.with_messages(conversation(2, turn * 10))
            await handle.save(state, "t", f"c{turn}", {"word": f"w{turn}"})
        await handle.save(state, "u")
        assert await handle.search("w3")
        docs = {key for key in searching.stored_keys() if ":doc:" in key}
        assert len(docs) >= 10
        for turn in (4, 0, 2):
            assert await handle.delete("t", f"c{turn}")
            assert await handle.search(f"w{turn}") == []
        assert await handle.delete("t")
        assert await handle.delete("u")
    assert searching.stored_keys() == set()


async def test_documents_end_with_their_thread_and_live_as_long(searching: RedisStore) -> None:
    async with searching.open(ttl_seconds=3.0) as handle:
        backend = StorageBackend(handle.store)
        await backend.save("t", {"m": ["heron"]})
        await backend.save("short", {"m": ["ibis"]})
        assert len(await handle.search("heron")) == 1
        await asyncio.sleep(1.5)
        await backend.save("t", {"m": ["heron", "stork"]})
        await asyncio.sleep(1.7)
        found = {hit["thread_id"] for hit in await handle.search("heron")}
        assert found == {"t"}, "the thread got more time, and its documents did not"
        assert len(await handle.search("stork")) == 1
        assert await handle.search("ibis") == []
        await asyncio.sleep(3.2)
        assert await handle.search("heron") == []
        assert await handle.list_threads() == []
    assert searching.stored_keys() == set()


async def test_a_time_to_live_that_is_taken_back_is_taken_from_documents_too(searching: RedisStore) -> None:
    async with searching.open(ttl_seconds=2.0) as handle, searching.open() as keeper:
        await handle.save(AgentState().with_message(message(1)).with_error("plover"), "t")
        assert len(await handle.search("plover")) == 1
        await keeper.save(AgentState().with_error("dunlin"), "t")
        assert len(await handle.search("dunlin")) == 1
        await asyncio.sleep(2.2)
        assert len(await keeper.search("dunlin")) == 1
        assert len(await keeper.search("plover")) == 1


async def test_queries_cannot_break_out(searching: RedisStore) -> None:
    async with searching.open() as handle:
        await handle.save(AgentState().with_error("secret"), "t")
        for query in (
            *HOSTILE_QUERIES,
            "*",
            "@words:{secret}",
            ") | (secre*",
            "-nothing",
            "sec%ret%",
            "@__key:*",
            "'=>[KNN 1 @v $b]'",
            "secret | nothing",
        ):
            found = [hit["thread_id"] for hit in await handle.search(query)]
            assert found in ([], ["t"]), query
            assert not found or "secret" in query
        assert await handle.search("*") == []
        assert await handle.search("nothing | secret") == []


async def test_an_index_that_was_dropped_is_made_anew(searching: RedisStore) -> None:
    async with searching.open() as handle:
        await handle.save(AgentState().with_error("avocet"), "t")
        assert len(await handle.search("avocet")) == 1
        with searching.client() as client:
            client.execute_command("FT.DROPINDEX", f"{searching.prefix}search")  # type: ignore[no-untyped-call]
        for _ in range(100):
            if await handle.search("avocet"):
                break
            await asyncio.sleep(0.02)
        assert len(await handle.search("avocet")) == 1
