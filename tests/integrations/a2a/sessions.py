"""Sessions of A2A's tasks, for the suite: each save hands over the whole task, with its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import Message, Part, Role, Task

from locus.integrations.a2a import LocusTaskStore
from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said

CALL = ServerCallContext()


class TaskSessions(FrameworkSessions):
    """A task is saved whenever it has changed, by whoever runs it. A2A has no verb for a fork."""

    appends = Appends.SNAPSHOTS
    forks = False
    reads_to_append = True
    reads_newest = False

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._tasks = LocusTaskStore(store)

    async def create(self, session_id: str) -> None:
        """A task begins with its first save."""

    async def revision(self, session_id: str) -> Task:
        return await self._tasks.get(session_id, CALL) or Task(id=session_id)

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        said = [Message(message_id=each.id, role=Role.ROLE_USER, parts=[Part(text=each.text)]) for each in batch]
        task = Task(id=revision.id, history=[*revision.history, *said])
        await self._tasks.save(task, CALL)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        texts = _texts(await self._tasks.get(session_id, CALL))
        return texts if newest is None else texts[-newest:]

    async def reachable(self, session_id: str) -> list[str]:
        versions = await self._tasks.versions(session_id, CALL, None)
        return [text for task in versions.values() for text in _texts(task)]

    async def known(self, session_id: str) -> bool:
        return await self._tasks.get(session_id, CALL) is not None

    async def delete(self, session_id: str) -> None:
        await self._tasks.delete(session_id, CALL)


def _texts(task: Task | None) -> list[str]:
    return [] if task is None else [message.parts[0].text for message in task.history]
