"""Conversation memory: messages by thread, with two methods.

The smallest contract that an agent can remember with. `ConversationMemory` makes one of any checkpointer. An agent that
is given the checkpointer itself keeps more than the messages, and survives a kill in mid-run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.registry import as_checkpointer


@runtime_checkable
class AgentCheckpointer(Protocol):
    """Keeps conversations. Any object with these two methods is one."""

    async def load(self, thread_id: str) -> Sequence[Message]:
        """The conversation so far; empty for a thread that is not known."""

    async def save(self, thread_id: str, messages: Sequence[Message]) -> None:
        """Keep the whole updated conversation."""


class InMemoryCheckpointer:
    """Conversations in the memory of this process."""

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
    """Any checkpointer as a conversation memory; also a storage backend, or a URL."""

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
