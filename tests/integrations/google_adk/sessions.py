"""Sessions of Google ADK, for the suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from locus.integrations.google_adk.sessions import LocusSessionService
from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said

ALICE: Any = {"app_name": "shop", "user_id": "alice"}


class ADKSessions(FrameworkSessions):
    """An append is one event. The revision is a session as ADK's runner loads it, here without its events."""

    appends = Appends.CONDITIONAL
    batch = 1
    refused = (StaleSessionError,)

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._service = LocusSessionService(store)

    async def create(self, session_id: str) -> None:
        await self._service.create_session(**ALICE, session_id=session_id)

    async def revision(self, session_id: str) -> Session | None:
        config = GetSessionConfig(num_recent_events=0)
        return await self._service.get_session(**ALICE, session_id=session_id, config=config)

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        session = revision if revision is not None else await self.revision(session_id)
        if session is None:
            session = await self._service.create_session(**ALICE, session_id=session_id)
        for said in batch:
            content = types.Content(role="user", parts=[types.Part(text=said.text)])
            event = Event(id=said.id, invocation_id="i", author="user", timestamp=1.0, content=content)
            # A copy, as each of two writers has one.
            await self._service.append_event(session.model_copy(deep=True), event)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        config = GetSessionConfig(num_recent_events=newest)
        session = await self._service.get_session(**ALICE, session_id=session_id, config=config)
        events = session.events if session is not None else []
        return [event.content.parts[0].text or "" for event in events if event.content and event.content.parts]

    async def known(self, session_id: str) -> bool:
        return await self.revision(session_id) is not None

    async def delete(self, session_id: str) -> None:
        await self._service.delete_session(**ALICE, session_id=session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._service.fork_session(**ALICE, session_id=session_id, new_session_id=new_session_id)
