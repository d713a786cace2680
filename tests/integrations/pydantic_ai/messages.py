"""Conversations in short: a text for each message."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationEntry, ConversationStore
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart


def request(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(content=text)])


def response(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(content=text)])


def turn(text: str) -> list[ModelMessage]:
    return [request(f"{text}?"), response(f"{text}.")]


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages for part in message.parts if hasattr(part, "content")]


def entry_texts(entries: Sequence[ConversationEntry]) -> list[str]:
    return texts([entry.message for entry in entries])


async def said(store: ConversationStore, conversation_id: str, *names: str, scope: str | None = None) -> Conversation:
    """Save a turn for each name, one after the other, each from what is stored."""
    conversation = Conversation(conversation_id=conversation_id)
    for name in names:
        conversation = await store.load(conversation_id, limit=0) or Conversation(conversation_id=conversation_id)
        conversation.messages += turn(name)
        await store.save(conversation, scope=scope)
    return conversation


async def kept(store: ConversationStore, conversation_id: str, limit: int | None = None) -> list[str] | None:
    loaded = await store.load(conversation_id, limit=limit)
    return None if loaded is None else texts(loaded.messages)
