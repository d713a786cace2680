"""Sessions of the OpenAI Agents SDK, for the suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locus.integrations.openai_agents import LocusSession, list_sessions
from locus.testing.framework_sessions import Appends, FrameworkSessions, Retried, Said


class OpenAISessions(FrameworkSessions):
    """Items have no ids, and a session begins with its first item."""

    imports = ("agents", "agents.memory.session_settings")
    appends = Appends.COMMUTING
    retried = Retried.AGAIN

    def _session(self, session_id: str) -> LocusSession:
        return LocusSession(session_id, self.store)

    async def create(self, session_id: str) -> None:
        self._session(session_id)

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        await self._session(session_id).add_items([{"role": "user", "content": said.text} for said in batch])

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        items: list[Any] = await self._session(session_id).get_items(newest)
        return [item["content"] for item in items]

    async def known(self, session_id: str) -> bool:
        return session_id in await list_sessions(self.store, None)

    async def delete(self, session_id: str) -> None:
        await self._session(session_id).clear_session()

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._session(session_id).fork(new_session_id)
