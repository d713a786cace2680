"""Sessions and snapshots of Strands, for the suite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from locus.integrations.strands import LocusSessionRepository, LocusStorage, snapshot_key
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import check_id
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said

AGENT = "default"


class RepositorySessions(FrameworkSessions):
    """A message has the number that its writer gives it, so a stale one is refused."""

    title = "sessions"
    appends = Appends.CONDITIONAL
    batch = 1
    refused = (SessionException,)

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._sessions = LocusSessionRepository(store)

    async def create(self, session_id: str) -> None:
        await asyncio.to_thread(self._sessions.create_session, Session(session_id, SessionType.AGENT))
        await asyncio.to_thread(self._sessions.create_agent, session_id, SessionAgent(AGENT, {}, {}))

    async def revision(self, session_id: str) -> Any:
        points = await asyncio.to_thread(self._sessions.history, session_id, 1)
        return points[0].items if points else 0

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        (said,) = batch
        message = SessionMessage({"role": "user", "content": [{"text": said.text}]}, revision)
        await asyncio.to_thread(self._sessions.create_message, session_id, AGENT, message)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        offset = 0 if newest is None else -newest
        try:
            found = await asyncio.to_thread(self._sessions.list_messages, session_id, AGENT, None, offset)
        except SessionException:
            return []
        return [message.message["content"][0]["text"] for message in found]

    async def known(self, session_id: str) -> bool:
        return await asyncio.to_thread(self._sessions.read_session, session_id) is not None

    async def delete(self, session_id: str) -> None:
        await asyncio.to_thread(self._sessions.delete_session, session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await asyncio.to_thread(self._sessions.fork, session_id, new_session_id)

    async def close(self) -> None:
        self._sessions.close()


class StorageSnapshots(FrameworkSessions):
    """A snapshot has all messages, and each that was written stays in the history."""

    title = "snapshots"
    appends = Appends.SNAPSHOTS
    reads_to_append = True
    batch = 1  # a snapshot of three times as many messages would only take longer

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._storage = LocusStorage(store)
        self._seen: dict[str, tuple[str | None, list[str]]] = {}

    def _key(self, session_id: str) -> str:
        """The session manager refuses ids with slashes, so a program that has such ids has to quote them."""
        return snapshot_key(quote(check_id(session_id), safe=""))

    async def create(self, session_id: str) -> None:
        self._key(session_id)

    async def revision(self, session_id: str) -> Any:
        """What a session manager has in memory, which is read anew if somebody else has written."""
        newest = await self._newest(session_id)
        known, texts = self._seen.get(session_id, (None, []))
        return texts if known == newest else await self.read(session_id)

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        texts = [*revision, *(said.text for said in batch)]
        messages = [{"role": "user", "content": [{"text": text}]} for text in texts]
        snapshot = {"scope": "agent", "created_at": f"now {len(texts)}", "data": {"messages": messages, "state": {}}}
        data = json.dumps(snapshot, ensure_ascii=False).encode()
        await self._storage.write(self._key(session_id), data)
        self._seen[session_id] = (await self._newest(session_id), texts)

    async def _newest(self, session_id: str) -> str | None:
        points = await self._storage.history(self._key(session_id), 1)
        return points[0].checkpoint_id if points else None

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        if newest is not None:
            found = await self._storage.messages(self._key(session_id), newest)
            return [message["content"][0]["text"] for message in found]
        return _texts(await self._storage.read(self._key(session_id)))

    async def reachable(self, session_id: str) -> list[str]:
        key = self._key(session_id)
        points = await self._storage.history(key, None)
        found: set[str] = set()
        for point in points:
            found.update(_texts(await self._storage.read(key, checkpoint_id=point.checkpoint_id)))
        return sorted(found)

    async def known(self, session_id: str) -> bool:
        return self._key(session_id) in await self._storage.list(self._key(session_id))

    async def delete(self, session_id: str) -> None:
        await self._storage.delete(self._key(session_id))

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._storage.fork(self._key(session_id), self._key(new_session_id))

    async def close(self) -> None:
        await self._storage.close()


def _texts(data: bytes | None) -> list[str]:
    if data is None:
        return []
    return [message["content"][0]["text"] for message in json.loads(data)["data"]["messages"]]
