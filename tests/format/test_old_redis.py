"""What format 2 stored in Redis is read, carried on, removed and copied by this version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.doctor import examine
from locus.errors import CorruptCheckpointError
from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.redis.schema import FORMAT
from locus.memory.checkpointer import Checkpointer
from tests.backends.redis.stores import RedisStore
from tests.format.story import DATA, HOSTILE, PLAIN, Told, repeatable, tell
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(redis_server: RedisServer, proxy: Proxy) -> Iterator[RedisStore]:
    """A prefix with what an older version wrote there."""
    store = RedisStore(redis_server, proxy)
    written: dict[str, Any] = json.loads((DATA / "redis-2.json").read_text(encoding="utf-8"))
    with store.client() as client:
        for name, held in written.items():
            key = name.replace("old:", store.prefix, 1).encode("latin-1")
            if isinstance(held, dict):
                client.hset(key, mapping={_bytes(field): _bytes(text) for field, text in held.items()})
            else:
                client.zadd(key, {_bytes(member): score for member, score in held})
    yield store
    store.remove()


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


async def told() -> Told:
    with repeatable():
        return await tell(MemoryCheckpointer())


async def assert_all_there(cp: Checkpointer, without: str = "") -> None:
    for (thread_id, namespace, checkpoint_id), state in (await told()).items():
        if checkpoint_id != without:
            assert await cp.load(thread_id, checkpoint_id, namespace=namespace) == state


async def test_everything_is_there(store: RedisStore) -> None:
    async with store.open() as cp:
        await assert_all_there(cp)
        assert await cp.list_threads() == sorted([PLAIN, HOSTILE])
        found = [(entry.checkpoint_id, entry.parent_id, entry.seq) for entry in await cp.history(PLAIN)]
        assert found == [("fork", "one", 4), ("three", "two", 3), ("two", "one", 2), ("one", None, 1)]
        assert await cp.get_metadata(PLAIN, "one") == {"user": "eve", "n": 1, "nested": {"a": [True, None, 1.5]}}
        writes = [(write.idx, write.channel, write.task_path) for write in await cp.get_writes(PLAIN, "two")]
        assert writes == [(-1, "__error__", "a/b"), (0, "channel", "a/b")]
        assert [hit["checkpoint_id"] for hit in await cp.query_by_metadata("old", False)] == ["replaced"]
        examination = await examine(cp.store)
        assert not examination.damaged
        assert not [finding for finding in examination.findings if "index" in finding.what]


async def test_it_is_carried_on_removed_and_copied(store: RedisStore) -> None:
    async with store.open() as cp:
        state = await cp.load(PLAIN, "three")
        assert state is not None
        new = await cp.save(state.with_message(Message.user("more")), PLAIN)
        await cp.put_writes(PLAIN, "two", "another", [("channel", 2)])
        await cp.put_writes(PLAIN, new, "task", [("channel", 3)])
        assert await cp.copy_thread(PLAIN, "copy")
        assert await cp.delete(PLAIN, "two")  # the parent of "three", which stays in its old form
    async with store.open() as cp:
        await assert_all_there(cp, without="two")
        assert [(entry.checkpoint_id, entry.parent_id) for entry in await cp.history(PLAIN, limit=3)] == [
            (new, "three"),
            ("fork", "one"),
            ("three", "one"),
        ]
        assert [write.value for write in await cp.get_writes("copy", "two")] == [2, "no", {"x": [1]}]
        assert not (await examine(cp.store)).damaged
    with store.client() as client:
        assert client.hget(f"{store.prefix}format", "version") == str(FORMAT).encode()


async def test_what_is_written_now_is_proved(store: RedisStore) -> None:
    """Old checkpoints in the same thread make no difference."""
    async with store.open() as cp:
        state = await cp.load(PLAIN) or AgentState()
        for name in ("four", "five"):
            state = state.next_iteration()
            await cp.save(state, PLAIN, name)
    payloads, entries = (_key(store, kind) for kind in "ph")
    with store.client() as client:
        newest, old = client.hget(payloads, "7"), client.hget(payloads, "3")
        assert newest
        assert old
        client.hset(payloads, "7", old)
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load(PLAIN)
    with store.client() as client:
        client.hset(payloads, "7", newest)
        client.hdel(entries, "ldefault")
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load(PLAIN)


def _key(store: RedisStore, kind: str) -> str:
    (name,) = [key for key in store.stored_keys() if key.endswith(f":{kind}:{PLAIN}")]
    return name
