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
        for name in (name_of(store, "h"), name_of(store, "w")):
            client.hdel(name, *(field for field in stored(client, name) if field[:1] in b"LID"))
        for field, text in stored(client, name_of(store, "r")).items():
            if b" " in field:
                start, length, _, items = text.split(b" ", 3)
                client.hset(name_of(store, "r"), field, b" ".join((start, length, items)))
        for field, text in stored(client, name_of(store, "p")).items():
            client.hset(name_of(store, "p"), field, b"".join(b"%d:%b" % (len(part), part) for part in nets(text)[:3]))
        starts = {"h": 16, "w": 0}
        for kind, skip in starts.items():
            for field, text in stored(client, name_of(store, kind)).items():
                if b"\n=" in text:
                    parts = [part.partition(b"\n=")[0] for part in nets(text, skip)]
                    if kind == "h":  # behind what it is linked to stands a seal
                        parts = [*parts[:6], *parts[6].split(b" ", 1)[1:]]
                    old = text[:skip] + b"".join(b"%d:%b" % (len(part), part) for part in parts)
                    client.hset(name_of(store, kind), field, old)
        client.hset(f"{store.prefix}format", "version", "1")
        client.hdel(f"{store.prefix}format", "check")


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
        fields = stored(client, name)
        assert fields[b"ldefault"] == b"3 c3"
        for damaged in (b"2 c3", b"2 c2x", fields[b"i7:default2:c2"], fields[b"seq"], b""):
            client.hset(name, "ldefault", damaged)
            async with store.open() as cp:
                for question in (cp.load("t"), cp.get_metadata("t")):
                    with pytest.raises(CorruptCheckpointError):
                        await question


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


async def test_a_time_in_an_index_that_is_none_is_told(store: RedisStore) -> None:
    """A score that is no whole number, and a member whose time has a letter in it."""
    await story(store)
    with store.client() as client:
        (recent,) = [key for key in store.stored_keys() if key.endswith(":recent")]
        client.zadd(recent, {"t": 1.5})
        (pairs,) = [key for key in store.stored_keys() if key.endswith(":meta")]
        members: Any = client.zrange(pairs, 0, -1)
        client.zadd(pairs, {member[:20] + b"x" + member[21:]: 0 for member in members})
    async with store.open() as cp:
        for question in (cp.list_with_metadata(), cp.query_by_metadata("user", "eve")):
            with pytest.raises(CorruptCheckpointError, match="time of a commit"):
                await question


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


async def test_a_payload_of_another_checkpoint_is_told(store: RedisStore) -> None:
    await story(store)
    with store.client() as client:
        name = name_of(store, "p")
        client.hset(name, "3", stored(client, name)[b"2"])
    async with store.open() as cp:
        for question in (cp.load("t"), cp.load("t", "c3"), cp.copy_thread("t", "copy")):
            with pytest.raises(CorruptCheckpointError):
                await question
        assert await cp.load("t", "c2")


@pytest.mark.parametrize(
    ("kind", "field"),
    [("h", b"ldefault"), ("h", b"i7:default2:c3"), ("w", b"d7:default2:c3"), ("w", b"t7:default2:c3task"), ("p", b"2")],
)
@pytest.mark.parametrize("renamed", [False, True])
async def test_a_lost_field_is_told(store: RedisStore, kind: str, field: bytes, *, renamed: bool) -> None:
    """As one that is gone, and as one whose name has changed: neither is an answer that nothing is there."""
    await story(store)
    with store.client() as client:
        name = name_of(store, kind)
        text = stored(client, name)[field]
        assert client.hdel(name, field)
        if renamed:
            client.hset(name, field[:-1] + b"x", text)
    questions = {
        b"l": lambda cp: [cp.load("t"), cp.history("t", limit=1), cp.save(AgentState(), "t"), cp.recent_threads()],
        b"i": lambda cp: [cp.load("t", "c3"), cp.get_metadata("t", "c3"), cp.save(AgentState(), "t", "c3")],
        b"d": lambda cp: [cp.get_writes("t", "c3"), cp.put_writes("t", "c3", "other", [("channel", 1)])],
        b"t": lambda cp: [cp.get_writes("t", "c3"), cp.put_writes("t", "c3", "task", [("channel", 1)])],
        b"2": lambda cp: [cp.load("t", "c2")],
    }
    async with store.open() as cp:
        for question in questions[field[:1]](cp):
            with pytest.raises(CorruptCheckpointError):
                await question
        examination = await examine(cp.store)
        assert examination.damaged or "checkpoints are not found" in str(examination.findings)
        assert await cp.delete("t")
        assert not await cp.exists("t")


@pytest.mark.parametrize("change", ["lost", "moved", "renamed"])
async def test_a_gap_in_the_history_is_told(store: RedisStore, change: str) -> None:
    await story(store)
    with store.client() as client:
        name = name_of(store, "s")
        client.zrem(name, "2")
        if change != "lost":
            client.zadd(name, {"2": 0.5} if change == "moved" else {"7": 2})
    async with store.open() as cp:
        for question in (cp.history("t"), cp.history("t", limit=2), cp.list_with_metadata()):
            with pytest.raises(CorruptCheckpointError):
                await question
        if change != "moved":  # a removal reads them all, in the order of their numbers
            with pytest.raises(CorruptCheckpointError):
                await cp.delete("t", "c1")
        assert (await examine(cp.store)).damaged


async def test_pages_of_a_history_follow_each_other(store: RedisStore) -> None:
    """Each page is held against the entry that it comes before, and a damaged one of those is told."""
    await story(store)
    async with store.open() as cp:
        assert [entry.seq for entry in await cp.history("t", None, "c3")] == [2, 1]
        assert [entry.seq for entry in await cp.history("t", 1, "c3")] == [2]
        async with cp.store.using() as engine:
            assert [entry.seq for entry in await engine.history("t", "default", 2, 9)] == [3, 2]
    with store.client() as client:
        client.zadd(name_of(store, "s"), {"2": 0.5})
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.history("t", 1, "c3")


async def test_what_a_script_adds_to_an_entry_is_sealed(store: RedisStore) -> None:
    """Its time, its parent, the number of the one before it; and its own number."""
    await story(store)
    with store.client() as client:
        name = name_of(store, "h")
        entry = stored(client, name)[b"e3"]
        for old, new in ((entry[:1], b"3"), (b"4:2 c2", b"4:1 c2"), (b"4:2 c2", b"4:2 c1"), (b"4:2 c2", b"1:2")):
            assert old in entry
            client.hset(name, "e3", entry.replace(old, new, 1))
            async with store.open() as cp:
                for question in (cp.load("t"), cp.history("t", limit=1)):
                    with pytest.raises(CorruptCheckpointError):
                        await question


async def test_a_save_hides_no_damage(store: RedisStore) -> None:
    """A counter, or a latest, that names an older number would let a save overwrite or pass a checkpoint."""
    state = await story(store)
    with store.client() as client:
        name = name_of(store, "h")
        for field, changed in (("seq", "2"), ("ldefault", "2 c3"), ("ldefault", "3 c2")):
            before = client.hget(name, field)
            client.hset(name, field, changed)
            async with store.open() as cp:
                with pytest.raises(CorruptCheckpointError):
                    await cp.save(state, "t", "c4")
            client.hset(name, field, before or b"")
    async with store.open() as cp:
        assert await cp.save(state, "t", "c4")
        assert [entry.seq for entry in await cp.history("t")] == [4, 3, 2, 1]


async def test_links_stay_right_when_checkpoints_go(store: RedisStore) -> None:
    await story(store)
    async with store.open() as cp:
        for namespace in ("other", "default"):
            for number in range(4, 8):
                await cp.save(AgentState(), "t", f"c{number}", namespace=namespace)
        assert await cp.delete("t", "c5")
        assert await cp.delete("t", "c7")
        await cp.save(AgentState(), "t", "c2")  # takes the place of another one
        assert [entry.checkpoint_id for entry in await cp.history("t")] == ["c2", "c6", "c4", "c3", "c1"]
        assert [entry.checkpoint_id for entry in await cp.history("t", limit=2)] == ["c2", "c6"]
        assert await cp.copy_thread("t", "copy", "c2")
        assert await cp.history("copy")
        assert await cp.delete("t", namespace="other")
        assert await cp.load("t", namespace="other") is None
        assert await cp.history("t", namespace="other") == []
        assert not (await examine(cp.store)).damaged


@pytest.mark.parametrize(("field", "changed"), [("buckets", "36"), ("buckets", "3"), ("check", "1")])
async def test_a_changed_number_of_buckets_is_told(store: RedisStore, field: str, changed: str) -> None:
    """Every thread would seem to be gone, because it is looked for in another bucket."""
    await story(store)
    with store.client() as client:
        client.hset(f"{store.prefix}format", field, changed)
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load("t")


@pytest.mark.parametrize("kind", ["ids", "recent", "meta"])
@pytest.mark.parametrize("change", ["lost", "renamed", "moved"])
async def test_doctor_finds_what_an_index_has_lost(store: RedisStore, kind: str, change: str) -> None:
    await story(store)
    async with store.open() as cp:
        before = (await examine(cp.store)).findings
        with store.client() as client:
            (name,) = [key for key in store.stored_keys() if key.endswith(f":{kind}")]
            members: Any = client.zrange(name, 0, -1, withscores=True)
            member, score = members[0]
            client.zrem(name, member)
            if change == "renamed":
                client.zadd(name, {member + b"x": score})
            elif change == "moved":
                client.zadd(name, {member: score - 1 if score else 1})
        found = [finding for finding in (await examine(cp.store)).findings if finding not in before]
        assert [finding.severity for finding in found] == ["error"]
        assert "index" in found[0].what
