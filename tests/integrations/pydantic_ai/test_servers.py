"""Conversations on every kind of server: what a server could get wrong."""

from __future__ import annotations

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict

from locus.integrations.pydantic_ai import LocusConversationStore
from locus.testing.stores import TestStore
from tests.integrations.pydantic_ai.messages import entry_texts, kept, said, turn


async def test_conversations_on_a_server(server_store: TestStore) -> None:
    async with server_store.open() as first, server_store.open() as second:
        one, another = LocusConversationStore(first), LocusConversationStore(second)
        entries = await one.save(Conversation(conversation_id="alice/ä", messages=turn("one")), scope="x")
        await said(another, "alice/ä", "two", scope="x")
        await said(one, "bob", "three", scope="y")
        assert await kept(one, "alice/ä", 3) == ["one.", "two?", "two."]
        for entry in entries:  # by the index that was written with them
            assert await another.read_entry(entry.id) == entry
            assert (await another.read_history(entry.id, limit=1)) == [entry]
        assert [record.conversation_id for record in await another.list_conversations(scope="x")] == ["alice/ä"]
        assert {record.conversation_id for record in await another.list_conversations()} == {"alice/ä", "bob"}

        record = await one.read_record("alice/ä")
        assert record is not None
        branched = await one.branch("alice/ä", at=1, expected_revision=record.revision)
        with pytest.raises(ConversationConflict):
            await another.branch("alice/ä", at=1, expected_revision=record.revision)
        branched.messages += turn("four")
        await one.save(branched)
        assert await kept(another, "alice/ä") == ["one?", "four?", "four."]
        record = await another.read_record("alice/ä")
        assert record is not None
        assert entry_texts(await another.read_history(record.branches[0]))[1:] == ["one.", "two?", "two."]

        points = await another.history("alice/ä", None)
        assert [point.messages for point in points] == [3, 1, 4, 2]
        await another.fork_at("alice/ä", points[-1].checkpoint_id, new_conversation_id="carol")
        await another.delete("alice/ä")
        assert await one.load("alice/ä") is None
        assert await first.list_threads() == ["bob", "carol"]
        assert await kept(one, "carol") == ["one?", "one."]
        for entry in entries:
            assert await LocusConversationStore(first).read_entry(entry.id) == entry
