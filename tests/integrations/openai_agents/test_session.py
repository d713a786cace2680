"""What the SDK expects of a session, on the stores that need no server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import SessionSettings, SQLiteSession
from agents.memory import Session

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError, InvalidIdError, SerializationError
from locus.integrations.openai_agents import NAMESPACE, LocusSession, SessionClosedError, list_sessions
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.backends.http.client import HTTPAuthenticationError
from locus.memory.checkpointer import Checkpointer
from locus.memory.registry import get_checkpointer
from locus.testing.stores import TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.strangers import AsyncStore
from tests.server.running import WRITER as TOKEN
from tests.server.running import guarded, threaded

ODD = [
    {"role": "user", "content": "emoji 🧵, NUL \0, \u2028, quotes ' \" and \\"},
    {"type": "function_call", "call_id": "1", "arguments": '{"n": 1e400}', "nested": {"a": [[], {}, None, True]}},
    {"n": 2**70, "f": -0.0, "e": 1e22, "": "", "$locus:int": "5"},
    {},
]


def items(*numbers: int) -> list[Any]:
    return [{"role": "user", "content": f"item {number}"} for number in numbers]


@pytest.fixture
def session(handle: Checkpointer) -> LocusSession:
    return LocusSession("alice", handle)


async def test_it_is_a_session_of_the_sdk_and_empty_at_first(session: LocusSession) -> None:
    assert isinstance(session, Session)
    assert session.session_id == "alice"
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.clear_session()
    assert await session.history() == []


async def test_items_come_back_equal_and_in_order(session: LocusSession, handle: Checkpointer) -> None:
    await session.add_items(ODD)  # type: ignore[arg-type]
    await session.add_items(items(1, 2))
    assert await session.get_items() == [*ODD, *items(1, 2)]
    assert await LocusSession("alice", handle).get_items() == [*ODD, *items(1, 2)]
    assert str((await session.get_items())[2]["f"]) == "-0.0"  # type: ignore[typeddict-item]


async def test_no_items_are_no_checkpoint(session: LocusSession) -> None:
    await session.add_items([])
    assert await session.history() == []


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, items(1, 2, 3, 4, 5)), (2, items(4, 5)), (9, items(1, 2, 3, 4, 5)), (0, [])]
)
async def test_a_limit_gives_the_newest_in_order(session: LocusSession, limit: int | None, expected: list[Any]) -> None:
    await session.add_items(items(1, 2, 3))
    await session.add_items(items(4, 5))
    assert await session.get_items(limit) == expected


@pytest.mark.parametrize("settings", [SessionSettings(limit=2), {"limit": 2}])
async def test_the_settings_limit_what_is_read_unless_the_call_does(
    handle: Checkpointer, settings: SessionSettings | dict[str, Any]
) -> None:
    session = LocusSession("alice", handle, session_settings=settings)
    await session.add_items(items(1, 2, 3, 4))
    assert await session.get_items() == items(3, 4)
    assert await session.get_items(3) == items(2, 3, 4)
    assert isinstance(session.session_settings, SessionSettings)


async def test_pop_takes_the_newest_until_nothing_is_left(session: LocusSession, handle: Checkpointer) -> None:
    await session.add_items(items(1, 2))
    await session.add_items(items(3))
    assert await session.pop_item() == items(3)[0]
    assert await LocusSession("alice", handle).pop_item() == items(2)[0]
    await session.add_items(items(4))
    assert await session.get_items() == items(1, 4)
    assert [await session.pop_item() for _ in range(3)] == [items(4)[0], items(1)[0], None]
    assert await session.get_items() == []
    await session.add_items(items(5))
    assert await session.get_items() == items(5)


async def test_pop_finds_what_another_handle_added_to_an_empty_session(
    session: LocusSession, handle: Checkpointer
) -> None:
    await session.add_items(items(1))
    await session.pop_item()
    await LocusSession("alice", handle).add_items(items(2))
    assert await session.pop_item() == items(2)[0]


async def test_clear_removes_everything_and_leaves_others_alone(session: LocusSession, handle: Checkpointer) -> None:
    other = LocusSession("bob", handle)
    for one in (session, other):
        await one.add_items(items(1))
    await LocusSession("alice", handle).clear_session()
    assert await session.get_items() == []
    assert await session.history() == []
    await session.add_items(items(2))
    assert await session.get_items() == items(2)
    assert await other.get_items() == items(1)


async def test_concurrent_adds_lose_nothing_and_stay_whole(store: TestStore) -> None:
    async with store.open() as one, store.open() as another:
        batches = [[{"batch": batch, "n": n} for n in range(3)] for batch in range(24)]
        sessions = [LocusSession("alice", (one, another)[number % 2]) for number in range(4)]
        await asyncio.gather(
            *(sessions[number % 4].add_items(batch) for number, batch in enumerate(batches))  # type: ignore[arg-type]
        )
        kept: list[Any] = await sessions[0].get_items()
        assert [item["n"] for item in kept] == [0, 1, 2] * 24
        assert [item["batch"] for item in kept[::3]] == [item["batch"] for item in kept[2::3]]
        assert {item["batch"] for item in kept} == set(range(24))


async def test_concurrent_pops_give_every_item_once(store: TestStore) -> None:
    async with store.open() as one, store.open() as another:
        sessions = [LocusSession("alice", handle) for handle in (one, another, one)]
        await sessions[0].add_items(items(*range(10)))
        popped: list[Any] = await asyncio.gather(*(sessions[number % 3].pop_item() for number in range(12)))
        found = sorted(item["content"] for item in popped if item is not None)
        assert found == [f"item {number}" for number in range(10)]


async def test_a_handle_follows_what_others_did(session: LocusSession, handle: Checkpointer) -> None:
    other = LocusSession("alice", handle)
    await session.add_items(items(1, 2))
    assert await other.pop_item() == items(2)[0]
    await session.add_items(items(3))
    assert await other.get_items() == items(1, 3)
    await other.clear_session()
    await session.add_items(items(4))
    assert await other.get_items() == items(4)
    assert await session.get_items() == items(4)
    await other.clear_session()
    assert await session.pop_item() is None


async def test_sessions_are_kept_apart_from_each_other_and_from_agents(handle: Checkpointer) -> None:
    names = ["a", "A", "a/b", "a.b", "a ", "ä", "a%", "'; DROP TABLE x"]
    for name in names:
        await LocusSession(name, handle).add_items([{"of": name}])  # type: ignore[list-item]
    await LocusSession("a", handle, namespace="another").add_items(items(1))
    await handle.save(AgentState().with_message(Message.user("hello")), "a")
    assert [await LocusSession(name, handle).get_items() for name in names] == [[{"of": name}] for name in names]
    await LocusSession("a", handle).clear_session()
    state = await handle.load("a")
    assert state is not None
    assert [message.text for message in state.messages] == ["hello"]
    assert await LocusSession("a", handle, namespace="another").get_items() == items(1)


async def test_what_json_cannot_hold_is_named_and_nothing_is_written(session: LocusSession) -> None:
    await session.add_items(items(1))
    with pytest.raises(SerializationError, match=r"items\[1\]\.x\[0\].*float|items\[1\]\.x\[0\] is nan") as caught:
        await session.add_items([*items(2), {"x": [float("nan")]}])  # type: ignore[list-item]
    assert caught.value.path == "items[1].x[0]"
    assert await session.get_items() == items(1)


async def test_a_namespace_that_something_else_uses_is_an_error(handle: Checkpointer) -> None:
    await handle.save(AgentState(), "alice", namespace=NAMESPACE)
    session = LocusSession("alice", handle)
    for call in (session.get_items(), session.add_items(items(1)), session.pop_item()):
        with pytest.raises(CorruptCheckpointError, match="something else uses it"):
            await call


@pytest.mark.parametrize("count", [0, 1, 100])
async def test_a_list_that_was_saved_by_hand_can_be_gone_on_with(tmp_path: Path, count: int) -> None:
    async with SQLiteBackend(tmp_path / "locus.db") as backend:
        await backend.save("alice", {"items": items(*range(count))}, namespace=NAMESPACE)
        session = LocusSession("alice", backend)
        await session.add_items(items(500, 501))
        assert await session.pop_item() == items(501)[0]
        assert await session.get_items() == items(*range(count), 500)
        points = await session.history()
        assert [(point.items, point.change) for point in points] == [
            (count + 1, "pop"),
            (count + 2, "add"),
            (None, ""),
        ]


async def test_a_url_is_opened_and_closed_and_a_store_is_left_open(tmp_path: Path) -> None:
    async with LocusSession("alice", f"sqlite:{tmp_path / 'locus.db'}") as session:
        await session.add_items(items(1))
    async with sqlite_checkpointer(tmp_path / "locus.db") as handle:
        async with LocusSession("alice", handle) as session:
            assert await session.get_items() == items(1)
        assert handle.store.ready
        assert repr(session) == "LocusSession('alice', SQLiteEngine)"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("s.db", "'sqlite:s.db'"),
        ("data/s.sqlite3", "'sqlite:data/s.sqlite3'"),
        ("C:\\data\\s.db", "'sqlite:C:\\data\\s.db'"),
        (":memory:", "'memory', or 'sqlite::memory:'"),
        ("./sessions", "'file:./sessions', or 'sqlite:./sessions'"),
    ],
)
def test_a_path_suggests_the_url_that_was_meant(given: Any, meant: str) -> None:
    """The SDK's `SQLiteSession` takes a path."""
    with pytest.raises(ConfigurationError) as caught:
        LocusSession("alice", given)
    assert meant in str(caught.value)


def test_a_url_with_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        LocusSession("alice", "postgres+x://user:s3cret@host/a.db")
    assert "s3cret" not in str(caught.value)


async def test_a_path_object_is_opened(tmp_path: Path) -> None:
    async with LocusSession("alice", tmp_path / "locus.db") as session:
        await session.add_items(items(1))
    async with LocusSession("alice", f"sqlite:{tmp_path / 'locus.db'}") as session:
        assert await session.get_items() == items(1)


async def test_options_belong_to_a_url(tmp_path: Path) -> None:
    session = LocusSession("alice", f"sqlite:{tmp_path / 'locus.db'}", ttl_seconds=60, durability="normal")
    assert session._log.store.ttl_seconds == 60
    await session.close()
    with pytest.raises(ConfigurationError, match=r"options \(ttl_seconds\) only work with a name or URL"):
        LocusSession("alice", get_checkpointer("memory"), ttl_seconds=60)


async def test_a_token_reaches_a_server() -> None:
    with threaded(guarded()) as port:
        async with LocusSession("alice", f"http://127.0.0.1:{port}", token=TOKEN) as session:
            await session.add_items(items(1))
            assert await session.list_sessions() == ["alice"]
        async with LocusSession("alice", f"http://127.0.0.1:{port}") as session:
            with pytest.raises(HTTPAuthenticationError):
                await session.get_items()


async def test_sessions_are_listed(handle: Checkpointer, tmp_path: Path) -> None:
    names = ["a", "a/1", "b", *(f"c{number:02}" for number in range(20))]
    for name in names:
        await LocusSession(name, handle).add_items(items(1))
    await handle.save(AgentState(), "an agent's")
    await LocusSession("other", handle, namespace="mine").add_items(items(1))
    session = LocusSession("a", handle)
    assert await session.list_sessions() == await list_sessions(handle) == names
    assert await session.list_sessions(2) == ["a", "a/1"]
    assert await session.list_sessions(None, "c*") == names[3:]
    assert await list_sessions(handle, namespace="mine") == ["other"]
    await session.clear_session()
    assert await session.list_sessions(1) == ["a/1"]
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    async with LocusSession("alice", url) as session:
        await session.add_items(items(1))
    assert await list_sessions(url, durability="normal") == ["alice"]


async def test_settings_behave_as_in_the_sdks_own_sessions(handle: Checkpointer, tmp_path: Path) -> None:
    theirs, ours = SQLiteSession("alice", tmp_path / "s.db"), LocusSession("alice", handle)
    assert ours.session_settings == theirs.session_settings == SessionSettings()
    for session in (theirs, ours):
        await session.add_items(items(1, 2, 3))
        session.session_settings = {"limit": 1}  # type: ignore[assignment]
        assert await session.get_items() == items(3)
    for bad in ({"limits": 1}, "2", 5):
        texts = []
        for kind, place in ((SQLiteSession, ":memory:"), (LocusSession, handle)):
            with pytest.raises(TypeError) as caught:
                kind("a", place, session_settings=bad)  # type: ignore[arg-type]
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
    theirs.close()


async def test_a_closed_session_refuses_to_go_on(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'locus.db'}"
    async with LocusSession("alice", url) as session:
        await session.add_items(items(1))
        (point,) = await session.history()
        view, forked = session.at(point.checkpoint_id), await session.fork("bob")
    calls: list[Callable[[], Awaitable[object]]] = [
        session.get_items, lambda: session.add_items(items(2)), session.pop_item, session.clear_session,
        session.history, lambda: session.fork("c"), lambda: session.rewind(point.checkpoint_id),
        session.list_sessions, view.get_items, forked.get_items,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="is closed") as caught:
            await call()
        assert isinstance(caught.value, SessionClosedError)
    assert not session._items.store.ready  # and nothing was opened again
    await session.close()
    async with sqlite_checkpointer(tmp_path / "locus.db") as handle:
        session = LocusSession("alice", handle)
        forked = await session.fork("carol")
        await session.close()
        with pytest.raises(SessionClosedError):
            await session.get_items()
        assert await forked.get_items() == await LocusSession("alice", handle).get_items() == items(1)


@pytest.mark.parametrize("given", [None, "nothing:here", 5])
def test_what_is_no_store_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError):
        LocusSession("alice", given)


@pytest.mark.parametrize("name", ["", "x" * 256, 5, None])
def test_what_is_no_id_is_refused(name: Any) -> None:
    with pytest.raises(InvalidIdError):
        LocusSession(name, get_checkpointer("memory"))


async def test_a_store_of_another_kind_keeps_sessions_in_the_namespace_it_has() -> None:
    plain = AsyncStore()
    with pytest.raises(CapabilityError, match="no namespaces"):
        await LocusSession("alice", plain).add_items(items(1))
    sessions = [LocusSession("alice", plain, namespace="default") for _ in range(3)]
    await asyncio.gather(*(session.add_items(items(number)) for number, session in enumerate(sessions)))
    kept = await sessions[0].get_items()
    assert sorted(str(item) for item in kept) == sorted(str(item) for item in items(0, 1, 2))
    assert await sessions[1].pop_item() == kept[-1]
    assert await sessions[2].get_items() == kept[:-1]
    assert await sessions[2].get_items(1) == kept[1:2]


WRITER = """
import asyncio, sys
from locus.integrations.openai_agents import LocusSession

async def main(url, name):
    async with LocusSession("alice", url) as session:
        for number in range(12):
            await session.add_items([{"by": name, "n": number, "part": part} for part in (0, 1)])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", [SQLiteStore, FileStore])
async def test_processes_that_add_at_once_lose_nothing(kind: type[SQLiteStore | FileStore], tmp_path: Path) -> None:
    url = kind(tmp_path).url
    command = [sys.executable, "-W", "error", "-c", WRITER, url]
    writers = [await asyncio.create_subprocess_exec(*command, name) for name in "abc"]
    assert [await writer.wait() for writer in writers] == [0, 0, 0]
    async with get_checkpointer(url) as handle:
        kept: list[Any] = await LocusSession("alice", handle).get_items()
    assert [item["part"] for item in kept] == [0, 1] * 36
    for name in "abc":
        assert [item["n"] for item in kept[::2] if item["by"] == name] == list(range(12))
        assert [item["n"] for item in kept[1::2] if item["by"] == name] == list(range(12))
