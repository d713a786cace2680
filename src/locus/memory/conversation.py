"""Conversation memory: messages by thread, with two methods.

This is the smallest contract that an agent can remember with. `ConversationMemory` fulfils it with any checkpointer. An
agent that gets the checkpointer itself keeps more than the messages, and survives a kill in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.registry import as_checkpointer


@runtime_checkable
class AgentCheckpointer(Protocol):
    """A memory for conversations: any object with these two methods."""

    async def load(self, thread_id: str) -> Sequence[Message]:
        """The conversation so far; empty for an unknown thread."""

    async def save(self, thread_id: str, messages: Sequence[Message]) -> None:
        """Replace the conversation by these messages."""


class InMemoryCheckpointer:
    """Keeps conversations in the memory of this process."""

    def __init__(self) -> None:
        self._threads: dict[str, tuple[Message, ...]] = {}

    async def load(self, thread_id: str) -> list[Message]:
        return list(self._threads.get(thread_id, ()))

    async def save(self, thread_id: str, messages: Sequence[Message]) -> None:
        self._threads[thread_id] = tuple(messages)

    async def clear(self, thread_id: str) -> None:
        """Forget a thread: the next message begins a new conversation."""
        self._threads.pop(thread_id, None)


class ConversationMemory:
    """A conversation memory on a checkpointer, a storage backend, or the store at a URL."""

    def __init__(self, checkpointer: Any) -> None:
        self._checkpointer = as_checkpointer(checkpointer)

    async def load(self, thread_id: str) -> list[Message]:
        state = await self._checkpointer.load(thread_id)
        return [] if state is None else list(state.messages)

    async def save(self, thread_id: str, messages: Sequence[Message]) -> None:
        state = await self._checkpointer.load(thread_id) or AgentState()
        await self._checkpointer.save(state.with_messages_replaced(messages), thread_id)

    async def clear(self, thread_id: str) -> None:
        await self._checkpointer.delete(thread_id)
