"""Sessions of the Claude Agent SDK, for the suite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import NAMESPACE_OID, uuid5

from claude_agent_sdk.types import SessionKey

from locus.integrations.claude_agent_sdk import LocusSessionStore
from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Retried, Said

PROJECT = "-srv-suite"
UUIDS = ("source", "fork", "forked", "there")


class ClaudeSessions(FrameworkSessions):
    """Entries have ids, and whoever appends names no revision."""

    appends = Appends.COMMUTING
    retried = Retried.ONCE

    _made: ClassVar[dict[str, str]] = {}
    """When each message was said: one that is sent again is the same entry, so it says the same time."""
    _last: ClassVar[datetime] = datetime.now(UTC)

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._sessions = LocusSessionStore(store)

    def _key(self, session_id: str) -> SessionKey:
        # The SDK forks sessions whose ids are UUIDs, as those of Claude Code are, and no others.
        name = str(uuid5(NAMESPACE_OID, session_id)) if session_id in UUIDS else session_id
        return {"project_key": PROJECT, "session_id": name}

    def _entry(self, said: Said) -> Any:
        if said.id not in self._made:
            type(self)._last = max(datetime.now(UTC), self._last + timedelta(milliseconds=1))
            self._made[said.id] = self._last.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message = {"role": "user", "content": said.text}
        return {"type": "user", "uuid": said.id, "timestamp": self._made[said.id], "message": message}

    async def create(self, session_id: str) -> None:
        """A session begins with its first entry."""

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        await self._sessions.append(self._key(session_id), [self._entry(said) for said in batch])

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        found: list[Any] = await self._sessions.load(self._key(session_id), last=newest) or []
        return [entry["message"]["content"] for entry in found if entry["type"] == "user"]

    async def known(self, session_id: str) -> bool:
        listed = await self._sessions.list_sessions(PROJECT)
        return self._key(session_id)["session_id"] in [each["session_id"] for each in listed]

    async def delete(self, session_id: str) -> None:
        await self._sessions.delete(self._key(session_id))

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._sessions.fork(self._key(session_id), new_session_id=self._key(new_session_id)["session_id"])

    async def close(self) -> None:
        await self._sessions.close()
