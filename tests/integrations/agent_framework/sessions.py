"""The framework's three kinds of sessions, for the suite. The framework is imported late, because that takes long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said

if TYPE_CHECKING:
    from agent_framework import AgentSession

    from locus.integrations.agent_framework import LocusCheckpointStorage

WORKFLOW = "talk"
IMPORTS = ("agent_framework", "locus.integrations.agent_framework")


class Histories(FrameworkSessions):
    """Messages of a history provider. A session begins with its first message."""

    title = "history"
    imports = IMPORTS
    appends = Appends.COMMUTING

    def __init__(self, store: Checkpointer) -> None:
        from locus.integrations.agent_framework import LocusHistoryProvider

        super().__init__(store)
        self._provider = LocusHistoryProvider(store)

    async def create(self, session_id: str) -> None:
        """Nothing to do."""

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        from agent_framework import Message

        messages = [Message("user", [said.text], message_id=said.id) for said in batch]
        await self._provider.save_messages(session_id, messages)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        return [message.text for message in await self._provider.get_messages(session_id, limit=newest)]

    async def known(self, session_id: str) -> bool:
        return bool(await self._provider.history(session_id, 1))

    async def delete(self, session_id: str) -> None:
        await self._provider.delete(session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._provider.fork(session_id, new_session_id)


class AgentSessions(FrameworkSessions):
    """Sessions of a session store: a list in their state. The framework hands over all of it each time."""

    title = "sessions"
    imports = IMPORTS
    appends = Appends.CONDITIONAL
    reads_to_append = True

    def __init__(self, store: Checkpointer) -> None:
        from locus.integrations.agent_framework import LocusAgentSessionStore

        super().__init__(store)
        self._sessions = LocusAgentSessionStore(store)

    async def create(self, session_id: str) -> None:
        """Nothing to do."""

    async def revision(self, session_id: str) -> AgentSession:
        from agent_framework import AgentSession

        return await self._sessions.get(session_id) or AgentSession(session_id=session_id)

    async def append(self, session_id: str, batch: Sequence[Said], revision: AgentSession) -> None:
        revision.state["said"] = [*revision.state.get("said", []), *(said.text for said in batch)]
        await self._sessions.set(session_id, revision)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        if newest is not None:
            return await self._sessions.newest(session_id, newest, "said")
        session = await self._sessions.get(session_id)
        return [] if session is None else list(session.state["said"])

    async def known(self, session_id: str) -> bool:
        return await self._sessions.get(session_id) is not None

    async def delete(self, session_id: str) -> None:
        await self._sessions.delete(session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._sessions.fork(session_id, new_session_id)


class Workflows(FrameworkSessions):
    """Checkpoints of workflows: a storage for each session, and its state in every checkpoint."""

    title = "checkpoints"
    imports = IMPORTS
    appends = Appends.SNAPSHOTS
    reads_to_append = True
    reads_newest = False

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._storages: dict[str, LocusCheckpointStorage] = {}

    def _storage(self, session_id: str) -> LocusCheckpointStorage:
        from locus.integrations.agent_framework import LocusCheckpointStorage

        if session_id not in self._storages:
            self._storages[session_id] = LocusCheckpointStorage(self.store, session_id)
        return self._storages[session_id]

    async def create(self, session_id: str) -> None:
        """Nothing to do."""

    async def revision(self, session_id: str) -> tuple[str | None, list[str]]:
        latest = await self._storage(session_id).get_latest(workflow_name=WORKFLOW)
        return (None, []) if latest is None else (latest.checkpoint_id, latest.state["said"])

    async def append(self, session_id: str, batch: Sequence[Said], revision: tuple[str | None, list[str]]) -> None:
        from agent_framework import WorkflowCheckpoint

        previous, texts = revision
        await self._storage(session_id).save(
            WorkflowCheckpoint(
                WORKFLOW,
                "hash",
                checkpoint_id=batch[-1].id,
                previous_checkpoint_id=previous,
                timestamp="2026-01-01T00:00:00+00:00",
                state={"said": [*texts, *(said.text for said in batch)]},
            )
        )

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        _, texts = await self.revision(session_id)
        return texts if newest is None else texts[-newest:]

    async def reachable(self, session_id: str) -> list[str]:
        found = await self._storage(session_id).list_checkpoints(workflow_name=WORKFLOW)
        return [text for checkpoint in found for text in checkpoint.state["said"]]

    async def known(self, session_id: str) -> bool:
        return await self._storage(session_id).get_latest(workflow_name=WORKFLOW) is not None

    async def delete(self, session_id: str) -> None:
        await self._storage(session_id).clear()

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._storage(session_id).fork(new_session_id)
