"""Conversations of Pydantic AI, for the suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from locus.integrations.pydantic_ai import LocusConversationStore
from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said


class PydanticAISessions(FrameworkSessions):
    """A conversation begins with its first save, and a save names the revision that it continues."""

    appends = Appends.CONDITIONAL
    refused = (ConversationConflict,)

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._conversations = LocusConversationStore(store)

    async def create(self, session_id: str) -> None:
        """Nothing to do."""

    async def revision(self, session_id: str) -> Any:
        loaded = await self._conversations.load(session_id, limit=0)
        return None if loaded is None else loaded.revision

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(content=said.text)]) for said in batch]
        await self._conversations.save(
            Conversation(conversation_id=session_id, messages=messages, revision=revision, new_message_index=0)
        )

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        loaded = await self._conversations.load(session_id, limit=newest)
        if loaded is None:
            return []
        return [str(part.content) for message in loaded.messages for part in message.parts if hasattr(part, "content")]

    async def known(self, session_id: str) -> bool:
        return await self._conversations.load(session_id, limit=0) is not None

    async def delete(self, session_id: str) -> None:
        await self._conversations.delete(session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._conversations.fork(session_id, new_conversation_id=new_session_id)

    async def close(self) -> None:
        await self._conversations.close()
