"""Differences, copies and searches over the wire: by the server if it knows how, and else by the client."""

from __future__ import annotations

import httpx
import pytest

from locus.errors import CapabilityError, CheckpointNotFoundError
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.memory.backends.http.engine import HTTPEngine
from locus.memory.backends.http.locus_server import LocusServer
from locus.memory.storage import StorageBackend
from locus.server import Token, create_app
from locus.testing.laws.loading.diffs import check_pair
from tests.server.running import threaded

ITEMS = [{"n": number} for number in range(30)]


async def _filled(store: MemoryCheckpointer, thread_id: str = "t") -> StorageBackend:
    backend = StorageBackend(store.store)
    await backend.save(thread_id, {"messages": ITEMS[:20], "word": "kangaroo", "large": "x" * 2_000}, "a")
    await backend.save(thread_id, {"messages": ITEMS, "word": "kangaroo", "large": "y" * 2_000}, "b")
    return backend


def _older(handle: HTTPCheckpointer, *lacking: str) -> None:
    """Let the server be one of an older version."""
    engine = handle.store.engine
    assert isinstance(engine, HTTPEngine)
    assert isinstance(engine.server, LocusServer)
    assert engine.server.features >= {*lacking}
    engine.server.features -= {*lacking}


async def test_an_older_server_is_asked_for_parts_or_for_all() -> None:
    behind = MemoryCheckpointer()
    await _filled(behind)
    with threaded(create_app(behind)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            found = await check_pair(handle, "t", "a", "b")
            _older(handle, "diffs")
            assert await check_pair(handle, "t", "a", "b") == found
            _older(handle, "parts", "window", "ends")
            assert await check_pair(handle, "t", "a", "b") == found
            assert len((await handle.payload_diff("t", "b", "a")).lists) == 1


async def test_an_older_server_copies_lines_that_are_not_cut() -> None:
    behind = MemoryCheckpointer()
    await _filled(behind)
    with threaded(create_app(behind)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            assert await handle.copy_thread("t", "new", "b", ancestors=0)
            assert await handle.list_checkpoints("new") == ["b"]
            _older(handle, "ancestors")
            assert await handle.copy_thread("t", "old", "b")
            assert await handle.list_checkpoints("old") == ["b", "a"]
            with pytest.raises(CapabilityError, match="ancestors"):
                await handle.copy_thread("t", "older", "b", ancestors=0)
            assert not await handle.exists("older")


async def test_an_older_server_knows_no_deadline() -> None:
    behind = MemoryCheckpointer()
    await _filled(behind)
    with threaded(create_app(behind)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            new = await handle.search("kangaroo", timeout_seconds=20)
            _older(handle, "deadlines")
            old = await handle.search("kangaroo", timeout_seconds=20)
            assert (len(new), new.complete, old) == (2, True, new)
            cut = await handle.search("kangaroo", timeout_seconds=1e-9)
            assert (cut, cut.complete) == ([], False)


async def test_the_server_says_when_a_search_has_stopped() -> None:
    behind = MemoryCheckpointer()
    await _filled(behind)
    with threaded(create_app(behind)) as port:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def search(seconds: float) -> httpx.Response:
                return await client.post("/search", json={"query": "kangaroo", "timeout_seconds": seconds})

            assert (await search(1e-9)).json() == {"hits": [], "complete": False}
            whole = (await search(20)).json()
            assert (len(whole["hits"]), whole["complete"]) == (2, True)
            assert (await search(0)).status_code == 422


async def test_a_tenant_compares_its_own_threads_only() -> None:
    behind = MemoryCheckpointer()
    for thread_id in ("acme/t", "acme/u", "other/t"):
        await _filled(behind, thread_id)
    token = "0123456789abcdef-acme"
    with threaded(create_app(behind, [Token(token, prefix="acme/")])) as port:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
            asked = {"a": "a", "b": "b"}
            found = await client.get("/threads/acme%2Ft/diff", params=asked | {"other_thread": "acme/u", "limit": "1"})
            assert (found.status_code, found.json()["total"], found.json()["next"]) == (200, 11, 1)
            for thread, other in (("acme%2Ft", "other/t"), ("other%2Ft", "acme/t"), ("other%2Ft", "other/t")):
                refused = await client.get(f"/threads/{thread}/diff", params=asked | {"other_thread": other})
                assert refused.status_code == 403
            gone = await client.get("/threads/acme%2Ft/diff", params={"a": "a", "b": "c"})
            assert (gone.status_code, gone.json()["code"]) == (404, "no_such_checkpoint")
            for wrong in ({"a": "a"}, asked | {"limit": "-1"}, asked | {"limit": "1000000"}, asked | {"start": "x"}):
                found = await client.get("/threads/acme%2Ft/diff", params=wrong)
                assert found.status_code in (400, 422)
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}", token=token) as handle:
            with pytest.raises(CheckpointNotFoundError):
                await handle.payload_diff("acme/t", "a", "c")
