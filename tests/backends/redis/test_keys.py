"""What lies in Redis: all of it goes when its time has come, and nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import HOSTILE_IDS, HOSTILE_KEYS, conversation, message
from tests.backends.redis.stores import RedisStore


async def _busy_thread(handle: Checkpointer, thread_id: str) -> None:
    """Appends, forks, replaces, edits and pending writes, with metadata."""
    state = AgentState().with_messages(conversation(4)).with_metadata("large", "x" * 3_000)
    for turn in range(4):
        state = state.with_message(message(turn))
        await handle.save(state, thread_id, f"c{turn}", {"turn": turn, "user": "eve"})
        await handle.put_writes(thread_id, f"c{turn}", "task", [("x", 1), ("__error__", 2)])
    older = await handle.load(thread_id, "c1")
    assert older is not None
    await handle.save(older.with_message(message(9)), thread_id, "fork", {"user": "bob"})
    await handle.save(state.with_messages_replaced(state.messages[2:]), thread_id, "c2", {"user": "eve"})
    await handle.save(AgentState(), thread_id, namespace="other")
    await handle.put_writes(thread_id, "not yet", "task", [("y", 1)])


async def test_deleting_checkpoint_by_checkpoint_leaves_no_key(store: RedisStore) -> None:
    async with store.open() as handle:
        await _busy_thread(handle, "t")
        assert await handle.delete("t", namespace="other")
        for checkpoint_id in await handle.list_checkpoints("t"):
            assert await handle.delete("t", checkpoint_id)
    assert store.stored_keys() == set()


async def test_deleting_vacuuming_and_copying_leave_no_key(store: RedisStore) -> None:
    async with store.open() as handle:
        for name in HOSTILE_IDS:
            await handle.save(AgentState().with_messages(conversation(2)), name, metadata={name[:50]: name})
        await _busy_thread(handle, "t")
        assert await handle.copy_thread("t", "copy")
        assert await handle.copy_thread("t", "up to fork", "fork")
        assert await handle.delete("t")
        assert await handle.vacuum(older_than_days=0) > len(HOSTILE_IDS)
    assert store.stored_keys() == set()


async def test_every_key_of_a_thread_has_its_time_to_live(store: RedisStore) -> None:
    async with store.open(ttl_seconds=100) as handle:
        await handle.put_writes("waiting", "c", "task", [("x", 1)])
        await _busy_thread(handle, "t")
    shared = ("ids", "recent", "meta", "ends")
    with store.client() as client:
        own = [key for key in store.stored_keys() if not key.endswith(shared)]
        assert len(own) == 6, own
        assert all(0 < client.pttl(key) <= 100_000 for key in own)
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
    with store.client() as client:
        assert {client.pttl(key) for key in own if key.endswith(":t")} == {-1}


async def test_what_ended_by_itself_is_taken_out_of_the_index(store: RedisStore) -> None:
    async with store.open(ttl_seconds=0.2) as handle:
        for number in range(40):
            await handle.save(AgentState(), f"t{number}", metadata={"k": number})
        await asyncio.sleep(0.4)
        assert await handle.list_threads() == []
        assert await handle.query_by_metadata("k", 3) == []
        assert await handle.list_with_metadata() == []
        assert await handle.vacuum() == 0
    assert store.stored_keys() == set()


async def test_saving_alone_keeps_the_index_small(store: RedisStore) -> None:
    """Nobody lists and nobody vacuums: what has ended may not pile up."""
    async with store.open(ttl_seconds=0.005) as handle:
        for number in range(300):
            await handle.save(AgentState(), f"t{number}", metadata={"k": number})
    with store.client() as client:
        ids = sum(client.zcard(key) for key in store.stored_keys() if key.endswith("ids"))
        pairs = sum(client.zcard(key) for key in store.stored_keys() if key.endswith("meta"))
    assert ids < 200
    assert pairs < 200


async def test_a_save_is_one_request_and_lists_neither_scan_nor_walk_the_keys(store: RedisStore) -> None:
    def counted(client: object, command: str) -> int:
        found = store_client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
        return int(found["calls"])

    async with store.open() as handle:
        state = AgentState().with_message(message(0))
        await handle.save(state, "t", metadata={"k": 1})
        with store.client() as store_client:
            before = {name: counted(store_client, name) for name in ("evalsha", "eval", "scan", "keys")}
            for turn in range(5):
                state = state.with_message(message(turn))
                await handle.save(state, "t", metadata={"k": turn})
            assert counted(store_client, "evalsha") - before["evalsha"] == 5
            await handle.list_threads()
            await handle.list_with_metadata()
            await handle.query_by_metadata("k", 1)
            await handle.vacuum()
            assert {name: counted(store_client, name) for name in ("eval", "scan", "keys")} == {
                name: before[name] for name in ("eval", "scan", "keys")
            }


async def test_a_sweep_takes_old_metadata_of_a_thread_that_began_anew(store: RedisStore) -> None:
    """The new thread counts from 1 again, so its first checkpoint has the number of the old one."""
    async with store.open() as handle:
        await handle.save(AgentState(), "t", metadata={"k": "old"})
        own = [key for key in store.stored_keys() if key.endswith(":t")]
        (ends,) = [key for key in store.stored_keys() if key.endswith(":ends")]
        with store.client() as client:
            client.unlink(*own)  # as if its time had come
            client.hset(ends, "t", "1")
        await handle.save(AgentState(), "t", metadata={"k": "new"})
        await handle.vacuum()
        (meta,) = [key for key in store.stored_keys() if key.endswith(":meta")]
        with store.client() as client:
            assert client.zcard(meta) == 1
        assert len(await handle.query_by_metadata("k", "new")) == 1
        assert await handle.query_by_metadata("k", "old") == []


async def test_long_lists_are_read_page_by_page(store: RedisStore) -> None:
    names = sorted(f"t{number:05}" for number in range(700))
    async with store.open() as handle:
        await asyncio.gather(*(handle.save(AgentState(), name, name, {"n": "same"}) for name in names))
        for limit in (1, 17, 100, 699, 700, 900):
            assert await handle.list_threads(limit) == names[:limit]
            assert await handle.list_threads(limit, "t006*") == names[600:][:limit]
        assert await handle.list_threads(None) == names
        assert len(await handle.list_threads(None, "*7")) == 70
        for limit in (1, 50, 699, 900):
            found = await handle.query_by_metadata("n", "same", limit)
            assert len(found) == min(limit, 700)
            assert [hit["checkpoint_id"] for hit in await handle.list_with_metadata(limit)] == [
                hit["checkpoint_id"] for hit in found
            ]


async def test_a_thread_that_lost_keys_is_damaged_and_not_new(store: RedisStore) -> None:
    async with store.open() as handle:
        await handle.save(AgentState().with_messages(conversation(3)), "t", "c", {"k": 1})
        with store.client() as client:
            client.delete(*(key for key in store.stored_keys() if key.endswith(":h:t")))
        for call in (
            handle.load("t"),
            handle.exists("t"),
            handle.history("t"),
            handle.get_metadata("t"),
            handle.save(AgentState(), "t"),
            handle.copy_thread("t", "u"),
        ):
            with pytest.raises(CorruptCheckpointError, match="noeviction"):
                await call
        assert await handle.delete("t")
        await handle.save(AgentState(), "t", if_latest=None)
    async with store.open() as handle:
        await handle.save(AgentState().with_messages(conversation(3)), "u", "c")
        with store.client() as client:
            client.delete(*(key for key in store.stored_keys() if key.endswith(":p:u")))
        with pytest.raises(CorruptCheckpointError):
            await handle.load("u")


async def test_a_key_of_another_kind_is_corrupt(store: RedisStore) -> None:
    async with store.open() as handle:
        await handle.save(AgentState().with_message(Message.user("hi")), "t")
        with store.client() as client:
            (name,) = [key for key in store.stored_keys() if key.endswith(":r:t")]
            client.delete(name)
            client.set(name, "something else")
        handle.cache_clear()
        with pytest.raises(CorruptCheckpointError):
            await handle.load("t")


async def test_a_newer_format_is_refused_and_left_alone(store: RedisStore) -> None:
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
    with store.client() as client:
        client.hset(f"{store.prefix}format", "version", 99)
    async with store.open() as handle:
        for call in (handle.load("t"), handle.save(AgentState(), "t")):
            with pytest.raises(UnsupportedFormatError):
                await call
    with store.client() as client:
        client.hset(f"{store.prefix}format", "version", "none")
    async with store.open() as handle:
        with pytest.raises(CorruptCheckpointError):
            await handle.load("t")


async def test_the_number_of_buckets_is_that_of_the_first(store: RedisStore) -> None:
    from locus.memory.backends import redis_checkpointer

    async with redis_checkpointer(f"{store.url}&buckets=3") as first, redis_checkpointer(store.url) as second:
        for number in range(20):
            await first.save(AgentState(), f"t{number:02}")
        assert len(await second.list_threads()) == 20
        await second.save(AgentState(), "u")
        assert await first.exists("u")


async def test_hostile_metadata_is_only_data(store: RedisStore) -> None:
    async with store.open() as handle:
        for index, key in enumerate(HOSTILE_KEYS):
            await handle.save(AgentState(), f"t{index}", metadata={key: key})
        for index, key in enumerate(HOSTILE_KEYS):
            assert [hit["thread_id"] for hit in await handle.query_by_metadata(key, key)] == [f"t{index}"]
        await handle.vacuum(older_than_days=0)
    assert store.stored_keys() == set()
