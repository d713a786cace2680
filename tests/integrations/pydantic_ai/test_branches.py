"""Branches, forks and earlier points: nothing that was saved is lost, and every entry is found by its id."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage

from locus.errors import CheckpointNotFoundError
from locus.integrations.pydantic_ai import NAMESPACE, LocusConversationStore
from locus.integrations.pydantic_ai.store import INDEXED
from locus.memory.checkpointer import Checkpointer
from tests.integrations.pydantic_ai.messages import entry_texts, kept, request, response, said, texts, turn


@pytest.fixture
def conversations(handle: Checkpointer) -> LocusConversationStore:
    return LocusConversationStore(handle)


async def _revision(store: ConversationStore, conversation_id: str) -> str:
    record = await store.read_record(conversation_id)
    assert record is not None
    return record.revision


async def _tips(store: ConversationStore, conversation_id: str) -> list[list[str]]:
    """The branches that a conversation has left."""
    record = await store.read_record(conversation_id)
    return [] if record is None else [entry_texts(await store.read_history(tip)) for tip in record.branches]


async def test_an_answer_is_made_anew_and_the_old_one_stays(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    await said(conversations, "alice", "one", "two")
    branched = await conversations.branch("alice", at=3, expected_revision=await _revision(conversations, "alice"))
    assert texts(branched.messages) == ["one?", "one.", "two?"]
    branched.messages.append(response("two, again."))
    await conversations.save(branched)
    again = LocusConversationStore(handle)
    assert await kept(again, "alice") == ["one?", "one.", "two?", "two, again."]
    assert await _tips(again, "alice") == [["one?", "one.", "two?", "two."]]
    record = await again.read_record("alice")
    assert record is not None
    back = await again.branch("alice", from_entry=record.branches[0], expected_revision=record.revision)
    assert texts(back.messages) == ["one?", "one.", "two?", "two."]
    back.messages += turn("three")
    await again.save(back)
    assert await kept(conversations, "alice", 3) == ["two.", "three?", "three."]
    assert await _tips(conversations, "alice") == [["one?", "one.", "two?", "two, again."]]


async def test_branches_outlive_a_vacuum(conversations: LocusConversationStore, handle: Checkpointer) -> None:
    entries = await conversations.save(Conversation(conversation_id="alice", messages=turn("one")))
    await said(conversations, "alice", "two")
    await conversations.branch("alice", at=1, expected_revision=await _revision(conversations, "alice"))
    await handle.vacuum(keep_last=1)
    for store in (conversations, LocusConversationStore(handle)):
        assert await kept(store, "alice") == ["one?"]
        assert await _tips(store, "alice") == [["one?", "one.", "two?", "two."]]
        assert await store.read_history(entries[0].id, limit=5) == entries[:1]
    with pytest.raises(LookupError, match="load_entries"):
        await LocusConversationStore(handle).read_entry(entries[1].id)


async def test_a_rewritten_history_branches_off_where_it_differs(conversations: LocusConversationStore) -> None:
    await said(conversations, "alice", "one", "two")
    loaded = await conversations.load("alice")
    assert loaded is not None
    rewritten = replace(loaded, messages=[*loaded.messages[:1], response("Otherwise."), *turn("three")])
    rewritten.new_message_index = None
    new = await conversations.save(rewritten)
    assert len(new) == 3
    assert await kept(conversations, "alice") == ["one?", "Otherwise.", "three?", "three."]
    assert await _tips(conversations, "alice") == [["one?", "one.", "two?", "two."]]


async def test_a_conversation_begins_anew(conversations: LocusConversationStore) -> None:
    await said(conversations, "alice", "one")
    empty = await conversations.branch("alice", at=0, expected_revision=await _revision(conversations, "alice"))
    assert empty.messages == []
    empty.messages += turn("two")
    await conversations.save(empty)
    assert await kept(conversations, "alice") == ["two?", "two."]
    assert await _tips(conversations, "alice") == [["one?", "one."]]


@pytest.mark.parametrize("deleted", ["alice", "bob"])
async def test_shared_entries_survive_the_deletion_of_either(
    conversations: LocusConversationStore, handle: Checkpointer, deleted: str
) -> None:
    entries = await conversations.save(Conversation(conversation_id="alice", messages=turn("one")))
    await said(conversations, "alice", "two")
    forked = await conversations.fork("alice", at=2, new_conversation_id="bob", scope="x")
    assert texts(forked.messages) == ["one?", "one."]
    forked.messages += turn("three")
    await conversations.save(forked)
    await said(conversations, "alice", "four")
    await conversations.delete(deleted)
    again = LocusConversationStore(handle)
    expected = {"alice": ["one", "two", "four"], "bob": ["one", "three"]}
    (left,) = expected.keys() - {deleted}
    assert await kept(again, left) == [f"{name}{end}" for name in expected[left] for end in "?."]
    assert await again.load(deleted) is None
    for entry in entries:
        assert await again.read_entry(entry.id) == entry
        assert (await again.read_history(entry.id))[-1] == entry
    record = await again.read_record("bob")
    if record is not None:
        assert (record.forked_from, record.forked_at, record.scope) == ("alice", entries[-1].id, "x")


async def test_forks_that_cannot_be(conversations: LocusConversationStore) -> None:
    await said(conversations, "alice", "one")
    await said(conversations, "bob", "two")
    with pytest.raises(ConversationConflict):
        await conversations.fork("alice", new_conversation_id="bob")
    with pytest.raises(UserError, match="not in the store"):
        await conversations.fork("nobody")
    with pytest.raises(UserError, match="not in the store"):
        await conversations.fork("alice", source_scope="another")
    assert await kept(conversations, "bob") == ["two?", "two."]


async def test_a_fork_of_a_fork_and_of_a_branch(conversations: LocusConversationStore, handle: Checkpointer) -> None:
    await said(conversations, "alice", "one", "two")
    await conversations.branch("alice", at=2, expected_revision=await _revision(conversations, "alice"))
    record = await conversations.read_record("alice")
    assert record is not None
    tip = record.branches[0]
    await conversations.fork("alice", from_entry=tip, new_conversation_id="bob")
    await conversations.fork("bob", at=3, new_conversation_id="carol")
    await conversations.delete("alice")
    await conversations.delete("bob")
    again = LocusConversationStore(handle)
    assert await kept(again, "carol") == ["one?", "one.", "two?"]
    assert (await again.read_record("carol") or record).forked_from == "bob"
    with pytest.raises(LookupError):
        await again.read_entry(tip)


async def test_very_many_entries_at_once_are_found_too(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    """More than the metadata of one checkpoint names, in the first save and in a fork."""
    messages: list[ModelMessage] = [request(f"{number}") for number in range(2 * INDEXED + 50)]
    entries = await conversations.save(Conversation(conversation_id="alice", messages=messages))
    await conversations.fork("alice", new_conversation_id="bob")
    branched = await conversations.branch(
        "bob", at=INDEXED + 1, expected_revision=await _revision(conversations, "bob")
    )
    assert len(branched.messages) == INDEXED + 1
    for deleted in (None, "alice"):
        if deleted is not None:
            await conversations.delete(deleted)
        again = LocusConversationStore(handle)
        for place in (0, 1, INDEXED - 1, INDEXED, -1):
            assert await again.read_entry(entries[place].id) == entries[place]
    assert await handle.list_threads() == ["bob"]
    for entry in await handle.store.history("bob", None, None, None):
        assert entry.metadata.count('"entry:') <= INDEXED
    await conversations.delete("bob")
    assert await handle.list_threads() == []


async def test_an_index_of_a_write_that_never_came_points_at_nothing(
    conversations: LocusConversationStore, handle: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[ModelMessage] = [request(f"{number}") for number in range(INDEXED + 1)]
    save, calls = handle.store.save, 0

    async def killed(*args: object, **options: object) -> object:
        if options.get("namespace") == NAMESPACE:
            raise ConnectionAbortedError
        nonlocal calls
        calls += 1
        return await save(*args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(handle.store, "save", killed)
        with pytest.raises(ConnectionAbortedError):
            await conversations.save(Conversation(conversation_id="alice", messages=messages))
    assert calls == 2
    again = LocusConversationStore(handle)
    assert await again.load("alice") is None
    assert await again.list_conversations() == []
    named = (await handle.store.history("alice", None, None, None))[0].metadata
    entry_id = named.partition("entry:")[2].partition('"')[0]
    with pytest.raises(LookupError):
        await again.read_entry(entry_id)
    await said(again, "alice", "one")
    with pytest.raises(LookupError):
        await again.read_entry(entry_id)
    assert await kept(again, "alice") == ["one?", "one."]


async def test_every_point_can_be_loaded_forked_and_returned_to(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    await said(conversations, "alice", "one", "two", scope="x")
    newest, first = await conversations.history("alice", scope="x")
    assert (newest.messages, first.messages, newest.parent_id) == (4, 2, first.checkpoint_id)
    assert await conversations.history("alice", 1) == [newest]
    assert await conversations.history("alice", None, before=newest.checkpoint_id) == [first]
    assert await conversations.history("alice", scope="y") == []
    then = await conversations.load_at("alice", first.checkpoint_id)
    assert texts(then.messages) == ["one?", "one."]
    assert texts((await conversations.load_at("alice", newest.checkpoint_id, limit=1)).messages) == ["two."]
    with pytest.raises(ConversationConflict):
        await conversations.save(then)

    forked = await conversations.fork_at("alice", first.checkpoint_id, new_conversation_id="bob")
    forked.messages += turn("three")
    await conversations.save(forked)
    assert await kept(conversations, "bob") == ["one?", "one.", "three?", "three."]
    assert len((await conversations.fork_at("alice", first.checkpoint_id)).messages) == 2

    back = await conversations.rewind("alice", first.checkpoint_id, scope="x")
    back.messages += turn("four")
    await conversations.save(back)
    again = LocusConversationStore(handle)
    assert await kept(again, "alice") == ["one?", "one.", "four?", "four."]
    assert await _tips(again, "alice") == [["one?", "one.", "two?", "two."]]
    returned = await again.rewind("alice", newest.checkpoint_id)
    assert texts(returned.messages) == ["one?", "one.", "two?", "two."]
    assert await _tips(again, "alice") == [["one?", "one.", "four?", "four."]]


async def test_points_that_are_not_there(conversations: LocusConversationStore) -> None:
    await said(conversations, "alice", "one", scope="x")
    (point,) = await conversations.history("alice")
    for go_on in (conversations.load_at, conversations.fork_at, conversations.rewind):
        with pytest.raises(CheckpointNotFoundError):
            await go_on("alice", "never")
        with pytest.raises(UserError, match="not in the store"):
            await go_on("nobody", point.checkpoint_id)
    with pytest.raises(UserError, match="not in the store"):
        await conversations.rewind("alice", point.checkpoint_id, scope="y")
    with pytest.raises(ConversationConflict):
        await conversations.rewind("alice", point.checkpoint_id, expected_revision="older")
    assert len(await conversations.history("alice")) == 1


async def test_a_copy_of_the_thread_is_a_conversation(
    conversations: LocusConversationStore, handle: Checkpointer
) -> None:
    """Made by whatever copies threads: the command line, a move to another database."""
    await said(conversations, "alice", "one")
    await handle.copy_thread("alice", "bob")
    copied = await conversations.load("bob")
    assert copied is not None
    assert (copied.conversation_id, texts(copied.messages)) == ("bob", ["one?", "one."])
    copied.messages += turn("two")
    await conversations.save(copied)
    assert await kept(conversations, "alice") == ["one?", "one."]
    assert await kept(conversations, "bob") == ["one?", "one.", "two?", "two."]


@pytest.mark.parametrize("seed", range(2))
async def test_random_courses_end_as_with_the_store_of_the_framework(handle: Checkpointer, seed: int) -> None:
    random = Random(seed)
    ours: list[ConversationStore] = [LocusConversationStore(handle), LocusConversationStore(handle)]
    theirs = InMemoryConversationStore()
    names = ["a", "b", "c"]

    async def step(store: ConversationStore, verb: str, name: str, other: str, number: int, place: float) -> object:
        """Does the same on both: what may differ between them, ids and revisions, is looked up."""
        loaded = await store.load(name, limit=2 if verb == "window" else None)
        entries = await store.load_entries(name) or []
        record = await store.read_record(name)
        revision = record.revision if record else None
        at = int(place * (len(entries) + 1))
        try:
            if verb in ("append", "window"):
                conversation = loaded or Conversation(conversation_id=name)
                conversation.messages += turn(f"{number}")
                await store.save(conversation)
            elif verb == "rewrite" and loaded is not None:
                loaded.messages = [*loaded.messages[:at], *turn(f"{number}")]
                loaded.new_message_index = None
                await store.save(loaded)
            elif verb == "branch":
                await store.branch(name, at=at, expected_revision=revision)
            elif verb == "back" and record is not None and record.branches:
                tip = record.branches[int(place * len(record.branches))]
                await store.branch(name, from_entry=tip, expected_revision=revision)
            elif verb == "fork":
                await store.fork(name, at=at, new_conversation_id=other)
            elif verb == "delete":
                await store.delete(name)
        except (UserError, ConversationConflict) as error:
            return type(error)
        return None

    async def same(store: ConversationStore, *of: str) -> None:
        for each in of:
            assert await kept(store, each) == await kept(theirs, each), each
            assert await _tips(store, each) == await _tips(theirs, each), each
            assert await kept(store, each, 3) == await kept(theirs, each, 3), each

    for number in range(30):
        verb = random.choice(["append"] * 4 + ["window", "rewrite", "branch", "branch", "back", "fork", "delete"])
        name, other, place = random.choice(names), random.choice(names), random.random()
        answers = [await step(store, verb, name, other, number, place) for store in (random.choice(ours), theirs)]
        assert answers[0] == answers[1], (number, verb)
        await same(random.choice(ours), name, other)
        listed = [[one.conversation_id for one in await store.list_conversations()] for store in (ours[0], theirs)]
        assert listed[0] == listed[1], (number, verb)
    for store in (*ours, LocusConversationStore(handle)):
        await same(store, *names)
