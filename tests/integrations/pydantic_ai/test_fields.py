"""Messages and records come back equal, whichever of their fields are missing, empty, or set to their defaults."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse

from locus.integrations.pydantic_ai import LocusConversationStore
from locus.integrations.pydantic_ai.codec import record_from, record_json
from tests.integrations.every_field import FEW, objects

pytestmark = pytest.mark.filterwarnings("ignore:`RetryPromptPart` is deprecated")

RECORDS: TypeAdapter[Any] = TypeAdapter(ConversationRecord)


def theirs(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The messages as the framework itself reads what it has written."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


@FEW
@given(st.lists(objects(ModelRequest) | objects(ModelResponse), min_size=1, max_size=2))
def test_messages_come_back_equal(messages: list[ModelMessage]) -> None:
    async def stored() -> list[ModelMessage]:
        conversations = LocusConversationStore("memory")
        await conversations.save(
            Conversation(conversation_id="c", messages=messages, revision=None, new_message_index=0)
        )
        loaded = await conversations.load("c")
        assert loaded is not None
        return list(loaded.messages)

    assert asyncio.run(stored()) == theirs(messages)


@FEW
@given(objects(ConversationRecord, conversation_id=st.just("c")))
def test_a_record_comes_back_equal(record: ConversationRecord) -> None:
    assert record_from("c", record_json(record)) == RECORDS.validate_json(RECORDS.dump_json(record))
