"""Sessions of llmfy's flows, for the suite: each checkpoint is handed over with the whole state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from llmfy.flow_engine.checkpointer.base_checkpointer import Checkpoint, CheckpointMetadata

from locus.integrations.llmfy import LlmfyCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said


class Latest(NamedTuple):
    """The newest checkpoint of a session, and the messages of its state."""

    checkpoint_id: str | None
    messages: list[dict[str, str]]


class LlmfySessions(FrameworkSessions):
    """llmfy has no verb for a fork, and none for a part of a state."""

    appends = Appends.SNAPSHOTS
    forks = False
    reads_to_append = True
    reads_newest = False

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._flows = LlmfyCheckpointer(store)
        self._saved: dict[str, Latest] = {}

    async def create(self, session_id: str) -> None:
        """A session begins with its first checkpoint."""

    async def revision(self, session_id: str) -> Latest:
        """A running flow has its state; it is loaded only if somebody else has saved since."""
        newest = await self._flows.history(session_id, 1)
        saved = self._saved.get(session_id)
        if saved is not None and newest and newest[0].checkpoint_id == saved.checkpoint_id:
            return saved
        loaded = await self._flows.load(session_id)
        return Latest(None, []) if loaded is None else Latest(loaded.metadata.checkpoint_id, loaded.state["messages"])

    async def append(self, session_id: str, batch: Sequence[Said], revision: Latest) -> None:
        messages = [*revision.messages, *({"id": said.id, "text": said.text} for said in batch)]
        about = CheckpointMetadata(batch[-1].id, session_id, "run", NOW, "node", "__start__", 0, ["messages"], 1, None)
        await self._flows.save(Checkpoint(about, {"messages": messages}))
        self._saved[session_id] = Latest(batch[-1].id, messages)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        loaded = await self._flows.load(session_id)
        texts = [] if loaded is None else _texts(loaded.state)
        return texts if newest is None else texts[-newest:]

    async def reachable(self, session_id: str) -> list[str]:
        return [text for each in await self._flows.list(session_id, 1_000) for text in _texts(each.state)]

    async def known(self, session_id: str) -> bool:
        return await self._flows.load(session_id) is not None

    async def delete(self, session_id: str) -> None:
        await self._flows.delete(session_id)


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _texts(state: Any) -> list[str]:
    return [message["text"] for message in state["messages"]]
