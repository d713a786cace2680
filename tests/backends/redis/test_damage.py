"""What is stored in Redis comes back as it was said, or not at all; and what format 1 stored can be read."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.doctor import examine
from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.redis.schema import FORMAT, nets
from tests.backends.redis.stores import RedisStore


def name_of(store: RedisStore, kind: str) -> str:
    """The key of thread "t" of this kind."""
    (name,) = [key for key in store.stored_keys() if key.endswith(f":{kind}:t")]
    return name


def stored(client: Redis, name: str) -> dict[bytes, bytes]:
    """Everything in a hash."""
    found: Any = client.hgetall(name)
    return dict(found)


async def story(store: RedisStore) -> AgentState:
    """A thread in which run 1 takes the place of the last item of run 0."""
    async with store.open() as cp:
        one = AgentState(agent_id="agent").with_messages([Message.user("said"), Message.user("wrong")])
        await cp.save(one, "t", "c1", {"user": "eve"})
        two = one.with_messages_replaced((*one.messages[:-1], Message.user("right")))
        await cp.save(two, "t", "c2", {"user": "eve"})
        three = two.with_message(Message.user("last"))
        await cp.save(three, "t", "c3", {"user": "eve"})
        await cp.put_writes("t", "c3", "task", [("channel", "written")])
        return three


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [("r", b"said", b"sold"), ("p", b"agent", b"agant"), ("h", b"eve", b"bob"), ("r", b"right", b"wrong")],
)
async def test_every_change_is_found(store: RedisStore, kind: str, old: bytes, new: bytes) -> None:
    await story(store)
    with store.client() as client:
        name, found = name_of(store, kind), 0
        for field, text in stored(client, name).items():
            if old in text:
                client.hset(name, field, text.replace(old, new))
                found += 1
        assert found
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError, match="checksum"):
            await cp.load("t")


async def test_a_changed_pending_write_is_found(store: RedisStore) -> None:
    await story(store)
    with store.client() as client:
        name = name_of(store, "w")
        for field, text in stored(client, name).items():
            client.hset(name, field, text.replace(b"written", b"rewrote"))
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError, match="checksum"):
            await cp.get_writes("t", "c3")


@pytest.mark.parametrize("checkpoint_id", ["c2", "c3"])
async def test_a_lost_edit_does_not_bring_back_what_it_replaced(store: RedisStore, checkpoint_id: str) -> None:
    await story(store)
    with store.client() as client:
        name = name_of(store, "r")
        (field,) = [field for field in stored(client, name) if field.endswith(b" 1")]
        client.hdel(name, field)
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load("t", checkpoint_id)


def to_format_1(store: RedisStore) -> None:
    """What is stored, as an older version has stored it."""
    with store.client() as client:
        for field, text in stored(client, name_of(store, "r")).items():
            if b" " in field:
                start, length, _, items = text.split(b" ", 3)
                client.hset(name_of(store, "r"), field, b" ".join((start, length, items)))
        for field, text in stored(client, name_of(store, "p")).items():
            client.hset(name_of(store, "p"), field, b"".join(b"%d:%b" % (len(part), part) for part in nets(text)[:3]))
        starts = {"h": 16, "w": 0}
        for kind, skip in starts.items():
            for field, text in stored(client, name_of(store, kind)).items():
                if b"\n#" in text:
                    parts = [part.partition(b"\n#")[0] for part in nets(text, skip)]
                    old = text[:skip] + b"".join(b"%d:%b" % (len(part), part) for part in parts)
                    client.hset(name_of(store, kind), field, old)
        client.hset(f"{store.prefix}format", "version", "1")


async def test_format_1_is_read_and_carried_on(store: RedisStore) -> None:
    state = await story(store)
    to_format_1(store)
    async with store.open() as cp:
        assert await cp.load("t") == state
        assert [write.value for write in await cp.get_writes("t", "c3")] == ["written"]
        longer = state.with_message(Message.user("more"))
        await cp.save(longer, "t")
        await cp.delete("t", "c2")
        assert await cp.copy_thread("t", "copy")
    async with store.open() as cp:
        assert await cp.load("t") == await cp.load("copy") == longer
    with store.client() as client:
        assert client.hget(f"{store.prefix}format", "version") == str(FORMAT).encode()


async def test_a_newer_format_is_used_if_it_allows_that(store: RedisStore) -> None:
    state = await story(store)
    with store.client() as client:
        client.hset(f"{store.prefix}format", mapping={"version": FORMAT + 1, "min_writer": FORMAT})
    async with store.open() as cp:
        assert await cp.load("t") == state
    with store.client() as client:
        client.hset(f"{store.prefix}format", "min_writer", FORMAT + 1)
    async with store.open() as cp:
        with pytest.raises(UnsupportedFormatError, match="upgrade"):
            await cp.load("t")


async def test_an_entry_in_the_place_of_another_is_told(store: RedisStore) -> None:
    await story(store)
    with store.client() as client:
        name = name_of(store, "h")
        client.hset(name, "e2", stored(client, name)[b"e1"])
    async with store.open() as cp:
        for question in (cp.history("t"), cp.load("t", "c2"), cp.get_metadata("t", "c2")):
            with pytest.raises(CorruptCheckpointError):
                await question


async def test_a_latest_that_is_an_older_one_is_told(store: RedisStore) -> None:
    await story(store)
    with store.client() as client:
        name = name_of(store, "h")
        assert stored(client, name)[b"ldefault"] == b"3 c3"
        client.hset(name, "ldefault", "2 c3")
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load("t")


async def test_pending_writes_that_are_lost_are_told(store: RedisStore) -> None:
    await story(store)
    with store.client() as client:
        name = name_of(store, "w")
        (field,) = [field for field in stored(client, name) if field.startswith(b"t")]
        client.hdel(name, field)
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.get_writes("t", "c3")
        assert (await examine(cp.store)).damaged


@pytest.mark.parametrize(("kind", "changed"), [("recent", b"\xff"), ("ids", b"\xff")])
async def test_an_index_with_a_name_that_is_no_text_is_told(store: RedisStore, kind: str, changed: bytes) -> None:
    await story(store)
    with store.client() as client:
        (name,) = [key for key in store.stored_keys() if key.endswith(f":{kind}")]
        client.zadd(name, {changed: client.zscore(name, "t") or 0})
        if kind == "ids":
            client.set(name.replace(":ids", ":h:").encode() + changed, "x")  # so that it is not cleaned away
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await (cp.list_threads() if kind == "ids" else cp.list_with_metadata())


async def test_a_number_that_is_none_is_told(store: RedisStore) -> None:
    await story(store)
    with store.client() as client:
        entry = stored(client, name_of(store, "h"))[b"e3"]
        client.zrem(name_of(store, "s"), "3")
        client.zadd(name_of(store, "s"), {"q": 3})
        client.hset(name_of(store, "h"), "eq", entry)
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.history("t")
