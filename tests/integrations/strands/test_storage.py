"""What Strands expects of a storage, and what its snapshots cost, on the stores that need no server."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strands.storage import Storage
from strands.types.exceptions import StorageError

from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError, InvalidIdError
from locus.integrations.strands import LocusStorage, snapshot_key
from locus.integrations.strands.texts import put_together, taken_apart, whole
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.codec import canonical, decode

KEY = snapshot_key("alice")
HISTORY = KEY.replace("snapshot_latest", "immutable_history/snapshot_{}")
IDS = ("0192aaaa-0000-7000-8000-000000000001", "0192aaaa-0000-7000-8000-000000000002")
ODD: list[Any] = [
    {"role": "user", "content": [{"text": 'NUL \0, emoji 🧵, \u2028 and \\ "'}]},
    {
        "content": [{"toolUse": {"input": {"z": 1, "a": {"y": [1.0, -0.0, 1e22, 2**70], "b": None}}}}],
        "role": "assistant",
    },
    {"": "", "$locus:int": "5", "keys": [1], "message": 2, "text": "x"},
    [{"b": 1, "a": 2}, []],
    "text",
    None,
]


def snapshot(messages: list[Any], **more: Any) -> bytes:
    data = {
        "scope": "agent",
        "created_at": f"at {len(messages)}",
        "data": {"messages": messages, **more},
        "app_data": {},
    }
    return json.dumps(data, ensure_ascii=False).encode()


def messages(count: int, size: int = 20) -> list[Any]:
    return [{"role": "user", "content": [{"text": f"{number} " * size}]} for number in range(count)]


@pytest.fixture
def storage(handle: Checkpointer) -> LocusStorage:
    return LocusStorage(handle)


async def test_bytes_come_back_as_they_were(storage: LocusStorage, handle: Checkpointer) -> None:
    assert isinstance(storage, Storage)
    values = {
        "a": b"",
        "a/b.json": b'{"messages": [1,2]}',
        "a/bin": bytes(range(256)) * 30,
        "a/large.txt": ("ä" * 5_000).encode(),
        "odd/snapshots/snapshot_latest.json": b'{"messages": [',
        KEY: snapshot(ODD),
        HISTORY.format(IDS[0]): snapshot(ODD[:2], state={"messages": []}),
    }
    assert await storage.read(KEY) is None
    assert await storage.list("") == []
    for key, data in values.items():
        await storage.write(key, data)
    for reader in (storage, LocusStorage(handle)):
        for key, data in values.items():
            assert await reader.read(key) == data, key
        assert await reader.list("") == sorted(values)
        assert await reader.list("a/") == ["a/b.json", "a/bin", "a/large.txt"]
        assert await reader.list("session/") == sorted([KEY, HISTORY.format(IDS[0])])
        assert await reader.list(KEY.removesuffix("_latest.json")) == [KEY]
        assert await reader.list(HISTORY.partition("snapshot_{}")[0]) == [HISTORY.format(IDS[0])]
        assert await reader.list("nothing") == []
    await storage.write("a", b"other")
    assert await LocusStorage(handle).read("a") == b"other"
    for key in values:
        await storage.delete(key)
        await storage.delete(key)
        assert await LocusStorage(handle).read(key) is None
    assert await storage.list("") == []


async def test_keys_are_written_as_in_the_storages_of_strands(storage: LocusStorage) -> None:
    await storage.write("/a//b/", b"x")
    assert await storage.read("a/b") == b"x"
    assert await storage.list("") == ["a/b"]
    bad: Any
    for bad in ("", "/", "a/../b", "a\\b", 5):
        with pytest.raises(StorageError, match=r"a key"):
            await storage.write(bad, b"x")
    with pytest.raises(InvalidIdError, match="lone surrogate"):
        await storage.read("\ud800")


async def test_keys_of_any_length(storage: LocusStorage) -> None:
    long = [f"{'k' * 250}{end}" for end in ("a", "b" * 200, "c" * 200)]
    latest = snapshot_key("s" * 300)
    for key in (*long, latest):
        await storage.write(key, key.encode())
    for key in (*long, latest):
        assert await storage.read(key) == key.encode()
    assert await storage.list("k") == sorted(long)
    assert await storage.list(f"{'k' * 250}b") == [long[1]]
    assert await storage.list(latest[:-3]) == [latest]
    await storage.delete(long[1])
    assert await storage.list("k") == [long[0], long[2]]


async def test_views_of_a_prefix_see_nothing_else(storage: LocusStorage) -> None:
    view = storage.namespace("tenant/one/")
    inner = view.namespace("inner")
    await view.write("note", b"apples and pears")
    await inner.write("note", b"apples")
    await storage.write("note", b"apples everywhere")
    assert await storage.list("") == ["note", "tenant/one/inner/note", "tenant/one/note"]
    assert await view.list("") == ["inner/note", "note"]
    assert await inner.read("note") == b"apples"
    assert [result.key for result in await inner.search("Apples")] == ["note"]
    assert {result.key for result in await view.search("pears apples")} == {"note", "inner/note"}
    assert await storage.search("the") == []


async def test_a_snapshot_that_grows_writes_what_is_new(tmp_path: Path) -> None:
    async with LocusStorage(f"sqlite:{tmp_path / 'a.db'}") as storage:
        for count in range(1, 120):
            await storage.write(HISTORY.format(f"0192aaaa-0000-7000-8000-{count:012}"), snapshot(messages(count, 200)))
            await storage.write(KEY, snapshot(messages(count, 200), state={"n": count}))
        content = len(snapshot(messages(119, 200)))
        assert await storage.read(KEY) == snapshot(messages(119, 200), state={"n": 119})
        assert await storage.read(HISTORY.format("0192aaaa-0000-7000-8000-000000000007")) == snapshot(messages(7, 200))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size < 4 * content, "both are kept 119 times, and their messages once"


async def test_what_is_held_is_bounded_and_never_added_up_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    storage_module = import_module("locus.integrations.strands.storage")
    monkeypatch.setattr(storage_module, "_MOST_HELD", 20_000)
    storage = LocusStorage("memory")
    keys = [snapshot_key(f"user-{number}") for number in range(8)]
    for turn in range(1, 4):
        for key in keys:
            await storage.write(key, snapshot(messages(turn * 10)))
            held = storage._held._by_thread
            assert storage._held._bytes == sum(one.size for one in held.values()) <= 20_000
    assert 0 < len(held) < len(keys)
    for key in keys:
        assert await storage.read(key) == snapshot(messages(30))
        await storage.delete(key)
    assert storage._held._bytes == 0
    await storage.close()


async def test_a_snapshot_that_was_trimmed_or_edited(storage: LocusStorage, handle: Checkpointer) -> None:
    """What a conversation manager does: the oldest go, one is summarised, the last is redacted."""
    versions = [messages(50), messages(50)[10:], [*ODD, *messages(60)[20:]], messages(60)[:30], [], messages(3)]
    for version in versions:
        await storage.write(KEY, snapshot(version))
        assert await storage.read(KEY) == snapshot(version)
        assert await LocusStorage(handle).read(KEY) == snapshot(version)
    await LocusStorage(handle).write(KEY, snapshot(messages(4)))
    await storage.write(KEY, snapshot(messages(5)))
    assert await storage.read(KEY) == snapshot(messages(5))


async def test_the_latest_is_not_a_snapshot_of_the_history(storage: LocusStorage) -> None:
    await storage.write(HISTORY.format(IDS[0]), snapshot(messages(1)))
    assert await storage.read(KEY) is None
    await storage.write(KEY, snapshot(messages(2)))
    await storage.write(HISTORY.format(IDS[1]), snapshot(messages(3)))
    assert await storage.read(KEY) == snapshot(messages(2))
    await storage.write(HISTORY.format(IDS[1]), snapshot(messages(4)))  # the same key once more
    assert await storage.read(HISTORY.format(IDS[1])) == snapshot(messages(4))
    await storage.delete(KEY)
    assert await storage.read(KEY) is None
    assert await storage.list("") == [HISTORY.format(name) for name in IDS]
    assert await storage.read(HISTORY.format(IDS[0])) == snapshot(messages(1))


async def test_the_newest_messages_are_read_without_the_others(storage: LocusStorage) -> None:
    assert await storage.messages(KEY) == []
    await storage.write(KEY, snapshot([*messages(20), *ODD]))
    await storage.write(HISTORY.format(IDS[0]), snapshot(messages(3)))
    assert await storage.messages(KEY, 8) == [*messages(20)[-2:], *ODD]
    assert await storage.messages(KEY) == [*messages(20), *ODD]
    assert await storage.messages(HISTORY.format(IDS[0]), 2) == messages(3)[1:]
    await storage.write("note", b"x")
    assert await storage.messages("note") == []


async def test_history_forks_and_going_back(storage: LocusStorage) -> None:
    for count in (1, 2, 3):
        await storage.write(KEY, snapshot(messages(count)))
    points = await storage.history(KEY)
    assert [(point.items, point.change) for point in points] == [(3, "latest"), (2, "latest"), (1, "latest")]
    assert await storage.read(KEY, checkpoint_id=points[2].checkpoint_id) == snapshot(messages(1))
    other = snapshot_key("alice-2")
    await storage.fork(KEY, other, points[1].checkpoint_id)
    await storage.write(other, snapshot(messages(9)))
    await storage.rewind(KEY, points[2].checkpoint_id)
    assert await storage.read(KEY) == snapshot(messages(1))
    assert await storage.read(KEY, checkpoint_id=points[0].checkpoint_id) == snapshot(messages(3))
    await storage.delete(KEY)
    assert await storage.read(other) == snapshot(messages(9))
    with pytest.raises(ConflictError):
        await storage.fork(other, other)
    for call in (storage.rewind(other, "nothing"), storage.fork(KEY, snapshot_key("bob"))):
        with pytest.raises(CheckpointNotFoundError):
            await call
    with pytest.raises(StorageError, match="another of its kind"):
        await storage.fork(other, "note")


async def test_the_last_writer_wins_unless_it_is_told_not_to(handle: Checkpointer) -> None:
    one, two = LocusStorage(handle), LocusStorage(handle)
    await one.write(KEY, snapshot(messages(1)))
    await two.write(KEY, snapshot(messages(2)))
    await one.write(KEY, snapshot(messages(3)))
    assert len(await one.history(KEY)) == 3
    one, two = LocusStorage(handle, refuse_stale=True), LocusStorage(handle, refuse_stale=True)
    for key, data in ((KEY, snapshot(messages(4))), ("note", b"x")):
        await one.write(key, data)
        assert await two.read(key) == data
        await one.write(key, data + b" ")
        with pytest.raises(ConflictError):
            await two.write(key, data + b"!")
        assert await two.read(key) == data + b" "
        await two.write(key, data + b"!")
        assert await one.read(key) == data + b"!"


async def test_short_lived_event_loops(tmp_path: Path) -> None:
    """Strands runs each call of a blocking program on a loop of its own."""
    storage = LocusStorage(f"sqlite:{tmp_path / 'a.db'}")

    def work() -> None:
        for count in range(1, 4):
            asyncio.run(storage.write(KEY, snapshot(messages(count))))
        assert asyncio.run(storage.read(KEY)) == snapshot(messages(3))
        asyncio.run(storage.close())

    await asyncio.to_thread(work)
    with pytest.raises(StorageError, match="closed: make a new"):
        await storage.read(KEY)
    with pytest.raises(StorageError, match="closed: make a new"):
        await storage.namespace("x").read("y")
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        async with LocusStorage(store) as other:
            assert await other.read(KEY) == snapshot(messages(3))
        assert len(await store.list_threads()) == 1
    assert "alice" not in repr(storage)


@pytest.mark.parametrize(
    "before",
    [
        '{"created_at": "2026-01-01T00:00:00+00:00", "messages": [',
        '{"created_at": "", "messages": [',
        '{"created_at": "a \\"quote\\"", "messages": [',
        '{"created_at": "1", "more": {"created_at": "2"}, "messages": [',
        '{"created_at": 5, "messages": [',
        '{"messages": [',
    ],
)
async def test_what_stands_before_the_messages_comes_back(before: str, storage: LocusStorage) -> None:
    data = f'{before}{{"role": "user"}}]}}'.encode()
    await storage.write(KEY, data)
    assert await storage.read(KEY) == data


async def test_the_time_of_a_snapshot_is_all_that_is_stored_again(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        storage = LocusStorage(store)
        for number in range(3):
            said = messages(number + 1)
            data = {"schema": "s" * 300, "created_at": f"2026-01-0{number}", "data": {"messages": said, "z": "z" * 300}}
            await storage.write(KEY, json.dumps(data).encode())
        (newest,) = await store.store.history(KEY.removesuffix("snapshot_latest.json"), 1, None, "strands-storage")
        stored = await store.store.read(newest.thread_id, None, "strands-storage")
        assert stored is not None
        assert decode(stored.head) == {
            "at": "2026-01-02",
            "before": [],
            "items": [],
            "after": [],
            "length": len(json.dumps(data)),
        }
        assert [len(stored.runs[branch]) for branch in stored.runs if len(stored.runs[branch]) > 1] == [3]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.lists(JSON, max_size=5), st.integers(0, 5), st.booleans(), st.sampled_from([", ", ","]))
def test_any_list_is_put_together_byte_for_byte(items: list[Any], known: int, escaped: bool, between: str) -> None:
    """Also after a database has sorted the keys of every object."""

    def written(some: list[Any]) -> bytes:
        text = json.dumps({"messages": some}, ensure_ascii=escaped, separators=(between, ": "))
        return text.encode(errors="replace")

    earlier, data = written(items[:known]), written(items)
    before = taken_apart(earlier)
    apart = taken_apart(data, before.body, len(before.fresh)) if before else taken_apart(data)
    if apart is None:
        assert put_together(whole(data)) == (data, b"")
        return
    first = list(before.fresh)[: apart.known] if before else []
    texts = [*first, *apart.fresh]
    stored = [decode(canonical(decode(text))) for text in texts]
    payload = {"before": apart.before, "items": stored, "after": [apart.after], "length": len(data)}
    assert put_together(payload) == (data, apart.body)
    assert between == "," or len(texts) == len(items)


@pytest.mark.parametrize(
    "damage",
    [
        {"items": [{"message": {"a": 1}, "keys": [[1], {}]}]},
        {"items": [{"message": {"a": 1}, "keys": 5}]},
        {"items": [5]},
        {"items": [{}]},
        {"items": [{"text": 5}]},
        {"items": None},
        {"before": 5},
        {"after": []},
        {"length": 7},
        {"text": 5},
        {"base64": "!"},
    ],
)
def test_damage_is_told(damage: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpointError, match="a stored value of Strands"):
        put_together({"before": "[", "items": [], "after": ["]"], "length": 2} | damage)


async def test_a_thread_of_something_else_is_told(tmp_path: Path) -> None:
    store = SQLiteBackend(tmp_path / "a.db")
    await store.save("a", {"x": 1}, namespace="strands-storage")
    with pytest.raises(CorruptCheckpointError, match="something else uses it"):
        await LocusStorage(store).read("a")
    await store.close()
