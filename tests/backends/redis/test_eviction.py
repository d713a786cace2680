"""A Redis that throws keys away: a thread that is gone before its time is an error, and not a new one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from locus.core.state import AgentState
from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.backends import redis_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation
from locus.testing.laws.base import assert_same_state
from tests.backends.redis.stores import RedisStore
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.redis("redis")

STATE = AgentState().with_messages(conversation(3))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of its own, with room for little more than what it needs itself."""
    with RedisServer(tmp_path / "server") as server:
        with Redis(port=server.port) as client:
            used = int(client.info("memory")["used_memory"])
            client.config_set("maxmemory", used + 1_000_000)
            client.config_set("maxmemory-policy", "volatile-random")
        yield server


async def test_no_thread_is_taken_for_a_new_one_when_redis_evicts(
    full: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with redis_checkpointer(full.url, ttl_seconds=3_600, timeout=10) as handle:
            names = await _fill(handle, full)
            handle.cache_clear()
            found, lost = 0, 0
            for name in names:
                try:
                    assert_same_state(await handle.load(name), STATE)
                    found += 1
                except CorruptCheckpointError:
                    lost += 1
                    with pytest.raises((CorruptCheckpointError, ConflictError)):
                        await handle.save(STATE, name, if_latest=None)
            assert lost
            assert found + lost == len(names)
            assert await handle.list_threads(None) == sorted(names)
            assert await handle.load("never saved") is None
    assert "volatile-random" in caplog.text


async def _fill(handle: Checkpointer, server: RedisServer) -> list[str]:
    """Save threads until several have lost keys."""
    names: list[str] = []
    with Redis(port=server.port) as client:
        while client.info("stats")["evicted_keys"] < 60:
            names.append(f"t{len(names)}")
            await handle.save(STATE, names[-1])
            assert len(names) < 5_000
    return names


def _evict(store: RedisStore, thread_id: str, kinds: str) -> None:
    with store.client() as client:
        keys = [key for key in store.stored_keys() for kind in kinds if key.endswith(f":{kind}:{thread_id}")]
        assert keys
        client.delete(*keys)


@pytest.mark.parametrize("kinds", ["hsprw", "hspr", "h", "s", "sp", "hr"])
@pytest.mark.parametrize("ttl_seconds", [None, 3_600.0])
async def test_a_thread_that_was_evicted_is_missed(store: RedisStore, kinds: str, ttl_seconds: float | None) -> None:
    async with store.open(ttl_seconds=ttl_seconds) as handle:
        for name in ("t", "other"):
            await handle.save(STATE, name, "c", {"k": 1})
            await handle.put_writes(name, "c", "task", [("a", 1)])
        _evict(store, "t", kinds)
        calls = [
            handle.history("t"),
            handle.list_checkpoints("t"),
            handle.copy_thread("t", "u"),
            handle.delete("t", "c"),
        ]
        if "h" in kinds:
            calls += [handle.load("t"), handle.load("t", "c"), handle.exists("t"), handle.get_metadata("t")]
            calls += [handle.save(STATE, "t"), handle.put_writes("t", "c", "task", [("a", 2)])]
        for call in calls:
            with pytest.raises(CorruptCheckpointError, match="noeviction"):
                await call
        for _ in range(2):
            assert await handle.list_threads(None) == ["other", "t"]
        assert_same_state(await handle.load("other"), STATE)
        await handle.delete("t")
        assert await handle.load("t") is None
        assert await handle.list_threads(None) == ["other"]
        await handle.save(STATE, "t", if_latest=None)


async def test_pending_writes_that_were_evicted_are_missed(store: RedisStore) -> None:
    async with store.open() as handle:
        await handle.put_writes("t", "c1", "task", [("a", 1)])
        for number in range(3):
            await handle.save(STATE, "t", f"c{number}")
        await handle.put_writes("u", "c", "task", [("a", 1)])
        await handle.save(STATE, "u", "c")
        await handle.copy_thread("u", "copy")
        for name in ("t", "u", "copy"):
            _evict(store, name, "w")
            with pytest.raises(CorruptCheckpointError, match="noeviction"):
                await handle.get_writes(name, "c")
        await handle.put_writes("u", "c", "task", [("a", 2)])
        assert len(await handle.get_writes("u", "c")) == 1


async def test_pending_writes_that_were_removed_are_not(store: RedisStore) -> None:
    async with store.open() as handle:
        for number in range(3):
            await handle.save(STATE, "t", f"c{number}")
        await handle.put_writes("t", "c1", "task", [("a", 1)])
        assert await handle.delete("t", "c1")
        assert await handle.get_writes("t", "c2") == []
        with store.client() as client:
            assert not any(key.endswith(":w:t") for key in store.stored_keys())
            (name,) = [key for key in store.stored_keys() if key.endswith(":h:t")]
            # As a version leaves it that takes no note of pending writes.
            client.hset(name, "w", "0")
        assert await handle.get_writes("t", "c2") == []


async def test_an_index_that_was_evicted_does_not_hide_that_a_thread_was(store: RedisStore) -> None:
    async with store.open() as handle:
        await handle.save(STATE, "t")
        with store.client() as client:
            client.delete(*(key for key in store.stored_keys() if not key.endswith(":ends")))
        with pytest.raises(CorruptCheckpointError, match="noeviction"):
            await handle.load("t")


async def test_a_thread_without_a_note_of_its_end_is_new(store: RedisStore) -> None:
    """As an older version leaves it: whether it was evicted or has expired, nobody knows."""
    async with store.open() as handle:
        await handle.save(STATE, "t")
        with store.client() as client:
            client.delete(*(key for key in store.stored_keys() if not key.endswith((":ids", ":recent"))))
        assert await handle.load("t") is None
        assert await handle.list_threads(None) == []
    async with store.open() as handle:
        await handle.save(STATE, "u")
        with store.client() as client:
            client.delete(*(key for key in store.stored_keys() if key.endswith(":ends")))
        await handle.save(STATE, "u")
        _evict(store, "u", "hspr")
        with pytest.raises(CorruptCheckpointError, match="noeviction"):
            await handle.load("u")


async def test_a_server_that_keeps_what_it_has_is_not_warned_of(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with store.open() as handle:
            assert await handle.load("t") is None
    assert "maxmemory" not in caplog.text
