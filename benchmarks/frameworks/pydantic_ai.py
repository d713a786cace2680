"""Conversations of Pydantic AI. It brings no store that outlives the process.

A save is what a program does for a turn: it has the conversation that it saved last, and adds the messages of a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.turns import turn
from locus.integrations.pydantic_ai import LocusConversationStore
from locus.memory.backends import sqlite_checkpointer

Messages = list[ModelMessage]


class Conversations(Side):
    """Conversations in a store of the framework's kind."""

    def __init__(self, folder: Path, conversations: ConversationStore) -> None:
        super().__init__(folder)
        self._conversations = conversations
        self._revisions: dict[str, str | None] = {}

    async def begin(self, session_id: str) -> None:
        self._revisions[session_id] = None

    async def save(self, session_id: str, turn: Messages) -> None:
        # A window without any message, as a process has it that has only just read the revision.
        conversation = Conversation(
            conversation_id=session_id,
            messages=list(turn),
            revision=self._revisions[session_id],
            new_message_index=0,
        )
        await self._conversations.save(conversation)
        self._revisions[session_id] = conversation.revision

    async def save_many(self, session_id: str, turns: Sequence[Messages]) -> None:
        await self.save(session_id, [message for turn in turns for message in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        loaded = await self._conversations.load(session_id, limit=count)
        return [] if loaded is None else loaded.messages


class InMemory(Conversations):
    """The framework's own, for tests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, InMemoryConversationStore())

    def stored_bytes(self) -> int | None:
        return None


class Ours(Conversations):
    def __init__(self, folder: Path) -> None:
        self._store = sqlite_checkpointer(folder / "ours.db", durability="full")
        super().__init__(folder, LocusConversationStore(self._store))

    async def close(self) -> None:
        await self._store.close()


class PydanticAISubject(FrameworkSubject):
    name = "Pydantic AI"
    call = "`save`"
    in_memory = "`InMemoryConversationStore`"
    one_by_one = 1_000
    libraries = ("pydantic-ai-slim",)

    def turn(self, number: int) -> Messages:
        texts = turn(number)
        arguments = {"place": texts.place, "limit": 5}
        return [
            ModelRequest(parts=[UserPromptPart(content=texts.question)]),
            ModelResponse(
                parts=[
                    TextPart(content=texts.thought),
                    ToolCallPart(tool_name="look_up", args=arguments, tool_call_id=texts.call_id),
                ]
            ),
            ModelRequest(parts=[ToolReturnPart(tool_name="look_up", content=texts.result, tool_call_id=texts.call_id)]),
            ModelResponse(parts=[TextPart(content=texts.answer)]),
        ]

    def content(self, turn: Messages) -> int:
        dumped = ModelMessagesTypeAdapter.dump_python(turn, mode="json")
        return len(json.dumps(dumped, ensure_ascii=False, separators=(",", ":")).encode())

    def ours(self, folder: Path) -> Side:
        return Ours(folder)

    def floor(self, folder: Path) -> Side:
        return InMemory(folder)


SUBJECTS = [PydanticAISubject()]
