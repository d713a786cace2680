"""`LocusMemoryService`: ADK's memory of what was said in earlier sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types

from locus.memory.long_term import Facts, Found, LongTermMemory, Put
from locus.memory.long_term.facts import text_of

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

MOST_FOUND = 10
"""The most memories that a search returns, as in ADK's own service."""


class LocusMemoryService(BaseMemoryService):
    """What was said in the sessions of a user, in a long-term memory, found by words and, with `embed=`, by meaning.

    Each app has memories of its own. With `shared`, they are what `("users", user_id, "memories")` holds, where other
    apps and frameworks keep what they know about the user.
    """

    def __init__(self, memory: LongTermMemory, *, shared: bool = False) -> None:
        self._memory = memory
        self._shared = shared

    async def add_session_to_memory(self, session: Session) -> None:
        """Keep what each event of a session says. Those that are there already stay as they are."""
        await self._add(session.app_name, session.user_id, session.events, session.id, {})

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Keep what these events say."""
        await self._add(app_name, user_id, events, session_id, dict(custom_metadata or {}))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Keep facts. One that is there already changes nothing."""
        facts = self._facts(app_name, user_id)
        for memory in memories:
            if text := _text_of(memory.content):
                author = {} if memory.author is None else {"author": memory.author}
                await facts.remember(text, metadata={**memory.custom_metadata, **dict(custom_metadata or {}), **author})

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """The memories that fit a query best."""
        found = await self._facts(app_name, user_id).recall(query, limit=MOST_FOUND)
        return SearchMemoryResponse(memories=list(map(_entry, found)))

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Remove a memory, with its history. If its session is added again, it comes back."""
        if memory_id:
            await self._facts(app_name, user_id).forget(memory_id)

    async def _add(
        self, app_name: str, user_id: str, events: Iterable[Event], session_id: str | None, metadata: dict[str, Any]
    ) -> None:
        memory = self._facts(app_name, user_id).memory
        said = {event.id: (event, text) for event in events if (text := _text_of(event.content))}
        there = await memory.get_batch(((), key) for key in said)
        await memory.put_batch(
            Put(
                (),
                key,
                {"text": text, "said_at": datetime.fromtimestamp(event.timestamp, UTC).isoformat()},
                {**metadata, "author": event.author},
                index=["text"],
                source=session_id,
            )
            for (key, (event, text)), old in zip(said.items(), there, strict=True)
            if old is None
        )

    def _facts(self, app_name: str, user_id: str) -> Facts:
        return Facts(self._memory if self._shared else self._memory.scoped(("apps", app_name)), user_id)


def _text_of(content: types.Content | None) -> str:
    parts = content.parts if content is not None and content.parts else []
    return "\n".join(part.text for part in parts if part.text and not part.thought).strip()


def _entry(found: Found) -> MemoryEntry:
    said_at = found.value.get("said_at") if isinstance(found.value, dict) else None
    return MemoryEntry(
        id=found.key,
        content=types.Content(role="user", parts=[types.Part(text=text_of(found))]),
        author=found.metadata.get("author"),
        timestamp=said_at or found.updated_at.isoformat(),
        custom_metadata=found.metadata,
    )
