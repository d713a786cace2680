"""What Pydantic AI expects of a conversation store, on the stores that need no server."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
    InvalidIdError,
    SerializationError,
)
from locus.integrations.pydantic_ai import NAMESPACE, ConversationStoreClosedError, LocusConversationStore
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.codec import decode
from locus.memory.registry import get_checkpointer
from tests.backends.strangers import AsyncStore
from tests.integrations.pydantic_ai.messages import entry_texts, kept, request, said, texts, turn


@pytest.fixture
def conversations(handle: Checkpointer) -> LocusConversationStore:
    return LocusConversationStore(handle)


async def test_it_is_a_store_of_the_framework_and_empty_at_first(conversations: LocusConversationStore) -> None:
    assert isinstance(conversations, ConversationStore)
    assert await conversations.load("alice") is None
    assert await conversations.load_entries("alice") is None
    assert await conversations.list_conversations() == []
    assert await conversations.history("alice") == []
    await conversations.delete("alice")


async def test_a_record_comes_back_whole(conversations: LocusConversationStore, handle: Checkpointer) -> None:
    call = ToolCallPart(tool_name="book", args={"city": "Oslo"}, tool_call_id="call_1")
    asked = DeferredToolRequests(approvals=[call], metadata={"call_1": {"why": "it costs money", "n": 2**70}})
    conversation = Conversation(
        conversation_id="alice",
        messages=turn("one"),
        usage=RunUsage(requests=2, input_tokens=30, output_tokens=7, tool_calls=1, details={"reasoning": 3}),
        deferred_tool_requests=asked,
    )
    new = await conversations.save(conversation, scope="tenant/7")
    for reader in (conversations, LocusConversationStore(handle)):
        loaded = await reader.load("alice", scope="tenant/7")
        assert loaded == conversation
        record = await reader.read_record("alice")
        assert record is not None
        assert (record.conversation_id, record.scope, record.head_id) == ("alice", "tenant/7", new[-1].id)
        assert record.deferred_tool_requests == asked
        assert record.updated_at.tzinfo is not None
        assert await reader.load_entries("alice") == new
    assert await conversations.load("alice", scope="tenant/8") is None


async def test_messages_of_every_kind_come_back_equal(conversations: LocusConversationStore) -> None:
    file = BinaryContent(data=b"%PDF\0\xff", media_type="application/pdf")
    asked = UserPromptPart(content=['emoji 🧵, NUL \0, \u2028 and "', file])
    messages: list[ModelMessage] = [
        ModelRequest(parts=[asked], instructions="Be kind."),
        ModelResponse(parts=[ToolCallPart(tool_name="f", args='{"n": 1e400}', tool_call_id="c")], model_name="m"),
        ModelRequest(parts=[ToolReturnPart(tool_name="f", content={"a": [[], {}, None, 2**70]}, tool_call_id="c")]),
    ]
    await conversations.save(Conversation(conversation_id="alice", messages=list(messages)))
    loaded = await conversations.load("alice")
    assert loaded is not None
    assert loaded.messages == messages


async def test_only_what_is_new_is_appended(conversations: LocusConversationStore) -> None:
    first = await conversations.save(Conversation(conversation_id="alice", messages=turn("one")))
    loaded = await conversations.load("alice")
    assert loaded is not None
    assert await conversations.save(loaded) == []
    loaded.messages += turn("two")
    second = await conversations.save(loaded)
    assert [len(first), len(second)] == [2, 2]
    assert second[0].parent_id == first[-1].id
    assert await kept(conversations, "alice") == ["one?", "one.", "two?", "two."]
    assert [point.messages for point in await conversations.history("alice")] == [4, 2, 2]


async def test_a_window_is_continued_as_the_whole(conversations: LocusConversationStore) -> None:
    await said(conversations, "alice", "one", "two", "three")
    for limit, expected in ((0, []), (1, ["three."]), (3, ["two.", "three?", "three."]), (99, None), (None, None)):
        whole = ["one?", "one.", "two?", "two.", "three?", "three."]
        assert await kept(conversations, "alice", limit) == (whole if expected is None else expected)
    with pytest.raises(UserError):
        await conversations.load("alice", limit=-1)
    window = await conversations.load("alice", limit=2)
    assert window is not None
    window.messages += turn("four")
    await conversations.save(window)
    assert (await kept(conversations, "alice") or [])[4:] == ["three?", "three.", "four?", "four."]
    assert await conversations.read_history(None) == []


async def test_of_two_that_continue_one_revision_one_is_refused(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    await said(conversations, "alice", "one")
    stores = [LocusConversationStore(handle) for _ in range(4)]
    loaded = [await store.load("alice") for store in stores]

    async def save(number: int) -> bool:
        conversation = loaded[number]
        assert conversation is not None
        conversation.messages += turn(f"{number}")
        try:
            await stores[number].save(conversation)
        except ConversationConflict:
            return False
        return True

    saved = await asyncio.gather(*map(save, range(4)))
    assert sum(saved) == 1
    assert await kept(conversations, "alice") == ["one?", "one.", *texts(turn(f"{saved.index(True)}"))]


async def test_a_new_conversation_does_not_take_the_place_of_one(conversations: LocusConversationStore) -> None:
    await said(conversations, "alice", "one")
    with pytest.raises(ConversationConflict):
        await conversations.save(Conversation(conversation_id="alice", messages=turn("two")))
    with pytest.raises(ConversationConflict):
        record = ConversationRecord(conversation_id="bob", head_id=None)
        await conversations.write_record(record, expected_revision="never")
    assert await kept(conversations, "alice") == ["one?", "one."]
    assert await conversations.load("bob") is None


async def test_a_write_that_is_repeated_is_refused(conversations: LocusConversationStore) -> None:
    entry = ConversationEntry(parent_id=None, message=request("one"))
    record = ConversationRecord(conversation_id="alice", head_id=entry.id)
    await conversations.write_record(record, new_entries=[entry], expected_revision=None)
    for _ in range(2):
        with pytest.raises(ConversationConflict):
            await conversations.write_record(record, new_entries=[entry], expected_revision=None)
    assert await kept(conversations, "alice") == ["one"]


async def test_a_head_that_nobody_has_is_refused(conversations: LocusConversationStore) -> None:
    record = ConversationRecord(conversation_id="alice", head_id="gone", forked_from="never")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(record, expected_revision=None)
    orphan = ConversationEntry(parent_id="gone", message=request("one"))
    record = ConversationRecord(conversation_id="alice", head_id=orphan.id)
    with pytest.raises(ConversationConflict):
        await conversations.write_record(record, new_entries=[orphan], expected_revision=None)
    assert await conversations.load("alice") is None
    for missing in (conversations.read_entry("gone"), conversations.read_history("gone", limit=1)):
        with pytest.raises(LookupError, match="no conversation in this store"):
            await missing


async def test_lists_are_newest_first_and_by_scope(conversations: LocusConversationStore, handle: Checkpointer) -> None:
    """Also where a thread of the same name has something newer in another namespace."""
    for name, scope in (("a", "x"), ("b", "y"), ("c", "x"), ("d", None), ("a", "x"), ("e", "")):
        await said(conversations, name, "turn", scope=scope)
    for name in ("b", "agent"):
        await handle.save(AgentState(agent_id="a", messages=(Message.user("Hello"),)), name)
    expected = ["e", "a", "d", "c", "b"]

    async def listed(**options: Any) -> list[str]:
        records = await LocusConversationStore(handle).list_conversations(**options)
        return [record.conversation_id for record in records]

    assert await listed() == expected
    assert [await listed(limit=limit) for limit in range(4)] == [expected[:limit] for limit in range(4)]
    assert await listed(scope="x") == ["a", "c"]
    assert await listed(scope="x", limit=1) == ["a"]
    assert await listed(scope="y") == ["b"]
    assert await listed(scope="") == ["e"]
    assert await listed(scope="%") == []
    await conversations.delete("a")
    assert await listed(scope="x") == ["c"]
    assert await listed() == ["e", "d", "c", "b"]


async def test_a_long_scope_is_listed_to_its_end(conversations: LocusConversationStore) -> None:
    """The newest conversation alone has more checkpoints than are looked at first."""
    await said(conversations, "old", "turn", scope="x")
    await said(conversations, "new", *map(str, range(75)), scope="x")
    assert [one.conversation_id for one in await conversations.list_conversations(scope="x", limit=2)] == ["new", "old"]


async def test_a_deleted_conversation_is_gone_with_its_history(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    (*_, last) = await conversations.save(Conversation(conversation_id="alice", messages=turn("secret")), scope="x")
    await said(conversations, "bob", "one")
    await conversations.delete("alice", scope="y")
    assert await kept(conversations, "alice") == ["secret?", "secret."]
    stale = await conversations.load("alice")
    assert stale is not None
    await LocusConversationStore(handle).delete("alice", scope="x")
    assert await conversations.load("alice") is None
    assert await conversations.history("alice") == []
    assert await handle.list_threads() == ["bob"]
    with pytest.raises(LookupError):
        await LocusConversationStore(handle).read_entry(last.id)
    with pytest.raises(ConversationConflict):
        await conversations.save(stale)
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("alice", expected_revision=stale.revision or "")
    await said(conversations, "alice", "anew")
    assert await kept(conversations, "alice") == ["anew?", "anew."]


async def test_a_deletion_does_not_take_a_save_along_that_was_faster(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    await said(conversations, "alice", "one")
    record = await conversations.read_record("alice")
    assert record is not None
    await said(LocusConversationStore(handle), "alice", "two")
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("alice", expected_revision=record.revision)
    assert await kept(conversations, "alice") == ["one?", "one.", "two?", "two."]


@pytest.mark.parametrize("then", ["delete", "save"])
async def test_a_deletion_that_was_killed_on_its_way_is_a_deletion(
    conversations: LocusConversationStore, handle: Checkpointer, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Nobody sees what is left of it, and the next one to touch the conversation removes it."""
    entries = await conversations.save(Conversation(conversation_id="alice", messages=turn("secret")), scope="x")
    with monkeypatch.context() as patch:

        async def killed(*_args: Any) -> None:
            raise ConnectionAbortedError

        patch.setattr(LocusConversationStore, "_erase", killed)
        with pytest.raises(ConnectionAbortedError):
            await conversations.delete("alice")
    again = LocusConversationStore(handle)
    with pytest.raises(LookupError):
        await again.read_entry(entries[0].id)
    assert await again.load("alice") is None
    assert await again.list_conversations() == await again.list_conversations(scope="x") == []
    assert await again.history("alice") == []
    if then == "delete":
        await again.delete("alice")
        assert await handle.list_threads() == []
    else:
        await said(again, "alice", "anew")
        assert await kept(again, "alice") == ["anew?", "anew."]
        assert len(await handle.store.history("alice", None, None, NAMESPACE)) == 1


async def test_an_agent_of_ours_may_have_a_thread_of_the_same_name(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    state = AgentState(agent_id="a", messages=(Message.user("Hello"),))
    await handle.save(state, "alice")
    await said(conversations, "alice", "one")
    await conversations.delete("alice")
    loaded = await handle.load("alice")
    assert loaded is not None
    assert loaded.messages[0].content == "Hello"


@pytest.mark.parametrize("payload", [{"messages": []}, {"items": [], "left": []}, {"items": [1], "record": {}}, {}])
async def test_something_else_in_the_namespace_is_no_empty_conversation(tmp_path: Path, payload: Any) -> None:
    async with SQLiteBackend(tmp_path / "locus.db") as backend:
        await backend.save("alice", payload)
        conversations = LocusConversationStore(backend, namespace="default")
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: conversations.load("alice"),
            lambda: conversations.save(Conversation(conversation_id="alice", messages=turn("one"))),
            lambda: conversations.delete("alice"),
        ]
        for call in calls:
            with pytest.raises(CorruptCheckpointError, match="is no conversation"):
                await call()
        await said(conversations, "bob", "one")
        with pytest.warns(DamagedThreadsWarning, match="1 damaged thread"):
            (listed,) = await conversations.list_conversations()
        assert listed.conversation_id == "bob"


async def test_damage_is_told_and_shows_nothing(tmp_path: Path) -> None:
    async with SQLiteBackend(tmp_path / "locus.db") as backend:
        conversations = LocusConversationStore(backend, namespace="default")
        await said(conversations, "alice", "one")
        good = await backend.load("alice")
        assert good is not None
        item = good["items"][0]
        damaged = {
            "record": {**good, "record": {**good["record"], "usage": "hunter2"}},
            "a message": {**good, "items": [{**item, "message": {"kind": "hunter2"}}]},
            "an id": {**good, "items": [{**item, "id": 7}]},
            "no parent": {**good, "items": [{"id": item["id"], "message": item["message"]}]},
            "a kind": {**good, "items": [{**item, "kind": "hunter2"}, *good["items"][1:]]},
        }
        for what, payload in damaged.items():
            await backend.save("alice", payload)
            with pytest.raises(CorruptCheckpointError) as caught:
                await LocusConversationStore(backend, namespace="default").load("alice")
            assert "hunter2" not in str(caught.value), what
            assert "alice" not in str(caught.value), what
            assert caught.value.__cause__ is None, what


async def test_what_the_framework_changes_is_changed_as_it_does(conversations: LocusConversationStore) -> None:
    content = {1: float("nan"), "bytes": b"\xff", "set": {1}}
    messages: list[ModelMessage] = [
        ModelRequest(parts=[ToolReturnPart(tool_name="f", content=content, tool_call_id="1")])
    ]
    await conversations.save(Conversation(conversation_id="alice", messages=messages))
    loaded = await conversations.load("alice")
    assert loaded is not None
    assert loaded.messages == ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


async def test_what_json_cannot_hold_is_refused(conversations: LocusConversationStore) -> None:
    broken: list[ModelMessage] = [
        ModelRequest(parts=[ToolReturnPart(tool_name="f", content=object(), tool_call_id="1")]),
        request("\ud800"),
    ]
    for message in broken:
        with pytest.raises((SerializationError, InvalidIdError)), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of pydantic, about what it cannot write
            await conversations.save(Conversation(conversation_id="alice", messages=[message]))
    asked = DeferredToolRequests(metadata={"1": {"a": object()}})
    with pytest.raises(SerializationError):
        await conversations.save(Conversation(conversation_id="alice", deferred_tool_requests=asked))
    assert await conversations.load("alice") is None


@pytest.mark.parametrize("conversation_id", ["", "x" * 256, "\ud800"])
async def test_ids_that_no_store_accepts(conversations: LocusConversationStore, conversation_id: str) -> None:
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: conversations.load(conversation_id),
        lambda: conversations.save(Conversation(conversation_id=conversation_id, messages=turn("one"))),
        lambda: conversations.delete(conversation_id),
    ]
    for call in calls:
        with pytest.raises(InvalidIdError):
            await call()


async def test_ids_of_entries_are_data(conversations: LocusConversationStore, handle: Checkpointer) -> None:
    hostile = ["'; --", "%", "*", "a\0b", "é", "e\u0301", "entry:x", "$.a[0]", "x" * 255]
    entries: list[ConversationEntry] = []
    for entry_id in hostile:
        parent_id = entries[-1].id if entries else None
        entries.append(ConversationEntry(id=entry_id, parent_id=parent_id, message=request(f"of {entry_id}")))
    record = ConversationRecord(conversation_id="alice", head_id=entries[-1].id)
    await conversations.write_record(record, new_entries=entries, expected_revision=None)
    again = LocusConversationStore(handle)
    for entry in entries:
        assert await again.read_entry(entry.id) == entry
    assert await again.read_history(hostile[3], limit=2) == entries[2:4]
    for bad, error in (("x" * 256, InvalidIdError), ("", InvalidIdError)):
        entry = ConversationEntry(id=bad, parent_id=None, message=request("one"))
        with pytest.raises(error):
            await conversations.write_record(
                ConversationRecord(conversation_id="bob", head_id=bad), new_entries=[entry], expected_revision=None
            )
    twice = [ConversationEntry(id="same", parent_id=None, message=request("one"))] * 2
    with pytest.raises(ConfigurationError, match="the same id"):
        await conversations.write_record(
            ConversationRecord(conversation_id="bob", head_id="same"), new_entries=twice, expected_revision=None
        )


async def test_it_closes_what_it_has_opened_and_nothing_else(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    async with LocusConversationStore(url, ttl_seconds=3600) as conversations:
        await said(conversations, "alice", "one")
    for call in (conversations.load("alice"), conversations.list_conversations(), conversations.read_entry("x")):
        with pytest.raises(ConversationStoreClosedError, match="make a new"):
            await call
    async with get_checkpointer(url) as handle:
        async with LocusConversationStore(handle) as conversations:
            assert await kept(conversations, "alice") == ["one?", "one."]
        assert await handle.list_threads() == ["alice"]
        with pytest.raises(ConfigurationError, match="already open"):
            LocusConversationStore(handle, ttl_seconds=5)
    with pytest.raises(ConfigurationError, match="namespace"):
        LocusConversationStore(url, namespaces="x")


async def test_its_name_tells_nothing(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "hunter2.db") as handle:
        assert repr(LocusConversationStore(handle)) == "LocusConversationStore(SQLiteEngine)"


async def test_a_store_with_five_methods_gets_the_whole_conversation() -> None:
    conversations = LocusConversationStore(AsyncStore(), namespace="default")
    await said(conversations, "alice", "one", "two")
    record = await conversations.read_record("alice")
    assert record is not None
    branched = await conversations.branch("alice", at=2, expected_revision=record.revision)
    branched.messages += turn("three")
    await conversations.save(branched)
    assert await kept(conversations, "alice") == ["one?", "one.", "three?", "three."]
    assert await kept(conversations, "alice", 1) == ["three."]
    record = await conversations.read_record("alice")
    assert record is not None
    assert entry_texts(await conversations.read_history(record.branches[0]))[2:] == ["two?", "two."]


async def test_a_record_says_nothing_of_what_was_not_used(handle: Checkpointer) -> None:
    """Every checkpoint has a record. What is not in it comes back as the framework has it."""
    store = LocusConversationStore(handle)
    record = ConversationRecord(conversation_id="alice", head_id=None)
    await store.write_record(record, expected_revision=None)
    stored = await handle.store.read("alice", None, NAMESPACE)
    assert stored is not None
    assert decode(stored.head)["record"].keys() == {"revision", "updated_at", "format_version"}
    assert await LocusConversationStore(handle).read_record("alice") == record
